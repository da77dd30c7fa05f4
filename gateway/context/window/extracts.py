"""Decides which parts of an artifact or of an old turn are shown: extracts in the block that a new question needs and
the frozen window does not hold (guarantee §4 I6, I7); and how a planner's plan is followed, and what it cannot remove
(guarantee §5).

If something has to leave, the plan influences the order in which passages are taken (`PlanGuide`). If everything fits,
it shortens artifacts that are forwarded for the first time (`followed`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Any, assert_never

from gateway.context.window import tuning
from gateway.context.window.candidates import (
    GreedyFit,
    PassageCandidate,
    QuotableMessages,
    TranscriptMessage,
    best_first,
    candidates,
    latest_first,
    of_each_content,
    transcript,
)
from gateway.context.window.fitting import MIN_CACHED_TOKENS, WindowFitter, in_full
from gateway.core.types import places, window
from gateway.core.types.artifacts import Artifact, ArtifactDecision, ProcessingStrategy
from gateway.core.types.content_parts import as_parts
from gateway.core.types.relevance import RankedPassage
from gateway.core.types.window import (
    ArtifactRendering,
    OldExcerpt,
    PackedWindow,
    RecalledExcerpts,
    WindowInputs,
    WindowSelection,
)

ESCAPES = (("&lt;", "<"), ("\\[", "["))
"""How the block escapes text that could be mistaken for its own delimiters and labels."""

Spans = list[tuple[int, int]]


def with_recalled(fitting: WindowFitter, frozen: PackedWindow) -> PackedWindow | None:
    """Adds passages that the question needs to the frozen window, in a block at its head; returns None if they do not
    fit, so that something has to leave. A question that was forwarded before keeps its block (guarantee §4 I6)."""
    material, counting, usable = fitting.material, fitting.counting, fitting.limits.usable
    if usable is None or not material.question:
        return frozen
    artifacts, quotable = absent(material, frozen)
    if not (artifacts or quotable):
        return frozen
    found = candidates(material, artifacts, quotable, fitting.callbacks.relevance, fitting.searches)
    least = tuning.MIN_RECALL_SCORE * max((c.passage.score for c in found), default=0.0)
    wanted = [c for c in found if c.passage.called and c.passage.score > 0 and c.passage.score >= least]
    found = _unseen(material, frozen, wanted)
    if not found:
        return frozen
    before = counting.total(frozen.forwarded)
    room = (usable - before) * tuning.RECALL_ROOM_SHARE
    if room < usable * tuning.MIN_RECALL_SHARE:
        return None
    most = max(usable * tuning.RECALL_SHARE, tuning.RECALL_TOKENS)
    allowed = min(room, most, tuning.ECONOMY_RECALL_TOKENS if fitting.limits.is_economic else most)
    taken = GreedyFit(counting, frozen.selection.first, [], lambda turn: 0, run_ended=True)

    def tokens_of_taken() -> float:
        selection = _selection(fitting, frozen.selection, quotable, taken.passages())
        return counting.total(fitting.assemble(selection)) - before

    best, limit = found[0], min(room, allowed * tuning.BEST_FACTOR)
    _take_best(taken, best, limit, tokens_of_taken)
    goal = fitting.limits.goal
    in_part = limit == room and best not in taken.passages()
    if in_part and before < MIN_CACHED_TOKENS and counting.text(best.text) <= goal * tuning.BEST_OF_PASS_SHARE:
        return None  # only its beginning fits beside the frozen window, and a pass shows it whole at no cost
    if _unseen(material, frozen, taken.passages()) != taken.passages():  # the window may show that part already
        taken.shrink(taken.used)
    allowed = max(allowed, taken.used)
    taken.add(found[1:], allowed)
    for _ in range(tuning.MAX_RECOUNTS):
        if not taken.taken:
            room_was_limit = allowed == room
            pass_frees_more = room < (usable - goal) * tuning.RECALL_ROOM_SHARE
            return None if room_was_limit and pass_frees_more else frozen
        selection = _selection(fitting, frozen.selection, quotable, taken.passages())
        forwarded = fitting.assemble(selection)
        excess = counting.total(forwarded) - before - allowed
        if excess <= 0:
            return fitting.fitted(selection, forwarded)
        taken.shrink(excess)
    return frozen


def _take_best(taken: GreedyFit, best: PassageCandidate, limit: float, tokens_of_taken: Callable[[], float]) -> None:
    """Takes the best passage, or a part of it, up to `limit` tokens. The tokens of the block around it are first
    estimated, then counted, and counted again for a part, which has marks of its own: an estimate that is too low would
    lose the only passage."""
    around = 0.0
    for _ in range(tuning.MAX_RECOUNTS):
        if taken.add([best], limit - around):
            taken.add_parts([best], limit - around)
        if not taken.taken:
            return
        around = max(0.0, tokens_of_taken() - taken.used)
        if taken.used + around <= limit:
            taken.used += around
            return
        taken.shrink(taken.used)


def absent(material: WindowInputs, frozen: PackedWindow) -> tuple[list[Artifact], list[TranscriptMessage]]:
    """Returns the artifacts and the old messages that a frozen window does not hold in full, so that they can be shown
    beside it; empty lists if the current turn was forwarded before, or if the window lacks nothing."""
    if not material.messages or (material.frame is None and not (material.earlier or material.moves)):
        return [], []
    current = material.messages[material.current]
    if current.role != "user" or current.message_id is not None:
        return [], []
    return outside(material, frozen)


def outside(material: WindowInputs, frozen: PackedWindow) -> tuple[list[Artifact], list[TranscriptMessage]]:
    """Returns the artifacts and the old messages that a window does not hold in full."""
    selection = frozen.selection
    in_blocks = {name for i in frozen.forwarded.indexes if i >= 0 for name in material.messages[i].shown_in_full}
    in_blocks |= set(frozen.forwarded.shown_in_full)
    known = (*material.artifacts, *material.recallable)
    here = {a.content_id for a in known if _is_in_full(a, material, selection, in_blocks)} | material.pinned_contents
    here |= {each.content_id for each in material.repeats.documents if any(map(selection.has, each.natives))}
    artifacts = of_each_content([a for a in material.searched if a.content_id not in here], material.current)
    left = selection.left_out
    return artifacts, [m for m in transcript(material, left) if m.index < selection.first or m.index in left]


def _is_in_full(artifact: Artifact, material: WindowInputs, selection: WindowSelection, in_blocks: set[str]) -> bool:
    index = artifact.place.message
    if index is None:
        return artifact.block_name in in_blocks
    if not selection.has(index) or artifact.artifact_id in selection.same:
        return False
    rendering = selection.renderings.get(artifact.artifact_id)
    if rendering is not None and artifact.artifact_id not in selection.quoted:  # quotes are in the block
        return rendering.strategy in window.WHOLE_STRATEGIES
    if material.frame is None:
        return True
    decided = material.frame.decisions.get(material.messages[index].message_id or "", ())
    here = [each.strategy for each in decided if each.artifact_id == artifact.content_id]
    return all(strategy in window.WHOLE_STRATEGIES for strategy in here)  # compacted at most


def _unseen(material: WindowInputs, frozen: PackedWindow, found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """Returns what no block and no extract of the window shows of the candidates."""
    pairs = zip(frozen.forwarded.indexes, frozen.forwarded.messages, strict=True)
    shown = _texts(m for index, m in pairs if index >= 0 and material.messages[index].rendered is not None)
    rests = (_not_in(candidate, shown) for candidate in found)
    return [rest for rest in rests if rest is not None]


def _not_in(candidate: PassageCandidate, shown: Sequence[str]) -> PassageCandidate | None:
    """Returns the candidate; if it is shown in part, its longest stretch of lines that are not; None if hardly anything
    is left."""

    def is_there(text: str) -> bool:
        return any(text in each for each in shown)

    if is_there(_as_shown(candidate)):
        return None
    start = candidate.passage.start
    stretches, is_cut = [(start, start)], False
    for line in candidate.text.split("\n"):
        end = min(start + len(line) + 1, candidate.passage.end)
        if len(line.strip()) >= tuning.REPEATED_CHARS and is_there(line.strip()):
            stretches.append((end, end))
            is_cut = True
        else:
            stretches[-1] = (stretches[-1][0], end)
        start = end
    if not is_cut:
        return candidate
    begin, end = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
    return (
        replace(candidate, passage=replace(candidate.passage, start=begin, end=end))
        if end - begin > tuning.MIN_PART
        else None
    )


def not_shown(found: Iterable[PassageCandidate], messages: Iterable[Mapping[str, Any]]) -> list[PassageCandidate]:
    """Returns the candidates none of whose long lines is in the messages, blocks included."""
    shown = _texts(messages)
    return [c for c in found if not any(piece in text for text in shown for piece in _pieces(c))]


def not_wholly_shown(
    found: Iterable[PassageCandidate], messages: Iterable[Mapping[str, Any]]
) -> list[PassageCandidate]:
    """Returns the candidates with at least one line that is in none of the messages."""
    shown = _texts(messages)

    def is_there(candidate: PassageCandidate) -> bool:
        lines = (line.strip() for line in _as_shown(candidate).split("\n"))
        return all(any(line in text for text in shown) for line in lines)

    return [candidate for candidate in found if not is_there(candidate)]


def _texts(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the texts of messages, both as they are and without escapes."""
    shown: list[str] = []
    for message in messages:
        parts = as_parts(message.get("content"))
        texts = [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")]
        shown += [*texts, *(plain for text in texts if (plain := _unescaped(text)) != text)]
    return shown


def _unescaped(text: str) -> str:
    for escaped, meant in ESCAPES:
        text = text.replace(escaped, meant)
    return text


def _pieces(candidate: PassageCandidate) -> list[str]:
    """Returns the passage, and those of its lines that are too long to be in another text by coincidence."""
    text = _as_shown(candidate)
    return [text, *(line for line in text.split("\n") if len(line) >= tuning.REPEATED_CHARS)]


def _as_shown(candidate: PassageCandidate) -> str:
    """Returns a passage as a block would show it: without its message's head or a place's marker."""
    text = candidate.text
    if isinstance(candidate.of, Artifact):
        return text[places.after_markers(text, 0, len(text)) :].strip()
    return text.removeprefix(window.head_of(text)).strip()


def _selection(
    fitting: WindowFitter, frozen: WindowSelection, quotable: list[TranscriptMessage], passages: list[PassageCandidate]
) -> WindowSelection:
    chosen: dict[int, list[PassageCandidate]] = defaultdict(list)
    for candidate in passages:
        chosen[id(candidate.of)].append(candidate)
    found = [extract(own[0].of, own) for own in chosen.values() if isinstance(own[0].of, Artifact)]
    extracts = [fitting.unless_longer(each, in_block=True) for each in found]
    quoted = [c for c in passages if isinstance(c.of, TranscriptMessage)]
    renderings = {rendering.artifact.artifact_id: rendering for rendering in extracts}
    names = frozenset(renderings)
    return replace(
        frozen,
        renderings=frozen.renderings | renderings,
        quoted=names,
        turns=recalled(QuotableMessages(quotable), quoted),
    )


def extract(artifact: Artifact, taken: Iterable[PassageCandidate]) -> ArtifactRendering:
    """Renders the artifact as the passages taken of it, with its summary if that was taken; in full if the passages are
    all of it. Leaves out a summary that is no shorter than what it replaces."""
    taken = list(taken)
    summary = next((c for c in taken if c.summary), None)
    ordered = sorted([c.passage for c in taken if not c.summary], key=attrgetter("start"))
    spans: Spans = []
    headings = [p.heading for p in ordered if _add(spans, artifact.content, p.start, p.end)]
    if _is_whole(spans, artifact.content):
        return in_full(artifact)
    shown = ArtifactRendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=tuple(spans), headings=tuple(headings))
    if summary is None or len(summary.summary) + shown.extract_chars >= len(artifact.content):
        return shown if spans else ArtifactRendering(artifact, ProcessingStrategy.EXCLUDE)
    return replace(shown, strategy=ProcessingStrategy.SUMMARIZE, text=summary.summary, focus=summary.focus)


