r"""Masks texts by a process's rules, with the secret that keys its placeholders.

A rule recognises a value by the value itself, never by its surroundings: put back in another place, it is found again.
So a password is masked together with its URL, and a private key's lines also one by one: an extract holds some of them.
Each built-in pattern runs in time proportional to the text: repetition is bounded or possessive. Operators' patterns
run on RE2, which is always linear.

The places of values are cached, as clients send the same texts again and again: a keyed digest of a text and the places
in it, none of its content. The placeholders of one request record which value each replaces; in its answer the values
are restored, even if a placeholder arrives in pieces."""

import hmac
import ipaddress
import json
import re
import secrets
from base64 import b32encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from gateway.core import errors, jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config import setting_sections
from gateway.core.config.config_file import ConfigurationError
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.tasks import offload_if
from gateway.core.types import items, upstreams

# Checks whether what looks like the number of a card, an account or an address is one.

CARD_DIGITS = range(13, 20)
CARD_STARTS = "23456"
IBAN_LENGTHS = range(15, 35)
LETTER_DIGITS = {ord("A") + n: str(10 + n) for n in range(26)}
HARMLESS_IPS = ("0.0.0.0", "255.255.255.255")  # noqa: S104 - not to listen on
PHONE_DIGITS = range(8, 16)
RULE_SEPARATOR = re.compile(r"[ -]")


def card_length(text: str) -> int:
    """Measures the leading part of a text that is a card number, by Luhn's sum; 0: none. It may end at a separator."""
    for end in (len(text), *(found.start() for found in reversed(list(RULE_SEPARATOR.finditer(text))))):
        digits = RULE_SEPARATOR.sub("", text[:end])
        if len(digits) in CARD_DIGITS and digits[0] in CARD_STARTS and _luhn(digits):
            return end
    return 0


def iban_length(text: str) -> int:
    """Measures the leading part of a text that is an IBAN, by its checksum; 0: none. It may end at a blank: one pass,
    as each end's remainder follows from that of the end before."""
    found, value, head, end = 0, 0, int(text[:4].translate(LETTER_DIGITS)), -1
    for blanks, group in enumerate(text.split(" ")):
        end += len(group) + 1
        if digits := group[0 if blanks else 4 :].translate(LETTER_DIGITS):
            value = (value * 10 ** len(digits) + int(digits)) % 97
        if end - blanks in IBAN_LENGTHS and (value * 10**6 + head) % 97 == 1:  # country and check digits come last
            found = end
    return found


def ip_length(text: str) -> int:
    """Returns the length of an address worth masking; 0 for loopback, and for what is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return 0
    if address.is_loopback or text in HARMLESS_IPS:
        return 0
    # `a::b` is more often a name in a program.
    return 0 if address.version == 6 and len(list(filter(None, text.split(":")))) < 3 else len(text)


def phone_length(text: str) -> int:
    """Returns the length of a plausible phone number; 0: it is not one."""
    return len(text) if sum(map(str.isdigit, text)) in PHONE_DIGITS else 0


def secret_length(text: str) -> int:
    """Returns the length of a random-looking text; 0 without digits: words with hyphens have none."""
    return len(text) if any(map(str.isdigit, text)) else 0


def line_length(text: str) -> int:
    """Returns the length of a line of random base64; 0: it is none, as a digest in hexadecimal digits is none."""
    return len(text) if any(map(str.isdigit, text)) and text.lower() != text != text.upper() else 0


def _luhn(digits: str) -> bool:
    total = 0
    for place, sign in enumerate(reversed(digits)):
        digit = int(sign) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


MASKING_EXTRA = "context-gateway[masking]"
MAX_LOOKBEHIND_CHARS = 64
"""Characters of a value that may precede the match that finds it."""
MAX_RULE_CHARS = 10_000
"""Longest value that an operator's rule may find; a longer match is left unmasked."""


