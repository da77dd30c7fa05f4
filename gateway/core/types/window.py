"""What may be forwarded, and what was selected for the window, before it is rendered."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from itertools import chain
from typing import Any, Self

from gateway.core.frozen_records import record
from gateway.core.types import tool_steps
from gateway.core.types.artifacts import LAST_EARLIER, Artifact, ArtifactPlan, ProcessingStrategy
from gateway.core.types.conversation import ConversationMessage, PromptFrame, RecallCache
from gateway.core.types.memory import MemoryEntity, MemoryMessage, PinnedMessage, SummarySegment


@record
class RepeatedDocument:
    """One document that came more than once.

    Attributes:
        files: its copies in messages that are shown as text, oldest first.
        attached: its copy among the attachments; None if there is none.
        natives: indexes of the messages in which it is sent upstream as a PDF.
        is_kept: it is also a file of a pinned message that can only be shown in the memory message.
    """

    content_id: str
    files: tuple[Artifact, ...]
    attached: Artifact | None = None
    natives: tuple[int, ...] = ()
    is_kept: bool = False


@record
class RepeatedDocuments:
    """The repeated documents of a request, and how earlier requests forwarded their files, by message and part.

    Attributes:
        as_text: files whose text, or a part of it, is in the forwarded message.
        as_same: files of which the forwarded message states that the same document is elsewhere.
    """

    documents: tuple[RepeatedDocument, ...] = ()
    as_text: frozenset[tuple[int, int]] = frozenset()
    as_same: frozenset[tuple[int, int]] = frozenset()

    def said_same(self, artifact: Artifact) -> bool:
        """Returns whether the forwarded message states that this file's document is elsewhere."""
        return (artifact.place.message, artifact.place.part) in self.as_same

    def natives_of(self, content_id: str) -> tuple[int, ...]:
        """Returns the indexes of the messages in which the document is sent upstream as a PDF."""
        return next((each.natives for each in self.documents if each.content_id == content_id), ())


NO_REPEATS = RepeatedDocuments()


SYSTEM_INDEX = -1
"""Index of leading system messages, which are not in `WindowInputs.messages`."""
WHOLE_STRATEGIES = (ProcessingStrategy.INCLUDE_FULL.value, ProcessingStrategy.SHAPE.value)
"""Strategies that show an artifact with nothing missing."""
MEMORY_INDEX = -(2**40)
"""Index of the memory message, which is not one of the conversation's own."""


def first_forwarded(frame: PromptFrame | None, messages: Sequence[ConversationMessage]) -> int:
    """Returns the index of the first message of the window as it was forwarded before."""
    if frame is None or frame.first is None:
        return 0
    return next((i for i, message in enumerate(messages) if message.message_id == frame.first), 0)


@record
class ShownPages:
    """Pages of a PDF that are sent upstream without the rest of it, after the block (guarantee §14.13).

    Attributes:
        artifact: the PDF as text.
        numbers: of the pages, from 1, in order.
        part: the `file` part that names them.
    """

    artifact: Artifact
    numbers: tuple[int, ...]
    part: dict[str, Any]