def without_repeated(rendering: ArtifactRendering, window: Sequence[str]) -> ArtifactRendering | None:
    """Returns what the block shows of an artifact, without the passages that a text of the window contains word for
    word; None if nothing is left."""

    def is_there(text: str) -> bool:
        return len(text) >= tuning.REPEATED_CHARS and any(text in each for each in window)

    content = rendering.artifact.content
    if rendering.strategy is ProcessingStrategy.INCLUDE_FULL:
        return None if is_there(rendering.text.strip()) else rendering
    places = range(len(rendering.spans))
    kept = [at for at in places if not is_there(content[slice(*rendering.spans[at])].strip())]
    if len(kept) == len(rendering.spans):
        return rendering
    spans, headings = tuple(rendering.spans[at] for at in kept), tuple(rendering.headings[at] for at in kept)
    return replace(rendering, spans=spans, headings=headings) if spans or rendering.text else None


def recalled(old: QuotableMessages, taken: Iterable[PassageCandidate]) -> RecalledExcerpts | None:
    """Returns excerpts of the old messages, in the order of the conversation; None if nothing of them was taken."""
    spans: dict[int, Spans] = {}
    for candidate in sorted(taken, key=lambda c: (c.message or 0, c.passage.start)):
        if isinstance(candidate.of, TranscriptMessage):
            here = spans.setdefault(old.places[candidate.of.index], [])
            _add(here, candidate.of.text, candidate.passage.start, candidate.passage.end)
    if not spans:
        return None
    excerpts: list[OldExcerpt] = []
    for place, here in spans.items():
        message = old.messages[place]
        shown = [(0, len(message.text))] if _is_whole(here, message.text) else here
        follows = place == 0 or place - 1 in spans  # whether everything up to here is shown
        excerpts.append(OldExcerpt(message.turn, message.speaker, message.text, tuple(shown), follows=follows))
    return RecalledExcerpts(old.artifact, tuple(excerpts), more=len(old.messages) - 1 not in spans)


