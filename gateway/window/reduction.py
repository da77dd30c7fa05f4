"""When not everything fits: artifacts are reduced to the passages that the question needs, old turns leave and come
back as excerpts (guarantee §4 I2, I5, I6; the heuristic of §5)."""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf

from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.tool_steps import text_of
from gateway.models.window import SYSTEM_INDEX, Fitted, Rendering, Selection
from gateway.window.candidates import (
    Candidate,
    TranscriptMessage,
    best_first,
    candidates,
    kept_words,
    of_each_content,
    transcript,
)
from gateway.window.fitting import CHARS_PER_TOKEN, LABEL_TOKENS, Fitting
from gateway.window.greedy_fit import BLOCK_TOKENS, GreedyFit, run_of_turns, tool_steps
from gateway.window.minimum import LATEST_SHARE, Minimum
from gateway.window.plan import PlanGuide
from gateway.window.recall import extract, not_shown, recalled, without_repeated
from gateway.window.segments import SegmentRoom

# Shares of the room above the minimum. Recall is not sensitive to them: measured at budgets of 2,000 to 8,000 tokens
# on 350 requests with known evidence, half or twice of each changes it by 0.3 points, none of `KEPT_SHARE` by 0.6.
BEST_PASSAGES = 3
"""Passages, the best, that are taken before any turn."""
BEST_SHARE = 0.3
"""Share of the room that those may take."""
KEPT_SHARE = 0.08
"""Share of the room for what the user asked to be kept to, and for how the conversation began."""
MOST_TURNS_SHARE = 0.9
"""Share of the room for old turns as messages, if the room holds nearly everything."""
GROWS_FROM = 0.6
"""If the room holds a larger part of everything than this, the turns' share grows with that part."""
ROOMY_TOKENS = 1000
"""Room in which the tokens of labels hardly matter."""
FULL_SHARE = 0.99
"""Share of the goal from which a window counts as filled."""
NEEDED_SCORE = 0.4
"""Minimum score of an old artifact's passage, as a fraction of the best, while current artifacts are reduced, too."""
OLD_PART = 0.5
"""Part of an old artifact that may be shown while current ones are reduced; its best passage may be in any case."""
MOST_CORRECTIONS = 8
"""Counts of a selection whose tokens were guessed wrongly; more than three are rare."""


class ShownInFull:
    """Which candidates are in the window in full already, for a window that begins at message `first`. They are held
    back until their message leaves the window again."""

    def __init__(self, fitting: Fitting, minimum: Minimum) -> None:
        self._minimum = minimum
        self._held: list[Candidate] = []
        self._same: dict[str, list[Artifact]] = defaultdict(list)
        self._repeats = fitting.material.repeats
        for artifact in fitting.material.placed:
            self._same[artifact.content_id].append(artifact)

    def has(self, candidate: Candidate, first: int) -> bool:
        """Whether it is in the window in full: as a message, as an artifact too small to be reduced, in another
        artifact with the same content, or as a PDF that the model reads itself."""
        of = candidate.of
        if isinstance(of, TranscriptMessage):
            return self._is_inside(candidate.message, first)
        if of.place.message is None and self._is_full(of):
            return True
        if any(self._is_inside(index, first) for index in self._repeats.natives_of(of.content_id)):
            return True
        same = self._same.get(of.content_id, ())
        return any(self._is_inside(each.place.message, first) and self._is_full(each) for each in same)

    def absent(self, found: list[Candidate], first: int) -> list[Candidate]:
        """Those that are not in the window in full; the others are held."""
        each = {id(c.of): c for c in found}
        absent = {key for key, one in each.items() if not self.has(one, first)}
        self._held += [c for c in found if id(c.of) not in absent]
        return [c for c in found if id(c.of) in absent]

    def released(self, first: int) -> list[Candidate]:
        """Those that were held and are not in a window that has become smaller."""
        held, self._held = self._held, []
        return self.absent(held, first)

    def _is_inside(self, index: int | None, first: int) -> bool:
        return index is not None and index >= first and index not in self._minimum.left_out

    def _is_full(self, artifact: Artifact) -> bool:
        pointer = self._minimum.pointers.get(artifact.artifact_id)
        return pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL


