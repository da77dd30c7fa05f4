"""What one fit works with (the material, its limits, the counter), and the least that is forwarded when not everything
fits: system messages, the current message, its latest tool step.

A document that came more than once is shown once (guarantee §14.6): its first full copy carries the text, later files
refer to that copy, and attachments stay out of the block. This is decided for each selection, so that another copy
carries the text after the first has left.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.context.window import tuning
from gateway.context.window.candidates import TurnSpan, current_steps, of_each_content, run_of_turns, unanswered_before
from gateway.context.window.counting import PromptCounter
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.types import artifacts, conversation
from gateway.core.types.artifacts import Artifact, ArtifactPlan, ProcessingStrategy
from gateway.core.types.chat import PromptBudget
from gateway.core.types.relevance import Relevance
from gateway.core.types.window import (
    ArtifactRendering,
    ForwardedMessages,
    PackedWindow,
    PlanToFollow,
    RepeatedDocument,
    WindowInputs,
    WindowSelection,
)

NO_PLAN = PlanToFollow(ArtifactPlan())
NO_SHORTER = "System messages, the current message and its latest tool step cannot be made shorter"


USABLE_SHARE = 0.99
"""Usable share of the budget where counts are estimates: calibrated ones were measured up to 0.8 % too low."""
MIN_CACHED_TOKENS = 1024
"""Tokens of a prompt below which no provider caches it: a pass costs nothing there, so it may fill that many."""


@record
class SelectionLimits:
    """What a selection is fitted to.

    Attributes:
        tokens: the budget; None if the context is not managed.
        history_share: share of the budget for old turns as messages, as long as passages compete for it.
        low_water: tokens that a pass fills when something had to leave, so that nothing has to leave for several turns
            (guarantee §4 I7); None for the whole budget.
        count_fresh: counts the tokens of documents and results that the model has not seen yet; a pass fills them on
            top. Only a pass asks.
        estimated: tokens are counted with another model's tokenizer, and corrected by what upstream reported.
        budget: the prompt budget that `tokens` comes from.
        is_economic: content leaves only to save cost, so that little of it is recalled.
        may_keep_more: what a pass keeps whole may take more than its part of the goal.
    """

    tokens: int | None
    history_share: float
    low_water: int | None = None
    count_fresh: Callable[[], int] = int
    estimated: bool = False
    budget: PromptBudget | None = None
    is_economic: bool = False
    may_keep_more: bool = False

    @property
    def usable(self) -> int | None:
        """Tokens that a prompt is filled to: a little less than the budget if counts are estimates. Only what cannot be
        made shorter may take all of the budget."""
        if self.tokens is None or not self.estimated:
            return self.tokens
        return int(self.tokens * USABLE_SHARE)

    @property
    def goal(self) -> int:
        """Tokens to which the window is filled when something had to leave."""
        return min(self.old_goal + self.count_fresh(), self.usable or 0)

    @property
    def old_goal(self) -> int:
        """The part of `goal` that is filled whether or not anything is fresh."""
        usable = self.usable or 0
        return usable if self.low_water is None else min(max(self.low_water, MIN_CACHED_TOKENS), usable)


def no_results(_: WindowInputs) -> Sequence[Artifact]:
    """Returns no results: nothing is kept word for word."""
    return ()


class WordedItem(Protocol):
    """Renders an artifact as an item, in the block and for files, or for its own place in a message."""

    def __call__(self, rendering: ArtifactRendering, *, as_item: bool) -> str: ...


@record
class FittingCallbacks:
    """The functions that fitting calls, passed in because steps do not import each other.

    Attributes:
        assemble: renders a whole selection.
        relevance: ranks passages.
        compact: compacts a text without loss.
        worded: renders one artifact.
        kept: finds the results that a pass shows word for word as far as they fit, the most needed first.
    """

    assemble: Callable[[WindowInputs, WindowSelection], ForwardedMessages]
    relevance: Relevance
    compact: Callable[[str], str]
    worded: WordedItem
    kept: Callable[[WindowInputs], Sequence[Artifact]] = no_results


@record
class WindowFitter:
    """All that one fit works with.

    Attributes:
        planned: a plan to follow for artifacts that are forwarded for the first time, and for all once something has to
            leave (guarantee §5).
        kept: ids of the results that are shown whole as far as they fit, the most needed first; an edit may quote them,
            so that they are not compacted either.
    """

    material: WindowInputs
    limits: SelectionLimits
    counting: PromptCounter
    callbacks: FittingCallbacks
    planned: PlanToFollow = NO_PLAN
    kept: tuple[str, ...] = ()

    def assemble(self, selection: WindowSelection) -> ForwardedMessages:
        """Assembles the messages that would be forwarded for the selection."""
        return self.callbacks.assemble(self.material, self._once(selection))

    def _once(self, selection: WindowSelection) -> WindowSelection:
        """Returns the selection with each repeated document shown once."""
        return once(self.material, selection) if self.material.repeats.documents else selection

    def tokens(self, selection: WindowSelection) -> int:
        """Counts exactly the tokens that would be forwarded for the selection."""
        return self.counting.total(self.assemble(selection))

    def fitted(
        self, selection: WindowSelection, forwarded: ForwardedMessages | None = None, *, exact: bool = True
    ) -> PackedWindow:
        """Returns the selection with its tokens, counted or estimated; each repeated document is shown once in it."""
        selection = self._once(selection)
        forwarded = forwarded or self.assemble(selection)
        count = self.counting.exact(forwarded) if exact else self.counting.estimate(forwarded)
        return PackedWindow(selection, forwarded, count.total, exact, count.breakdown, estimated=count.estimated)

    def fitted_within(
        self, tokens: int, selection: WindowSelection, forwarded: ForwardedMessages | None = None
    ) -> PackedWindow | None:
        """Returns the selection if it fits into `tokens`, else None. Only estimates its tokens if it surely fits."""
        forwarded = forwarded or self.assemble(selection)
        if self.counting.fits_by_bound(forwarded, tokens):
            return self.fitted(selection, forwarded, exact=False)
        return self.fitted(selection, forwarded) if self.counting.fits(forwarded, tokens) else None

    def unless_longer(self, rendering: ArtifactRendering, *, in_block: bool) -> ArtifactRendering:
        """Returns the rendering; or the whole artifact if the label and the gaps of an extract or a summary take no
        fewer tokens than what they leave out (guarantee §4 I6)."""
        artifact = rendering.artifact
        if rendering.strategy in (ProcessingStrategy.INCLUDE_FULL, ProcessingStrategy.EXCLUDE):
            return rendering
        beside = sum(map(len, rendering.headings)) + len(rendering.spans) * tuning.MARK_CHARS
        if len(artifact.content) - rendering.shown_chars > tuning.MAX_LABEL_CHARS + beside:
            return rendering
        whole = in_full(artifact)
        as_item = in_block or artifact.is_file
        texts = (self.callbacks.worded(each, as_item=as_item) for each in (rendering, whole))
        shown, full = map(self.counting.text, texts)
        return whole if full <= shown else rendering

    @property
    def searches(self) -> tuple[str, ...]:
        """The plan's search queries, then its queries for single artifacts."""
        plan = self.planned.plan
        queries = (*plan.search_queries, *(decision.extraction_query or "" for decision in plan.artifacts))
        return tuple(dict.fromkeys(query for query in queries if query.strip()))[: artifacts.MAX_QUERIES]

    def compacted(self, *fields: str) -> "WindowFitter":
        """Returns the fitter with the artifacts in these fields of the material compacted, which loses nothing
        (guarantee §4 I5). `size_chars` stays the original size, since labels report how much of that was left out."""
        changed: dict[str, Any] = {}
        kept = frozenset(self.kept)
        for name in fields:
            artifacts: tuple[Artifact, ...] = getattr(self.material, name)
            changed[name] = tuple(
                each
                if each.pinned or each.artifact_id in kept
                else replace(each, content=self.callbacks.compact(each.content))
                for each in artifacts
            )
        return replace(self, material=replace(self.material, **changed))