def _add(spans: Spans, text: str, start: int, end: int) -> bool:
    """Adds a span behind the others; returns False if it only extends the last of them."""
    if spans and not text[spans[-1][1] : start].strip():
        spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        return False
    spans.append((start, end))
    return True


def _is_whole(spans: Spans, text: str) -> bool:
    return len(spans) == 1 and not (text[: spans[0][0]].strip() or text[spans[0][1] :].strip())


class PlanGuide:
    """A plan as it is followed for some artifacts. Of two decisions on one artifact the first counts."""

    def __init__(self, fitting: WindowFitter, artifacts: Iterable[Artifact]) -> None:
        planned = fitting.planned
        self.trusted, self.searches = planned.trusted, fitting.searches
        known = {artifact.artifact_id for artifact in artifacts}
        found: dict[str, ArtifactDecision] = {}
        for decision in planned.plan.artifacts:
            if decision.artifact_id in known:
                found.setdefault(decision.artifact_id, decision)
        self.decisions = dict(sorted(found.items(), key=lambda item: item[1].priority))
        self._summaries = dict(planned.summaries)
        self._fitting = fitting

    def apart(self, found: Sequence[PassageCandidate]) -> tuple[list[PassageCandidate], list[PassageCandidate]]:
        """Splits candidates into those taken as without a plan, and those on which a trusted plan alone decides."""
        decided = {id(c) for c in found if self.trusted and self._decision(c) is not None}
        return [c for c in found if id(c) not in decided], [c for c in found if id(c) in decided]

    def order(
        self,
        taken: GreedyFit,
        room: float,
        relevant: list[PassageCandidate],
        rest: list[PassageCandidate],
        by_plan: Mapping[int, PassageCandidate],
    ) -> tuple[list[PassageCandidate], list[PassageCandidate]]:
        """Fills the heuristic's share; returns the order in which the relevant passages and all others are then taken:
        what the plan wants first, what it excludes last, and what a trusted plan excludes not at all.
        `room`: tokens of all that may be taken, including what was taken already; `relevant, rest`: passages not taken
        yet, in the heuristic's order; `by_plan`: all candidates by `order`, with their scores for the plan's
        queries."""
        if not (self.decisions or self.searches):
            return relevant, rest
        if not self.trusted:
            first = _heuristic_count(taken, room, relevant)
            relevant = [*taken.add(relevant[:first], room), *relevant[first:]]
        if self.searches:
            found = best_first(by_plan[c.order] for c in (*relevant, *rest))
            relevant = [c for c in found if c.relevant]
            rest = latest_first([c for c in found if not c.relevant])
        wanted = self._wanted([*relevant, *rest], (room - taken.used - tuning.ITEM_LABEL_TOKENS) * tuning.TOKEN_CHARS)
        gone = {id(c) for c in wanted}
        relevant, rest = ([c for c in some if not (id(c) in gone or self._forbids(c))] for some in (relevant, rest))
        late = [c for c in (*relevant, *rest) if self._excludes(c)]
        relevant, rest = ([c for c in some if not self._excludes(c)] for some in (relevant, rest))
        return [*wanted, *relevant] if self.trusted else _alternating(wanted, relevant), [*rest, *late]

    def passages_of(
        self, decision: ArtifactDecision, own: Sequence[PassageCandidate], chars: float
    ) -> list[PassageCandidate]:
        """Returns the passages to take of an artifact, in the order of taking.
        `own`: its candidates; none of them is taken yet. `chars`: the space in characters. An artifact that is longer
        is shown by what is most relevant to the question, not in full. An artifact whose summary is longer, or could
        not be made, is shown by what is relevant to the summary's focus; a summary that is too long is dropped, so that
        later calls do not show it either."""
        match decision.strategy:
            case ProcessingStrategy.EXCLUDE:
                return []
            case ProcessingStrategy.INCLUDE_FULL | ProcessingStrategy.SHAPE:
                return sorted(own, key=lambda c: c.order) if _chars(own) <= chars else best_first(own)
            case ProcessingStrategy.SUMMARIZE | ProcessingStrategy.RAG_EXTRACT:
                return self._shortened(decision, own, chars) if own else []
            case unknown:
                assert_never(unknown)

    def _shortened(
        self, decision: ArtifactDecision, own: Sequence[PassageCandidate], chars: float
    ) -> list[PassageCandidate]:
        summary = self._summary(decision)
        if len(summary) > chars:
            summary = self._summaries[decision.artifact_id] = ""
        if summary:
            whole = RankedPassage(0, 0, max(1.0, own[0].passage.score))
            return [
                replace(own[0], passage=whole, relevant=True, summary=summary, focus=decision.summarization_focus or "")
            ]
        query = decision.extraction_query or decision.summarization_focus
        return self._nearest(own, query) if query else [c for c in best_first(own) if c.relevant]

    def _decision(self, candidate: PassageCandidate) -> ArtifactDecision | None:
        return self.decisions.get(candidate.of.artifact_id) if isinstance(candidate.of, Artifact) else None

    def _excludes(self, candidate: PassageCandidate) -> bool:
        decision = self._decision(candidate)
        return decision is not None and decision.strategy is ProcessingStrategy.EXCLUDE

    def _forbids(self, candidate: PassageCandidate) -> bool:
        """Returns whether a trusted plan excludes the candidate's artifact, or shows only its summary."""
        decision = self._decision(candidate)
        if not self.trusted or decision is None or candidate.summary:
            return False
        return decision.strategy is ProcessingStrategy.EXCLUDE or bool(self._summary(decision))

    def _summary(self, decision: ArtifactDecision) -> str:
        wanted = decision.strategy is ProcessingStrategy.SUMMARIZE
        return self._summaries.get(decision.artifact_id, "").strip() if wanted else ""

    def _nearest(self, own: Sequence[PassageCandidate], query: str) -> list[PassageCandidate]:
        """Returns the candidates relevant to the question, the artifact's own query and the plan's other queries, best
        first; the best one if none is relevant."""
        of = own[0].of
        assert isinstance(of, Artifact)
        queries = tuple(dict.fromkeys((query, *self.searches)))
        found = candidates(self._fitting.material, [of], [], self._fitting.callbacks.relevance, queries)
        least = tuning.MIN_QUERY_SCORE * max((c.passage.score for c in found), default=0.0)
        here = {c.passage.start: c for c in own}
        near = [c for c in found if c.passage.score >= least and c.passage.score > 0]
        return [here[c.passage.start] for c in near or found[:1] if c.passage.start in here]

    def _wanted(self, left: Sequence[PassageCandidate], chars: float) -> list[PassageCandidate]:
        """Returns the remaining candidates that the plan wants, by priority, within `chars` characters. Summaries come
        first: they are short and paid for. Consecutive extracts are merged, so that none takes all of the space."""
        own: dict[str, list[PassageCandidate]] = defaultdict(list)
        for candidate in left:
            if isinstance(candidate.of, Artifact):
                own[candidate.of.artifact_id].append(candidate)
        summaries: dict[str, PassageCandidate] = {}
        for name, decision in self.decisions.items():
            if decision.strategy is ProcessingStrategy.SUMMARIZE and own[name]:
                first = self.passages_of(decision, own[name], chars)[:1]
                if first and first[0].summary:
                    summaries[name] = first[0]
                    chars -= len(first[0].text)
        found: list[PassageCandidate] = []
        extracts: list[list[PassageCandidate]] = []
        for name, decision in self.decisions.items():
            if name in summaries:
                continue
            passages = self.passages_of(decision, own[name], chars)
            chars -= _chars(passages)
            if decision.strategy is ProcessingStrategy.RAG_EXTRACT:
                extracts.append(passages)
                continue
            found += [*_merged(extracts), *passages]
            extracts = []
        return [*summaries.values(), *found, *_merged(extracts)]