def reduced(fitting: Fitting) -> Fitted:
    """Compacted material in one pass: a minimum, and above it what is worth most.

    Raises:
        ContextLengthExceeded: not even the minimum fits.
    """
    guide, minimum = PlanGuide(fitting, fitting.material.searched), Minimum(fitting)
    selection, tokens = minimum.settle(may_spare=not guide.decisions)
    return Reduction(fitting, guide, minimum, selection, tokens).run()


class Reduction:
    """What was taken above a settled minimum (its selection and tokens), and what waits to be."""

    def __init__(self, fitting: Fitting, guide: PlanGuide, minimum: Minimum, selection: Selection, tokens: int) -> None:
        self._fitting, self._material, self._guide, self._minimum = fitting, fitting.material, guide, minimum
        self._best, self._most = selection, tokens
        self._goal = minimum.goal(tokens)
        self._shown = ShownInFull(fitting, self._minimum)
        left_out = self._minimum.left_out
        self._quotable = transcript(self._material, left_out)
        self._taken = GreedyFit(
            fitting.counting,
            minimum.first,
            [turn for turn in run_of_turns(self._material) if turn.end <= minimum.first],
            cache(self._minimum.cost),
            run_ended=minimum.is_cut or any(index >= self._material.current for index in left_out),
            block_fixed=self._minimum.block_fixed,
        )
        self._relevant: list[Candidate] = []
        """Passages not taken yet that are relevant to the question, in the order in which they are tried."""
        self._rest: list[Candidate] = []
        """All others, latest first."""
        self._late: list[Candidate] = []
        """Passages of old artifacts that wait until nothing of the current turn does (guarantee §4 I5)."""
        self._late_ids: frozenset[int] = frozenset()
        self._segments = SegmentRoom(self._material, fitting.counting)

    def run(self) -> Fitted:
        """The fullest selection that fits.

        Room is filled by guesses; the selection is then counted and corrected, `MOST_CORRECTIONS` times at most.
        """
        taken, goal = self._taken, self._goal
        limit, tried, before = float(goal - self._most), inf, -1
        self._begin(limit)
        for _ in range(MOST_CORRECTIONS):
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
            if tokens >= FULL_SHARE * goal or not more:
                break
            if tokens == before:  # what was too much had labels and turns in it that are gone by now
                tried += (goal - tokens) / 2
            limit, before = min(taken.used + goal - tokens, tried), tokens  # beyond `tried` it would be too much again
        return self._fitting.fitted(self._without_repetition(self._best))

    def _begin(self, room: float) -> None:
        """Takes what has a share of the room of its own; what competes for the rest waits, in its order."""
        found, by_plan = self._ranked()
        least = NEEDED_SCORE * max((c.passage.score for c in found), default=0.0)
        free, decided = self._take_turns_and_best(found, room)
        left = self._take_segments(self._take_kept_and_latest(free, room), room, least)
        absent = [c for c in decided if not self._shown.has(c, self._taken.first)]
        self._queue_rest([*left, *absent], room, by_plan)

    def _ranked(self) -> tuple[list[Candidate], dict[int, Candidate]]:
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

    def _old_after_current(self, found: list[Candidate]) -> list[Candidate]:
        """Without what waits until nothing of the current turn does, while that is reduced: of old artifacts all but
        what the question needs, and at most a part of each (guarantee §4 I5)."""
        if not any(isinstance(c.of, Artifact) and not c.historical and self._minimum.is_reduced(c.of) for c in found):
            return found
        shown: dict[str, int] = defaultdict(int)
        now: list[Candidate] = []
        least = NEEDED_SCORE * max(c.passage.score for c in found)
        for candidate in found:
            of, chars = candidate.of, candidate.passage.end - candidate.passage.start
            if isinstance(of, Artifact) and of.historical:
                most = OLD_PART * len(of.content) if shown[of.artifact_id] else len(of.content)
                is_needed = candidate.passage.score > 0 and candidate.passage.score >= least
                if not is_needed or shown[of.artifact_id] + chars > most:
                    self._late.append(candidate)
                    continue
                shown[of.artifact_id] += chars
            now.append(candidate)
        self._late_ids = frozenset(map(id, self._late))
        return now

    def _take_turns_and_best(self, found: list[Candidate], room: float) -> tuple[list[Candidate], list[Candidate]]:
        """Takes the best passages and the latest turns; returns what is left, and that on which the plan decides."""
        taken = self._taken
        if self._minimum.spares_current:
            taken.extend_run(room)
            found = self._shown.absent(found, taken.first)
        competing = any(c.relevant and not self._shown.has(c, self._minimum.first) for c in found)
        free, decided = self._guide.apart(found)
        if competing:
            free = self._take_first([c for c in free if c.relevant][:BEST_PASSAGES], room * BEST_SHARE, free)
            taken.extend_run(min(room, taken.used + room * self._turns_share(room)))
        else:
            taken.extend_run(room - self._segments.share(room))
        return self._shown.absent(free, taken.first), decided

    def _take_kept_and_latest(self, found: list[Candidate], room: float) -> list[Candidate]:
        """Takes what the user asked to be kept to, and passages of the latest step; returns what is left."""
        taken, kept = self._taken, room * KEPT_SHARE
        if room >= ROOMY_TOKENS:
            kept += BLOCK_TOKENS + LABEL_TOKENS  # a block for them alone, if need be
        found = self._take_first(kept_words(found, self._material.recalled.rules), min(room, taken.used + kept), found)
        return self._take_first(self._of_latest_step(found), min(room, taken.used + room * LATEST_SHARE), found)

    def _take_segments(self, found: list[Candidate], room: float, least: float) -> list[Candidate]:
        """Takes summaries of what is older than the window, behind all that the question needs; returns what is left.

        Args:
            least: the score from which on a passage that the question calls for is needed.
        """
        taken = self._taken
        if not self._material.segments_before(taken.first):
            return found
        needed = [c for c in found if c.passage.called and c.passage.score > 0 and c.passage.score >= least]
        found = self._take_first(needed, room - self._segments.least(room), found)
        taken.used += self._segments.take(taken.first, min(room - taken.used, self._segments.share(room)))
        return found

    def _queue_rest(self, found: list[Candidate], room: float, by_plan: dict[int, Candidate]) -> None:
        """Puts what was not taken in the order in which it is tried."""
        found = best_first(found)
        rest = sorted((c for c in found if not c.relevant), key=lambda c: c.age)
        self._relevant, self._rest = self._guide.order(
            self._taken, room, [c for c in found if c.relevant], rest, by_plan
        )

    def _take_first(self, first: list[Candidate], limit: float, found: list[Candidate]) -> list[Candidate]:
        """Takes those of `first` that fit; returns what is left of `found`."""
        refused = self._taken.add(first, limit)
        gone = {id(c) for c in first} - {id(c) for c in refused}
        return [c for c in found if id(c) not in gone] if gone else found

    def _turns_share(self, room: float) -> float:
        """The share of the room for turns as messages: what is configured, and more the less has to be left out, since
        passages torn out of turns are understood less well."""
        share, material = self._fitting.limits.history_share, self._material
        if room < ROOMY_TOKENS and not material.artifacts:
            return 1.0  # labels would take more of the room than turns leave
        chars = sum(a.size_chars for a in material.searched) + sum(len(each.text) for each in self._quotable)
        held = min(1.0, room * CHARS_PER_TOKEN / max(1, chars))
        grown = max(0.0, (held - GROWS_FROM) / (1 - GROWS_FROM))
        return share + (MOST_TURNS_SHARE - share) * grown if share < MOST_TURNS_SHARE else share

    def _can_be_shown_in_place(self, candidate: Candidate) -> bool:
        """Whether it is of a message that can be in the window, other than one whose block is fixed; of that one only
        files of which the text stood elsewhere."""
        index = candidate.message
        if index is None or index < 0 or index in self._minimum.left_out:
            return False
        if index != self._material.current or not self._minimum.keeps_block:
            return True
        return isinstance(candidate.of, Artifact) and self._material.repeats.said_same(candidate.of)

    def _of_latest_step(self, found: list[Candidate]) -> list[Candidate]:
        """Passages of the latest results, if the model is to go on from them: a client may put instructions, and what a
        user says, behind."""
        steps = tool_steps(self._material)
        if not steps or any(m.role == "assistant" for m in self._material.messages[steps[-1].end :]):
            return []
        return [c for c in found if c.message is not None and steps[-1].start <= c.message < steps[-1].end]

    def _grow(self, limit: float) -> None:
        """Takes relevant passages, then further turns, then all other passages, latest first."""
        taken, little = self._taken, self._fitting.limits.goal * (1 - FULL_SHARE)
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

    def _extract(self, artifact: Artifact, taken: list[Candidate], first: int) -> Rendering:
        index = artifact.place.message
        in_block = index is None or index < first or index in self._minimum.left_out
        return self._fitting.unless_longer(extract(artifact, taken), in_block=in_block)

    def _give_up(self, tokens: float) -> None:
        """Gives up what was taken last; it waits again, and so do the passages of a turn that has left again."""
        if not self._taken.taken:
            self._taken.used -= self._segments.give_up()
        given_up = self._taken.shrink(tokens)
        back = self._shown.released(self._taken.first)
        self._late = [c for c in (*given_up, *back) if id(c) in self._late_ids] + self._late
        given_up, back = ([c for c in some if id(c) not in self._late_ids] for some in (given_up, back))
        self._relevant = given_up + [c for c in back if c.relevant] + self._relevant
        if back:
            self._rest = sorted([*(c for c in back if not c.relevant), *self._rest], key=lambda c: c.age)

    def _without_repetition(self, selection: Selection) -> Selection:
        """Without what the block would show although another artifact in the window says it word for word (guarantee
        §4 I6)."""
        found = {name: selection.renderings[name] for name in selection.recalled}
        in_block = {name: each for name, each in found.items() if self._is_in_block(each.artifact, selection.first)}
        if not in_block:
            return selection
        forwarded, current = self._fitting.assemble(selection), self._material.current
        pairs = zip(forwarded.indexes, forwarded.messages, strict=True)
        window = [text_of(message.get("content")) for index, message in pairs if index not in (current, SYSTEM_INDEX)]
        kept = {name: without_repeated(each, window) for name, each in in_block.items()}
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

    def _selection(self) -> Selection:
        first, left_out = self._taken.first, self._minimum.left_out
        chosen: dict[str, list[Candidate]] = defaultdict(list)
        quoted: list[Candidate] = []
        for candidate in self._taken.passages():
            if self._shown.has(candidate, first):
                continue
            if self._minimum.block_fixed and (candidate.message or 0) < first:
                continue  # its turn was taken, and given up again
            if isinstance(candidate.of, TranscriptMessage):
                quoted.append(candidate)
            else:
                chosen[candidate.of.artifact_id].append(candidate)
        artifacts = {a.artifact_id: a for a in self._material.searched}
        extracts = {key: self._extract(artifacts[key], taken, first) for key, taken in chosen.items()}
        outside = [m for m in self._quotable if m.index < first or m.index in left_out]
        return Selection(
            first,
            frozenset(index for index in left_out if index >= first),
            {**self._minimum.pointers, **extracts},
            frozenset(chosen),
            recalled(outside, quoted),
            frozen=False,
            keeps_block=self._minimum.keeps_block,
            segments=self._segments.taken,
        )
