"""Where a text may be cut that has no structure left: between sentences, words, or at least characters."""

import re
from collections.abc import Iterator
from unicodedata import combining

from gateway.relevance.chunks.chunk import MAX_CHARS, TARGET_CHARS

Span = tuple[int, int]
SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s|[。！？；．｡؟۔।॥]+[”』」）]*|\n")
ASCII_SENTENCE = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+\s|\n")
"""The same for what is all ASCII, where it is found twice as fast."""
SPACE = re.compile(r"\s+")
LOOK_BACK = 200
NOISE_CHARS = 240
"""What has neither sentences nor words (base64, hexadecimal digits) takes up to a token a character: small pieces fill
a budget."""
JOINED = frozenset("\u200d\ufe0e\ufe0f\u20e3\n") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
"""Follow the character that they belong to: joiners, variants, skin tones, a line feed after a carriage return."""


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def bounded(text: str, start: int, end: int, target: int = TARGET_CHARS) -> Iterator[Span]:
    """A span in pieces of whole sentences, of about `target` characters where it is longer than what is allowed."""
    start, end = trimmed(text, start, end)
    if end - start <= MAX_CHARS:
        if end > start:
            yield start, end
        return
    at = start
    while end - at > MAX_CHARS:
        until = _cut(text, at, target)
        yield trimmed(text, at, until)
        at = until
        while at < end and text[at].isspace():
            at += 1
    if at < end:
        yield at, end


def _cut(text: str, at: int, target: int) -> int:
    """Where the piece that begins at `at` ends: after the last sentence within the target, else the first one within
    the limit, else between words, else between characters."""
    best = 0
    sentence = ASCII_SENTENCE if text.isascii() else SENTENCE
    for match in sentence.finditer(text, at + 1, at + MAX_CHARS):
        if match.end() - at > target:
            best = best or match.end()
            break
        best = match.end()
    if best - at >= target // 4:
        return best
    until = at + target
    words = list(SPACE.finditer(text, until - LOOK_BACK, until))
    return words[-1].start() if words else between_characters(text, at + NOISE_CHARS, at + 1)


def between_characters(text: str, at: int, least: int) -> int:
    """The nearest place up to `at` where no character is torn from what belongs to it: marks, joined signs, halves of
    surrogate pairs, line ends."""
    for place in range(at, max(least, at - 20), -1):
        after, before = text[place], text[place - 1]
        halves = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
        feed = after == "\n" and before != "\r"
        if not combining(after) and (after not in JOINED or feed) and before != "\u200d" and not halves:
            return place
    return at