def _chars(some: Iterable[PassageCandidate]) -> int:
    return sum(len(candidate.text) for candidate in some)


def _heuristic_count(taken: GreedyFit, room: float, relevant: Sequence[PassageCandidate]) -> int:
    """Returns how many passages are taken in the heuristic's order, up to the one that fills its share. Artifacts that
    were taken before count as part of that share."""
    of_artifacts = [each for each in taken.taken if each.candidate and isinstance(each.candidate.of, Artifact)]
    tokens = sum(each.tokens for each in of_artifacts)
    left = (room - (taken.used - tokens)) * tuning.HEURISTIC_SHARE - tokens
    for number, candidate in enumerate(relevant):
        if left <= 0:
            return number
        left -= taken.counting.text(candidate.text)
    return len(relevant)


def _alternating(wanted: Sequence[PassageCandidate], relevant: Sequence[PassageCandidate]) -> list[PassageCandidate]:
    """Alternates what the plan wants with what is most relevant to the question, in equal parts of the space."""
    found: list[PassageCandidate] = []
    others, ahead = iter(relevant), 0
    for candidate in wanted:
        found.append(candidate)
        if candidate.summary:
            continue
        ahead += len(candidate.text)
        while ahead > 0 and (other := next(others, None)) is not None:
            found.append(other)
            ahead -= len(other.text)
    return [*found, *others]


