"""XML: each element's name with its content, so that a question on a field finds it (guarantee §14.11)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from xml.parsers import expat

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions
from gateway.documents.plain import checked_text

MAX_INDENT = 20
"""Levels that are indented; deeper ones are indented like the last of these."""
MAX_XML_DEPTH = 10_000
MAX_RECORD = 400
"""Characters up to which an element with its members is one line, so that no passage splits them."""
MAX_XML_VALUE_CHARS = 2000
"""Characters of one attribute that are read."""


class _NotTold(Exception):
    """The XML holds entities, or is nested more deeply than anybody writes."""


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Renders lines `name: value`, indented as the elements are nested, attributes in parentheses. A small element with
    members that hold none themselves is one line: `name: member: value; member: value`.

    Text that is no well-formed XML, or declares entities, stays unchanged: no entity is ever replaced or fetched.
    Raises UnreadableDocument: it is no text."""
    text = checked_text(raw)
    lines = _XmlLines()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = lines.start
    parser.EndElementHandler = lines.end
    parser.CharacterDataHandler = lines.add
    parser.EntityDeclHandler = lines.entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except (expat.ExpatError, _NotTold, ValueError):
        return Reading(places.plain_lines(text))
    finally:
        # The parser and what it calls hold one another.
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.CharacterDataHandler = parser.EntityDeclHandler = None
    notes = (LeftOut(f"Attributes were cut at {MAX_XML_VALUE_CHARS:,} characters."),) if lines.is_cut else ()
    return Reading(places.plain_lines("\n".join(_records(lines.done))), notes)


class _XmlLines:
    """Lines of what was parsed so far."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_cut = False
        self._names: list[str] = []
        self._text: list[str] = []
        self._label = ""

    def start(self, name: str, attributes: Sequence[str]) -> None:
        """Begins an element. Raises _NotTold: it is nested too deep."""
        if len(self._names) >= MAX_XML_DEPTH:
            raise _NotTold
        self._flush()
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        told = ", ".join(f'{_plain(key)}="{_one_line(value)[:MAX_XML_VALUE_CHARS]}"' for key, value in pairs)
        self.is_cut = self.is_cut or any(len(value) > MAX_XML_VALUE_CHARS for value in attributes[1::2])
        self._names.append(_plain(name))
        self._label = f"{_plain(name)} ({told})" if told else _plain(name)

    def end(self, _name: str) -> None:
        self._flush()
        self._names.pop()

    def add(self, text: str) -> None:
        self._text.append(text)

    def entity(self, *_declared: object) -> None:
        """Raises _NotTold: always."""
        raise _NotTold

    def _flush(self) -> None:
        text = _one_line("".join(self._text))
        self._text.clear()
        if not self._label and not text:
            return
        depth = len(self._names) - 1
        if self._label:
            self.done.append("  " * min(depth, MAX_INDENT) + self._label + (f": {text}" if text else ":"))
        else:  # text behind an element inside of this one
            self.done.append("  " * min(depth + 1, MAX_INDENT) + text)
        self._label = ""


def _records(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines, those of small records joined; the outermost element is not a record."""
    at = 0
    while at < len(lines):
        below = _members(lines, at) if _depth(lines[at]) and lines[at].endswith(":") else []
        yield " ".join([lines[at], "; ".join(below)]) if below else lines[at]
        at += 1 + len(below)


def _members(lines: Sequence[str], at: int) -> list[str]:
    """Returns the members of an element, if none has members and all fit into one line; else none."""
    depth, size = _depth(lines[at]), len(lines[at])
    found: list[str] = []
    for line in islice(lines, at + 1, None):
        deeper = _depth(line) - depth
        if deeper <= 0:
            break
        size += len(line)
        if deeper > 1 or size > MAX_RECORD:
            return []
        found.append(line.strip())
    return found


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip(" "))) // 2


def _plain(name: str) -> str:
    """Returns a name without its prefix, which means nothing to a reader; `xmlns` stays."""
    return name if name.startswith("xmlns") else name.rpartition(":")[2]


def _one_line(text: str) -> str:
    return " ".join(text.split())
