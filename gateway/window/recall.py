"""What the frozen window does not hold and a new question needs: extracts in the block (guarantee §4 I6, I7)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.window import Excerpt, Fitted, Material, Recalled, Rendering, Selection, head_of
from gateway.window.budget import Limits, Tools, fitted_as, in_full
from gateway.window.candidates import Candidate, TranscriptMessage, as_artifact, candidates, of_each_content, transcript
from gateway.window.counting import PromptCounter
from gateway.window.greedy import Choice

# How the passages that were taken are shown: extracts of artifacts, and excerpts of old turns.


Spans = list[tuple[int, int]]


def extract(artifact: Artifact, taken: Iterable[Candidate]) -> Rendering:
    """The artifact by those passages of it; in full where they are the whole of it. By its summary as well if that was
    taken, unless both together say no less than all of it."""
    taken = list(taken)
    summary = next((c for c in taken if c.summary), None)
    ordered = sorted((c.passage for c in taken if not c.summary), key=lambda p: p.start)
    spans: Spans = []
    headings = [p.heading for p in ordered if _add(spans, artifact.content, p.start, p.end)]
    if _whole(spans, artifact.content):
        return in_full(artifact, artifact.content)
    shown = Rendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=tuple(spans), headings=tuple(headings))
    if summary is None or len(summary.summary) + shown.extract_chars >= len(artifact.content):
        return shown if spans else Rendering(artifact, ProcessingStrategy.EXCLUDE)
    return replace(shown, strategy=ProcessingStrategy.SUMMARIZE, text=summary.summary, focus=summary.focus)


def recalled(told: Sequence[TranscriptMessage], taken: Iterable[Candidate]) -> Recalled | None:
    """Excerpts, in the order of the conversation, of what was `told` outside the window; None without any."""
    spans: dict[int, Spans] = {}
    for candidate in sorted(taken, key=lambda c: (c.message or 0, c.passage.start)):
        here = spans.setdefault(candidate.message or 0, [])
        if isinstance(candidate.of, TranscriptMessage):
            _add(here, candidate.of.text, candidate.passage.start, candidate.passage.end)
    excerpts: list[Excerpt] = []
    complete = True  # whether everything up to here is shown
    for each in told:
        if each.index not in spans:
            complete = False
            continue
        here = spans[each.index]
        whole = _whole(here, each.text)
        shown = ((0, len(each.text)),) if whole else tuple(here)
        excerpts.append(Excerpt(each.turn, each.speaker, each.text, shown, follows=complete))
        complete = True
    return Recalled(as_artifact(told), tuple(excerpts), more=not complete) if excerpts else None


def _add(spans: Spans, text: str, start: int, end: int) -> bool:
    """Adds a span behind the others; False if it went on from the last of them."""
    if spans and not text[spans[-1][1] : start].strip():
        spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        return False
    spans.append((start, end))
    return True


def _whole(spans: Spans, text: str) -> bool:
    return len(spans) == 1 and not (text[: spans[0][0]].strip() or text[spans[0][1] :].strip())


SHARE_OF_ROOM = 0.75
MOST, LEAST = 0.05, 0.015
MOST_TOKENS = 200
"""What a turn may recall of the budget, in a small one so many tokens: it takes room from the turns to come. With less
than the least a question would go without what it needs; then something has to leave, as it soon would in any case."""
BEST_MORE = 2
"""So many times as much may be recalled where the one passage that bears most on the question is that long."""
WORTH = 0.4
"""What bears on the question by less than this part of what bears most on it is not worth the room."""
ROUNDS = 4
ESCAPES = (("&lt;", "<"), ("\\[", "["))
"""How a block writes what could be taken for its own delimiters and labels."""


def with_recalled(
    material: Material,
    frozen: Fitted,
    limits: Limits,
    counting: PromptCounter,
    tools: Tools,
    searches: tuple[str, ...] = (),
) -> Fitted | None:
    """The frozen window with what is needed of all that it does not hold, in a block at the head of a new question;
    None if there is no room for that, so that something has to leave.

    A question that was forwarded before keeps the block that it had (guarantee §4 I6).
    """
    if limits.filled is None or not material.question:
        return frozen
    artifacts, told = absent(material, frozen)
    found = _worth_it(candidates(material, artifacts, told, tools.relevance, searches)) if artifacts or told else []
    found = _unseen(material, frozen, found)
    if not found:
        return frozen
    before = counting.total(frozen.forwarded)
    room = (limits.filled - before) * SHARE_OF_ROOM
    if room < limits.filled * LEAST:
        return None
    allowed = min(room, max(limits.filled * MOST, MOST_TOKENS))
    choice = Choice(counting, frozen.selection.first, [], lambda turn: 0, run_ended=True)
    best = min(room, allowed * BEST_MORE)
    if choice.add(found[:1], best):
        choice.add_part(found[:1], best)
        if not _unseen(material, frozen, choice.passages()):
            choice.shrink(choice.used)
    allowed = max(allowed, choice.used)
    choice.add(found[1:], allowed)
    for _ in range(ROUNDS):
        if not choice.taken:
            return None if allowed == room < _after_a_pass(limits) else frozen
        selection = _selection(frozen.selection, told, choice)
        forwarded = tools.assemble(material, selection)
        excess = counting.total(forwarded) - before - allowed
        if excess <= 0:
            return fitted_as(selection, forwarded, counting.exact, counting)
        choice.shrink(excess)
    return frozen


def _after_a_pass(limits: Limits) -> float:
    """Room for what is recalled right after something has left."""
    return ((limits.filled or 0) - limits.aim) * SHARE_OF_ROOM


def _worth_it(found: list[Candidate]) -> list[Candidate]:
    best = max((c.passage.score for c in found), default=0.0)
    return [c for c in found if c.passage.score > 0 and c.passage.score >= WORTH * best]


def _is_new_turn(material: Material) -> bool:
    """Whether the window may lack something, and the message that begins the turn under way was not forwarded yet."""
    if (material.frame is None and not material.earlier) or not material.messages:
        return False
    current = material.messages[material.current]
    return current.role == "user" and current.message_id is None


def absent(material: Material, frozen: Fitted) -> tuple[list[Artifact], list[TranscriptMessage]]:
    """What does not stand in a frozen window, or not in full, and may be shown beside it: artifacts, and what was said.
    Nothing where the turn under way was forwarded before."""
    if not _is_new_turn(material):
        return [], []
    selection, messages = frozen.selection, material.messages
    standing = {name for i in frozen.forwarded.indexes if i >= 0 for name in messages[i].standing}
    standing |= set(frozen.forwarded.standing)
    here = {a.content_id for a in material.searched if _stands(a, material, selection, standing)}
    lacking = [a for a in material.searched if a.content_id not in here]
    artifacts = of_each_content(lacking, material.current)
    left = selection.left_out
    told = [each for each in transcript(material, left) if each.index < selection.first or each.index in left]
    return artifacts, told


def _stands(artifact: Artifact, material: Material, selection: Selection, standing: set[str]) -> bool:
    index = artifact.place.message
    if index is None:
        return artifact.standing_name in standing
    if index < selection.first or index in selection.left_out:
        return False
    message, frame = material.messages[index], material.frame
    reduced = frame is not None and message.message_id in frame.decisions
    return not reduced or artifact.artifact_id in selection.renderings


def _unseen(material: Material, frozen: Fitted, found: Iterable[Candidate]) -> list[Candidate]:
    """Without what already stands in a block or an extract of the window."""
    shown: list[str] = []
    for index, message in zip(frozen.forwarded.indexes, frozen.forwarded.messages, strict=True):
        if index >= 0 and material.messages[index].rendered is not None:
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")]
            shown += [*texts, *(plain for text in texts if (plain := _unescaped(text)) != text)]
    return [c for c in found if not any(_words(c) in text for text in shown)]


def _unescaped(text: str) -> str:
    for escaped, meant in ESCAPES:
        text = text.replace(escaped, meant)
    return text


def _words(candidate: Candidate) -> str:
    """A passage as it would stand again: a message's head may be said once for several."""
    text = candidate.text
    return (text if isinstance(candidate.of, Artifact) else text.removeprefix(head_of(text))).strip()


def _selection(frozen: Selection, told: list[TranscriptMessage], choice: Choice) -> Selection:
    chosen: dict[int, list[Candidate]] = defaultdict(list)
    quoted: list[Candidate] = []
    for candidate in choice.passages():
        if isinstance(candidate.of, TranscriptMessage):
            quoted.append(candidate)
        else:
            chosen[id(candidate.of)].append(candidate)
    extracts = [extract(taken[0].of, taken) for taken in chosen.values() if isinstance(taken[0].of, Artifact)]
    names = frozenset(rendering.artifact.artifact_id for rendering in extracts)
    renderings = {**frozen.renderings, **{r.artifact.artifact_id: r for r in extracts}}
    return replace(frozen, renderings=renderings, quoted=names, turns=recalled(told, quoted))
