"""Which tool results must not leave, whatever they cost: what the model is editing has to be quoted word for word, and
what it has just read is what it is about (guarantee §4 I7)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.base import jsons

EDITED_WITHIN = 40
"""Answers: a file that was edited within so many is one that is being edited."""
READ_WITHIN = 12
"""Answers: the latest reading of a file within so many stays."""
WHOLE_SHARE = 0.5
"""Share of a file's longest reading from which on another is a reading of the whole, and not of a page of it."""
PATH = re.compile(r"[\w./\\-]*[\w-]+\.\w{1,6}(?!\w)")
EDITS = re.compile(r"edit|write|patch|replace|insert|update", re.IGNORECASE)
"""How tools are named that change files."""
PATCH = re.compile(r"^\*\*\* (?:Update|Add) File: (\S+)", re.MULTILINE)
IN_SHELL = re.compile(r"\bsed\s+-i\S*|\btee\s+(?:-a\s+)?|(?<![0-9&<>-])>{1,2}(?![&>])")
"""How shells change files; the names stand behind."""
BEHIND = 400
"""Characters behind such a word in which they are looked for."""
MAX_NAME_CHARS, MAX_CALL_CHARS = 300, 4000
"""A longer argument is no name; a call whose arguments are longer names none of what it reads."""
MAX_NAMES = 50


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool's result in the conversation, with its call: `index` of its message, `size` in any unit, and `age`, the
    answers since it was first forwarded."""

    index: int
    tool: str
    arguments: str
    size: int
    age: int


def kept_results(uses: Sequence[ToolUse]) -> frozenset[int]:
    """Indexes of the results that stay: of each file that is being edited the latest reading, and the latest of the
    whole of it; and the latest reading of any file, where that is recent.

    Args:
        uses: all results of the conversation, oldest first.
    """
    readings: dict[str, list[ToolUse]] = {}
    alone: dict[str, list[ToolUse]] = {}
    edited: set[str] = set()
    for use in uses:
        texts = list(_strings(use.arguments))
        changed = set(_edited(use.tool, texts))
        if use.age <= EDITED_WITHIN:
            edited |= changed
        if changed or sum(map(len, texts)) > MAX_CALL_CHARS:
            continue
        read = dict.fromkeys(_name(path) for text in texts for path in PATH.findall(text))
        for name in islice(read, MAX_NAMES):
            readings.setdefault(name, []).append(use)
            if len(read) == 1:
                alone.setdefault(name, []).append(use)
    kept = {each[-1].index for each in readings.values() if each[-1].age < READ_WITHIN}
    for name in edited & readings.keys():
        found = alone.get(name) or readings[name]
        longest = max(use.size for use in found)
        whole = next(use for use in reversed(found) if use.size >= WHOLE_SHARE * longest)
        kept |= {found[-1].index, whole.index}
    return frozenset(kept)


def _edited(tool: str, texts: Sequence[str]) -> Iterator[str]:
    """The files that a call changes, by their names without folders."""
    for text in texts:
        yield from map(_name, PATCH.findall(text))
        if len(text) <= MAX_NAME_CHARS and "\n" not in text and EDITS.search(tool):
            yield from map(_name, PATH.findall(text))
        for found in islice(IN_SHELL.finditer(text), MAX_NAMES):
            line = text[found.end() : found.end() + BEHIND].partition("\n")[0]
            yield from map(_name, PATH.findall(line)[:1] if found[0].startswith((">", "tee")) else PATH.findall(line))


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _strings(arguments: str) -> Iterator[str]:
    """The texts in a call's arguments, as JSON or as they are."""
    try:
        return jsons.texts_in(jsons.loads(arguments) if arguments else {})
    except (ValueError, TypeError):
        return iter([arguments])
