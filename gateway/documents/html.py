"""The visible text of HTML, in one pass (guarantee §7)."""

import re
from html import unescape

from gateway.core.types import places
from gateway.documents.document import Reading, ReadOptions
from gateway.documents.plain import decoded


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads the visible text of a page."""
    return Reading(places.plain_lines(html_text(decoded(raw))))


HIDDEN_TAGS = frozenset({"script", "style", "noscript", "template"})
RAW = frozenset({"script", "style"})
BLOCKS = frozenset({"p", "div", "li", "tr", "br", "section", "article", "table", "ul", "ol", "pre"})
HTML_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
HTML_TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*+)(?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+')*+>")
SPACE = re.compile(r"\s+")


def html_text(text: str) -> str:
    """Extracts the visible text, with a line break after each block and `#` before headings.

    Takes one pass whatever the markup: the standard library's parser takes quadratic time for millions of tags that
    never end.
    """
    out: list[str] = []
    depth = position = 0
    while position < len(text):
        at = text.find("<", position)
        end = at if at >= 0 else len(text)
        if end > position and not depth:
            out.append(SPACE.sub(" ", unescape(text[position:end])))
        if at < 0:
            break
        tag = HTML_TAG.match(text, at)
        if tag is None:
            position = _after_odd(text, at)
            if position == at + 1 and not depth:
                out.append("<")
            continue
        position = tag.end()
        name = tag.group(2).lower()
        if tag.group(1):
            depth -= name in HIDDEN_TAGS and depth > 0
            out.append("\n" if name in HTML_HEADINGS or name in BLOCKS else "")
        elif name in RAW:
            close = re.compile(rf"</{name}\b[^<>]*+>", re.IGNORECASE).search(text, position)
            position = close.end() if close else len(text)
        else:
            depth += name in HIDDEN_TAGS
            out.append(_opened(name))
    lines = (line.strip() for line in "".join(out).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _opened(name: str) -> str:
    if name in HTML_HEADINGS:
        return "\n\n" + HTML_HEADINGS[name]
    return "\n" if name in BLOCKS else "\t" if name in ("td", "th") else ""


def _after_odd(text: str, at: int) -> int:
    """Returns the position after a comment or a declaration (the end if it is never closed), or after a mere `<`."""
    if text.startswith("<!--", at):
        end, mark = text.find("-->", at + 4), 3
    elif text.startswith(("<!", "<?"), at):
        end, mark = text.find(">", at), 1
    else:
        return at + 1
    return end + mark if end >= 0 else len(text)
