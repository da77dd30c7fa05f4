"""The placeholders of one request: what stands for which value, and back."""

import hmac
import json
import re
from base64 import b32encode

from gateway.pipeline.guards.masking.finding import RuleFinder

DIGEST_CHARS = 8
KIND = r"[A-Z][A-Z0-9_]{0,15}"
PLACEHOLDER = re.compile(rf"<{KIND}_[a-z2-7]{{{DIGEST_CHARS}}}>")
IN_JSON = re.compile(rf"(?:<|\\u003[cC])({KIND}_[a-z2-7]{{{DIGEST_CHARS}}})(?:>|\\u003[eE])")
"""The same in a JSON text, whose writer may escape the brackets."""


class PlaceholderMap:
    """What was masked in one request. The same value of a tenant has the same placeholder in every request."""

    def __init__(self, finder: RuleFinder, secret: bytes, tenant: str) -> None:
        self._finder = finder
        self._key = hmac.digest(secret, b"mask\0" + tenant.encode("utf-8", "surrogatepass"), "sha256")
        self.values: dict[str, str] = {}
        """Values by their placeholders."""
        self._known: dict[str, str] = {}
        self._models: set[str] = set()

    def mask(self, text: str) -> str:
        """The text with a placeholder for each value that a rule finds."""
        pieces, at = list[str](), 0  # what is masked already stays; all else is plain
        for found in PLACEHOLDER.finditer(text) if "<" in text else ():
            pieces += (self._masked(text[at : found.start()]), found.group())
            at = found.end()
        return "".join((*pieces, self._masked(text[at:]))) if at else self._masked(text)

    def mask_known(self, text: str) -> str:
        """The text with the placeholders of values that were found before, wherever they stand in it."""
        there = [value for value in self._known if value in text] if text else []
        if not there:
            return text
        longest = "|".join(map(re.escape, sorted(there, key=len, reverse=True)))
        return re.sub(longest, lambda found: self._known[found.group()], text)

    def mask_signed(self, text: str) -> str:
        """A thought as its model signed it: with the placeholders that it had, and no other. What else a rule finds in
        it the model said by itself, so it knows that: it stays as it is from here on."""
        signed = self.mask_known(text)
        for piece in PLACEHOLDER.split(signed):
            self._models.update(piece[start:end] for start, end, _ in self._finder.places(piece))
        return signed

    def unmask(self, text: str) -> str:
        """The text with the values of this request in the place of their placeholders."""
        if not self.values or "<" not in text:
            return text
        return PLACEHOLDER.sub(lambda found: self.values.get(found.group(), found.group()), text)

    def unmask_json(self, text: str) -> str:
        """The same within the strings of a JSON text, which stays one."""
        if not self.values:
            return text
        return IN_JSON.sub(lambda found: self._in_json(found.group(1), found.group()), text)

    def _in_json(self, name: str, written: str) -> str:
        value = self.values.get(f"<{name}>")
        return written if value is None else json.dumps(value)[1:-1]  # ASCII, whatever bytes stand around it

    def _masked(self, text: str) -> str:
        pieces, at = list[str](), 0
        for start, end, kind in self._finder.places(text) if text else ():
            if text[start:end] not in self._models:
                pieces += (text[at:start], self.placeholder(kind, text[start:end]))
                at = end
        return "".join((*pieces, text[at:])) if pieces else text

    def placeholder(self, kind: str, value: str) -> str:
        """What stands for a value. Of two values with one digest, the later gets another."""
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
