"""The middle of an over-long text that nothing marks as a document, and the words around it (guarantee §4 I4)."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import unescape
from typing import NamedTuple

# Where a text is fenced or tagged off, found in one pass: a user may send millions of marks without a partner.


FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
OPENING = re.compile(r"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>")
CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)\s*>")
MARKDOWN = frozenset({"markdown", "md", "mdx", "rst"})
MOST_LEVELS = 3
LEAST_SHARE = 0.8
Span = tuple[int, int]


class Fence(NamedTuple):
    """A line of at least three backticks or tildes; `info` is what it says behind them."""

    start: int
    end: int
    sign: str
    length: int
    info: str


def marked_spans(text: str, min_chars: int) -> list[Span]:
    """The insides of fences and of tagged blocks that are longer than `min_chars`, in order; of two that overlap the
    fence counts, and of a block that holds hardly anything but blocks, those count."""
    fenced = [(start, end) for start, end in _fenced(text) if end - start > min_chars]
    starts = [start for start, _ in fenced]
    tagged = []
    for start, end in _tagged(text):
        after = bisect_left(starts, end)
        if end - start > min_chars and (after == 0 or fenced[after - 1][1] <= start):
            tagged += _members(text, (start, end), min_chars, MOST_LEVELS)
    return sorted(fenced + tagged)


def is_tagged(text: str) -> bool:
    """Whether all of the text is one tagged block."""
    opening = OPENING.match(text)
    if opening is None:
        return False
    name = opening.group(1)
    return re.search(rf"</{re.escape(name)}\s*>\Z", text[-len(name) - 100 :]) is not None


def _members(text: str, span: Span, min_chars: int, levels: int) -> list[Span]:
    """The documents that a block consists of, if there are several, else the block."""
    start, end = span
    inner = [(start + a, start + b) for a, b in _tagged(text[start:end]) if b - a > min_chars] if levels else []
    if len(inner) < 2 or sum(b - a for a, b in inner) < LEAST_SHARE * (end - start):
        return [span]
    return [each for member in inner for each in _members(text, member, min_chars, levels - 1)]


def _fenced(text: str) -> Iterator[Span]:
    """What stands between a fence and the one that closes it, without the line ends beside them."""
    lines = [Fence(m.start(), m.end(), m[1][0], len(m[1]), m[2].strip()) for m in FENCE.finditer(text)]
    longest = _longest_after(lines)
    number, nests = 0, True
    while number < len(lines):
        opening = lines[number]
        if longest[number].get(opening.sign, 0) < opening.length:
            number += 1
            continue
        is_markdown = opening.info.partition(" ")[0].lower() in MARKDOWN
        closing = _closing(lines, number, nested=True) if is_markdown and nests else None
        if closing is None:
            nests = nests and not is_markdown  # once is enough: looking to the end each time would take quadratic time
            closing = _closing(lines, number, nested=False) or len(lines) - 1
        end = text.rfind("\n", opening.end, lines[closing].start)
        yield opening.end + 1, max(opening.end + 1, end - (text[end - 1 : end] == "\r"))
        number = closing + 1


def _closing(lines: Sequence[Fence], number: int, *, nested: bool) -> int | None:
    """The next fence of that kind that is as long and says nothing (CommonMark); or, where Markdown that was pasted has
    fences itself, the one that closes the outermost."""
    opening, depth = lines[number], 1
    for closing in range(number + 1, len(lines)):
        line = lines[closing]
        if line.sign == opening.sign and line.length >= opening.length:
            depth += 1 if line.info else -1
            if not line.info and (depth == 0 or not nested):
                return closing
    return None


def _longest_after(lines: Sequence[Fence]) -> list[dict[str, int]]:
    """For each fence the length of the longest of each kind after it that could close one."""
    found: list[dict[str, int]] = []
    longest: dict[str, int] = {}
    for line in reversed(lines):
        found.append(longest)
        if not line.info and line.length > longest.get(line.sign, 0):
            longest = {**longest, line.sign: line.length}
    return found[::-1]


def _tagged(text: str) -> Iterator[Span]:
    ends: dict[str, list[Span]] = defaultdict(list)
    for match in CLOSING.finditer(text):
        ends[match.group(1)].append(match.span())
    position = 0
    for opening in OPENING.finditer(text):
        if opening.start() < position or opening.group(1) not in ends:
            continue
        closings = ends[opening.group(1)]
        at = bisect_left(closings, (opening.end(), 0))
        if at < len(closings):
            yield opening.end(), closings[at][0]
            position = closings[at][1]


# What a document inside a message is called: by its tag, its fence, the line above it, or by itself.


BEFORE_CHARS = 600
TITLE_CHARS = 100
TAG_BEFORE = re.compile(r"<([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)>\s*\Z")
ATTRIBUTE = re.compile(
    r"""\b(title|name|filename|file_name|path|file|source|src|href|id)\s*=\s*(?:"([^"]*)"|'([^']*)')"""
)
ATTRIBUTES = ("title", "name", "filename", "file_name", "path", "file", "source", "src", "href", "id")
"""The best name first."""
MEMBER = re.compile(r"<(title|source|name|path|filename|file_name)>\s*([^<>]{1,200}?)\s*</\1>")
FENCE_BEFORE = re.compile(r"(?:^|\n) {0,3}(?:`{3,}|~{3,})([^\n`]*)\n\Z")
INFO_NAME = re.compile(
    r"""(?:title|name|filename|file|path)\s*=\s*["']?([^"'\s}]+)|([\w./\\-]*\w\.\w{1,8})(?::\d+)?(?=\s|\Z)"""
)
FILE_NAME = re.compile(r"(?:^|[\s`*\"'(\[#:])([\w./\\-]*\w\.[A-Za-z]\w{0,7})[`*\"')\]]*:?\s*\Z")


def title_of(text: str, span: tuple[int, int]) -> str | None:
    """The name of the document that stands at `span`, in one line; None if nothing there names it."""
    before = text[max(0, span[0] - BEFORE_CHARS) : span[0]]
    found = _of_tag(before, text[span[0] : span[1]][:BEFORE_CHARS]) or _of_fence(before) or _of_line(before)
    return " ".join(unescape(found).split())[:TITLE_CHARS] or None if found else None


def _of_tag(before: str, inside: str) -> str | None:
    """`<file path="a.py">`, or `<document><source>a.py</source>`, before or after the tag that holds the content."""
    tag = TAG_BEFORE.search(before)
    if tag is None:
        return None
    named: dict[str, str] = {name: double or single for name, double, single in ATTRIBUTE.findall(tag.group(2))}
    for name in ATTRIBUTES[:-1]:
        if named.get(name, "").strip():
            return named[name]
    above = MEMBER.search(before, max(0, before.rfind("</", 0, before.rfind("</"))))
    if above and before[above.end() : tag.start()].strip():
        above = None
    member = MEMBER.match(inside.lstrip()) or above
    return member[2] if member else named.get("id") or None


def _of_fence(before: str) -> str | None:
    """```python title="a.py"`, ```src/a.py`, or the file that the line above the fence names."""
    fence = FENCE_BEFORE.search(before)
    if fence is None:
        return None
    named = INFO_NAME.search(fence.group(1).strip())
    if named:
        return named.group(1) or named.group(2)
    return _of_line(before[: fence.start() + 1])


def _of_line(before: str) -> str | None:
    """The file that ends the line above, as in `Here is src/app.py:`."""
    line = before.rstrip().rpartition("\n")[2]
    named = FILE_NAME.search(line[-200:])
    return named.group(1) if named else None


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
