"""The placeholders of one request: what stands for which value, and back."""

import hmac
import json
import re
from base64 import b32encode
from collections.abc import Sequence

from gateway.guards.masking.rules import Rule

DIGEST_CHARS = 8
KIND = r"[A-Z][A-Z0-9_]{0,15}"
PLACEHOLDER = re.compile(rf"<{KIND}_[a-z2-7]{{{DIGEST_CHARS}}}>")
IN_JSON = re.compile(rf"(?:<|\\u003[cC])({KIND}_[a-z2-7]{{{DIGEST_CHARS}}})(?:>|\\u003[eE])")
"""The same in a JSON text, whose writer may escape the brackets."""


class Vault:
    """What was masked in one request. The same value of a tenant has the same placeholder in every request."""

    def __init__(self, rules: Sequence[Rule], secret: bytes, tenant: str) -> None:
        self._rules = rules
        self._key = hmac.digest(secret, b"mask\0" + tenant.encode("utf-8", "surrogatepass"), "sha256")
        self.values: dict[str, str] = {}
        """Values by their placeholders."""
        self._known: dict[str, str] = {}
        self._models: set[str] = set()
        self._literals: re.Pattern[str] | None = None
        self._literals_of = 0

    def mask(self, text: str) -> str:
        """The text with a placeholder for each value that a rule finds."""
        if not text:
            return text
        pieces, at = list[str](), 0  # what is masked already stays; every other piece is plain
        for found in PLACEHOLDER.finditer(text):
            pieces += (text[at : found.start()], found.group())
            at = found.end()
        pieces.append(text[at:])
        for rule in self._rules:
            pieces = self._masked(rule, pieces)
        return "".join(pieces) if len(pieces) > 1 else text

    def mask_known(self, text: str) -> str:
        """The text with the placeholders of values that were found before, wherever they stand in it."""
        if not self._known or not text:
            return text
        if self._literals is None or self._literals_of != len(self._known):
            longest = sorted(self._known, key=len, reverse=True)
            self._literals = re.compile("|".join(map(re.escape, longest)))
            self._literals_of = len(self._known)
        return self._literals.sub(lambda found: self._known[found.group()], text)

    def mask_signed(self, text: str) -> str:
        """A thought as its model signed it: with the placeholders that it had, and no other. What else a rule finds in
        it the model said by itself, so it knows that: it stays as it is from here on."""
        signed = self.mask_known(text)
        for piece in PLACEHOLDER.split(signed):
            for rule in self._rules:
                self._models.update(piece[start:end] for start, end in rule.spans(piece))
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

    def _masked(self, rule: Rule, pieces: list[str]) -> list[str]:
        done: list[str] = []
        for number, piece in enumerate(pieces):
            if number % 2:
                done.append(piece)
                continue
            at = 0
            for start, end in rule.spans(piece):
                if piece[start:end] not in self._models:
                    done += (piece[at:start], self.placeholder(rule.kind, piece[start:end]))
                    at = end
            done.append(piece[at:])
        return done

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