@record
class WindowInputs:
    """All inputs from which a request's context can be built.

    Attributes:
        instructions: leading system messages, which are always forwarded.
        messages: the conversation, oldest first, from which an unbroken run is forwarded.
        current: index of the message that begins the current turn.
        placed: artifacts inside `messages`: tool results, files, and documents within user messages.
        restored: earlier tool results that this request gets as text; they can only be shown in a block.
        attached: attached documents; they can only be shown in a block.
        question: the current user message's own text.
        frame: what was forwarded of the conversation before, if that differs from `messages` (guarantee §4 I7).
        earlier: messages before `messages`; they can be recalled, not forwarded. The last of them has the index
            `LAST_EARLIER`, the one before it one less.
        recallable: artifacts inside `earlier`.
        recall_cache: values derived from `earlier`, shared with later requests.
        pages: pages of PDFs to send beside the current message's block; none if that is fixed.
        cites: the model is asked to cite, in the current message's block (guarantee §14.8); never if that is fixed.
        turns_before: number of turns that began before the first of all these messages.
        pinned: the pinned messages, oldest first, which are in every window (guarantee §11.12).
        segments: the summaries of old turns, oldest first; `segments_first`: they have priority over passages.
        things: remembered things that the question names, to be shown in its block (guarantee §11.14); none if the
            block of the current turn is fixed.
        repeats: the documents that came more than once.
        earliest: index of the first message that may be forwarded; earlier ones stay out.
        moves: the window as it was forwarded before begins earlier than that, so that turns leave it now.
    """

    instructions: tuple[dict[str, Any], ...]
    messages: tuple[ConversationMessage, ...]
    current: int
    placed: tuple[Artifact, ...] = ()
    restored: tuple[Artifact, ...] = ()
    attached: tuple[Artifact, ...] = ()
    question: str = ""
    frame: PromptFrame | None = None
    earlier: tuple[ConversationMessage, ...] = ()
    recallable: tuple[Artifact, ...] = ()
    turns_before: int = 0
    pinned: tuple[PinnedMessage, ...] = ()
    segments: tuple[SummarySegment, ...] = ()
    things: tuple[MemoryEntity, ...] = ()
    segments_first: bool = False
    cites: bool = False
    recall_cache: RecallCache = field(default_factory=RecallCache)
    pages: tuple[ShownPages, ...] = ()
    repeats: RepeatedDocuments = NO_REPEATS
    earliest: int = 0
    moves: bool = False

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts that can be in the window in full."""
        return self.placed + self.restored + self.attached

    @property
    def searched(self) -> tuple[Artifact, ...]:
        """The artifacts whose passages can be in the window. Pinned ones are in it in full."""
        found = self.artifacts + self.recallable
        return tuple(a for a in found if not a.pinned) if self.pinned else found

    @property
    def fresh(self) -> list[Artifact]:
        """The documents and results of the current turn that came with this request: the model has not seen them."""
        new = {i for i, message in enumerate(self.messages) if i >= self.current and message.message_id is None}
        apart = self.attached if self.current in new else ()
        return [a for a in self.placed if a.place.message in new] + [a for a in apart if not a.historical]

    @property
    def pinned_contents(self) -> frozenset[str]:
        """Ids of the contents that every window has in full, since a pinned artifact has them."""
        if not self.pinned:
            return frozenset()
        return frozenset(a.content_id for a in (*self.artifacts, *self.recallable) if a.pinned)

    @property
    def indexed(self) -> Iterator[tuple[int, ConversationMessage]]:
        """`earlier` and `messages` with their indexes."""
        first = LAST_EARLIER + 1 - len(self.earlier)
        return chain(enumerate(self.earlier, first), enumerate(self.messages))

    def segments_before(self, first: int) -> tuple[SummarySegment, ...]:
        """Returns the summaries whose turns are all outside a window that begins with the message at `first`."""
        if not self.segments:
            return ()
        numbers = (message.sequence_number for message in self.messages[first:])
        number = next((each for each in numbers if each is not None), None)  # a new system message has none
        return self.segments if number is None else tuple(each for each in self.segments if each.last < number)

    @property
    def frozen_first(self) -> int:
        """Index of the first message of the window as it was forwarded before, without the turns that leave it now."""
        return max(self.earliest, first_forwarded(self.frame, self.messages))

    @property
    def has_memory_due(self) -> bool:
        """Whether the window as it was forwarded before lacks something pinned, so that everything has to be decided
        again; or whether it is the first window, the conversation begins before it, and there are summaries of that
        part. When a window moves, its new memory message has what leaves it in any case."""
        if not (self.pinned or self.segments):
            return False
        frame, first = self.frame, first_forwarded(self.frame, self.messages)
        held = frame.memory.pinned if frame is not None and frame.memory is not None else ()
        if any(each.is_outside(first, self.left) and each.message_id not in held for each in self.pinned):
            return True
        if frame is None:
            return not self.moves and bool(self.segments_before(first))
        if any(each.index is not None and self._has_short_inputs(each.index) for each in self.pinned):
            return True
        return any(self._is_reduced(artifact, frame) for artifact in self.placed if artifact.pinned)

    def _has_short_inputs(self, index: int) -> bool:
        """Returns whether the message was forwarded without its calls' long inputs."""
        body, form = self.messages[index].body, self.messages[index].rendered
        return form is not None and form.get("tool_calls") != body.get("tool_calls")

    def was_reduced(self, artifact: Artifact) -> bool:
        """Returns whether the artifact's message, as forwarded before, lacks a part of the artifact."""
        index = artifact.place.message or 0
        if self.frame is None or self.messages[index].rendered is None:
            return False
        said = bool(self.repeats.as_same) and self.repeats.said_same(artifact)
        return said or self._is_reduced(artifact, self.frame, WHOLE_STRATEGIES)

    def _is_reduced(self, artifact: Artifact, frame: PromptFrame, whole: Container[str] = WHOLE_STRATEGIES[:1]) -> bool:
        """Returns whether the artifact's message was forwarded with only a part of the artifact."""
        decided = frame.decisions.get(self.messages[artifact.place.message or 0].message_id or "", ())
        return any(each.artifact_id == artifact.content_id and each.strategy not in whole for each in decided)

    @property
    def shaped(self) -> frozenset[int]:
        """Indexes of the results in a shorter form from which nothing is missing (guarantee §4 I8)."""
        if self.frame is None:
            return frozenset()
        shape = ProcessingStrategy.SHAPE.value
        names = {name for name, found in self.frame.decisions.items() if any(e.strategy == shape for e in found)}
        if not names:
            return frozenset()
        messages = enumerate(self.messages)
        return frozenset(i for i, each in messages if each.message_id in names and each.rendered is not None)

    @property
    def references(self) -> dict[int, frozenset[int] | None]:
        """The indexes of the results to which each shaped result refers, by its own index; None if one of them has
        changed, has left the window, or lacks a part."""
        if self.frame is None or not self.frame.refers:
            return {}
        shaped = self.shaped
        at = {each.message_id: index for index, each in enumerate(self.messages)}
        first, left = self.frozen_first, self.left
        standing = {
            (index, each.content_id)
            for each in self.placed
            if (index := each.place.message) is not None and index >= first and index not in left
            if not self.was_reduced(each)
        }
        found: dict[int, frozenset[int] | None] = {}
        for name, targets in self.frame.refers.items():
            index = at.get(name)
            if index is not None and index in shaped:
                places = [(at.get(to, -1), what) for to, what in targets]
                found[index] = frozenset(place for place, _ in places) if standing.issuperset(places) else None
        return found

    @property
    def dangling(self) -> frozenset[int]:
        """Indexes of shaped results with a broken reference (guarantee §4 I8)."""
        return frozenset(index for index, targets in self.references.items() if targets is None)

    def in_full(self, indexes: Set[int]) -> Self:
        """Returns the inputs with these messages restored to the form in which they were sent."""
        if not indexes:
            return self
        messages = tuple(
            replace(each, rendered=None) if index in indexes and each.rendered is not None else each
            for index, each in enumerate(self.messages)
        )
        return replace(self, messages=messages)

    @property
    def has_block(self) -> bool:
        """Whether an earlier step forwarded the message that begins the turn with a block, or otherwise changed."""
        return bool(self.messages) and self.messages[self.current].rendered is not None

    @property
    def may_have_memory(self) -> bool:
        """Whether there is anything that a memory message could contain (guarantee §11.12, §11.13)."""
        return bool(self.pinned or self.segments or (self.frame is not None and self.frame.memory is not None))

    @property
    def is_block_fixed(self) -> bool:
        """Whether the first step of the current turn has decided on its block, or on having none (guarantee §4 I6).
        Documents and results that lose their place in an older block can still get a block."""
        begun = bool(self.messages) and self.messages[self.current].message_id is not None
        return self.has_block or (begun and not (self.restored or self.attached))

    @property
    def left(self) -> frozenset[int]:
        """Indexes of messages whose tool steps left their turn while it was the current one. They stay out (guarantee
        §4 I2), also with results that the client has changed since: no result is forwarded alone (I3)."""
        if self.frame is None or not self.frame.left_out:
            return frozenset()
        found = set[int]()
        for index, message in enumerate(self.messages):
            is_changed_result = index - 1 in found and message.role in tool_steps.RESULT_ROLES
            if is_changed_result or message.message_id in self.frame.left_out:
                found.add(index)
        return frozenset(found)


