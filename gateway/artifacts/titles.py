"""What documents inside user messages are called: by their tags, their fences, or the lines above them."""

import re
from html import unescape

TITLE_CHARS = 100
TITLE_SEARCHED = 600
"""Characters before a document in which its name is looked for."""
TAG_BEFORE = re.compile(r"<([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)>\s*\Z")
ATTRIBUTE = re.compile(
    r"""\b(title|name|filename|file_name|path|file|source|src|href|id)\s*=\s*(?:"([^"]*)"|'([^']*)')"""
)
ATTRIBUTES = ("title", "name", "filename", "file_name", "path", "file", "source", "src", "href", "id")
"""In order of preference."""
MEMBER = re.compile(r"<(title|source|name|path|filename|file_name)>\s*([^<>]{1,200}?)\s*</\1>")
FENCE_BEFORE = re.compile(r"(?:^|\n) {0,3}(?:`{3,}|~{3,})([^\n`]*)\n\Z")
INFO_NAME = re.compile(
    r"""(?:title|name|filename|file|path)\s*=\s*["']?([^"'\s}]+)|([\w./\\-]*\w\.\w{1,8})(?::\d+)?(?=\s|\Z)"""
)
FILE_NAME = re.compile(r"(?:^|[\s`*\"'(\[#:])([\w./\\-]*\w\.[A-Za-z]\w{0,7})[`*\"')\]]*:?\s*\Z")


def title_of(text: str, span: tuple[int, int]) -> str | None:
    """The document's name, on one line: by its tag, its fence, or the line above it; None if it has none."""
    before = text[max(0, span[0] - TITLE_SEARCHED) : span[0]]
    found = _of_tag(before, text[span[0] : span[1]][:TITLE_SEARCHED]) or _of_fence(before) or _of_line(before)
    return " ".join(unescape(found).split())[:TITLE_CHARS] or None if found else None


def _of_tag(before: str, inside: str) -> str | None:
    """As in `<file path="a.py">`, or `<source>a.py</source>` before or after the tag that holds the content."""
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
    """As in ```python title="a.py"` or ```src/a.py`, else the file that the line above the fence names."""
    fence = FENCE_BEFORE.search(before)
    if fence is None:
        return None
    named = INFO_NAME.search(fence.group(1).strip())
    if named:
        return named.group(1) or named.group(2)
    return _of_line(before[: fence.start() + 1])


def _of_line(before: str) -> str | None:
    """The file name that ends the line above, as in `Here is src/app.py:`."""
    line = before.rstrip().rpartition("\n")[2]
    named = FILE_NAME.search(line[-200:])
    return named.group(1) if named else None