@record
class MaskingRule:
    """Finds values. `kind` names their placeholders; `length` returns how much of a match counts, 0: none of it. Every
    text with a value contains one of `hints` and passes `gate`: these come first, as they are quick."""

    kind: str
    pattern: Any
    length: Callable[[str], int] = len
    hints: tuple[str, ...] = ()
    gate: Callable[[str], object] | None = None
    is_short: bool = False
    """A match is bounded: if it is not a value, another may begin within it."""
    before: re.Pattern[str] | None = None
    """Must precede a match, and belongs to the value; it ends with `\\Z`."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the spans of values, from the left, not overlapping."""
        if self.hints and not any(hint in text for hint in self.hints):
            return
        if self.gate is not None and not self.gate(text):
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
    return MaskingRule(kind, re.compile(pattern, flags), length, hints, re.compile(gate).search if gate else None)


def _number(kind: str, pattern: str, length: Callable[[str], int], *hints: str, gate: str = "") -> MaskingRule:
    return MaskingRule(
        kind, re.compile(pattern), length, hints, re.compile(gate).search if gate else None, is_short=True
    )


# The engine quickly searches for the literal characters that a pattern begins with: so what may not precede a value is
# checked after its first character.
BEARER = r"(?<![A-Za-z])(?:Bearer|Basic|Token) {1,4}[A-Za-z0-9._~+/=-]{16,}+"
HEX = r"[0-9A-Fa-f]{0,4}"
KEY_PATTERNS = {
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
PEM_LINE = r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![A-Za-z0-9+/=])"
"""OpenSSH's lines have 70 characters, all others' 64."""
LONG_WORD = re.compile(r"(?:\S{0,63}+\s)*+\S{64}")
URL_CREDENTIALS = r"""://[^\s:/@"'<>]{0,100}:[^\s/@"'<>]{1,200}@"""
AMERICAN = r"[(2-9](?<![\w.-][(2-9])(?:(?<=\()[2-9]\d{2}\) ?|(?<=\d)\d{2}[.-])[2-9]\d{2}[.-]\d{4}(?![\w-])"
URL = rf"""[A-Za-z][A-Za-z0-9+.-]{{1,20}}{URL_CREDENTIALS}[^\s"'<>]{{1,300}}(?<![.,;:!?)])"""
PASSWORD = r"""(?<![A-Za-z0-9])(?:password|passwd|pwd)=[^\s"';&<>]{1,200}(?<![.,;:!?)])"""  # noqa: S105 - a pattern
DOMAIN = r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
BUILT_IN: dict[str, Sequence[MaskingRule]] = {
    "private_key": (
        _of("PRIVATE_KEY", PEM, len, "PRIVATE KEY-----"),
        _of("PRIVATE_KEY", rf"\\n{PEM_LINE}", line_length, "\\n"),
        MaskingRule("PRIVATE_KEY", re.compile(rf"(?<![A-Za-z0-9+/=]){PEM_LINE}"), line_length, gate=LONG_WORD.match),
    ),
    "url": (_of("URL", URL, len, "://", gate=URL_CREDENTIALS),),
    "password": (_of("PASSWORD", PASSWORD, len, "=", flags=re.IGNORECASE),),
    "token": (_of("TOKEN", BEARER, secret_length, gate=r" [A-Za-z0-9._~+/=-]{16}", flags=re.IGNORECASE),),
    "jwt": (
        _of("JWT", r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", len, "eyJ"),
    ),
    "key": tuple(
        _of("KEY", rf"(?<![A-Za-z0-9])(?:{each})", secret_length, *hints) for hints, each in KEY_PATTERNS.items()
    ),
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


def rules_of(settings: setting_sections.MaskingSettings) -> tuple[MaskingRule, ...]:
    """Returns the operator's own rules, then the built-in ones.
    Raises ConfigurationError: a pattern cannot be used, or the package that runs it is not installed."""
    own = tuple(_own(each.name, each.pattern, n) for n, each in enumerate(settings.custom))
    return (*own, *(rule for name, rules in BUILT_IN.items() if name in settings.rules for rule in rules))


def _own(kind: str, pattern: str, number: int) -> MaskingRule:
    where = f"masking.custom[{number}].pattern"
    try:
        import re2
    except ImportError:
        raise ConfigurationError(
            f"{where}: needs a package that is not installed (re2): install {MASKING_EXTRA}"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigurationError(f"{where}: {error.args[0] if error.args else error}") from None
    if compiled.search("") is not None:
        raise ConfigurationError(f"{where}: matches an empty text")
    return MaskingRule(kind, compiled, lambda text: len(text) if len(text) <= MAX_RULE_CHARS else 0)


WORTH_CHARS = 300
"""Shorter texts are searched as quickly as they are looked up."""
MAX_KNOWN_TEXTS = 50_000
MAX_TEXT_PLACES = 500
"""A text with more values is searched each time."""
Place = tuple[int, int, str]
"""Begin and end of a value in its text, and the kind of its placeholder."""


class RuleFinder:
    """The rules of a process. Thread-safe."""

    def __init__(self, rules: Sequence[MaskingRule]) -> None:
        self._rules = rules
        self._key = secrets.token_bytes(32)
        self._known: BoundedCache[bytes, tuple[Place, ...]] = BoundedCache(MAX_KNOWN_TEXTS)

    def places(self, text: str) -> tuple[Place, ...]:
        """Finds the places of values, in the order of the text. Of two that overlap the earlier rule's counts."""
        if len(text) < WORTH_CHARS:
            return self._found(text)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        found = self._found(text)
        return self._known.put(digest, found) if len(found) <= MAX_TEXT_PLACES else found

    def _found(self, text: str) -> tuple[Place, ...]:
        places: list[Place] = []
        left = [(0, len(text))]
        for rule in self._rules:
            rest: list[tuple[int, int]] = []
            for begin, end in left:
                at = begin
                for start, stop in rule.spans(text if (begin, end) == (0, len(text)) else text[begin:end]):
                    places.append((begin + start, begin + stop, rule.kind))
                    rest.append((at, begin + start))
                    at = begin + stop
                rest.append((at, end))
            left = [(a, b) for a, b in rest if a < b]
        return tuple(sorted(places))


DIGEST_CHARS = 8
MASKER_KIND = r"[A-Z][A-Z0-9_]{0,15}"
PLACEHOLDER = re.compile(rf"<{MASKER_KIND}_[a-z2-7]{{{DIGEST_CHARS}}}>")
BACKSLASHES = r"(?<!\\)(?:\\\\)*"
"""Escaped backslashes: what follows them is an escape of its own."""
IN_JSON = re.compile(rf"(?:<|({BACKSLASHES})\\u003[cC])({MASKER_KIND}_[a-z2-7]{{{DIGEST_CHARS}}})(?:>|\\u003[eE])")
"""A placeholder in a JSON text, whose writer may escape the brackets."""


class PlaceholderMap:
    """The placeholders of one request. The same value of a tenant has the same placeholder in every request."""

    def __init__(self, finder: RuleFinder, secret: bytes, tenant: str) -> None:
        self._finder = finder
        self._key = hmac.digest(secret, b"mask\0" + tenant.encode("utf-8", "surrogatepass"), "sha256")
        self.values: dict[str, str] = {}
        """Values by their placeholders."""
        self._known: dict[str, str] = {}
        self._models: set[str] = set()

    def mask(self, text: str) -> str:
        """Replaces each value that a rule finds by a placeholder."""
        pieces, at = list[str](), 0  # placeholders stay; all else is plain
        for found in PLACEHOLDER.finditer(text) if "<" in text else ():
            pieces += (self._masked(text[at : found.start()]), found.group())
            at = found.end()
        return "".join((*pieces, self._masked(text[at:]))) if at else self._masked(text)

    def mask_known(self, text: str) -> str:
        """Replaces values that were found before by their placeholders, wherever they occur in the text."""
        there = [value for value in self._known if value in text] if text else []
        if not there:
            return text
        longest = "|".join(map(re.escape, sorted(there, key=len, reverse=True)))
        return re.sub(longest, lambda found: self._known[found.group()], text)

    def mask_signed(self, text: str) -> str:
        """Masks a signed thought with the placeholders that it had when it was signed, and no others. Any other value
        in it comes from the model, which therefore knows it: from here on such values stay unmasked."""
        signed = self.mask_known(text)
        for piece in PLACEHOLDER.split(signed):
            self._models.update(piece[start:end] for start, end, _ in self._finder.places(piece))
        return signed

    def unmask(self, text: str) -> str:
        """Replaces the placeholders in a text by the values of this request."""
        if not self.values or "<" not in text:
            return text
        return PLACEHOLDER.sub(lambda found: self.values.get(found.group(), found.group()), text)

    def unmask_json(self, text: str) -> str:
        """Replaces the placeholders within the strings of a JSON text, which stays valid JSON."""
        if not self.values:
            return text
        return IN_JSON.sub(self._in_json, text)

    def _in_json(self, found: re.Match[str]) -> str:
        value = self.values.get(f"<{found[2]}>")
        # ASCII, whatever bytes surround it
        return found.group() if value is None else (found[1] or "") + json.dumps(value)[1:-1]

    def _masked(self, text: str) -> str:
        pieces, at = list[str](), 0
        for start, end, kind in self._finder.places(text) if text else ():
            if text[start:end] not in self._models:
                pieces += (text[at:start], self.placeholder(kind, text[start:end]))
                at = end
        return "".join((*pieces, text[at:])) if pieces else text

    def placeholder(self, kind: str, value: str) -> str:
        """Returns the placeholder of a value. Of two values with the same digest, the later gets another one."""
        known = self._known.get(value)
        if known is not None:
            return known
        tries = b""
        while True:
            digest = hmac.digest(self._key, value.encode("utf-8", "surrogatepass") + tries, "sha256")
            name = f"<{kind}_{b32encode(digest)[:DIGEST_CHARS].decode().lower()}>"
            if self.values.setdefault(name, value) == value:
                self._known[value] = name
                return name
            tries += b"\0"


# Masks what people and models wrote in the body of a call, in its order there.
#
# Only what precedes a message decides how it is masked, so that what was forwarded stays append-only (§4 I7). Names of
# tools, ids, schemas, and what a provider sealed or signed stay as they are.

MASKED_BODY_FIELDS = (
    *("instructions", "system", "messages", "input", "prompt", "prediction", "query", "documents", "suffix", "text"),
    *("texts", "content", "question", "title", "thread", "additional_messages", "additional_instructions"),
    "tool_outputs",
)
"""Fields of a body that hold written text, as far as they are not settings."""
OF_THE_GATEWAY = frozenset(
    {
        *(
            "role",
            "type",
            "id",
            "call_id",
            "tool_call_id",
            "tool_use_id",
            "name",
            "status",
            "index",
            "detail",
            "format",
        ),
        *("signature", "thought_signature", "encrypted_content", "file_id", "media_type", "mime_type", "server_label"),
        *("cache_control", "provider_specific_fields", "thinking_bound", "phase", "url", "image_url", "file_url"),
        *("file_data", "data", "filename", "finish_reason", "stop_reason", "server_name"),
    }
)
"""Fields of messages that are not written text, or that break when they are changed."""
UNREADABLE = frozenset(
    {
        *("image_url", "input_image", "image", "input_audio", "file", "input_file", "video_url", "audio"),
        *("container_upload",),
    }
)
"""Types of parts in which nothing can be masked."""
SIGNED_FIELDS = (items.SIGNED, items.ANTHROPIC_BLOCKS)
Walk = Callable[[str], str]


class BodyMasker:
    """Masks one body with one vault. `refuse`: refuses a part in which nothing can be masked."""

    def __init__(self, vault: PlaceholderMap, *, refuse: bool) -> None:
        self._vault = vault
        self._refuse = refuse

    def masked(self, body: Mapping[str, Any]) -> Json:
        """Returns the masked body; objects in it with nothing to mask are kept by identity.
        Raises ContentRefused: it has a part that cannot be read."""
        found = dict(body)
        for name in MASKED_BODY_FIELDS:
            if name == "text" and not isinstance(found.get(name), str):  # the response's format
                continue
            if name in found:
                if self._refuse and _has_tokens(found[name]):
                    text = (
                        f"Nothing can be masked in token numbers, and such a {name} is refused here: send it as text."
                    )
                    raise errors.ContentRefused(text, param=name)
                found[name] = self._said(found[name])
        return found

    def _said(self, value: Any) -> Any:
        """Masks the value of a field of the body."""
        if isinstance(value, str):
            return self._vault.mask(value)
        if isinstance(value, list):
            return _same(value, [self._message(each) for each in value])
        return self._message(value)

    def _message(self, value: Any) -> Any:
        """Masks a message, or an item of an endpoint without messages. A model's text may hold a restored value where
        no rule finds it: known values are masked wherever they occur."""
        if not isinstance(value, dict):
            return self._said(value) if isinstance(value, str | list) else value
        is_models = value.get("role") == "assistant" or value.get("type") in ("reasoning", "function_call", "message")
        if any(name in value for name in SIGNED_FIELDS):  # signed parts come first: they decide how the rest is masked
            value = {**{name: value[name] for name in SIGNED_FIELDS if name in value}, **value}
        return self._dict(value, self._models_text if is_models else self._vault.mask)

    def _models_text(self, text: str) -> str:
        return self._vault.mask(self._vault.mask_known(text))

    def _any(self, value: Any, walk: Walk) -> Any:
        if isinstance(value, str):
            return walk(value)
        if isinstance(value, list):
            return _same(value, [self._any(each, walk) for each in value])
        return self._dict(value, walk) if isinstance(value, dict) else value

    def _dict(self, value: Json, walk: Walk) -> Json:
        kind = value.get("type")
        source = value.get("source")
        plain = kind == "document" and isinstance(source, dict) and source.get("type") in ("text", "content")
        if self._refuse and not plain and (kind in UNREADABLE or kind == "document"):
            text = f"Nothing can be masked in a part of type {kind}, and such parts are refused here."
            raise errors.ContentRefused(text, param="messages")
        if "signature" in value and isinstance(value.get("thinking"), str):
            thought = self._vault.mask_signed(value["thinking"])
            return value if thought == value["thinking"] else {**value, "thinking": thought}
        changed: Json = {}
        for name, each in value.items():
            new = self._field(value, name, each, walk)
            if new is not each:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _field(self, within: Json, name: str, value: Any, walk: Walk) -> Any:
        if name == "arguments" and isinstance(value, str):
            return self._arguments(value, walk)
        if name == "input" and isinstance(value, dict | list):  # of a call: the model named its fields
            return self._free(value, walk)
        if name == "data" and within.get("type") == "text":
            return self._any(value, walk)
        if name in OF_THE_GATEWAY and not isinstance(value, dict | list):
            return value
        if name in ("image_url", "cache_control", "provider_specific_fields", "input_audio"):
            return value
        return self._any(value, walk)

    def _arguments(self, text: str, walk: Walk) -> str:
        """Masks the arguments of a call; a JSON text stays valid JSON."""
        try:
            given = jsons.loads_exact(text.encode("utf-8", "surrogatepass"))
        except jsons.JSONDecodeError:
            return walk(text)
        masked = self._free(given, walk)
        return text if masked is given else jsons.dumps_text(masked)

    def _free(self, value: Any, walk: Walk) -> Any:
        """Masks a value in which any text may be a value, and any number a card's."""
        if isinstance(value, str):
            masked = walk(value)
            return value if masked == value else masked
        if isinstance(value, list):
            return _same(value, [self._free(each, walk) for each in value])
        if isinstance(value, dict):
            names = {name: walk(name) for name in value}
            members = {names[name]: self._free(each, walk) for name, each in value.items()}
            return value if all(members.get(name, self) is each for name, each in value.items()) else members
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**12:
            written = str(value)
            masked = walk(written)
            return value if masked == written else masked
        return value


def _has_tokens(value: Any) -> bool:
    """Returns whether a text, or one of several, is given as token numbers."""
    return isinstance(value, list) and any(
        isinstance(each, int) or (isinstance(each, list) and any(isinstance(one, int) for one in each))
        for each in value
    )


def _same(old: list[Any], new: list[Any]) -> list[Any]:
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


LONG = 50_000
"""A body of more characters is masked in a thread."""
MAX_COUNTED_MESSAGES = 64
"""With more messages, a body counts as long without being measured."""


class TenantMasker:
    """Masks bodies for tenants.

    Raises, when it is made:
        ConfigurationError: a rule cannot be used.
    """

    def __init__(self, settings: setting_sections.MaskingSettings, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._finder = RuleFinder(rules_of(settings))
        self._secret = secret
        self.refuses = settings.on_unreadable == "refuse"

    async def vault(self, tenant: str) -> PlaceholderMap:
        """Creates a new vault for a request of that tenant.
        Raises StorageUnavailable: the secret is not known yet, and the storage cannot be reached."""
        return PlaceholderMap(self._finder, await self._secret(), tenant)

    async def masked(self, request: upstreams.UpstreamRequest) -> tuple[upstreams.UpstreamRequest, PlaceholderMap]:
        """Returns the request with placeholders, and the vault of their values.
        Raises ContentRefused: it has a part that cannot be read, and such parts are refused; StorageUnavailable: see
        `vault`."""
        vault = await self.vault(request.scope.caller.tenant)
        masker = BodyMasker(vault, refuse=self.refuses)

        def masked() -> upstreams.UpstreamRequest:
            native = masker.masked(request.native) if request.native is not None else None
            return replace(request, body=masker.masked(request.body), native=native)

        return await offload_if(_is_long(request.body), masked), vault

    async def surplus(self, messages: list[dict[str, Any]], tenant: str, counter: ports.TokenCounter) -> int:
        """Counts the tokens that placeholders add to messages; negative if they are shorter than their values.
        Raises StorageUnavailable: see `vault`."""
        masker = BodyMasker(await self.vault(tenant), refuse=False)
        return await offload_if(_is_long({"messages": messages}), _surplus, messages, masker, counter)


def _surplus(messages: list[dict[str, Any]], masker: BodyMasker, counter: ports.TokenCounter) -> int:
    masked = masker.masked({"messages": messages})["messages"]
    pairs = zip(messages, masked, strict=True)
    return sum(counter.message(new) - counter.message(old) for old, new in pairs if new is not old)


def _is_long(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages") or body.get("input") or ()
    if isinstance(messages, str):
        return len(messages) > LONG
    if not isinstance(messages, list) or len(messages) > MAX_COUNTED_MESSAGES:
        return True
    return sum(len(str(each.get("content") if isinstance(each, dict) else each)) for each in messages) > LONG


BEGUN = rf"(?:{MASKER_KIND}(?:_[a-z2-7]{{0,{DIGEST_CHARS}}})?)?"
MAY_BEGIN = re.compile(rf"<{BEGUN}\Z")
"""The end of a text that may be the beginning of a placeholder."""
MAY_BEGIN_IN_JSON = re.compile(
    rf"(?:(?:<|{BACKSLASHES}\\u003[cC])(?:{BEGUN}|{MASKER_KIND}_[a-z2-7]{{{DIGEST_CHARS}}}\\(?:u(?:0(?:03?)?)?)?)"
    rf"|{BACKSLASHES}\\(?:u(?:0(?:03?)?)?)?)\Z"
)
MAX_HELD_CHARS = 64
"""Most characters held back at the end of a text."""
MASKED_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
LEGACY_CALL = "function_call"
OF_JSON = ("content", "text", items.ITEM_ORDER)
"""Fields on the path to a text that is JSON as a whole."""


def answers_json(body: Json) -> bool:
    """Returns whether the texts of the answer to a body are JSON, and have to stay valid."""
    wanted = body.get("response_format")
    return isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema")


def restored(value: Any, vault: PlaceholderMap, name: str = "", *, is_json: bool = False) -> Any:
    """Restores the values in a whole message, or a part of it. `is_json`: its `content` is a JSON text."""
    if isinstance(value, str):
        return vault.unmask_json(value) if name == "arguments" or is_json else vault.unmask(value)
    if isinstance(value, list):
        return [restored(each, vault, name, is_json=is_json) for each in value]
    if isinstance(value, dict):
        return {
            vault.unmask(key): restored(each, vault, key, is_json=is_json and key in OF_JSON)
            for key, each in value.items()
        }
    return value


class TextRestorer:
    """Restores one text that arrives in pieces. It holds back only what may be the beginning of a placeholder."""

    def __init__(self, vault: PlaceholderMap, *, is_json: bool = False) -> None:
        self._put_back: Callable[[str], str] = vault.unmask_json if is_json else vault.unmask
        self._may_begin = MAY_BEGIN_IN_JSON if is_json else MAY_BEGIN
        self._held = ""

    def push(self, piece: str) -> str:
        """Takes a piece; returns the text that can be restored by now."""
        text = self._held + piece
        start = max(0, len(text) - MAX_HELD_CHARS)
        begun = self._may_begin.search(text, start)
        cut = begun.start() if begun else len(text)
        self._held = text[cut:]
        return self._put_back(text[:cut])

    def rest(self) -> str:
        """Returns what was held back, as nothing more comes."""
        rest, self._held = self._held, ""
        return self._put_back(rest)


class ChoiceRestorer:
    """Restores one choice of a streamed answer, delta by delta. `is_json`: its `content` is a JSON text."""

    def __init__(self, vault: PlaceholderMap, *, is_json: bool = False) -> None:
        self._vault = vault
        self._is_json = is_json
        self._texts: dict[str, TextRestorer] = {}
        self._thought: TextRestorer | None = None
        self._calls: dict[tuple[int, str], TextRestorer] = {}
        self._function: TextRestorer | None = None
        """The arguments of a call in the API before tools."""

    def delta(self, delta: Json) -> Json:
        """Returns the delta with what of it can be restored by now."""
        found: Json = {}
        for name, value in delta.items():
            if name in MASKED_TEXT_FIELDS and isinstance(value, str):
                known = self._texts.setdefault(
                    name, TextRestorer(self._vault, is_json=self._is_json and name == "content")
                )
                found[name] = known.push(value)
            elif name == "tool_calls" and isinstance(value, list):
                found[name] = [self._call(each, place) for place, each in enumerate(value)]
            elif name == LEGACY_CALL and isinstance(value, dict) and isinstance(value.get("arguments"), str):
                self._function = self._function or TextRestorer(self._vault, is_json=True)
                found[name] = {**value, "arguments": self._function.push(value["arguments"])}
            elif name == "thinking_blocks" and isinstance(value, list):
                found[name] = [part for block in value for part in self._thoughts(block)]
            else:
                found[name] = restored(value, self._vault, name, is_json=self._is_json and name == items.ITEM_ORDER)
        return found

    def rest(self, upto: Json | None = None) -> Json:
        """Returns a delta of all held-back text that `upto`, the next delta, does not continue; {} if there is none. An
        empty next delta ends nothing; None: there is no next one."""
        if upto is not None and not any(
            upto.get(name) for name in (*MASKED_TEXT_FIELDS, "tool_calls", LEGACY_CALL, "thinking_blocks")
        ):
            return {}
        upto = upto or {}
        found: Json = {}
        for name, text in self._texts.items():
            if not isinstance(upto.get(name), str) and (said := text.rest()):
                found[name] = said
        going_on = {each.get("index", n) for n, each in enumerate(upto.get("tool_calls") or ()) if type(each) is dict}
        for (index, name), text in self._calls.items():
            if index not in going_on and (said := text.rest()):
                part = {"custom": {"input": said}} if name == "input" else {"function": {"arguments": said}}
                found.setdefault("tool_calls", []).append({"index": index, **part})
        if self._function is not None and not upto.get(LEGACY_CALL) and (said := self._function.rest()):
            found[LEGACY_CALL] = {"arguments": said}
        if self._thought is not None and "thinking_blocks" not in upto and (said := self._thought.rest()):
            found["thinking_blocks"] = [{"type": "thinking", "thinking": said, "signature": None}]
        return found

    def _call(self, call: Any, place: int) -> Any:
        if not isinstance(call, dict):
            return call
        index = call.get("index", place)
        found = dict(call)
        for part, name in (("function", "arguments"), ("custom", "input")):
            said = call.get(part)
            if isinstance(said, dict) and isinstance(said.get(name), str):
                known = self._calls.setdefault((index, name), TextRestorer(self._vault, is_json=name == "arguments"))
                found[part] = {**said, name: known.push(said[name])}
        return found

    def _thoughts(self, block: Any) -> list[Any]:
        """Returns the block, preceded by the held-back text of a thought that it ends: a signature follows its text."""
        if not isinstance(block, dict) or not isinstance(block.get("thinking"), str):
            return [restored(block, self._vault)]
        self._thought = self._thought or TextRestorer(self._vault)
        restored_block = {**block, "thinking": self._thought.push(block["thinking"])}
        if block.get("signature") is None:
            return [restored_block]
        rest = self._thought.rest()
        if restored_block["thinking"]:
            return [{**restored_block, "thinking": restored_block["thinking"] + rest}]
        return [{**block, "thinking": rest, "signature": None}, restored_block] if rest else [restored_block]
