"""Requests that surely fit as they are: found out from a few hundred of their characters, not from all of them.

Below half of the budget a request's figures may be estimates: nothing here may cost more than the request is worth.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.exchange import PlainMessages
from gateway.models.window import Fitted, Forwarded, Selection
from gateway.window.counting import REPLY_TOKENS

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 4
FRAME_BYTES, BODY_BYTES = 40, 100
ESTIMATED_SHARE = 0.5
SAMPLES = 12
SAMPLE_CHARS = 128
SPACES = (0.08, 0.4)
VOWELS = 0.22
NOT_VOWELS = bytes(byte for byte in range(256) if byte not in b"aeiou")


def surely_fits(plain: PlainMessages, size: int, budget: int, largest: int) -> int | None:
    """Tokens, as estimated, of messages that need no managing: without a document in them, surely within the budget.

    Args:
        size: bytes of the request's body, so at least those of all its texts.
        largest: characters from which a user message may hold a document (guarantee §4 I4).

    Returns:
        None if a closer look is needed. It costs a few microseconds, whatever the size of the texts.
    """
    count, lengths = len(plain.lengths), plain.lengths
    if size / BYTES_PER_TOKEN + MESSAGE_TOKENS * count > ESTIMATED_SHARE * budget:
        return None
    if max(lengths) > largest and any(
        n > largest and role == "user" for n, role in zip(lengths, plain.roles, strict=True)
    ):
        return None
    # No token of a byte-level vocabulary is shorter than a byte; prose has far longer ones.
    if size + 3 * MESSAGE_TOKENS * count > budget and not _is_prose(plain.texts, lengths):
        return None
    text = max(sum(lengths), size - BODY_BYTES - FRAME_BYTES * count)  # bytes, without what stands around the texts
    return text // BYTES_PER_TOKEN + MESSAGE_TOKENS * count + REPLY_TOKENS


def _is_prose(texts: list[str], lengths: list[int]) -> bool:
    """Whether places spread over the texts all look like words of a language: letters with vowels, and spaces between.
    Encoded data, numbers and scripts of which a character may be a token of its own do not."""
    ends = list(accumulate(lengths))
    total = ends[-1]
    for number in range(SAMPLES if total else 0):
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


def fitted_as_sent(messages: Sequence[dict[str, Any]], plain: PlainMessages, tokens: int) -> Fitted:
    """The messages as they came, with estimated figures."""
    roles, lengths = plain.roles, plain.lengths
    total = max(1, sum(lengths))
    first, last = 0, len(roles) - 1
    while first < last and roles[first] in INSTRUCTION_ROLES:
        first += 1
    while last > first and roles[last] != "user":
        last -= 1
    system = sum(lengths[:first]) * tokens // total
    current = sum(lengths[last:]) * tokens // total
    breakdown = {"system": system, "tools": 0, "history": tokens - system - current, "artifacts": 0, "current": current}
    return Fitted(Selection(), Forwarded(list(messages), []), tokens, exact=False, breakdown=breakdown)