@record
class PlanToFollow:
    """A planner's plan, ready to follow (guarantee §5).

    Attributes:
        plan: decisions by priority, for artifacts of this request only. The heuristic decides on artifacts that it does
            not name.
        summaries: summaries by artifact id, each shorter than its artifact.
        trusted: whether the plan is followed without the guards of guarantee §5 (`context.trust_planner`).
    """

    plan: ArtifactPlan
    summaries: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = False


@record
class ArtifactRendering:
    """How one artifact is shown.

    Attributes:
        text: the whole content, possibly compacted (`include_full`), or the summary (`summarize`).
        spans: the passages shown, as characters of the content (`rag_extract`, or beside a summary).
        headings: for each span the text to show above it: a table's first row, its section's headings; else "".
        focus: what the summary was made for; "" if for nothing in particular.
        same_as: the same document elsewhere in the window; only a reference to it is shown.
    """

    artifact: Artifact
    strategy: ProcessingStrategy
    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    headings: tuple[str, ...] = ()
    focus: str = ""
    same_as: str = ""

    @property
    def shown_chars(self) -> int:
        return len(self.text) + self.extract_chars

    @property
    def extract_chars(self) -> int:
        """The number of characters of the passages."""
        return sum(end - start for start, end in self.spans)


MESSAGE_HEAD = re.compile(r"\[[^\[\]\n]{1,60}\] ")


def head_of(text: str) -> str:
    """Returns the bracketed beginning of a message, in chat logs mostly its time; "" if it has none."""
    found = MESSAGE_HEAD.match(text)
    return found[0] if found else ""


