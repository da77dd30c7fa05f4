"""The turns of a window: how many it may hold, whatever room there is for more (guarantee §3.11), and which can be in
one unbroken run (guarantee §4 I2, I3).

A document that came more than once stands once (guarantee §14.6): the first that stands in full carries the text, later
files say so, and attachments stay out of the block. Each selection is looked at anew, so that another carries the text
once the first has left.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from gateway.context.window.prompt_budget import TurnBound
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.tool_steps import RESULT_ROLES, calls_of, turn_starts
from gateway.core.types.window import ArtifactRendering, RepeatedDocument, WindowInputs, WindowSelection


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """Messages `start` to `end` (exclusive): all of a turn, or one tool step, or one message."""

    start: int
    end: int


def run_of_turns(material: WindowInputs) -> list[TurnSpan]:
    """The turns before the current one that can be in an unbroken run with it, oldest first. A turn that has lost tool
    steps ends the run: none before it is in the list, but for messages that nothing answered before it, which belong to
    it. Beside a block that is fixed no turn comes back: the block may quote it."""
    starts = turn_starts(message.role for message in material.messages[: material.current])
    if material.current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    starts = [start for start in starts if start >= material.earliest]
    gap = max(material.left, default=-1)
    if material.has_block and material.frame is not None and material.frame.first is not None:
        starts = [start for start in starts if start >= material.frozen_first]
    turns = [TurnSpan(start, end) for start, end in pairwise([*starts, material.current])]
    first = next((number for number, turn in enumerate(turns) if turn.end > gap), len(turns))
    return [*_unanswered(material, turns[:first]), *turns[first:]]


def said_before(material: WindowInputs) -> list[TurnSpan]:
    """What the user said directly before the message that begins the current turn, oldest first: clients send what an
    agent is told of its place, and reminders, beside its task, before or behind it (guarantee §4 I4). What has left the
    window is not in the list."""
    return _unanswered(material, run_of_turns(material))


def _unanswered(material: WindowInputs, turns: list[TurnSpan]) -> list[TurnSpan]:
    """The last of the turns, as far as nothing answered them and they have not left the window."""
    first, frozen_first = len(turns), material.frozen_first
    while first and turns[first - 1].start >= frozen_first and _is_unanswered(material, turns[first - 1]):
        first -= 1
    return turns[first:]


def _is_unanswered(material: WindowInputs, turn: TurnSpan) -> bool:
    roles = {message.role for message in material.messages[turn.start : turn.end]}
    return "user" in roles and roles.issubset(("user", *INSTRUCTION_ROLES))


def tool_steps(material: WindowInputs) -> list[TurnSpan]:
    """The tool steps of the current turn, oldest first: a call with all of its results (guarantee §4 I3). Those that
    have left stay out."""
    steps: list[TurnSpan] = []
    messages, left = material.messages, material.left
    for index in range(material.current, len(messages)):
        if index not in left and calls_of(messages[index].body):
            end = index + 1
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            steps.append(TurnSpan(index, end))
    return steps


def bounded(material: WindowInputs, turns: TurnBound | None, shown: int | None = None) -> WindowInputs:
    """The material with the first message that may be forwarded.

    Turns that a summary tells leave as soon as a turn begins: what was paid for is shown. Where the summaries of all
    that would leave have no room, nothing leaves for them. Within a turn the window stays. Where the bound would be
    exceeded all the same, the oldest leave down to `TurnBound.kept`. What has left for either does not come back as
    messages.
    `shown`: how many of the latest summaries have room; None: all."""
    if not material.messages or (turns is None and not material.segments):
        return material
    starts, before = turn_starts(message.role for message in material.messages), material.frozen_first
    told = _told(material, starts)
    waiting = len(material.segments_before(told)) - len(material.segments_before(before))
    is_begun = material.messages[material.current].message_id is not None
    if is_begun or (shown is not None and waiting > shown):
        told = min(told, before)
    first = max(before, told)
    inside = [start for start in starts if start >= first]
    if turns is not None and len(inside) > turns.most:
        first = inside[-turns.kept]
    return replace(material, earliest=told if turns is None else first, moves=first > before)


def _told(material: WindowInputs, starts: list[int]) -> int:
    """Index of the first message that no summary covers; that of the current turn at most."""
    if not material.segments:
        return 0
    last = material.segments[-1].last
    numbers = [message.sequence_number for message in material.messages]
    covered = max((i for i, number in enumerate(numbers) if number is not None and number <= last), default=-1)
    behind = next((start for start in starts if start > covered), material.current)
    return min(behind, material.current) if covered >= 0 else 0


MIN_CHARS = 200
"""A shorter document is hardly longer than the words that say where it stands."""
OF_A_PIN = "that of a pinned message"


def once(material: WindowInputs, selection: WindowSelection) -> WindowSelection:
    """The selection in which each document stands once in full. What earlier requests forwarded stays as it was."""
    window = _DedupedWindow(material, selection)
    for document in material.repeats.documents:
        window.show_once(document)
    return replace(selection, renderings=window.renderings, same=frozenset(window.same))


class _DedupedWindow:
    def __init__(self, material: WindowInputs, selection: WindowSelection) -> None:
        self._material, self._selection = material, selection
        self.renderings, self.same = dict(selection.renderings), set(selection.same)

    def show_once(self, document: RepeatedDocument) -> None:
        """Decides on one document. A block may show it by the id that a file has, too, so that ids tell no carrier."""
        here = [file for file in document.files if self._selection.has(file.place.message)]
        in_block = self._is_in_kept_block(document.content_id)
        carrier = self._pinned(document) or next((f.artifact_id for f in here if self._stays_in_full(f)), None)
        if carrier is None and in_block:
            carrier = document.attached.artifact_id if document.attached is not None else document.content_id
        full = [file for file in here if self._shown(file) is ProcessingStrategy.INCLUDE_FULL]
        if carrier is None and full:
            carrier = full.pop(0).artifact_id
        waiting = [file for file in here if self._shown(file) is None and self._material.repeats.said_same(file)]
        named_alone = [file for file in here if self._shown(file) is ProcessingStrategy.EXCLUDE]
        if carrier is not None:
            self._say_same([*full, *named_alone], carrier)
        else:  # a message that keeps its block keeps what it says of its own files, too
            parts = [file for file in here if self._stays_as_text(file)]
            said = [file for file in named_alone if self._material.repeats.said_same(file)]
            if parts:
                self._say_same(said, parts[0].artifact_id)
        if waiting and carrier is None and not self._is_told_elsewhere(here, waiting, document.attached):
            file = waiting.pop(0)  # that which carried the text was deleted
            carrier = file.artifact_id
            self.renderings[carrier] = ArtifactRendering(file, ProcessingStrategy.INCLUDE_FULL, file.content)
        self.same.update(file.artifact_id for file in waiting)
        if document.attached is not None and not in_block:
            is_native = any(map(self._selection.has, document.natives))
            self._hide(document.attached, carries=carrier is not None or is_native, is_here=bool(here))

    def _hide(self, attached: Artifact, *, carries: bool, is_here: bool) -> None:
        """Leaves an attachment out of the block where its document stands in a message: in full, as a PDF, or, if it is
        not new, as an earlier request left it."""
        name = attached.artifact_id
        if attached.pinned or name in self._selection.quoted:
            return
        is_named_alone = self._shown(attached) is ProcessingStrategy.EXCLUDE
        if carries or (is_here and (attached.historical or is_named_alone)):
            self.renderings.pop(name, None)
            self.same.add(name)

    def _is_kept(self, index: int) -> bool:
        """Whether the message stays in the form in which it was forwarded."""
        if self._material.messages[index].rendered is None:
            return False
        return self._selection.frozen or (self._selection.keeps_block and index == self._material.current)

    def _say_same(self, files: list[Artifact], carrier: str) -> None:
        for file in files:
            name = file.artifact_id
            can_change = not (file.pinned or len(file.content) <= MIN_CHARS or self._stays_in_full(file))
            if can_change and not self.renderings[name].same_as:
                self.renderings[name] = ArtifactRendering(file, ProcessingStrategy.EXCLUDE, same_as=carrier)
                self.same.add(name)

    def _shown(self, file: Artifact) -> ProcessingStrategy | None:
        """How it is shown in its message; None if as it was forwarded. What is quoted of it stands in the block."""
        rendering = self.renderings.get(file.artifact_id)
        return rendering.strategy if rendering and file.artifact_id not in self._selection.quoted else None

    def _stays_in_full(self, file: Artifact) -> bool:
        """Whether its message stays as it was forwarded, with all of its text."""
        shown = self._shown(file)
        is_full = shown is ProcessingStrategy.INCLUDE_FULL or (
            shown is None and not self._material.stands_reduced(file)
        )
        return is_full and self._stays_as_text(file)

    def _stays_as_text(self, file: Artifact) -> bool:
        """Whether its message stays as it was forwarded, with its text, or a part of it."""
        return self._is_kept(file.place.message or 0) and self._material.repeats.was_text(file)

    def _pinned(self, document: RepeatedDocument) -> str | None:
        """What any window has in full, in its message or in the memory message."""
        pinned = [file for file in document.files if file.pinned]
        inside = next((file.artifact_id for file in pinned if self._selection.has(file.place.message)), None)
        return inside or (OF_A_PIN if pinned or document.is_kept else None)

    def _is_in_kept_block(self, name: str) -> bool:
        """Whether a block that stays shows the document in full, attached or recalled."""
        messages = self._material.messages
        return any(
            name in message.shown_in_full and self._selection.has(index) and self._is_kept(index)
            for index, message in enumerate(messages)
        )

    def _is_told_elsewhere(self, here: list[Artifact], waiting: list[Artifact], attached: Artifact | None) -> bool:
        """Whether a part of it stands in another message, as an earlier request decided."""
        if len(here) > len(waiting):
            return True
        if attached is None or self._material.frame is None:
            return False
        decisions = self._material.frame.decisions
        return any(
            each.artifact_id == attached.content_id
            for index, message in enumerate(self._material.messages)
            if self._selection.has(index) and self._is_kept(index)
            for each in decisions.get(message.message_id or "", ())
        )