def drop_impossible(selection: WindowSelection, counting: PromptCounter, tokens: int) -> tuple[WindowSelection, int]:
    """Returns the selection without huge texts that together surely exceed `tokens` tokens, and about how many these
    texts have: 0 if they may fit."""
    huge = {
        name: rendering.text
        for name, rendering in selection.renderings.items()
        if rendering.strategy is ProcessingStrategy.INCLUDE_FULL and len(rendering.text) >= tuning.HUGE_CHARS
    }
    least = sum(map(counting.least_text, huge.values()))
    if least <= tokens:
        return selection, 0
    possible = replace(selection, renderings={k: v for k, v in selection.renderings.items() if k not in huge})
    return possible, max(least, counting.texts(list(huge.values())))


def in_full(artifact: Artifact) -> ArtifactRendering:
    """Renders an artifact in full with its current content, original or compacted. A large document that was read in
    part becomes an extract of all that was read."""
    if artifact.is_excerpt:
        span = (0, len(artifact.content))
        return ArtifactRendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=(span,), headings=("",))
    return ArtifactRendering(artifact, ProcessingStrategy.INCLUDE_FULL, artifact.content)


class ForwardedMinimum:
    """The least that is forwarded.

    Attributes:
        first: index of the first message: the current one, or an unanswered user message directly before it.
        is_cut: an unanswered user message directly before the current one leaves.
        left_out: messages of tool steps that leave the current turn.
        pointers: renderings of artifacts of which nothing else is taken: their label alone, or in full if tiny.
        keeps_block: the message that begins the current turn keeps the block that it was forwarded with.
        block_fixed: that block, or its absence, cannot change any more.
        kept: ids of old turns' results that the model is editing or has just read; the block shows them.
        spares_current: all content of the current turn is shown in full, since reducing old content is enough. If that
            is not enough, content that the model has not seen yet may still be shown in full (guarantee §4 I7).
        for_fresh: tokens reserved for content that the model has not seen yet.
    """

    def __init__(self, fitting: WindowFitter) -> None:
        self._fitting, self._material = fitting, fitting.material
        self._inside: dict[int, list[Artifact]] = defaultdict(list)
        for artifact in self._material.placed:
            self._inside[artifact.place.message or 0].append(artifact)
        self._budget, self._goal = fitting.limits.tokens or 0, fitting.limits.goal
        self._old_goal, self._fixed = fitting.limits.old_goal, 0
        self.first, self.is_cut, self._before = self._material.current, False, unanswered_before(self._material)
        self.for_fresh = 0
        self.left_out = self._material.left
        self.keeps_block, self.block_fixed = self._material.has_block, self._material.is_block_fixed
        self.spares_current = False
        self.kept: frozenset[str] = frozenset()
        self._kept_at: frozenset[int] = frozenset()
        self._whole: dict[str, ArtifactRendering] = {}
        self._for_kept = 0
        self.pointers = self._pointers()

    def settle(self, *, may_spare: bool) -> tuple[WindowSelection, int]:
        """Decides the minimum, and returns it with its tokens. The minimum does not change afterwards.
        `may_spare`: whether `spares_current` is tried, and user messages inside a tool loop are spared.
        Raises ContextLengthExceeded: not even the minimum fits."""
        if may_spare:
            self._whole = self._task_in_full()
            self.pointers |= self._whole
        self._take_before()
        self._raise_goal()
        if may_spare:
            self._keep()
        selection, tokens = self._reached()
        if may_spare and (self._spare_current() or self._spare_fresh()):
            selection = self._selection(self.first, self.pointers)
            tokens = self._fitting.tokens(selection)
        return selection, tokens

    def goal(self, tokens: int) -> int:
        """Returns the tokens to which a window is filled whose minimum takes `tokens`. If a turn's first step has fixed
        its block, the results of the latest step may take space that is otherwise left free for later turns."""
        steps = current_steps(self._material)
        latest = int(self._tokens_for_latest(steps[-1])) if self.keeps_block and steps else 0
        return max(self._most, tokens, min(self._fitting.limits.usable or 0, tokens + latest))

    @property
    def _most(self) -> int:
        """Tokens to which a window is filled, including what is kept word for word."""
        return min(self._goal + self._for_kept, max(self._goal, self._fitting.limits.usable or 0))

    def cost(self, turn: TurnSpan) -> int:
        """Counts the tokens of a turn as messages with its artifacts as pointers, without messages that are left out
        and without system messages, which are in any window."""
        messages = self._material.messages
        inside = (index for index in range(turn.start, turn.end) if index not in self.left_out)
        return sum(
            self._cost_of_message(index)
            for index in inside
            if messages[index].role not in conversation.INSTRUCTION_ROLES
        )

    def _cost_of_message(self, index: int) -> int:
        message, counting = self._material.messages[index], self._fitting.counting
        if index not in self._inside:
            return counting.message(message.body)
        here = tuple(replace(a, place=replace(a.place, message=0)) for a in self._inside[index])
        alone = WindowInputs(instructions=(), messages=(message,), current=-1, placed=here)
        forwarded = self._fitting.callbacks.assemble(alone, WindowSelection(renderings=self.pointers, frozen=False))
        return sum(map(counting.message, forwarded.messages))

    def _reached(self) -> tuple[WindowSelection, int]:
        """Returns the smallest selection needed: system messages, the current message with unanswered user messages
        directly before it, and its tool steps as pointers. If need be, the oldest steps leave, then user messages
        between them except the latest, and last the messages before the current one."""
        steps, said = self._steps(), self._messages_in_loop()
        attached = {a.artifact_id for a in self._material.attached if not a.pinned}
        while True:
            selection = self._selection(self.first, self.pointers)
            tokens = self._fitting.tokens(selection)
            most = self._most - self._tokens_for_latest(steps[-1]) if len(steps) > 1 else self._budget
            if tokens <= most:
                return selection, tokens
            if attached & self.pointers.keys():  # their labels matter less than messages
                self.pointers = {key: value for key, value in self.pointers.items() if key not in attached}
            elif len(steps) > 1:
                self._leave_out(steps, tokens - most)
            elif self._kept_at:  # kept results matter less than messages
                self._let_go()
                steps = self._steps()
            elif self._whole:  # dense text has more tokens than its length suggests
                self.pointers |= {name: self._pointer(each.artifact) for name, each in self._whole.items()}
                self._whole = {}
            elif len(said) > 1:  # half of what is free after a pass, so that the next steps have room
                self._leave_out(said, tokens - (self._goal + self._budget) / 2)
            elif self.keeps_block:  # the block that the turn's first step fixed cannot stay
                self.keeps_block = self.block_fixed = False
                self.left_out, steps, said = self._material.left, self._steps(), self._messages_in_loop()
                self.pointers = self._pointers()
            elif self._before:
                self._cut_before(tokens - (self._goal + self._budget) / 2)
            else:
                limits = self._fitting.limits
                text = (limits.budget or PromptBudget(limits.tokens, None)).overflow(tokens)
                why = self._sizes(selection) if self._material.pinned else NO_SHORTER
                raise errors.ContextLengthExceeded(
                    f"{text} {why}; their budget is {self._budget} tokens.", param="messages"
                )

    def _raise_goal(self) -> None:
        """Raises the goal if what cannot leave takes nearly all of the low-water mark."""
        limits = self._fitting.limits
        if limits.low_water is None:
            return
        stays, usable = self.left_out, limits.usable or 0
        self.left_out |= {index for step in self._steps()[:-1] for index in range(step.start, step.end)}
        self._fixed = fixed = self._fitting.tokens(self._selection(self.first, self.pointers))
        self.left_out = stays
        self._old_goal = max(self._old_goal, min(usable, int(fixed + tuning.FREE_SHARE * (usable - fixed))))
        self._goal = min(self._old_goal + limits.count_fresh(), usable)
        self.for_fresh = self._tokens_for_fresh()

    def _keep(self) -> None:
        """Shows results whole that have to be quoted word for word, the most needed first; results of the current turn
        stay in place, with their steps. They take half of the space below the goal; more only if `may_keep_more`."""
        fitting, fresh = self._fitting, {each.artifact_id for each in self._material.fresh}
        limits = fitting.limits
        most = room = tuning.KEPT_IN_GOAL * (self._old_goal - self._fixed)
        if limits.may_keep_more:
            room = max(room, tuning.KEPT_SHARE * (limits.usable or 0) - self._fixed - limits.count_fresh())
        results = {each.artifact_id: each for each in self._material.placed}
        now: dict[str, Artifact] = {}
        old: set[str] = set()
        taken = 0
        for name in fitting.kept:
            artifact, index = results[name], results[name].place.message or 0
            is_here = index >= self._material.current and index not in self.left_out
            if name in fresh or not self.is_reduced(artifact) or (self.block_fixed and not is_here):
                continue
            tokens = fitting.counting.text(artifact.content)
            if tokens > room:
                continue
            room -= tokens
            taken += tokens
            if is_here:
                now[name] = artifact
            else:
                old.add(name)
        self.pointers |= {name: in_full(artifact) for name, artifact in now.items()}
        self.kept = frozenset(old)
        self._for_kept = max(0, int(taken - most))
        self._kept_at = frozenset(artifact.place.message or 0 for artifact in now.values())

    def _let_go(self) -> None:
        """Lets the steps leave whose results were kept in place."""
        for index in self._kept_at:
            self.pointers |= {each.artifact_id: self._pointer(each) for each in self._inside[index]}
        self._kept_at, self._for_kept = frozenset(), 0

    def _take_before(self) -> None:
        """Takes the unanswered user messages directly before the current one, the latest first, as far as they fit."""
        room = self._budget if current_steps(self._material) else tuning.BEFORE_SHARE * self._goal
        number = len(self._before)
        while number and (room := room - self.cost(self._before[number - 1])) >= 0:
            number -= 1
        self._before = self._before[number:]
        self.first = self._before[0].start if self._before else self.first

    def _cut_before(self, excess: float) -> None:
        """Removes the unanswered user messages directly before the current message, the oldest first."""
        while self._before and excess > 0:
            turn = self._before.pop(0)
            self.first, self.is_cut = turn.end, True
            excess -= self.cost(turn)

    def _steps(self) -> list[TurnSpan]:
        """Returns the tool steps of the current turn that may leave, and the latest, which stays. Steps with pinned or
        kept messages stay, too, and are not returned."""
        steps, messages = current_steps(self._material), self._material.messages
        fixed = [any(messages[i].pinned or i in self._kept_at for i in range(step.start, step.end)) for step in steps]
        return [step for step, stays in zip(steps[:-1], fixed, strict=False) if not stays] + steps[-1:]

    def _task_in_full(self) -> dict[str, ArtifactRendering]:
        """Renders in full, as far as they fit, the documents in the message that began the current tool loop, in the
        user's latest message, and in user messages directly before the loop."""
        if not current_steps(self._material):
            return {}
        messages, current = self._material.messages, self._material.current
        said = [index for index in range(current, len(messages)) if messages[index].role == "user"]
        found: dict[str, ArtifactRendering] = {}
        room = tuning.TASK_SHARE * self._goal * tuning.TOKEN_CHARS
        before = (turn.start for turn in reversed(self._before))
        holders = dict.fromkeys((*said[:1], *said[-1:], *before))
        for artifact in (each for index in holders for each in self._inside.get(index, ())):
            room -= len(artifact.content)
            if room >= 0 and artifact.artifact_id in self.pointers:
                found[artifact.artifact_id] = in_full(artifact)
        return found

    def _messages_in_loop(self) -> list[TurnSpan]:
        """Returns the user messages inside the current tool loop that may leave, and the latest, which stays."""
        messages, left = self._material.messages, self.left_out
        behind = range(self._material.current + 1, len(messages))
        said = [index for index in behind if messages[index].role == "user" and index not in left]
        return [TurnSpan(index, index + 1) for index in said if not messages[index].pinned or index == said[-1]]

    def _sizes(self, selection: WindowSelection) -> str:
        """Describes what cannot all be kept, with the tokens of each part."""
        forwarded, count = self._fitting.assemble(selection), self._fitting.counting.message
        memory = forwarded.memory.body if forwarded.memory is not None else None
        others = [message for message in forwarded.messages if message is not memory]
        system = sum(count(message) for message in others if message["role"] in conversation.INSTRUCTION_ROLES)
        current = sum(count(message) for message in others if message["role"] not in conversation.INSTRUCTION_ROLES)
        pinned = count(memory) if memory is not None else 0
        rest = self._fitting.counting.total(forwarded) - system - current - pinned
        return (
            f"System messages take {system} tokens, pinned messages {pinned}, the current message and its latest tool "
            f"step {current}, tools and the rest {rest}; none of them can be made shorter"
        )

    def _selection(self, first: int, pointers: dict[str, ArtifactRendering]) -> WindowSelection:
        left_out = frozenset(index for index in self.left_out if index >= first)
        return WindowSelection(first, left_out, pointers, frozen=False, keeps_block=self.keeps_block)

    def _spare_current(self) -> bool:
        """Shows the content of the current turn in full if reducing old content is enough (guarantee §4 I5): if all
        messages fit and leave `OLD_SHARE` for the best of the old content. Returns whether it did."""
        current = self._material.current
        new = [a for a in (*self._material.attached, *self._material.placed) if not a.historical]
        spared = [a for a in of_each_content(new, current) if self.is_reduced(a)]
        has_old = any(a.historical for a in self._material.searched)
        if not (spared and has_old) or any(index >= current for index in self.left_out):
            return False
        pointers = self.pointers | {a.artifact_id: in_full(a) for a in spared}
        turns = run_of_turns(self._material)
        forwarded = self._fitting.assemble(self._selection(turns[0].start if turns else current, pointers))
        if self._fitting.counting.fits(forwarded, int(self._goal * (1 - tuning.OLD_SHARE))):
            self.pointers, self.spares_current = pointers, True
        return self.spares_current

    def _spare_fresh(self) -> bool:
        """Shows content that the model has not seen yet in full if it fits, in a pass down to the low-water mark; a
        plan decides on that content instead. Returns whether it did."""
        fresh = [a for a in of_each_content(self._material.fresh, self._material.current) if self.is_reduced(a)]
        if self._fitting.planned is not NO_PLAN or not (fresh and self.for_fresh):
            return False
        pointers = self.pointers | {a.artifact_id: in_full(a) for a in fresh}
        forwarded = self._fitting.assemble(self._selection(self.first, pointers))
        spares = self._fitting.counting.fits(forwarded, self._fitting.limits.usable or 0)
        self.pointers = pointers if spares else self.pointers
        return spares

    def is_reduced(self, artifact: Artifact) -> bool:
        """Returns whether the minimum shows an artifact reduced, so that more of it can be taken above the minimum."""
        pointer = self.pointers.get(artifact.artifact_id)
        if pointer is None:  # beyond the number of named documents, or shown in a fixed block
            return not (self.keeps_block or self.block_fixed)
        return pointer.strategy is ProcessingStrategy.EXCLUDE

    def _tokens_for_latest(self, step: TurnSpan) -> float:
        """Returns the tokens reserved for the results of the latest step as long as older steps can leave."""
        chars = sum(len(a.content) for at in range(step.start, step.end) for a in self._inside.get(at, ()))
        return max(min(chars / tuning.TOKEN_CHARS, (self._goal - self._fixed) * tuning.LATEST_SHARE), self.for_fresh)

    def _tokens_for_fresh(self) -> int:
        """Returns the tokens that a pass down to the low-water mark reserves for content that the model has not seen
        yet: all of it if it fits beside the labels of earlier steps; else what the mark leaves."""
        limits = self._fitting.limits
        above, room = self._goal - self._old_goal, (limits.usable or 0) - self._fixed
        if not above or limits.count_fresh() > room:
            return above
        return min(limits.count_fresh(), int(room - self._tokens_for_labels(room * tuning.OLD_SHARE)))

    def _tokens_for_labels(self, most: float) -> float:
        """Returns the tokens of the latest earlier steps as labels, at most `most`: an agent that sees none of what it
        has done does it again."""
        tokens = 0.0
        for step in reversed(self._steps()[:-1]):
            tokens += self.cost(step)
            if tokens >= most:
                return most
        return tokens

    def _leave_out(self, steps: list[TurnSpan], excess: float) -> None:
        """Removes steps from `steps`, oldest first, until `excess` tokens have left; the last step stays."""
        leaving: set[int] = set()
        while len(steps) > 1 and excess > 0:
            step = steps.pop(0)
            leaving.update(range(step.start, step.end))
            excess -= self.cost(step)
        self.left_out |= leaving

    def _pointers(self) -> dict[str, ArtifactRendering]:
        placed = self._material.placed
        attached = [a for a in self._material.attached if not a.historical][: tuning.MAX_NAMED_DOCUMENTS]
        attached += [a for a in self._material.attached if a.pinned and a.historical]
        if self.keeps_block:
            current, said_same = self._material.current, self._material.repeats.said_same
            placed = tuple(a for a in placed if a.place.message != current or said_same(a))
        if self.block_fixed:
            attached = []
        return {a.artifact_id: self._pointer(a) for a in (*placed, *attached)}

    def _pointer(self, artifact: Artifact) -> ArtifactRendering:
        """Renders an artifact as its label alone; in full if that takes no more tokens."""
        label, whole = ArtifactRendering(artifact, ProcessingStrategy.EXCLUDE), in_full(artifact)
        if artifact.pinned:
            return whole
        if len(artifact.content) > tuning.POINTER_CHARS or artifact.place.message is None:
            return label
        worded, tokens = self._fitting.callbacks.worded, self._fitting.counting.text
        shown, full = (tokens(worded(each, as_item=artifact.is_file)) for each in (label, whole))
        return whole if full <= shown else label


