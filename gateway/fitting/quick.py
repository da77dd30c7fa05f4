"""Requests that surely fit as they are: found out from a few hundred of their characters, not from all of them.

Below half of the budget a request's figures may be estimates: nothing here may cost more than the request is worth.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any

from gateway.models.selection import Fitted, Forwarded, Selection

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 4
ESTIMATED_SHARE = 0.5
SAMPLES = 12
SAMPLE_CHARS = 128
SPACES = (0.08, 0.4)
VOWELS = 0.22
NOT_VOWELS = bytes(byte for byte in range(256) if byte not in b"aeiou")
INSTRUCTION_ROLES = ("system", "developer")
SPOKEN_ROLES = frozenset(("system", "developer", "user", "assistant"))
role_of, content_of = itemgetter("role"), itemgetter("content")


@dataclass(frozen=True, slots=True)
class PlainShape:
    """Messages that are roles and texts and nothing else: characters of each, and what they are estimated to hold."""

    lengths: list[int]
    tokens: int


def plain_shape(messages: Sequence[dict[str, Any]], size: int, budget: int, largest: int) -> PlainShape | None:
    """The shape of messages that need no managing: plain texts without a document in them, surely within the budget.

    Args:
        size: bytes of the request's body, so at least those of all its texts.
        largest: characters from which a user message may hold a document (contract §4 I4).

    Returns:
        None if a closer look is needed. It costs a few microseconds, whatever the size of the texts.
    """
    if size / BYTES_PER_TOKEN + MESSAGE_TOKENS * len(messages) > ESTIMATED_SHARE * budget:
        return None
    try:
        roles = list(map(role_of, messages))
        texts = list(map(content_of, messages))
    except KeyError:
        return None
    if set(map(type, texts)) != {str} or not SPOKEN_ROLES.issuperset(roles) or max(map(len, messages)) != 2:
        return None
    lengths = list(map(len, texts))
    if max(lengths) > largest and any(n > largest and role == "user" for n, role in zip(lengths, roles, strict=True)):
        return None
    # No token of a byte-level vocabulary is shorter than a byte; prose has far longer ones.
    if size + MESSAGE_TOKENS * 3 * len(messages) > budget and not _is_prose(texts, lengths):
        return None
    return PlainShape(lengths, size // BYTES_PER_TOKEN + MESSAGE_TOKENS * len(messages))


def _is_prose(texts: list[str], lengths: list[int]) -> bool:
    """Whether places spread over the texts all look like words of a language: letters with vowels, and spaces between.
    Encoded data, numbers and scripts of which a character may be a token of its own do not."""
    ends = list(accumulate(lengths))
    total = ends[-1]
    for number in range(SAMPLES):
        at = total * (2 * number + 1) // (2 * SAMPLES)
        index = bisect_right(ends, at)
        start = at - (ends[index] - lengths[index])
        sample = texts[index][max(0, min(start, lengths[index] - SAMPLE_CHARS)) :][:SAMPLE_CHARS]
        if not sample.isascii():
            return False
        raw, size = sample.encode(), len(sample)
        spaces, vowels = raw.count(b" "), len(raw.translate(None, NOT_VOWELS))
        if not SPACES[0] * size <= spaces <= SPACES[1] * size or vowels < VOWELS * size:
            return False
    return True


def fitted_as_sent(messages: Sequence[dict[str, Any]], shape: PlainShape) -> Fitted:
    """The messages as they came, with estimated figures."""
    total = max(1, sum(shape.lengths))
    last = len(messages) - 1
    while last > 0 and messages[last]["role"] != "user":
        last -= 1
    first = 0
    while first < len(messages) and messages[first]["role"] in INSTRUCTION_ROLES:
        first += 1
    system = sum(shape.lengths[:first]) * shape.tokens // total
    current = sum(shape.lengths[max(first, last) :]) * shape.tokens // total
    breakdown = {"system": system, "tools": 0, "history": shape.tokens - system - current, "artifacts": 0}
    forwarded = Forwarded(list(messages), [])
    return Fitted(Selection(), forwarded, shape.tokens, exact=False, breakdown={**breakdown, "current": current})
