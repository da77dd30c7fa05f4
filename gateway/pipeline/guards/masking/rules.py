r"""The rules: what is found in a text, and what its placeholders are called.

A rule finds a value by what the value itself is, never by what stands around it: put back in another place, it is found
again. So a password is masked together with its URL. Each pattern that is built in takes time in proportion to the
text: what repeats is bounded, or does not give back. Patterns of operators run by RE2, which has no other way.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.setting_sections import MaskingSettings

# Whether what looks like a number of a card, an account or an address is one.

CARD_DIGITS = range(13, 20)
CARD_STARTS = "23456"
IBAN_LENGTHS = range(15, 35)
LETTER_DIGITS = {ord("A") + n: str(10 + n) for n in range(26)}
HARMLESS_IPS = ("0.0.0.0", "255.255.255.255")  # noqa: S104 - not to listen on
PHONE_DIGITS = range(8, 16)
RULE_SEPARATOR = re.compile(r"[ -]")


def card_length(text: str) -> int:
    """How much of it is the number of a card, by Luhn's sum; 0: nothing. It may end at a blank or hyphen."""
    for end in (len(text), *(found.start() for found in reversed(list(RULE_SEPARATOR.finditer(text))))):
        digits = RULE_SEPARATOR.sub("", text[:end])
        if len(digits) in CARD_DIGITS and digits[0] in CARD_STARTS and _luhn(digits):
            return end
    return 0


def iban_length(text: str) -> int:
    """How much of it is an IBAN, by its checksum; 0: nothing. It may end at a blank: one pass, as each end's remainder
    follows from that of the end before."""
    found, value, head, end = 0, 0, int(text[:4].translate(LETTER_DIGITS)), -1
    for blanks, group in enumerate(text.split(" ")):
        end += len(group) + 1
        if digits := group[0 if blanks else 4 :].translate(LETTER_DIGITS):
            value = (value * 10 ** len(digits) + int(digits)) % 97
        if end - blanks in IBAN_LENGTHS and (value * 10**6 + head) % 97 == 1:  # country and check digits come last
            found = end
    return found


def ip_length(text: str) -> int:
    """The length of an address that may tell something; 0 for loopback, and for what is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return 0
    if address.is_loopback or text in HARMLESS_IPS:
        return 0
    # `a::b` is more often a name in a program.
    return 0 if address.version == 6 and len(list(filter(None, text.split(":")))) < 3 else len(text)


def phone_length(text: str) -> int:
    """The length of a number that people may have."""
    return len(text) if sum(map(str.isdigit, text)) in PHONE_DIGITS else 0


def secret_length(text: str) -> int:
    """The length of what is random enough: words with hyphens have no digits."""
    return len(text) if any(map(str.isdigit, text)) else 0


def _luhn(digits: str) -> bool:
    total = 0
    for place, sign in enumerate(reversed(digits)):
        digit = int(sign) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


EXTRA = "context-gateway[masking]"
MAX_LOOKBEHIND_CHARS = 64
"""Characters of a value that may stand before what it is found by."""
LONGEST = 10_000
"""Characters of a value that a rule of the operator's own may find; a longer match is left alone."""


@dataclass(frozen=True, slots=True)
class MaskingRule:
    """Finds values. `kind` names their placeholders; `length` says how much of a match counts, 0: none of it. One of
    `hints`, and what `gate` finds, are in every text in which there is a value: they are looked for first, as that is
    quick."""

    kind: str
    pattern: Any
    length: Callable[[str], int] = len
    hints: tuple[str, ...] = ()
    gate: re.Pattern[str] | None = None
    is_short: bool = False
    """A match has an end: where it is none, another may begin within it."""
    before: re.Pattern[str] | None = None
    """What must stand before a match, and belongs to the value; it ends with `\\Z`."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where values are, from the left, not overlapping."""
        if self.hints and not any(hint in text for hint in self.hints):
            return
        if self.gate is not None and not self.gate.search(text):
            return
        at = 0
        while match := self.pattern.search(text, at):
            start = match.start()
            if self.before is not None:
                found = self.before.search(text, max(at, start - MAX_LOOKBEHIND_CHARS), start)
                start = found.start() if found else match.end()
            length = self.length(text[start : match.end()])
            if length:
                yield start, start + length
                at = start + length
            else:
                at = match.start() + 1 if self.is_short else match.end()


def _of(
    kind: str, pattern: str, length: Callable[[str], int] = len, *hints: str, gate: str = "", flags: int = 0
) -> MaskingRule:
    return MaskingRule(kind, re.compile(pattern, flags), length, hints, re.compile(gate) if gate else None)


def _number(kind: str, pattern: str, length: Callable[[str], int], *hints: str, gate: str = "") -> MaskingRule:
    return MaskingRule(kind, re.compile(pattern), length, hints, re.compile(gate) if gate else None, is_short=True)


