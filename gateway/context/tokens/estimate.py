"""Tokens of texts that are too long to be encoded for a figure alone: by samples, with the model's encoding (ADR 3).
And lower bounds, found without counting.

What a text is written in (prose, code, JSON, a script of its own, base64) shows in any piece of it; rules of thumb for
characters of a token are wrong by half for most of them.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from gateway.core.bounded_cache import BoundedCache

COUNTED_CHARS = 3000
"""Texts of no more characters together are counted: samples would take as long."""
SAMPLE_CHARS = 128
MIN_SAMPLES, MAX_SAMPLES = 16, 32
CHARS_PER_SAMPLE = 1000
"""Characters for which one more sample is taken, between the two."""
GOLDEN = 0.6180339887498949
"""Its multiples, without their whole parts, are spread evenly, and in step with no pattern in the texts."""

BOUND_CHARS = 2**18
"""Characters that a lower bound looks at at once."""
MAX_REMEMBERED = 50_000
"""Texts whose bounds are kept, and whose counts for each encoding."""
_BOUNDS: BoundedCache[tuple[int, int], int] = BoundedCache(MAX_REMEMBERED)
"""Lower bounds by text, oldest forgotten first."""
OTHER, LETTER, DIGIT = 0, 1, 2
KINDS = bytes(
    LETTER if byte > 127 or chr(byte).isalpha() else DIGIT if chr(byte).isdigit() else OTHER for byte in range(256)
)
"""The kind of each byte. What is not ASCII may be a letter: a run of it is taken for one word."""


def estimated_tokens(
    texts: Sequence[str],
    count: Callable[[str], int],
    count_piece: Callable[[str], int],
    lengths: Sequence[int] | None = None,
) -> tuple[int, bool]:
    """Tokens of the texts together, and whether they were counted.

    It takes a few hundred microseconds, whatever the size of the texts. The estimate is a few percent off.

    Args:
        count: counts a whole text.
        count_piece: counts a piece of one.
        lengths: characters of each text, where they are known already.
    """
    lengths = lengths if lengths is not None else list(map(len, texts))
    total = sum(lengths)
    if total <= COUNTED_CHARS:
        return sum(map(count, texts)), True
    ends = list(accumulate(lengths))
    number = min(MAX_SAMPLES, max(MIN_SAMPLES, total // CHARS_PER_SAMPLE))
    density = 0.0  # tokens of a character
    for place in range(number):
        at = int((place * GOLDEN + 0.5) % 1.0 * total)
        index = bisect_right(ends, at)
        length = lengths[index]
        start = max(0, min(at - (ends[index] - length) - SAMPLE_CHARS // 2, length - SAMPLE_CHARS))
        piece = texts[index][start : start + SAMPLE_CHARS]
        tokens = count_piece(piece)
        cuts = (start > 0) + (start + SAMPLE_CHARS < length)  # each cuts a token in two, half a token too many
        density += max(tokens - cuts / 2, tokens / 2) / len(piece)
    return round(total * density / number), False


def least_tokens(text: str) -> int:
    """A lower bound of a text's tokens, found in a thousandth of the time that counting takes.

    Every byte-level vocabulary of tiktoken splits a text before it looks for tokens (`tiktoken_ext/openai_public.py`):
    no token reaches from one word or number into the next, but for the end of a contraction (`'s`).
    """
    if len(text) < 2:
        return 0
    key = (len(text), hash(text))
    known = _BOUNDS.peek(key)
    return known if known is not None else _BOUNDS.put(key, _least_tokens(text))


def _least_tokens(text: str) -> int:
    import numpy as np  # a quarter of a second to load, and not needed for what is small

    total = 0
    for start in range(0, len(text), BOUND_CHARS):  # in pieces: the whole would take four times its memory
        data = text[start : start + BOUND_CHARS].encode("utf-8", "replace")
        kinds = np.frombuffer(data.translate(KINDS), np.uint8)
        begun = np.count_nonzero((kinds[1:] != kinds[:-1]) & (kinds[1:] != OTHER))
        total += max(0, int(begun) - data.count(b"'"))
    return total


def least_of(message: dict[str, Any]) -> int:
    """A lower bound of a message's tokens."""
    content = message.get("content")
    if isinstance(content, str):
        return least_tokens(content)
    texts = (part.get("text") for part in content or () if isinstance(part, dict))
    return sum(least_tokens(text) for text in texts if isinstance(text, str))
