"""Decides what the window holds (guarantee §4 I1-I7). No selection is returned that is over the budget.

`fit` tells how: everything is kept if it fits; else it is compacted, then old blocks leave, then `WindowPacker` reduces
artifacts to the passages that the question needs, and old turns leave and come back as excerpts (the heuristic of §5).
What has a share of the room of its own is a lane (`LANES`); all else competes for the rest, in order of worth. Room is
filled by guesses of tokens, which a count of the whole corrects.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import inf

from gateway.context.window import tuning
from gateway.context.window.candidates import (
    GreedyFit,
    PassageCandidate,
    SegmentRoom,
    TranscriptMessage,
    best_first,
    candidates,
    current_steps,
    kept_words,
    latest_first,
    of_each_content,
    run_of_turns,
    transcript,
)
from gateway.context.window.counting import PromptCounter
from gateway.context.window.extracts import (
    PlanGuide,
    extract,
    followed,
    guarded,
    not_shown,
    recalled,
    with_recalled,
    without_repeated,
)
from gateway.context.window.fitting import (
    NO_PLAN,
    FittingSteps,
    ForwardedMinimum,
    SelectionLimits,
    WindowFitter,
    in_full,
    once,
    without_hopeless,
)
from gateway.core.types import tool_steps, window
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.window import (
    ArtifactRendering,
    FullPrompt,
    PackedWindow,
    PlanToFollow,
    WindowInputs,
    WindowSelection,
)


@dataclass(frozen=True, slots=True)
class PackingLane:
    """Part of the room with candidates of its own. Lanes are filled one after the other.

    Attributes:
        limit: tokens up to which all that is taken may grow, of the room above the minimum.
        fill: takes what has room of those that are left; returns the others.
    """

    name: str
    limit: Callable[["WindowPacker", float], float]
    fill: Callable[["WindowPacker", list[PassageCandidate], float], list[PassageCandidate]]


class ShownInFull:
    """Which candidates are in the window in full already, for a window that begins at message `first`. They are held
    back until their message leaves the window again."""

    def __init__(self, fitting: WindowFitter, minimum: ForwardedMinimum) -> None:
        self._minimum = minimum
        self._held: list[PassageCandidate] = []
        self._same: dict[str, list[Artifact]] = defaultdict(list)
        self._repeats = fitting.material.repeats
        self._known: dict[tuple[int, int], bool] = {}
        for artifact in fitting.material.placed:
            self._same[artifact.content_id].append(artifact)

    def has(self, candidate: PassageCandidate, first: int) -> bool:
        """Whether it is in the window in full: as a message, as an artifact too small to be reduced, in another
        artifact with the same content, or as a PDF that the model reads itself."""
        key = id(candidate.of), first
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._has(candidate.of, first)
        return known

    def absent(self, found: list[PassageCandidate], first: int) -> list[PassageCandidate]:
        """Those that are not in the window in full; the others are held."""
        absent = self.outside(found, first)
        kept = set(map(id, absent))
        self._held += [c for c in found if id(c) not in kept]
        return absent

    def outside(self, found: list[PassageCandidate], first: int) -> list[PassageCandidate]:
        """Those that are not in the window in full."""
        each = {id(c.of): c for c in found}
        absent = {key for key, one in each.items() if not self.has(one, first)}
        return [c for c in found if id(c.of) in absent]

    def released(self, first: int) -> list[PassageCandidate]:
        """Those that were held and are not in a window that has become smaller."""
        held, self._held = self._held, []
        return self.absent(held, first)

    def _has(self, of: Artifact | TranscriptMessage, first: int) -> bool:
        if isinstance(of, TranscriptMessage):
            return self._is_inside(of.index, first)
        if of.place.message is None and self._is_full(of):
            return True
        if any(self._is_inside(index, first) for index in self._repeats.natives_of(of.content_id)):
            return True
        same = self._same.get(of.content_id, ())
        return any(self._is_inside(each.place.message, first) and self._is_full(each) for each in same)

    def _is_inside(self, index: int | None, first: int) -> bool:
        return index is not None and index >= first and index not in self._minimum.left_out

    def _is_full(self, artifact: Artifact) -> bool:
        pointer = self._minimum.pointers.get(artifact.artifact_id)
        return pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL


class WindowPacker:
    """Packs compacted material in one pass: a minimum, and above it what is worth most.
    Raises ContextLengthExceeded: not even the minimum fits."""

    def __init__(self, fitting: WindowFitter) -> None:
        self._fitting, self._material = fitting, fitting.material
        self._guide, self._minimum = PlanGuide(fitting, fitting.material.searched), ForwardedMinimum(fitting)
        self._best, self._most = self._minimum.settle(may_spare=not self._guide.decisions)
        self._goal = self._minimum.goal(self._most)
        self._shown = ShownInFull(fitting, self._minimum)
        first, left_out = self._minimum.first, self._minimum.left_out
        self._quotable = transcript(self._material, left_out)
        self.taken = GreedyFit(
            fitting.counting,
            first,
            [turn for turn in run_of_turns(self._material) if turn.end <= first],
            cache(self._minimum.cost),
            run_ended=self._minimum.is_cut or any(index >= self._material.current for index in left_out),
            block_fixed=self._minimum.block_fixed,
        )
        self._competing = False
        """Something that is relevant to the question is not in the window, so that turns have a share alone."""
        self._least = 0.0
        """The score from which on a passage that the question calls for is needed."""
        self._relevant: list[PassageCandidate] = []
        """Passages not taken yet that are relevant to the question, in the order in which they are tried."""
        self._rest: list[PassageCandidate] = []
        """All others, latest first."""
        self._late: list[PassageCandidate] = []
        """Passages of old artifacts that wait until nothing of the current turn does (guarantee §4 I5)."""
        self._late_ids: frozenset[int] = frozenset()
        self.segments = SegmentRoom(self._material, fitting.counting)

    def packed(self) -> PackedWindow:
        """The fullest selection that fits. It is counted and corrected `tuning.MAX_CORRECTIONS` times at most."""
        taken, goal = self.taken, self._goal
        limit, tried, before = float(goal - self._most), inf, -1
        self._begin(limit)
        for _ in range(tuning.MAX_CORRECTIONS):
            self._grow(limit)
            selection = self._selection()
            tokens = self._fitting.tokens(selection)
            if self._most <= tokens <= goal:
                self._best, self._most = selection, tokens
            if tokens > goal:
                first, tried = taken.first, min(limit, taken.used) - (tokens - goal)
                self._give_up(tokens - goal)
                if taken.first != first:
                    tried = inf  # a turn was too much, and passages are no turns
                limit, before = taken.used, -1
                continue
            more = self._relevant or self._rest or self._late or (taken.turns and not taken.run_ended)
            if tokens >= tuning.FULL_SHARE * goal or not more:
                break
            if tokens == before:  # what was too much had labels and turns in it that are gone by now
                tried += (goal - tokens) / 2
            limit, before = min(taken.used + goal - tokens, tried), tokens  # beyond `tried` it would be too much again
        return self._fitting.fitted(self._without_repetition(self._best))

    def _begin(self, room: float) -> None:
        """Fills the lanes; what competes for the rest of the room waits, in its order."""
        found, by_plan = self._ranked()
        self._least = tuning.MIN_NEEDED_SCORE * (found[0].passage.score if found else 0.0)
        if self._minimum.spares_current:
            self.taken.extend_run(room)
            found = self._shown.absent(found, self.taken.first)
        relevant = {id(c.of): c for c in found if c.relevant}
        self._competing = not all(self._shown.has(c, self._minimum.first) for c in relevant.values())
        left, decided = self._guide.apart(found)
        for lane in LANES:
            left = lane.fill(self, left, lane.limit(self, room))
        left = best_first([*left, *self._shown.outside(decided, self.taken.first)])
        rest = latest_first([c for c in left if not c.relevant])
        self._relevant, self._rest = self._guide.order(self.taken, room, [c for c in left if c.relevant], rest, by_plan)

    def _ranked(self) -> tuple[list[PassageCandidate], dict[int, PassageCandidate]]:
        """The candidates that the window can show, best first; and all by `order`, scored for the plan's queries."""
        material, guide, relevance = self._material, self._guide, self._fitting.tools.relevance
        pinned = material.pinned_contents
        artifacts = of_each_content([a for a in material.searched if a.content_id not in pinned], material.current)
        found = scored = candidates(material, artifacts, self._quotable, relevance)
        if guide.searches:
            scored = candidates(material, artifacts, self._quotable, relevance, guide.searches)
        by_plan = {each.order: each for each in scored}
        if guide.trusted:
            found = best_first(scored)
        if self._minimum.block_fixed:
            found = [c for c in found if isinstance(c.of, Artifact) and self._can_be_shown_in_place(c)]
        if self._minimum.keeps_block:
            found = not_shown(found, [material.messages[material.current].rendered or {}])
        if not (self._minimum.spares_current or guide.decisions):
            found = self._old_after_current(found)
        return found, by_plan

    def _old_after_current(self, found: list[PassageCandidate]) -> list[PassageCandidate]:
        """Without what waits until nothing of the current turn does, while that is reduced: of old artifacts all but
        what the question needs, and at most a part of each (guarantee §4 I5)."""
        current = {id(c.of): c.of for c in found if not c.historical}
        if not any(isinstance(of, Artifact) and self._minimum.is_reduced(of) for of in current.values()):
            return found
        shown: dict[str, int] = defaultdict(int)
        now: list[PassageCandidate] = []
        least = tuning.MIN_NEEDED_SCORE * found[0].passage.score
        for candidate in found:
            of, chars = candidate.of, candidate.passage.end - candidate.passage.start
            if candidate.historical and isinstance(of, Artifact) and of.artifact_id not in self._minimum.kept:
                most = tuning.OLD_PART * len(of.content) if shown[of.artifact_id] else len(of.content)
                is_needed = candidate.passage.score > 0 and candidate.passage.score >= least
                if not is_needed or shown[of.artifact_id] + chars > most:
                    self._late.append(candidate)
                    continue
                shown[of.artifact_id] += chars
            now.append(candidate)
        self._late_ids = frozenset(map(id, self._late))
        return now

    def take(
        self, first: list[PassageCandidate], limit: float, found: list[PassageCandidate]
    ) -> list[PassageCandidate]:
        """Takes those of `first` that fit; returns what is left of `found`."""
        refused = self.taken.add(first, limit)
        gone = {id(c) for c in first} - {id(c) for c in refused}
        return [c for c in found if id(c) not in gone] if gone else found

    def take_kept(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes all of the old turns' results that have to be quoted word for word."""
        kept = self._minimum.kept
        if not kept:
            return left
        of_kept = [c for c in left if isinstance(c.of, Artifact) and c.of.artifact_id in kept]
        return self.take(of_kept, limit, left)

    def take_best(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the best passages, so that turns do not take the room of all of them."""
        best = [c for c in left if c.relevant][: tuning.BEST_PASSAGES] if self._competing else []
        return self.take(best, limit, left)

    def beside(self, room: float, tokens: float) -> float:
        """Returns up to what so many tokens beside all that is taken fill the room."""
        return min(room, self.taken.used + tokens)

    def turns_limit(self, room: float) -> float:
        """Returns what turns may fill: beside summaries alone where nothing competes."""
        if self._competing:
            return self.beside(room, room * self._turns_share(room))
        return room - self.segments.share(room)

    def take_turns(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the latest turns as messages, of which no passage has to be shown then."""
        self.taken.extend_run(limit)
        return self._shown.absent(left, self.taken.first)

    def take_rules(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes what the user asked to be kept to, and how the conversation began."""
        return self.take(kept_words(left, self._material.recalled.rules), limit, left)

    def latest_share(self, room: float) -> float:
        """Returns the tokens for the latest results: where the model has not seen them, what the mark leaves."""
        return max(room * tuning.LATEST_SHARE, self._minimum.for_fresh)

    def take_latest(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes passages of the latest results, if the model is to go on from them: a client may put instructions, and
        what a user says, behind."""
        steps = current_steps(self._material)
        if not steps or any(m.role == "assistant" for m in self._material.messages[steps[-1].end :]):
            return left
        here = range(steps[-1].start, steps[-1].end)
        return self.take([c for c in left if c.message in here], limit, left)

    def take_needed(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes all that the question needs, where summaries come behind it."""
        if not self._material.segments_before(self.taken.first):
            return left
        needed = [c for c in left if c.passage.called and c.passage.score > 0 and c.passage.score >= self._least]
        return self.take(needed, limit, left)

    def take_segments(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes summaries of what is older than the window."""
        if self._material.segments_before(self.taken.first):
            self.taken.used += self.segments.take(self.taken.first, limit)
        return left

    def _turns_share(self, room: float) -> float:
        """The share of the room for turns as messages: what is configured, and more the less has to be left out, since
        passages torn out of turns are understood less well."""
        share, material = self._fitting.limits.history_share, self._material
        if room < tuning.ROOMY_TOKENS and not material.artifacts:
            return 1.0  # labels would take more of the room than turns leave
        chars = sum(a.size_chars for a in material.searched) + sum(len(each.text) for each in self._quotable)
        held = min(1.0, room * tuning.TOKEN_CHARS / max(1, chars))
        grown = max(0.0, (held - tuning.GROWS_FROM) / (1 - tuning.GROWS_FROM))
        return share + (tuning.MAX_TURNS_SHARE - share) * grown if share < tuning.MAX_TURNS_SHARE else share

    def _can_be_shown_in_place(self, candidate: PassageCandidate) -> bool:
        """Whether it is of a message that can be in the window, other than one whose block is fixed; of that one only
        files of which the text stood elsewhere."""
        index = candidate.message
        if index is None or index < 0 or index in self._minimum.left_out:
            return False
        if index != self._material.current or not self._minimum.keeps_block:
            return True
        return isinstance(candidate.of, Artifact) and self._material.repeats.said_same(candidate.of)

    def _grow(self, limit: float) -> None:
        """Takes relevant passages, then further turns, then all other passages, latest first."""
        taken, little = self.taken, self._fitting.limits.goal * (1 - tuning.FULL_SHARE)
        taken.drop_parts()  # a part once more would bring nothing that it does not show already
        self._relevant = taken.add(self._relevant, limit)
        if self._relevant and limit - taken.used < little:
            return
        taken.extend_run(limit)
        self._rest = taken.add(self._shown.absent(self._rest, taken.first), limit)
        if self._late and all(c.historical for c in chain(self._relevant, self._rest)):
            self._late = taken.add(self._shown.absent(self._late, taken.first), limit)
        if limit - taken.used > little:
            late = () if self._relevant or self._rest else self._late
            too_long = (c for c in chain(self._relevant, self._rest, late) if not self._shown.has(c, taken.first))
            taken.add_parts(too_long, limit)

    def _extract(self, artifact: Artifact, taken: list[PassageCandidate], first: int) -> ArtifactRendering:
        index = artifact.place.message
        in_block = index is None or index < first or index in self._minimum.left_out
        return self._fitting.unless_longer(extract(artifact, taken), in_block=in_block)

    def _give_up(self, tokens: float) -> None:
        """Gives up what was taken last; it waits again, and so do the passages of a turn that has left again."""
        if not self.taken.taken:
            self.taken.used -= self.segments.give_up()
        given_up = self.taken.shrink(tokens)
        back = self._shown.released(self.taken.first)
        self._late = [c for c in (*given_up, *back) if id(c) in self._late_ids] + self._late
        given_up, back = ([c for c in some if id(c) not in self._late_ids] for some in (given_up, back))
        self._relevant = given_up + [c for c in back if c.relevant] + self._relevant
        if back:
            self._rest = latest_first([*(c for c in back if not c.relevant), *self._rest])

    def _without_repetition(self, selection: WindowSelection) -> WindowSelection:
        """Without what the block would show although the window has it word for word elsewhere (guarantee §4 I6)."""
        found = {name: selection.renderings[name] for name in selection.recalled}
        in_block = {name: each for name, each in found.items() if self._is_in_block(each.artifact, selection.first)}
        if not in_block:
            return selection
        forwarded, current = self._fitting.assemble(selection), self._material.current
        pairs = zip(forwarded.indexes, forwarded.messages, strict=True)
        shown = [
            tool_steps.text_of(message.get("content"))
            for index, message in pairs
            if index not in (current, window.SYSTEM_INDEX)
        ]
        kept = {name: without_repeated(each, shown) for name, each in in_block.items()}
        gone = {name for name, each in kept.items() if each is None}
        renderings = selection.renderings | {name: each for name, each in kept.items() if each is not None}
        renderings = {name: each for name, each in renderings.items() if name not in gone}
        return replace(selection, renderings=renderings, recalled=selection.recalled - gone)

    def _is_in_block(self, artifact: Artifact, first: int) -> bool:
        """Whether what is taken of it stands in the block; attached documents, whatever else says the same, apart."""
        index = artifact.place.message
        if index is None:
            return artifact.call is not None
        return index < first or index in self._minimum.left_out

    def _selection(self) -> WindowSelection:
        first, left_out = self.taken.first, self._minimum.left_out
        chosen: dict[str, list[PassageCandidate]] = defaultdict(list)
        quoted: list[PassageCandidate] = []
        for candidate in self._shown.outside(self.taken.passages(), first):
            if self._minimum.block_fixed and (candidate.message or 0) < first:
                continue  # its turn was taken, and given up again
            if isinstance(candidate.of, TranscriptMessage):
                quoted.append(candidate)
            else:
                chosen[candidate.of.artifact_id].append(candidate)
        artifacts = {a.artifact_id: a for a in self._material.searched}
        extracts = {key: self._extract(artifacts[key], taken, first) for key, taken in chosen.items()}
        outside = [m for m in self._quotable if m.index < first or m.index in left_out]
        return WindowSelection(
            first,
            frozenset(index for index in left_out if index >= first),
            {**self._minimum.pointers, **extracts},
            frozenset(chosen),
            recalled(outside, quoted),
            frozen=False,
            keeps_block=self._minimum.keeps_block,
            segments=self.segments.taken,
        )


def labels(room: float) -> int:
    """Returns the tokens of a block for one lane alone, as far as the room has any for them."""
    return tuning.BLOCK_TAG_TOKENS + tuning.ITEM_LABEL_TOKENS if room >= tuning.ROOMY_TOKENS else 0


LANES = (
    PackingLane("kept results", lambda p, room: room, WindowPacker.take_kept),
    PackingLane("best passages", lambda p, room: room * tuning.BEST_SHARE, WindowPacker.take_best),
    PackingLane("turns", WindowPacker.turns_limit, WindowPacker.take_turns),
    PackingLane(
        "rules", lambda p, room: p.beside(room, room * tuning.RULES_SHARE + labels(room)), WindowPacker.take_rules
    ),
    PackingLane("latest step", lambda p, room: p.beside(room, p.latest_share(room)), WindowPacker.take_latest),
    PackingLane("needed passages", lambda p, room: room - p.segments.least(room), WindowPacker.take_needed),
    PackingLane(
        "summaries", lambda p, room: min(room - p.taken.used, p.segments.share(room)), WindowPacker.take_segments
    ),
)
"""What has a share of the room of its own, in the order in which it is filled."""


def fit(
    material: WindowInputs,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    planned: PlanToFollow | None = None,
    unreduced: FullPrompt | None = None,
) -> PackedWindow:
    """The best selection that fits. What was forwarded before stays as it was while everything new fits behind it; else
    one pass decides everything anew and frees enough for several turns (guarantee §4 I5, I7). Remembered things stand
    beside what it kept where they have room (guarantee §11.14).
    `planned`: a plan to follow for artifacts that are forwarded for the first time, and for all once something has to
    leave (guarantee §5); `unreduced`: the result of `count_unreduced`, if that is known.
    Raises ContextLengthExceeded: not even the current message and its latest tool step fit."""
    fitting = WindowFitter(material, limits, counting, tools, planned or NO_PLAN)
    everything = unreduced or count_unreduced(material, limits, counting, tools)
    if limits.usable is None:
        as_it_is = fitting.fitted(everything.selection, everything.forwarded, exact=False)
        return replace(as_it_is, moved=material.moves)
    fitted = _everything_kept(fitting, everything, limits.usable)
    if fitted is None:
        bare = replace(fitting, material=replace(material, things=())) if material.things else fitting
        fitted = _decided_anew(bare, everything.selection)
        if material.things:
            fitted = fitting.fitted_within(limits.usable, fitted.selection) or fitted
        fitted = replace(fitted, new_pass=True)
    return replace(fitted, guarded=guarded(fitting, fitted)) if planned else fitted


def count_unreduced(
    material: WindowInputs,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    shares: Sequence[float] = (),
) -> FullPrompt:
    """What was forwarded before as it was, and all since in full, counted as exactly as it matters.
    `shares`: shares of the budget. It must be certain on which side of each the count is, and of the budget itself."""
    selection = _frozen(material, counting, limits.usable)
    if material.repeats.documents:
        selection = once(material, selection)
    return counted(material, selection, limits, counting, tools, shares)


def counted(
    material: WindowInputs,
    selection: WindowSelection,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    shares: Sequence[float] = (),
) -> FullPrompt:
    """A selection that leaves out nothing of what is new, counted as `count_unreduced` does."""
    budget, usable = limits.tokens, limits.usable
    possible, hopeless = without_hopeless(selection, counting, budget) if budget is not None else (selection, 0)
    forwarded = tools.assemble(material, possible)
    if hopeless:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total + hopeless, new_pass=True)
    if budget is None or usable is None:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total)
    due = material.has_memory_due
    if counting.surely_fits(forwarded, min([usable, *(share * budget for share in shares)])):
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total, new_pass=due)
    tokens = counting.up_to(forwarded, budget)
    return FullPrompt(selection, forwarded, tokens, new_pass=due or tokens > usable)


def _everything_kept(fitting: WindowFitter, everything: FullPrompt, tokens: int) -> PackedWindow | None:
    """Everything, with what a new question needs beside it; None if that does not fit."""
    if everything.new_pass:
        return None
    fitted = fitting.fitted_within(tokens, everything.selection, everything.forwarded)
    kept = with_recalled(fitting, fitted) if fitted else None
    return replace(followed(fitting, kept), moved=fitting.material.moves) if kept else None


def fits_compacted(fitting: WindowFitter, frozen: WindowSelection) -> bool:
    """Whether a pass is enough that takes nothing away: what only takes room is compacted (guarantee §4 I5)."""
    return not fitting.material.has_memory_due and _all_compacted(_compacted(fitting), frozen) is not None


def _decided_anew(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow:
    """One pass, which loses as little as it can."""
    compact = _compacted(fitting)
    return (
        (None if fitting.material.has_memory_due else _all_compacted(compact, frozen))  # a block may quote it
        or _old_blocks_gone(compact)
        or WindowPacker(compact.compacted("recallable")).packed()
    )


def _compacted(fitting: WindowFitter) -> WindowFitter:
    """The same for a pass that decides all anew: compacted, but for what stays word for word."""
    if shaped := fitting.material.shaped:  # references die with what they point to (guarantee §4 I8)
        fitting = replace(fitting, material=fitting.material.in_full(shaped))
    kept = fitting.tools.kept(fitting.material)
    fitting = replace(fitting, kept=tuple(each.artifact_id for each in kept)) if kept else fitting
    return fitting.compacted("placed", "restored", "attached")


def _all_compacted(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow | None:
    """The same window with compacted content, but for messages that were forwarded in another form before."""
    material, shown = fitting.material, set(frozen.renderings)
    for artifact in material.placed:
        message = material.messages[artifact.place.message or 0]
        if message.rendered is None and _is_shorter(artifact):
            shown.add(artifact.artifact_id)
    renderings = _in_full(a for a in material.artifacts if a.artifact_id in shown)
    changed = replace(frozen, renderings=renderings, keeps_memory=False, segments=len(material.segments))
    return _within_goal(fitting, changed)


def _old_blocks_gone(fitting: WindowFitter) -> PackedWindow | None:
    """All messages without their blocks, compacted. What the blocks showed is put into a new one; but a block that the
    first step of the current turn has fixed stays."""
    material = fitting.material
    for_block = () if material.has_block else (*material.restored, *material.attached)
    shorter = (artifact for artifact in material.placed if _is_shorter(artifact))
    renderings = _in_full((*_files(material), *shorter, *for_block))
    turns = run_of_turns(material)
    first = turns[0].start if turns else material.current
    left_out = frozenset(index for index in material.left if index >= first)
    kept, segments = material.has_block, len(material.segments)
    selection = WindowSelection(first, left_out, renderings, frozen=False, keeps_block=kept, segments=segments)
    return _within_goal(fitting, selection)


def _within_goal(fitting: WindowFitter, selection: WindowSelection) -> PackedWindow | None:
    if fitting.material.repeats.documents:
        selection = once(fitting.material, selection)
    if without_hopeless(selection, fitting.counting, fitting.limits.goal)[1]:
        return None
    fitted = fitting.fitted_within(fitting.limits.goal, selection)
    return followed(fitting, fitted) if fitted else None


def _frozen(material: WindowInputs, counting: PromptCounter, usable: int | None) -> WindowSelection:
    """The window as it was forwarded before, without the turns that leave it now, and everything since in full."""
    files = [each for each in _files(material) if not material.stands_reduced(each)]
    renderings = _in_full((*files, *_new_in_block(material)))
    first = material.frozen_first
    if material.moves:
        left = frozenset(i for i in material.left if i >= first)
        return WindowSelection(first, left, renderings, segments=SegmentRoom(material, counting).shown(usable))
    if material.frame is None:
        return WindowSelection(renderings=renderings)
    return WindowSelection(first, material.left, renderings, keeps_memory=True)


def _new_in_block(material: WindowInputs) -> list[Artifact]:
    """Attachments, and results forwarded as text, that no earlier block shows and no earlier pass has decided on."""
    if material.has_block:
        return []
    standing = material.messages[material.frozen_first if material.moves else 0 :]
    known = {name for message in standing for name in message.shown_in_full}
    reduced: set[str] = set()
    if frame := material.frame:
        known |= frame.decided
        inside = {(material.messages[a.place.message or 0].message_id, a.content_id) for a in material.placed}
        decided = {(name, each.artifact_id) for name, found in frame.decisions.items() for each in found}
        reduced = {content for _, content in decided - inside}  # which a plan may have made shorter without need
    apart = (*material.restored, *material.attached)
    return [a for a in apart if a.pinned or (a.block_name not in known and a.content_id not in reduced)]


def _files(material: WindowInputs) -> list[Artifact]:
    """What holds files inside messages that the model gets as text."""
    return [a for a in material.placed if a.becomes_text]


def _is_shorter(artifact: Artifact) -> bool:
    """Whether compaction took anything away."""
    return len(artifact.content) < artifact.size_chars


def _in_full(artifacts: Iterable[Artifact]) -> dict[str, ArtifactRendering]:
    return {artifact.artifact_id: in_full(artifact) for artifact in artifacts}
