"""Decides what the window holds (guarantee §4 I1-I7). It never returns a selection that is over the budget.

`fit` keeps everything if it fits; else it compacts, then removes old blocks, then `WindowPacker` reduces artifacts to
the passages that the question needs and replaces old turns by excerpts (the heuristic of §5). A lane (`LANES`) has a
share of the budget of its own; all else competes for the rest, in order of relevance. The packer fills the budget by
estimates of tokens, and an exact count of the whole selection corrects them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf

from gateway.context.window import tuning
from gateway.context.window.candidates import (
    GreedyFit,
    PassageCandidate,
    QuotableMessages,
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
    ForwardedMinimum,
    WindowFitter,
    drop_impossible,
    in_full,
    once,
)
from gateway.core.frozen_records import record
from gateway.core.types import tool_steps, window
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.window import (
    ArtifactRendering,
    FullPrompt,
    PackedWindow,
    WindowInputs,
    WindowSelection,
)


@record
class PackingLane:
    """Part of the budget with candidates of its own. Lanes are filled one after the other.

    Attributes:
        limit: tokens that everything taken so far may reach, of the budget above the minimum.
        fill: takes those of the remaining candidates that fit; returns the others.
    """

    name: str
    limit: Callable[["WindowPacker", float], float]
    fill: Callable[["WindowPacker", list[PassageCandidate], float], list[PassageCandidate]]


class ShownInFull:
    """Tracks which candidates the window shows in full already, for a window that begins at message `first`. Holds them
    back until their message leaves the window again."""

    def __init__(self, fitting: WindowFitter, minimum: ForwardedMinimum) -> None:
        self._minimum = minimum
        self._held: list[PassageCandidate] = []
        self._same: dict[str, list[Artifact]] = defaultdict(list)
        self._repeats = fitting.material.repeats
        self._known: dict[int, dict[int, bool]] = {}
        for artifact in fitting.material.placed:
            self._same[artifact.content_id].append(artifact)

    def absent(self, found: list[PassageCandidate], first: int) -> list[PassageCandidate]:
        """Returns the candidates that the window does not show in full, and holds back the others."""
        absent = self.outside(found, first)
        kept = set(map(id, absent))
        self._held += [c for c in found if id(c) not in kept]
        return absent

    def outside(self, found: list[PassageCandidate], first: int) -> list[PassageCandidate]:
        """Returns the candidates that the window does not show in full, and holds back none. It shows them as a
        message, as an artifact too small to be reduced, in another artifact with the same content, or as a PDF that the
        model reads itself."""
        known = self._known.setdefault(first, {})
        for candidate in found:
            if id(candidate.of) not in known:
                known[id(candidate.of)] = self._has(candidate.of, first)
        return [c for c in found if not known[id(c.of)]]

    def released(self, first: int) -> list[PassageCandidate]:
        """Returns the held candidates that a window that has become smaller no longer shows in full."""
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
    """Packs compacted material in one pass: a minimum, then the most relevant content above it.
    Raises ContextLengthExceeded: not even the minimum fits."""

    def __init__(self, fitting: WindowFitter) -> None:
        self._fitting, self._material = fitting, fitting.material
        self._guide, self._minimum = PlanGuide(fitting, fitting.material.searched), ForwardedMinimum(fitting)
        self._best, self._most = self._minimum.settle(may_spare=not self._guide.decisions)
        self._goal = self._minimum.goal(self._most)
        self._shown = ShownInFull(fitting, self._minimum)
        first, left_out = self._minimum.first, self._minimum.left_out
        self._quotable = transcript(self._material, left_out)
        self._outside: dict[int, QuotableMessages] = {}
        self.taken = GreedyFit(
            fitting.counting,
            first,
            [turn for turn in run_of_turns(self._material) if turn.end <= first],
            cache(self._minimum.cost),
            run_ended=self._minimum.is_cut or any(index >= self._material.current for index in left_out),
            block_fixed=self._minimum.block_fixed,
        )
        self._competing = False
        """Whether relevant content is outside the window, so that turns get only a share of the budget."""
        self._least = 0.0
        """The lowest score at which a passage that the question calls for counts as needed."""
        self._relevant: list[PassageCandidate] = []
        """Passages not taken yet that are relevant to the question, in the order in which they are tried."""
        self._rest: list[PassageCandidate] = []
        """All other passages not taken yet, latest first."""
        self._late: list[PassageCandidate] = []
        """Passages of old artifacts that wait until no passage of the current turn waits (guarantee §4 I5)."""
        self._late_ids: frozenset[int] = frozenset()
        self.segments = SegmentRoom(self._material, fitting.counting)

    def packed(self) -> PackedWindow:
        """Returns the fullest selection that fits, counted and corrected `tuning.MAX_CORRECTIONS` times at most."""
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
                    tried = inf  # a turn was too long, which shows nothing about passages
                limit, before = taken.used, -1
                continue
            more = self._relevant or self._rest or self._late or (taken.turns and not taken.run_ended)
            if tokens >= tuning.FULL_SHARE * goal or not more:
                break
            if tokens == before:  # the excess came from labels and turns that have been given up since
                tried += (goal - tokens) / 2
            limit, before = min(taken.used + goal - tokens, tried), tokens  # beyond `tried` it would not fit again
        return self._fitting.fitted(self._without_repetition(self._best))

    def _begin(self, room: float) -> None:
        """Fills the lanes, and queues what competes for the rest of the budget, in its order."""
        found, by_plan = self._ranked()
        self._least = tuning.MIN_NEEDED_SCORE * (found[0].passage.score if found else 0.0)
        if self._minimum.spares_current:
            self.taken.extend_run(room)
            found = self._shown.absent(found, self.taken.first)
        relevant = {id(c.of): c for c in found if c.relevant}
        self._competing = bool(self._shown.outside([*relevant.values()], self._minimum.first))
        left, decided = self._guide.apart(found)
        for lane in LANES:
            left = lane.fill(self, left, lane.limit(self, room))
        left = best_first([*left, *self._shown.outside(decided, self.taken.first)])
        rest = latest_first([c for c in left if not c.relevant])
        self._relevant, self._rest = self._guide.order(self.taken, room, [c for c in left if c.relevant], rest, by_plan)

    def _ranked(self) -> tuple[list[PassageCandidate], dict[int, PassageCandidate]]:
        """Returns the candidates that the window can show, best first; and all by `order`, scored for the plan."""
        material, guide, relevance = self._material, self._guide, self._fitting.callbacks.relevance
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
        """Moves passages of old artifacts to `_late` while an artifact of the current turn is reduced, and returns the
        others. Of an old artifact only what the question needs stays, and at most a part of it (guarantee §4 I5)."""
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
        """Takes those passages of `first` that fit; returns the passages of `found` that were not taken."""
        refused = self.taken.add(first, limit)
        gone = {id(c) for c in first} - {id(c) for c in refused}
        return [c for c in found if id(c) not in gone] if gone else found

    def take_kept(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes all passages of old turns' results that have to be quoted word for word."""
        kept = self._minimum.kept
        if not kept:
            return left
        of_kept = [c for c in left if isinstance(c.of, Artifact) and c.of.artifact_id in kept]
        return self.take(of_kept, limit, left)

    def take_best(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the best passages before any turn, so that turns cannot use up the budget for all passages."""
        best = [c for c in left if c.relevant][: tuning.BEST_PASSAGES] if self._competing else []
        return self.take(best, limit, left)

    def beside(self, room: float, tokens: float) -> float:
        """Returns the limit that leaves `tokens` for a lane beside everything taken so far, at most `room`."""
        return min(room, self.taken.used + tokens)

    def turns_limit(self, room: float) -> float:
        """Returns the limit for turns in tokens: all but the share of summaries if no passage competes with them."""
        if self._competing:
            return self.beside(room, room * self._turns_share(room))
        return room - self.segments.share(room)

    def take_turns(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the latest turns as messages, so that no passage of them has to be shown."""
        self.taken.extend_run(limit)
        return self._shown.absent(left, self.taken.first)

    def take_rules(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the user's standing instructions, and the beginning of the conversation."""
        return self.take(kept_words(left, self._material.recall_cache.rules), limit, left)

    def latest_share(self, room: float) -> float:
        """Returns the tokens for the latest results, at least those reserved for what the model has not seen."""
        return max(room * tuning.LATEST_SHARE, self._minimum.for_fresh)

    def take_latest(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes passages of the latest results if the model is to continue from them: no answer follows them, though a
        client may put instructions or a user's message behind them."""
        steps = current_steps(self._material)
        if not steps or any(m.role == "assistant" for m in self._material.messages[steps[-1].end :]):
            return left
        here = range(steps[-1].start, steps[-1].end)
        return self.take([c for c in left if c.message in here], limit, left)

    def take_needed(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes all passages that the question needs if there are summaries, which come after them."""
        if not self._material.segments_before(self.taken.first):
            return left
        needed = [c for c in left if c.passage.called and c.passage.score > 0 and c.passage.score >= self._least]
        return self.take(needed, limit, left)

    def take_segments(self, left: list[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes summaries of turns that are older than the window."""
        if self._material.segments_before(self.taken.first):
            self.taken.used += self.segments.take(self.taken.first, limit)
        return left

    def _turns_share(self, room: float) -> float:
        """Returns the share of the budget for turns as messages: the configured one, and more if less has to be left
        out, since passages torn out of turns are harder to understand."""
        share, material = self._fitting.limits.history_share, self._material
        if room < tuning.ROOMY_TOKENS and not material.artifacts:
            return 1.0  # labels would take more tokens than turns leave
        chars = sum(a.size_chars for a in material.searched) + sum(len(each.text) for each in self._quotable)
        held = min(1.0, room * tuning.TOKEN_CHARS / max(1, chars))
        grown = max(0.0, (held - tuning.GROWS_FROM) / (1 - tuning.GROWS_FROM))
        return share + (tuning.MAX_TURNS_SHARE - share) * grown if share < tuning.MAX_TURNS_SHARE else share

    def _can_be_shown_in_place(self, candidate: PassageCandidate) -> bool:
        """Returns whether a candidate's message can be in the window and its block is not fixed; if the block is fixed,
        only files qualify whose text was shown elsewhere."""
        index = candidate.message
        if index is None or index < 0 or index in self._minimum.left_out:
            return False
        if index != self._material.current or not self._minimum.keeps_block:
            return True
        return isinstance(candidate.of, Artifact) and self._material.repeats.said_same(candidate.of)

    def _grow(self, limit: float) -> None:
        """Takes relevant passages, then further turns, then all other passages, latest first."""
        taken, little = self.taken, self._fitting.limits.goal * (1 - tuning.FULL_SHARE)
        taken.drop_parts()  # a longer part of the same passage may fit now
        self._relevant = taken.add(self._relevant, limit)
        if self._relevant and limit - taken.used < little:
            return
        taken.extend_run(limit)
        self._rest = taken.add(self._shown.absent(self._rest, taken.first), limit)
        if self._late and all(c.historical for c in chain(self._relevant, self._rest)):
            self._late = taken.add(self._shown.absent(self._late, taken.first), limit)
        if limit - taken.used > little:
            late = () if self._relevant or self._rest else self._late
            too_long = self._shown.outside([*self._relevant, *self._rest, *late], taken.first)
            taken.add_parts(too_long, limit)

    def _extract(self, artifact: Artifact, taken: list[PassageCandidate], first: int) -> ArtifactRendering:
        index = artifact.place.message
        in_block = index is None or index < first or index in self._minimum.left_out
        return self._fitting.unless_longer(extract(artifact, taken), in_block=in_block)

    def _give_up(self, tokens: float) -> None:
        """Gives up what was taken last, and queues it again with the passages of a turn that leaves again."""
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
        """Removes from the block what the window shows elsewhere word for word (guarantee §4 I6)."""
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
        """Returns whether the block shows what is taken of an artifact; attached documents do not count."""
        index = artifact.place.message
        if index is None:
            return artifact.call is not None
        return index < first or index in self._minimum.left_out

    def _quotable_outside(self, first: int) -> QuotableMessages:
        left_out = self._minimum.left_out
        if first not in self._outside:
            self._outside[first] = QuotableMessages(
                [m for m in self._quotable if m.index < first or m.index in left_out]
            )
        return self._outside[first]

    def _selection(self) -> WindowSelection:
        first, left_out = self.taken.first, self._minimum.left_out
        chosen: dict[str, list[PassageCandidate]] = defaultdict(list)
        quoted: list[PassageCandidate] = []
        for candidate in self._shown.outside(self.taken.passages(), first):
            if self._minimum.block_fixed and (candidate.message or 0) < first:
                continue  # its turn was taken and then given up
            if isinstance(candidate.of, TranscriptMessage):
                quoted.append(candidate)
            else:
                chosen[candidate.of.artifact_id].append(candidate)
        artifacts = {a.artifact_id: a for a in self._material.searched}
        extracts = {key: self._extract(artifacts[key], taken, first) for key, taken in chosen.items()}
        return WindowSelection(
            first,
            frozenset(index for index in left_out if index >= first),
            {**self._minimum.pointers, **extracts},
            frozenset(chosen),
            recalled(self._quotable_outside(first), quoted),
            frozen=False,
            keeps_block=self._minimum.keeps_block,
            segments=self.segments.taken,
        )


def labels(room: float) -> int:
    """Returns the tokens of the labels of a block for one lane alone; 0 if the budget is too small for them."""
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
"""The lanes, in the order in which they are filled."""


def fit(fitting: WindowFitter, unreduced: FullPrompt | None = None) -> PackedWindow:
    """Returns the best selection that fits. Content that was forwarded before stays unchanged while everything new fits
    behind it; else one pass decides everything again and frees enough for several turns (guarantee §4 I5, I7). Memories
    are added beside that selection if they fit (guarantee §11.14).
    `unreduced`: the result of `count_full`, if known.
    Raises ContextLengthExceeded: not even the current message and its latest tool step fit."""
    material, usable = fitting.material, fitting.limits.usable
    everything = unreduced or count_full(fitting)
    if usable is None:
        as_it_is = fitting.fitted(everything.selection, everything.forwarded, exact=False)
        return replace(as_it_is, moved=material.moves)
    fitted = _everything_kept(fitting, everything, usable)
    if fitted is None:
        bare = replace(fitting, material=replace(material, things=())) if material.things else fitting
        fitted = _fitted_by_new_pass(bare, everything.selection)
        if material.things:
            fitted = fitting.fitted_within(usable, fitted.selection) or fitted
        fitted = replace(fitted, new_pass=True)
    return fitted if fitting.planned is NO_PLAN else replace(fitted, guarded=guarded(fitting, fitted))


def count_full(fitting: WindowFitter, shares: Sequence[float] = ()) -> FullPrompt:
    """Counts the window with what was forwarded before unchanged and everything newer in full, as exactly as needed.
    `shares`: shares of the budget. The count must be certain to be above or below each, and the budget itself."""
    material = fitting.material
    selection = _frozen(material, fitting.counting, fitting.limits.usable)
    if material.repeats.documents:
        selection = once(material, selection)
    return counted(fitting, selection, shares)


def counted(fitting: WindowFitter, selection: WindowSelection, shares: Sequence[float] = ()) -> FullPrompt:
    """Counts a selection that leaves out nothing new, as exactly as `count_full` does."""
    counting, budget, usable = fitting.counting, fitting.limits.tokens, fitting.limits.usable
    possible, impossible = drop_impossible(selection, counting, budget) if budget is not None else (selection, 0)
    forwarded = fitting.callbacks.assemble(fitting.material, possible)
    if impossible:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total + impossible, new_pass=True)
    if budget is None or usable is None:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total)
    due = fitting.material.has_memory_due
    if counting.fits_by_bound(forwarded, min([usable, *(share * budget for share in shares)])):
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total, new_pass=due)
    tokens = counting.up_to(forwarded, budget)
    return FullPrompt(selection, forwarded, tokens, new_pass=due or tokens > usable)


def _everything_kept(fitting: WindowFitter, everything: FullPrompt, tokens: int) -> PackedWindow | None:
    """Returns the window with everything and what a new question needs beside it; None if that does not fit."""
    if everything.new_pass:
        return None
    fitted = fitting.fitted_within(tokens, everything.selection, everything.forwarded)
    kept = with_recalled(fitting, fitted) if fitted else None
    return replace(followed(fitting, kept), moved=fitting.material.moves) if kept else None


def fits_compacted(fitting: WindowFitter, frozen: WindowSelection) -> bool:
    """Returns whether a pass that only compacts is enough, so that no content is removed (guarantee §4 I5)."""
    return not fitting.material.has_memory_due and _all_compacted(_compacted(fitting), frozen) is not None


def _fitted_by_new_pass(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow:
    """Decides the window in one pass that loses as little as possible."""
    compact = _compacted(fitting)
    return (
        (None if fitting.material.has_memory_due else _all_compacted(compact, frozen))  # a block may quote it
        or _old_blocks_gone(compact)
        or WindowPacker(compact.compacted("recallable")).packed()
    )


def _compacted(fitting: WindowFitter) -> WindowFitter:
    """Returns the fitter with compacted material for a new pass, except what is kept word for word."""
    if shaped := fitting.material.shaped:  # references die with what they point to (guarantee §4 I8)
        fitting = replace(fitting, material=fitting.material.in_full(shaped))
    kept = fitting.callbacks.kept(fitting.material)
    fitting = replace(fitting, kept=tuple(each.artifact_id for each in kept)) if kept else fitting
    return fitting.compacted("placed", "restored", "attached")


def _all_compacted(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow | None:
    """Returns the frozen window with compacted content; messages forwarded in another form stay unchanged."""
    material, shown = fitting.material, set(frozen.renderings)
    for artifact in material.placed:
        message = material.messages[artifact.place.message or 0]
        if message.rendered is None and _is_shorter(artifact):
            shown.add(artifact.artifact_id)
    renderings = _in_full(a for a in material.artifacts if a.artifact_id in shown)
    changed = replace(frozen, renderings=renderings, keeps_memory=False, segments=len(material.segments))
    return _within_goal(fitting, changed)


def _old_blocks_gone(fitting: WindowFitter) -> PackedWindow | None:
    """Returns all messages compacted and without their old blocks, whose content moves to one new block; None if that
    does not fit. A block that the first step of the current turn has fixed stays."""
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
    goal = fitting.limits.goal
    if drop_impossible(selection, fitting.counting, goal)[1]:
        return None
    fitted = fitting.fitted_within(goal, selection)
    return followed(fitting, fitted) if fitted else None


def _frozen(material: WindowInputs, counting: PromptCounter, usable: int | None) -> WindowSelection:
    """Returns the window as it was forwarded before, without the turns that leave now, and everything newer in full."""
    files = [each for each in _files(material) if not material.was_reduced(each)]
    renderings = _in_full((*files, *_new_in_block(material)))
    first = material.frozen_first
    if material.moves:
        left = frozenset(i for i in material.left if i >= first)
        return WindowSelection(first, left, renderings, segments=SegmentRoom(material, counting).shown(usable))
    if material.frame is None:
        return WindowSelection(renderings=renderings)
    return WindowSelection(first, material.left, renderings, keeps_memory=True)


def _new_in_block(material: WindowInputs) -> list[Artifact]:
    """Returns attachments, and results forwarded as text, that no earlier block shows and no pass decided on."""
    if material.has_block:
        return []
    standing = material.messages[material.frozen_first if material.moves else 0 :]
    known = {name for message in standing for name in message.shown_in_full}
    reduced: set[str] = set()
    if frame := material.frame:
        known |= frame.decided
        inside = {(material.messages[a.place.message or 0].message_id, a.content_id) for a in material.placed}
        decided = {(name, each.artifact_id) for name, found in frame.decisions.items() for each in found}
        reduced = {content for _, content in decided - inside}  # a plan may have shortened them without need
    apart = (*material.restored, *material.attached)
    return [a for a in apart if a.pinned or (a.block_name not in known and a.content_id not in reduced)]


def _files(material: WindowInputs) -> list[Artifact]:
    """Returns the artifacts of files inside messages that the model gets as text."""
    return [a for a in material.placed if a.becomes_text]


def _is_shorter(artifact: Artifact) -> bool:
    """Returns whether compaction removed anything."""
    return len(artifact.content) < artifact.size_chars


def _in_full(artifacts: Iterable[Artifact]) -> dict[str, ArtifactRendering]:
    return {artifact.artifact_id: in_full(artifact) for artifact in artifacts}
