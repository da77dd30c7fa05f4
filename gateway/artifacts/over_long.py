"""The middle of an over-long text that nothing marks as a document, and the words around it (contract §4 I4)."""

import re
from collections.abc import Sequence

Span = tuple[int, int]
PARAGRAPH = re.compile(r"\n[ \t]*\n")
LINE_END = re.compile(r"\n")
SENTENCE = re.compile(r"[.!?…]++[\"'”’»)\]]*+\s++|[。！？؟।]++|\n")
WORD = re.compile(r"\s++")
ASKING = re.compile(r"[?？؟][\"'”’»)\]]*\s*\Z")
LEAST_CHARS = 1000
EDGE_CHARS = 1000
"""How much of a text without paragraphs counts as its first and as its last one, at most."""
ASKED_CHARS = 160
"""How much at the outer end of such a text is taken for the question, whole sentences of it."""


def middle(text: str, most_chars: int) -> Span:
    """Where the document in an over-long text stands: between its first and last paragraph, or line if it has no
    paragraphs; one that is over-long itself holds the document, too, but for its outer edge.

    Args:
        most_chars: what a paragraph may have that is all the user's own words.
    """
    breaks = [m.span() for m in PARAGRAPH.finditer(text)] or [m.span() for m in LINE_END.finditer(text)]
    if breaks:
        (first, start), (end, last) = breaks[0], breaks[-1]
        start = start if first <= most_chars else _first_edge(text, first)
        end = end if len(text) - last <= most_chars else _last_edge(text, last)
        if end - start > LEAST_CHARS:
            return start, end
    return _first_edge(text, len(text)), _last_edge(text, 0)


def own_words(text: str, spans: Sequence[Span]) -> str:
    """What a text says beside the documents in it. Where nothing parts these from the words around them, most of those
    belong to the document, too: only the outermost sentences count, and questions."""
    pieces = []
    at = 0
    for start, end in sorted(spans):
        before = text[at:start]
        pieces.append(before if before.rstrip(" \t")[-1:] in ("", "\n", ">") else _asked(before, first=True))
        at = end
    after = text[at:]
    is_parted = not spans or after.lstrip(" \t")[:1] in ("", "\r", "\n", "<")
    return "\n".join([*pieces, after if is_parted else _asked(after, first=False)])


def _first_edge(text: str, until: int) -> int:
    """Where the words end that a text begins with: a line, else whole sentences, else words."""
    most = min(EDGE_CHARS, len(text) // 4)
    line = text.find("\n", 0, min(until, most))
    if line > 0:
        return line + 1
    for pattern in (SENTENCE, WORD):
        found = [m.end() for m in pattern.finditer(text, 0, most)]
        if found:
            return found[-1]
    return most


def _last_edge(text: str, since: int) -> int:
    """Where the words begin that a text ends with."""
    least = len(text) - min(EDGE_CHARS, len(text) // 4)
    line = text.rfind("\n", max(since, least), len(text.rstrip()))
    if line >= 0:
        return line
    for pattern in (SENTENCE, WORD):
        found = pattern.search(text, least)
        if found and found.end() < len(text):
            return found.end()
    return least


def _asked(piece: str, *, first: bool) -> str:
    ends = [*(m.end() for m in SENTENCE.finditer(piece)), len(piece)]
    sentences = [piece[start:end] for start, end in zip([0, *ends], ends, strict=False) if piece[start:end].strip()]
    outer = sentences if first else sentences[::-1]
    taken, chars = set(), 0
    for number, sentence in enumerate(outer):
        if chars < ASKED_CHARS and (not number or chars + len(sentence) <= ASKED_CHARS):
            taken.add(number if first else len(outer) - 1 - number)
            chars += len(sentence)
        else:
            break
    return "".join(s for n, s in enumerate(sentences) if n in taken or ASKING.search(s))
