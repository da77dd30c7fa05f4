"""Which tool results must not leave, whatever they cost: what the model is editing has to be quoted word for word, and
what it has just read is what it is about (guarantee §4 I7)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.billing.economy.bounces import KEPT_FOR, marks
from gateway.core import jsons
from gateway.core.types import bill
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.window import WindowInputs

EDITED_WITHIN = KEPT_FOR
"""Answers: a file that was edited within so many is one that is being edited."""
READ_WITHIN, READ_WITHIN_COLD = 20, 12
"""Answers: the latest reading of a file within so many stays, while nothing has to leave; where all is written anew."""
READ_WITHIN_PASS = 6
"""The same where something has to leave: there each result that stays takes the room of another."""
WHOLE_SHARE = 0.5
"""Share of a file's longest reading from which on another is a reading of the whole, and not of a page of it."""
PATH = re.compile(
    r"(?<![\w./\\-])[\w./\\-]*(?:[\w-]\.\w{1,6}(?!\w)|(?<![\w.-])(?:"
    r"[A-Z]\w{2,12}file|(?:make|docker|just)file|README|LICENSE|CHANGELOG|CODEOWNERS|Kconfig|\.[a-z]\w{1,30}"
    r")(?![\w./\\-]))"
)
"""A file with its folders, by its extension, the dot before its name, or a name that files without either have."""
EDIT_TOOL_NAME = re.compile(r"edit|write|patch|replace|insert|update", re.IGNORECASE)
"""How tools are named that change files."""
PATCH = re.compile(r"^\*\*\* (?:Update|Add) File: (\S+)", re.MULTILINE)
IN_SHELL = re.compile(r"\bsed\s+-i\S*|\btee\s+(?:-a\s+)?|(?<![0-9&<>-])>{1,2}(?![&>])")
"""How shells change files; the names stand behind."""
KEPT_LOOKAHEAD_CHARS = 400
"""Characters behind such a word in which they are looked for."""
MAX_NAME_CHARS, MAX_CALL_CHARS = 300, 4000
"""A longer argument is no name; a call whose arguments are longer names none of what it reads."""
MAX_NAMES = 50


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool's result in the conversation, with its call: `index` of its message, `size` in any unit, and `age`, the
    answers since it was first forwarded. `is_cut`: it no longer stands in full. `bounced`: the mark of its text, where
    that was read again soon after it had been cut."""

    index: int
    tool: str
    arguments: str
    size: int
    age: int
    is_cut: bool = False
    bounced: bytes | None = None


def kept_results(uses: Sequence[ToolUse], read_within: int = READ_WITHIN) -> list[int]:
    """Indexes of the results that stay, the most needed first: of each file that is being edited the latest reading,
    and the latest of the whole of it; what was called for again after it had been cut; then the latest reading of any
    file, where that is recent.
    `uses`: all results of the conversation, oldest first; `read_within`: answers within which a reading is recent."""
    readings: dict[str, list[ToolUse]] = {}
    alone: dict[str, list[ToolUse]] = {}
    edited: set[str] = set()
    cut: set[tuple[str, str]] = set()
    again: dict[tuple[str, str], ToolUse] = {}
    bounced: dict[bytes, ToolUse] = {}
    for use in uses:
        call = use.tool, use.arguments
        if use.is_cut:
            cut.add(call)
        elif call in cut and use.age <= KEPT_FOR:
            again[call] = use
        if use.bounced is not None:
            bounced[use.bounced] = use
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
    kept: set[int] = set()
    for name in edited & readings.keys():
        found = alone.get(name) or readings[name]
        longest = max(use.size for use in found)
        whole = next(use for use in reversed(found) if use.size >= WHOLE_SHARE * longest)
        kept |= {found[-1].index, whole.index}
    kept.update(use.index for use in (*again.values(), *bounced.values()))
    recent = {each[-1].index for each in readings.values() if each[-1].age < read_within}
    return [*sorted(kept, reverse=True), *sorted(recent - kept, reverse=True)]


def kept_in_pass(material: WindowInputs, costs: bill.BranchCosts | None) -> list[Artifact]:
    """The results that a pass shows whole as far as they have room, the most needed first."""
    results = {each.place.message: each for each in material.placed if each.artifact_type is ArtifactType.TOOL_RESULT}
    return [results[index] for index in kept_results(tool_uses(material, costs), READ_WITHIN_PASS)]


def tool_uses(material: WindowInputs, costs: bill.BranchCosts | None) -> list[ToolUse]:
    """All results of the conversation, oldest first, with the answers since each; `costs` of its branch say what was
    read again."""
    bounced = bill.ResultMarks.together(costs.bounced) if costs is not None else frozenset()
    since, answers, left = [0] * len(material.messages), 0, material.left
    for index in range(len(material.messages) - 1, -1, -1):
        since[index] = answers
        answers += material.messages[index].role == "assistant"
    found = [
        ToolUse(
            at,
            artifact.title or "",
            artifact.arguments,
            artifact.size_chars,
            since[at],
            is_cut=at in left or material.stands_reduced(artifact),
            bounced=next((mark for mark in marks(artifact) if mark in bounced), None) if bounced else None,
        )
        for artifact in material.placed
        if artifact.artifact_type is ArtifactType.TOOL_RESULT and (at := artifact.place.message) is not None
    ]
    return sorted(found, key=lambda use: use.index)


def changed_files(uses: Sequence[ToolUse]) -> set[str]:
    """The files that any of these calls changes, by their names without folders."""
    return {name for use in uses for name in _edited(use.tool, list(_strings(use.arguments)))}


def named_files(arguments: str) -> set[str]:
    """The files that a call names, by their names without folders; none of what is too long to be a call."""
    texts = list(_strings(arguments))
    if sum(map(len, texts)) > MAX_CALL_CHARS:
        return set()
    return {_name(path) for text in texts for path in PATH.findall(text)}


def _edited(tool: str, texts: Sequence[str]) -> Iterator[str]:
    """The files that a call changes, by their names without folders."""
    for text in texts:
        yield from map(_name, PATCH.findall(text))
        if len(text) <= MAX_NAME_CHARS and "\n" not in text and EDIT_TOOL_NAME.search(tool):
            yield from map(_name, PATH.findall(text))
        for found in islice(IN_SHELL.finditer(text), MAX_NAMES):
            line = text[found.end() : found.end() + KEPT_LOOKAHEAD_CHARS].partition("\n")[0]
            yield from map(_name, PATH.findall(line)[:1] if found[0].startswith((">", "tee")) else PATH.findall(line))


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _strings(arguments: str) -> Iterator[str]:
    """The texts in a call's arguments, as JSON or as they are."""
    try:
        return jsons.texts_in(jsons.loads(arguments) if arguments else {})
    except (ValueError, TypeError):
        return iter([arguments])