REPEATED_DOCUMENT_CHARS = 200
"""A shorter document is hardly longer than the reference to its other copy."""
OF_A_PIN = "that of a pinned message"


def once(material: WindowInputs, selection: WindowSelection) -> WindowSelection:
    """Returns the selection with each document shown in full once. What earlier requests forwarded stays unchanged."""
    window = _DedupedWindow(material, selection)
    for document in material.repeats.documents:
        window.show_once(document)
    return replace(selection, renderings=window.renderings, same=frozenset(window.same))


class _DedupedWindow:
    def __init__(self, material: WindowInputs, selection: WindowSelection) -> None:
        self._material, self._selection = material, selection
        self.renderings, self.same = dict(selection.renderings), set(selection.same)

    def show_once(self, document: RepeatedDocument) -> None:
        """Decides which copy of a document carries its text. A block may show it by an id that a file has, too."""
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
        else:  # a message that keeps its block also keeps its references for its own files
            parts = [file for file in here if self._stays_as_text(file)]
            said = [file for file in named_alone if self._material.repeats.said_same(file)]
            if parts:
                self._say_same(said, parts[0].artifact_id)
        if waiting and carrier is None and not self._is_partly_elsewhere(here, waiting, document.attached):
            file = waiting.pop(0)  # the copy that carried the text was deleted
            carrier = file.artifact_id
            self.renderings[carrier] = ArtifactRendering(file, ProcessingStrategy.INCLUDE_FULL, file.content)
        self.same.update(file.artifact_id for file in waiting)
        if document.attached is not None and not in_block:
            is_native = any(map(self._selection.has, document.natives))
            self._hide(document.attached, carries=carrier is not None or is_native, is_here=bool(here))

    def _hide(self, attached: Artifact, *, carries: bool, is_here: bool) -> None:
        """Leaves an attachment out of the block if a message shows its document: in full, as a PDF, or, if it is not
        new, as an earlier request left it."""
        name = attached.artifact_id
        if attached.pinned or name in self._selection.quoted:
            return
        is_named_alone = self._shown(attached) is ProcessingStrategy.EXCLUDE
        if carries or (is_here and (attached.historical or is_named_alone)):
            self.renderings.pop(name, None)
            self.same.add(name)

    def _is_kept(self, index: int) -> bool:
        """Returns whether the message stays in the form in which it was forwarded."""
        if self._material.messages[index].rendered is None:
            return False
        return self._selection.frozen or (self._selection.keeps_block and index == self._material.current)

    def _say_same(self, files: list[Artifact], carrier: str) -> None:
        for file in files:
            name = file.artifact_id
            can_change = not (file.pinned or len(file.content) <= REPEATED_DOCUMENT_CHARS or self._stays_in_full(file))
            if can_change and not self.renderings[name].same_as:
                self.renderings[name] = ArtifactRendering(file, ProcessingStrategy.EXCLUDE, same_as=carrier)
                self.same.add(name)

    def _shown(self, file: Artifact) -> ProcessingStrategy | None:
        """Returns how the file's message shows it; None if as it was forwarded. Quotes of it are in the block."""
        rendering = self.renderings.get(file.artifact_id)
        return rendering.strategy if rendering and file.artifact_id not in self._selection.quoted else None

    def _stays_in_full(self, file: Artifact) -> bool:
        """Returns whether the file's message stays as it was forwarded, with all of the file's text."""
        shown = self._shown(file)
        is_full = shown is ProcessingStrategy.INCLUDE_FULL or (shown is None and not self._material.was_reduced(file))
        return is_full and self._stays_as_text(file)

    def _stays_as_text(self, file: Artifact) -> bool:
        """Returns whether the file's message stays as it was forwarded, with all or part of the file's text."""
        was_text = (file.place.message, file.place.part) in self._material.repeats.as_text
        return was_text and self._is_kept(file.place.message or 0)

    def _pinned(self, document: RepeatedDocument) -> str | None:
        """Names the copy that any window has in full, in its message or in the memory message; None: no copy."""
        pinned = [file for file in document.files if file.pinned]
        inside = next((file.artifact_id for file in pinned if self._selection.has(file.place.message)), None)
        return inside or (OF_A_PIN if pinned or document.is_kept else None)

    def _is_in_kept_block(self, name: str) -> bool:
        """Returns whether a block that stays shows the document in full, attached or recalled."""
        messages = self._material.messages
        return any(
            name in message.shown_in_full and self._selection.has(index) and self._is_kept(index)
            for index, message in enumerate(messages)
        )

    def _is_partly_elsewhere(self, here: list[Artifact], waiting: list[Artifact], attached: Artifact | None) -> bool:
        """Returns whether another message shows a part of the document, as an earlier request decided."""
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
