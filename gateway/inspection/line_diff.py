"""Messages as text, and what changed in one, line by line. All work is bounded, however long a message is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from gateway.core import jsons
from gateway.core.types.chat import parts_of
from gateway.core.types.tool_steps import asked, calls_of

MAX_LINES = 1000
"""Lines of each side that are compared; between those that begin and end alike."""
MAX_CHARS = 200_000
"""Characters of each side that are compared."""
CONTEXT_LINES = 3
"""Lines that are kept around each change."""
TOLD = ("role", "content", "tool_calls", "function_call")
"""Fields of a message that are told as text; others are told as JSON."""
LineKind = Literal["same", "removed", "added", "skipped"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference. Of `skipped` lines the text is empty, and `count` says how many they are."""

    kind: LineKind
    text: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class LineDiff:
    """What changed in a text. `is_whole` is False where the texts are too long to be compared: then `lines` says only
    that what stands between the parts that are alike was taken out, and what was put in, without the text."""

    lines: tuple[DiffLine, ...]
    is_whole: bool = True


def text_of_message(body: Mapping[str, Any]) -> str:
    """All that a message says: its texts, a line for each other part, each call, and its other fields as JSON."""
    content = body.get("content")
    pieces = [content] if isinstance(content, str) else [_part(part) for part in parts_of(content)]
    for call in calls_of(body):
        name, arguments = asked(call)
        pieces.append(f"→ {name}({arguments})")
    rest = {name: value for name, value in body.items() if name not in TOLD and value is not None}
    if rest:
        pieces.append(jsons.dumps_text(rest))
    return "\n".join(pieces)


def _part(part: Any) -> str:
    """A part of a content: its text, else its kind, and which file it is, or its size, since pictures and sounds are no
    text. The size of an id would say nothing of the file."""
    found = part if isinstance(part, dict) else {}
    if isinstance(found.get("text"), str):
        return str(found["text"])
    file = found["file"] if isinstance(found.get("file"), dict) else found
    told = [" ".join(file[key].split()) for key in ("filename", "file_id") if isinstance(file.get(key), str)]
    if not isinstance(file.get("file_id"), str):
        told.append(f"{len(jsons.dumps(part)):,} bytes")
    return f"[{found.get('type') or 'part'}: {', '.join(told)}]"


def line_diff(before: str, after: str) -> LineDiff:
    """The lines that were taken out and put in, with a few around them. What begins and ends alike costs nothing; only
    what stands between is compared, and only up to `MAX_LINES` and `MAX_CHARS`."""
    old, new = before.split("\n"), after.split("\n")
    start, end = _common(old, new), 0
    end = _common(old[start:][::-1], new[start:][::-1])
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    is_whole = all(len(part) <= MAX_LINES and sum(map(len, part)) <= MAX_CHARS for part in (left, right))
    middle = _compared(left, right) if is_whole else _too_long(left, right)
    lines = [*_same(old[:start]), *middle, *_same(old[len(old) - end :])]
    return LineDiff(tuple(_with_context(lines)), is_whole)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _same(lines: Sequence[str]) -> list[DiffLine]:
    return [DiffLine("same", text) for text in lines]


def _compared(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    found: list[DiffLine] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            found += _same(old[a:b])
            continue
        found += [DiffLine("removed", text) for text in old[a:b]]
        found += [DiffLine("added", text) for text in new[c:d]]
    return found


def _too_long(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    return [DiffLine(kind, "", len(lines)) for kind, lines in _sides(old, new) if lines]


def _sides(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[LineKind, Sequence[str]], ...]:
    return ("removed", old), ("added", new)


def _with_context(lines: Sequence[DiffLine]) -> list[DiffLine]:
    """The lines without those that are far from any change."""
    near = bytearray(len(lines))
    for index, line in enumerate(lines):
        if line.kind != "same":
            first = max(0, index - CONTEXT_LINES)
            last = min(len(lines), index + CONTEXT_LINES + 1)
            near[first:last] = b"\x01" * (last - first)
    found: list[DiffLine] = []
    skipped = 0
    for index, line in enumerate(lines):
        if near[index]:
            if skipped:
                found.append(DiffLine("skipped", "", skipped))
            skipped = 0
            found.append(line)
        else:
            skipped += 1
    return [*found, DiffLine("skipped", "", skipped)] if skipped else found
