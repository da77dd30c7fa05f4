"""What the frozen window does not hold and a new question needs: extracts in the block (guarantee §4 I6, I7)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from gateway.context.window import tuning
from gateway.context.window.candidates import (
    PassageCandidate,
    TranscriptMessage,
    as_artifact,
    candidates,
    of_each_content,
    transcript,
)
from gateway.context.window.fitting import WindowFitter, in_full
from gateway.context.window.greedy_fit import GreedyFit
from gateway.context.window.prompt_budget import MIN_CACHED
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.chat import as_parts
from gateway.core.types.places import after_markers
from gateway.core.types.window import (
    WHOLE,
    ArtifactRendering,
    OldExcerpt,
    PackedWindow,
    RecalledExcerpts,
    WindowInputs,
    WindowSelection,
    head_of,
)

ESCAPES = (("&lt;", "<"), ("\\[", "["))
"""How the block escapes what could be taken for its own delimiters and labels."""

Spans = list[tuple[int, int]]


def with_recalled(fitting: WindowFitter, frozen: PackedWindow) -> PackedWindow | None:
    """The frozen window with passages that the question needs in a block at its head; None if there is no room for
    them, so that something has to leave. A question that was forwarded before keeps its block (guarantee §4 I6)."""
    material, counting, usable = fitting.material, fitting.counting, fitting.limits.usable
    if usable is None or not material.question:
        return frozen
    artifacts, quotable = absent(material, frozen)
    if not (artifacts or quotable):
        return frozen
    found = candidates(material, artifacts, quotable, fitting.tools.relevance, fitting.searches)
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
    if in_part and before < MIN_CACHED and counting.text(best.text) <= goal * tuning.BEST_OF_PASS_SHARE:
        return None  # only its beginning has room beside what stands, and a pass shows it whole for nothing
    if _unseen(material, frozen, taken.passages()) != taken.passages():  # a part may end where that of the window does
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
    """Takes the best passage, or a part of it, up to `limit` tokens. The block around it is guessed first, then
    counted, and again for a part, which has marks of its own: what was guessed too low would give the only passage up.
    """
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
    """The artifacts and the old messages that a frozen window does not hold in full, so that they can be shown beside
    it. Empty if the current turn was forwarded before, or if the window lacks nothing."""
    if not material.messages or (material.frame is None and not (material.earlier or material.moves)):
        return [], []
    current = material.messages[material.current]
    if current.role != "user" or current.message_id is not None:
        return [], []
    return outside(material, frozen)


def outside(material: WindowInputs, frozen: PackedWindow) -> tuple[list[Artifact], list[TranscriptMessage]]:
    """The artifacts and the old messages that a window does not hold in full."""
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
    if rendering is not None and artifact.artifact_id not in selection.quoted:  # that one is beside its message
        return rendering.strategy in WHOLE
    if material.frame is None:
        return True
    decided = material.frame.decisions.get(material.messages[index].message_id or "", ())
    here = [each.strategy for each in decided if each.artifact_id == artifact.content_id]
    return all(strategy in WHOLE for strategy in here)  # compacted at most


def _unseen(material: WindowInputs, frozen: PackedWindow, found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """What no block and no extract of the window shows of them."""
    pairs = zip(frozen.forwarded.indexes, frozen.forwarded.messages, strict=True)
    shown = _texts(m for index, m in pairs if index >= 0 and material.messages[index].rendered is not None)
    rests = (_not_in(candidate, shown) for candidate in found)
    return [rest for rest in rests if rest is not None]


def _not_in(candidate: PassageCandidate, shown: Sequence[str]) -> PassageCandidate | None:
    """The candidate; or of one that is shown in part its longest stretch of lines that are not; None if that is hardly
    anything."""

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
    """Those of whose long lines none stands in the messages, blocks included."""
    shown = _texts(messages)
    return [c for c in found if not any(piece in text for text in shown for piece in _pieces(c))]


def not_wholly_shown(
    found: Iterable[PassageCandidate], messages: Iterable[Mapping[str, Any]]
) -> list[PassageCandidate]:
    """Those of which some line stands in none of the messages."""
    shown = _texts(messages)

    def is_there(candidate: PassageCandidate) -> bool:
        lines = (line.strip() for line in _as_shown(candidate).split("\n"))
        return all(any(line in text for text in shown) for line in lines)

    return [candidate for candidate in found if not is_there(candidate)]


def _texts(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The texts of messages, as they are and without escapes."""
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
    """The passage, and those of its lines that are no coincidence in another text."""
    text = _as_shown(candidate)
    return [text, *(line for line in text.split("\n") if len(line) >= tuning.REPEATED_CHARS)]


def _as_shown(candidate: PassageCandidate) -> str:
    """A passage as a block would show it: without its message's head, and with a place's marker in other words."""
    text = candidate.text
    if isinstance(candidate.of, Artifact):
        return text[after_markers(text, 0, len(text)) :].strip()
    return text.removeprefix(head_of(text)).strip()


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
    return replace(frozen, renderings=frozen.renderings | renderings, quoted=names, turns=recalled(quotable, quoted))


def extract(artifact: Artifact, taken: Iterable[PassageCandidate]) -> ArtifactRendering:
    """The artifact as the passages taken of it, and its summary if that was taken; in full if they are all of it. A
    summary that is no shorter than what it replaces is left out."""
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
    """What the block shows of an artifact, without the passages that stand word for word in a text of the window; None
    if nothing is left."""

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


def recalled(quotable: Sequence[TranscriptMessage], taken: Iterable[PassageCandidate]) -> RecalledExcerpts | None:
    """Excerpts of the old messages, in the order of the conversation; None if nothing of them was taken."""
    spans: dict[int, Spans] = {}
    for candidate in sorted(taken, key=lambda c: (c.message or 0, c.passage.start)):
        here = spans.setdefault(candidate.message or 0, [])
        if isinstance(candidate.of, TranscriptMessage):
            _add(here, candidate.of.text, candidate.passage.start, candidate.passage.end)
    excerpts: list[OldExcerpt] = []
    complete = True  # whether everything up to here is shown
    for message in quotable:
        here = spans.get(message.index, [])
        if here:
            shown = [(0, len(message.text))] if _is_whole(here, message.text) else here
            excerpts.append(OldExcerpt(message.turn, message.speaker, message.text, tuple(shown), follows=complete))
        complete = bool(here)
    return RecalledExcerpts(as_artifact(quotable), tuple(excerpts), more=not complete) if excerpts else None


def _add(spans: Spans, text: str, start: int, end: int) -> bool:
    """Adds a span behind the others; False if it continues the last of them."""
    if spans and not text[spans[-1][1] : start].strip():
        spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        return False
    spans.append((start, end))
    return True


def _is_whole(spans: Spans, text: str) -> bool:
    return len(spans) == 1 and not (text[: spans[0][0]].strip() or text[spans[0][1] :].strip())
