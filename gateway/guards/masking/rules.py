r"""The rules: what is found in a text, and what its placeholders are called.

A rule finds a value by what the value itself is, never by what stands around it: put back in another place, it is found
again. So a password is masked together with its URL. Each pattern that is built in takes time in proportion to the
text: what repeats is bounded, or does not give back. Patterns of operators run by RE2, which has no other way.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.config.files import ConfigurationError
from gateway.config.guards import MaskingSettings
from gateway.guards.masking.checks import card_length, iban_length, ip_length, phone_length, secret_length

EXTRA = "context-gateway[masking]"
LONGEST = 10_000
"""Characters of a value that a rule of the operator's own may find; a longer match is left alone."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Finds values. `kind` names their placeholders; `hint` is in every text in which there is one; `length` says how
    much of a match counts, 0: none of it."""

    kind: str
    pattern: Any
    length: Callable[[str], int] = len
    hint: str = ""
    is_short: bool = False
    """A match has an end: where it is none, another may begin within it."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where values are, from the left, not overlapping."""
        if self.hint and self.hint not in text:
            return
        at = 0
        while match := self.pattern.search(text, at):
            length = self.length(match.group())
            if length:
                yield match.start(), match.start() + length
                at = match.start() + length
            else:
                at = match.start() + 1 if self.is_short else match.end()


def _of(kind: str, pattern: str, length: Callable[[str], int] = len, hint: str = "", flags: int = 0) -> Rule:
    return Rule(kind, re.compile(pattern, flags), length, hint)


def _number(kind: str, pattern: str, length: Callable[[str], int], hint: str = "") -> Rule:
    return Rule(kind, re.compile(pattern), length, hint, is_short=True)


BEARER = r"(?<![A-Za-z])(?:Bearer|Basic|Token) {1,4}[A-Za-z0-9._~+/=-]{16,}+"
HEX = r"[0-9A-Fa-f]{0,4}"
KEYS = "|".join(
    (
        r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+",
        r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Z0-9])",
        r"gh[pousr]_[A-Za-z0-9]{20,}+",
        r"github_pat_[A-Za-z0-9_]{20,}+",
        r"gl(?:pat|rt|dt)-[A-Za-z0-9_-]{20,}+",
        r"xox[a-z]-[A-Za-z0-9-]{10,}+",
        r"AIza[A-Za-z0-9_-]{35}",
        r"ya29\.[A-Za-z0-9_-]{20,}+",
        r"hf_[A-Za-z0-9]{30,}+",
        r"(?:npm|dop_v1|shpat|sq0atp)[_-][A-Za-z0-9]{30,}+",
        r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+",
    )
)
CARD = r"(?<!\d)(?:\d{13,19}|\d{4}[ -]\d{6}[ -]\d{5}|\d{4}(?:[ -]\d{4}){2}[ -]\d{1,4}(?:[ -]\d{1,3})?)(?!\d)"
PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=:,.\s]|\\[nrt]|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?"
)
BUILT_IN: dict[str, Sequence[Rule]] = {
    "private_key": (_of("PRIVATE_KEY", PEM, hint="PRIVATE KEY-----"),),
    "url": (
        _of(
            "URL",
            r"""[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@"'<>]{0,100}:[^\s/@"'<>]{1,200}@[^\s"'<>]{1,300}(?<![.,;:!?)])""",
            hint="://",
        ),
    ),
    "password": (
        _of(
            "PASSWORD",
            r"""(?<![A-Za-z0-9])(?:password|passwd|pwd)=[^\s"';&<>]{1,200}(?<![.,;:!?)])""",
            hint="=",
            flags=re.IGNORECASE,
        ),
    ),
    "token": (_of("TOKEN", BEARER, secret_length, flags=re.IGNORECASE),),
    "jwt": (_of("JWT", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", hint="eyJ"),),
    "key": (_of("KEY", rf"(?<![A-Za-z0-9])(?:{KEYS})", secret_length),),
    "email": (
        _of("EMAIL", r"[\w.+%-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])", hint="@"),
    ),
    "iban": (_number("IBAN", r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?![A-Za-z0-9])", iban_length),),
    "card": (_number("CARD", CARD, card_length),),
    "ssn": (_of("SSN", r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])", hint="-"),),
    "phone": (
        _number("PHONE", r"(?<![\w+])\+[1-9](?:[ .()-]{0,2}\d){7,14}(?!\d)", phone_length, hint="+"),
        _of("PHONE", r"(?<![\w.-])(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[.-])[2-9]\d{2}[.-]\d{4}(?![\w-])"),
    ),
    "ip": (
        _number("IP", rf"(?<![\w:])(?:{HEX}:){{2,7}}{HEX}(?![\w:.])", ip_length, hint=":"),
        _number("IP", r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d)", ip_length, hint="."),
    ),
}


def rules_of(settings: MaskingSettings) -> tuple[Rule, ...]:
    """The operator's own rules, then those that are built in.

    Raises:
        ConfigurationError: a pattern cannot be used, or the package that runs it is not installed.
    """
    own = tuple(_own(each.name, each.pattern, n) for n, each in enumerate(settings.custom))
    return (*own, *(rule for name, rules in BUILT_IN.items() if name in settings.rules for rule in rules))


def _own(kind: str, pattern: str, number: int) -> Rule:
    where = f"masking.custom[{number}].pattern"
    try:
        import re2
    except ImportError:
        raise ConfigurationError(f"{where}: needs a package that is not installed (re2): install {EXTRA}") from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigurationError(f"{where}: {error.args[0] if error.args else error}") from None
    if compiled.search("") is not None:
        raise ConfigurationError(f"{where}: matches an empty text")
    return Rule(kind, compiled, lambda text: len(text) if len(text) <= LONGEST else 0)