# Where a pattern begins with signs of one kind, these are sought first, which is quick: so what may not stand before
# a value is looked at behind its first sign.
BEARER = r"(?<![A-Za-z])(?:Bearer|Basic|Token) {1,4}[A-Za-z0-9._~+/=-]{16,}+"
HEX = r"[0-9A-Fa-f]{0,4}"
KEYS = {
    ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"): r"[spr]k[-_][A-Za-z0-9_-]{16,}+",
    ("AKIA", "ASIA"): r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Z0-9])",
    ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"): r"gh[pousr]_[A-Za-z0-9]{20,}+",
    ("github_pat_",): r"github_pat_[A-Za-z0-9_]{20,}+",
    ("glpat-", "glrt-", "gldt-"): r"gl(?:pat|rt|dt)-[A-Za-z0-9_-]{20,}+",
    ("xox",): r"xox[a-z]-[A-Za-z0-9-]{10,}+",
    ("AIza",): r"AIza[A-Za-z0-9_-]{35}",
    ("ya29.",): r"ya29\.[A-Za-z0-9_-]{20,}+",
    ("hf_",): r"hf_[A-Za-z0-9]{30,}+",
    ("npm_", "dop_v1_", "shpat_", "sq0atp-"): r"(?:npm|dop_v1|shpat|sq0atp)[_-][A-Za-z0-9]{30,}+",
    ("SG.",): r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+",
}
CARD = r"\d(?<!\d\d)(?:\d{12,18}|\d{3}[ -]\d{6}[ -]\d{5}|\d{3}(?:[ -]\d{4}){2}[ -]\d{1,4}(?:[ -]\d{1,3})?)(?!\d)"
PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=:,.\s]|\\[nrt]|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?"
)
CREDENTIALS = r"""://[^\s:/@"'<>]{0,100}:[^\s/@"'<>]{1,200}@"""
AMERICAN = r"[(2-9](?<![\w.-][(2-9])(?:(?<=\()[2-9]\d{2}\) ?|(?<=\d)\d{2}[.-])[2-9]\d{2}[.-]\d{4}(?![\w-])"
URL = rf"""[A-Za-z][A-Za-z0-9+.-]{{1,20}}{CREDENTIALS}[^\s"'<>]{{1,300}}(?<![.,;:!?)])"""
PASSWORD = r"""(?<![A-Za-z0-9])(?:password|passwd|pwd)=[^\s"';&<>]{1,200}(?<![.,;:!?)])"""  # noqa: S105 - a pattern
DOMAIN = r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
BUILT_IN: dict[str, Sequence[MaskingRule]] = {
    "private_key": (_of("PRIVATE_KEY", PEM, len, "PRIVATE KEY-----"),),
    "url": (_of("URL", URL, len, "://", gate=CREDENTIALS),),
    "password": (_of("PASSWORD", PASSWORD, len, "=", flags=re.IGNORECASE),),
    "token": (_of("TOKEN", BEARER, secret_length, gate=r" [A-Za-z0-9._~+/=-]{16}", flags=re.IGNORECASE),),
    "jwt": (
        _of("JWT", r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", len, "eyJ"),
    ),
    "key": tuple(_of("KEY", rf"(?<![A-Za-z0-9])(?:{each})", secret_length, *hints) for hints, each in KEYS.items()),
    "email": (MaskingRule("EMAIL", re.compile(DOMAIN), before=re.compile(r"[\w.+%-]{1,64}\Z")),),
    "iban": (_number("IBAN", r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?: ?[A-Z0-9]){11,30}(?![A-Za-z0-9])", iban_length),),
    "card": (_number("CARD", CARD, card_length),),
    "ssn": (_of("SSN", r"\d(?<![\d-].)(?<!9)\d{2}-(?<!000-)(?<!666-)(?!00)\d{2}-(?!0000)\d{4}(?![\d-])", len, "-"),),
    "phone": (
        _number("PHONE", r"\+(?<![\w+].)[1-9](?:[ .()-]{0,2}\d){7,14}(?!\d)", phone_length, "+"),
        _of("PHONE", AMERICAN),
    ),
    "ip": (
        _number("IP", rf"(?<![\w:])(?:{HEX}:){{2,7}}{HEX}(?![\w:.])", ip_length, gate=r":[0-9A-Fa-f]{0,4}:"),
        _number("IP", r"\d(?<![\d.].)\d{0,2}\.(?:\d{1,3}\.){2}\d{1,3}(?!\d|\.\d)", ip_length),
    ),
}


def rules_of(settings: MaskingSettings) -> tuple[MaskingRule, ...]:
    """The operator's own rules, then those that are built in.
    Raises ConfigurationError: a pattern cannot be used, or the package that runs it is not installed."""
    own = tuple(_own(each.name, each.pattern, n) for n, each in enumerate(settings.custom))
    return (*own, *(rule for name, rules in BUILT_IN.items() if name in settings.rules for rule in rules))


def _own(kind: str, pattern: str, number: int) -> MaskingRule:
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
    return MaskingRule(kind, compiled, lambda text: len(text) if len(text) <= LONGEST else 0)