@record
class OldExcerpt:
    """A quotation of one message outside the window.

    Attributes:
        turn: number of its turn, from 1.
        speaker: the message's role, with its `name` if it has one.
        text: the whole message; `spans` are the characters quoted.
        follows: whether nothing was left out between the previous excerpt and this one.
    """

    turn: int
    speaker: str
    text: str
    spans: tuple[tuple[int, int], ...]
    follows: bool = False


@record
class RecalledExcerpts:
    """Excerpts of old turns, shown in the block. `artifact` is all old turns outside the window as one artifact;
    `more`: something was left out after the last excerpt."""

    artifact: Artifact
    excerpts: tuple[OldExcerpt, ...]
    more: bool = False

    @property
    def shown_chars(self) -> int:
        return sum(end - start for excerpt in self.excerpts for start, end in excerpt.spans)


@record
class WindowSelection:
    """The contents of the window: an unbroken run of messages, and how their artifacts are shown.

    Attributes:
        first: index of the first message of the run.
        left_out: messages after `first` that are not forwarded: old tool steps of the current turn.
        renderings: by artifact id; an artifact without one is forwarded as the client sent it.
        recalled: ids of artifacts shown in the block because their message is outside the window.
        turns: excerpts of old turns for the block.
        frozen: messages stay in the form in which they were forwarded before, with their blocks.
        quoted: ids of artifacts shown in the block beside a frozen window, wherever their message is.
        keeps_block: the message that begins the current turn keeps its block, even if not `frozen` (guarantee §4 I6).
        keeps_memory: the memory message stays as it was forwarded before.
        segments: how many of the latest summaries of old turns may be shown.
        same: ids of documents that are not shown, since the same document is elsewhere in the window.
        refers: by the index of a shaped result's message, the indexes of those to which it refers (guarantee §4 I8).
        short_inputs: indexes of messages whose calls' long inputs are left out.
    """

    first: int = 0
    left_out: frozenset[int] = frozenset()
    renderings: dict[str, ArtifactRendering] = field(default_factory=dict)
    recalled: frozenset[str] = frozenset()
    turns: RecalledExcerpts | None = None
    frozen: bool = True
    quoted: frozenset[str] = frozenset()
    keeps_block: bool = False
    keeps_memory: bool = False
    segments: int = 0
    same: frozenset[str] = frozenset()
    refers: Mapping[int, frozenset[int]] = field(default_factory=dict)
    short_inputs: frozenset[int] = frozenset()

    def has(self, index: int | None) -> bool:
        """Returns whether the message at that index is forwarded; False for None."""
        return index is not None and index >= self.first and index not in self.left_out


@record
class ForwardedMessages:
    """The messages that are sent upstream.

    Attributes:
        indexes: for each message its index in `WindowInputs.messages`; `SYSTEM_INDEX` for leading system messages,
            `MEMORY_INDEX` for the memory message.
        block: the text put at the head of the current user message; "" without one.
        rendered: the current user message with that block.
        pages: the parts after the block that are pages of PDFs.
        shown_in_full: `Artifact.block_name` of each artifact that the block shows in full, in its order.
        memory: the memory message, if there is one.
        things: the remembered things that the block names.
    """

    messages: list[dict[str, Any]]
    indexes: list[int]
    block: str = ""
    rendered: dict[str, Any] | None = None
    shown_in_full: tuple[str, ...] = ()
    memory: MemoryMessage | None = None
    pages: tuple[dict[str, Any], ...] = ()
    things: tuple[MemoryEntity, ...] = ()


@record
class FullPrompt:
    """Everything that may be forwarded: what was forwarded before, unchanged, and all since in full. It decides whether
    to plan (guarantee §5).

    Attributes:
        tokens: an estimate if that is surely below every limit that matters; else the exact count if within the budget;
            else a number above the budget, and not above the exact count or an estimate of it.
        new_pass: everything has to be decided again: the prompt is over the budget, or lacks something pinned.
    """

    selection: WindowSelection
    forwarded: ForwardedMessages
    tokens: int
    new_pass: bool = False


@record
class PackedWindow:
    """A selection that fits, as it will be sent.

    Attributes:
        tokens: the prompt's tokens, the sum of `breakdown`.
        exact: they were compared with the budget; else it is certain by other means that they fit.
        estimated: they were not counted by the model's own tokenizer (guarantee §6).
        new_pass: something had to leave, so that one pass decided everything again (guarantee §4 I7).
        moved: the oldest turns left (`WindowInputs.moves`), and the rest stays as it was.
        guarded: ids of artifacts that the plan excludes but that are shown all the same (guarantee §5).
    """

    selection: WindowSelection
    forwarded: ForwardedMessages
    tokens: int
    exact: bool
    breakdown: dict[str, int]
    new_pass: bool = False
    moved: bool = False
    guarded: frozenset[str] = frozenset()
    estimated: bool = False
