"""Finds values in texts by all rules, and remembers where they are: clients send the same texts again and again.

What is remembered is a keyed digest of a text and the places in it, nothing of what it says.
"""

import secrets
from collections.abc import Sequence
from hashlib import blake2b

from gateway.core.bounded_cache import BoundedCache
from gateway.pipeline.guards.masking.rules import MaskingRule

WORTH_CHARS = 300
"""Shorter texts are searched as quickly as they are looked up."""
MAX_TEXTS = 50_000
MAX_PLACES = 500
"""A text with more values is searched each time."""
Place = tuple[int, int, str]
"""Begin and end of a value in its text, and the kind of its placeholder."""


class RuleFinder:
    """The rules of a process. Safe from several threads."""

    def __init__(self, rules: Sequence[MaskingRule]) -> None:
        self._rules = rules
        self._key = secrets.token_bytes(32)
        self._known: BoundedCache[bytes, tuple[Place, ...]] = BoundedCache(MAX_TEXTS)

    def places(self, text: str) -> tuple[Place, ...]:
        """Where values are, in the order of the text. Of two that overlap the earlier rule's counts."""
        if len(text) < WORTH_CHARS:
            return self._found(text)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        found = self._found(text)
        return self._known.put(digest, found) if len(found) <= MAX_PLACES else found

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