def _merged(extracts: Sequence[Sequence[PassageCandidate]]) -> list[PassageCandidate]:
    """Merges extracts of several artifacts by reciprocal rank fusion of their overall and per-artifact ranks."""
    every = best_first(candidate for own in extracts for candidate in own)
    worth = {id(candidate): 1 / (tuning.RANK_DAMPING + rank) for rank, candidate in enumerate(every)}
    for own in extracts:
        for rank, candidate in enumerate(own):
            worth[id(candidate)] += tuning.OWN_RANK_WEIGHT / (tuning.RANK_DAMPING + rank)
    return sorted(every, key=lambda candidate: -worth[id(candidate)])


def followed(fitting: WindowFitter, fitted: PackedWindow) -> PackedWindow:
    """Applies the plan to each artifact that is new in a selection that fits: half of all of their characters go in the
    heuristic's order, the rest as the plan wants; a trusted plan is followed to the letter. Turns stay. Returns
    `fitted` itself if the result is no shorter."""
    if not fitting.planned.plan.artifacts:
        return fitted
    artifacts = [replace(a, content=fitting.callbacks.compact(a.content)) for a in changeable(fitting.material, fitted)]
    guide = PlanGuide(fitting, artifacts)
    covered = [a for a in artifacts if a.artifact_id in guide.decisions]
    if not covered:
        return fitted
    renderings = fitted.selection.renderings | _renderings(fitting, guide, covered)
    found = fitting.fitted(replace(fitted.selection, renderings=renderings), exact=fitted.exact)
    return replace(found, new_pass=fitted.new_pass) if found.tokens < fitted.tokens else fitted


def changeable(material: WindowInputs, fitted: PackedWindow) -> list[Artifact]:
    """Returns the artifacts that a plan can shorten while everything fits: those shown in full that were never
    forwarded before. Documents inside a user's message stay as long as they fit (guarantee §4 I4)."""
    selection, here = fitted.selection, set(fitted.forwarded.indexes)
    found = []
    for artifact in material.artifacts:
        if artifact.pinned:
            continue
        index, rendering = artifact.place.message, selection.renderings.get(artifact.artifact_id)
        if index is None:
            can_change = rendering is not None and artifact.artifact_id not in selection.quoted
        else:
            is_new = material.messages[index].message_id is None or not selection.frozen
            in_kept_block = selection.keeps_block and index == material.current
            can_change = index in here and is_new and not in_kept_block and artifact.place.span is None
        if can_change and (rendering is None or rendering.strategy is ProcessingStrategy.INCLUDE_FULL):
            found.append(artifact)
    return found


def _renderings(fitting: WindowFitter, guide: PlanGuide, covered: list[Artifact]) -> dict[str, ArtifactRendering]:
    """Renders the artifacts that the plan shortens by more than a label."""
    taken: dict[str, list[PassageCandidate]] = defaultdict(list)
    left: dict[str, list[PassageCandidate]] = defaultdict(list)
    half = 0.0 if guide.trusted else tuning.HEURISTIC_SHARE * sum(len(artifact.content) for artifact in covered)
    for candidate in candidates(fitting.material, covered, [], fitting.callbacks.relevance, guide.searches):
        assert isinstance(candidate.of, Artifact)
        (taken if half > 0 else left)[candidate.of.artifact_id].append(candidate)
        half -= len(candidate.text)
    found: dict[str, ArtifactRendering] = {}
    for artifact in covered:
        name, decision = artifact.artifact_id, guide.decisions[artifact.artifact_id]
        if decision.strategy is ProcessingStrategy.INCLUDE_FULL:
            continue
        rendering = extract(artifact, [*taken[name], *guide.passages_of(decision, left[name], inf)])
        rendering = fitting.unless_longer(rendering, in_block=artifact.place.message is None)
        is_full = rendering.strategy is ProcessingStrategy.INCLUDE_FULL
        if not is_full and artifact.size_chars - rendering.shown_chars > tuning.LABEL_CHARS:
            found[name] = rendering
    return found


def guarded(fitting: WindowFitter, fitted: PackedWindow) -> frozenset[str]:
    """Returns the ids of artifacts that an untrusted plan excludes and that are shown at least in part."""
    planned = fitting.planned
    excluded = {d.artifact_id for d in planned.plan.artifacts if d.strategy is ProcessingStrategy.EXCLUDE}
    if planned.trusted or not excluded:
        return frozenset()
    searched, here = fitting.material.searched, set(fitted.forwarded.indexes)
    return frozenset(a.artifact_id for a in searched if a.artifact_id in excluded and _is_shown(a, fitted, here))


def _is_shown(artifact: Artifact, fitted: PackedWindow, here: Collection[int]) -> bool:
    name, index, selection = artifact.artifact_id, artifact.place.message, fitted.selection
    rendering = selection.renderings.get(name)
    if index is not None and index not in here and name not in selection.recalled | selection.quoted:
        return False
    return index is not None and artifact.size_chars > 0 if rendering is None else rendering.shown_chars > 0
