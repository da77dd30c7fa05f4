"""What an answer cites of what its model was sent (guarantee §14.8)."""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.context.assembly import shown_block
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.jsons import Json
from gateway.core.types import tool_steps, window
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.places import TextPlaces
from gateway.core.types.window import ArtifactRendering, ForwardedMessages, PackedWindow, WindowInputs
from gateway.pipeline.stages import RequestFeature, SettledRequest

# What an answer cites, parsed from its text. A citation of an artifact, or of a place in one, that the model was not
# sent is dropped: nothing is invented (guarantee §14.8).

CITATION = re.compile(r"\[(art_[0-9a-f]{16}(?:-\d{1,4})?|step_\d{1,4}:[^\[\],\n]{1,120})(?:, ([^\[\]\n]{1,300}))?\]")
"""`[art_0123456789abcdef]`, or with a place: `[art_0123456789abcdef, page 12]`; or `[step_2:weather]` for a result of a
tool step of the turn."""
PASSAGE_CHARS = 500
"""Most characters of a passage."""
MAX_PASSAGES = 8
"""Most passages of one citation."""
STATEMENT_CHARS = 300
"""Characters before a citation that may be the statement it supports."""
STATEMENT_WORD = re.compile(r"\w{2,40}")
EQUAL = 1e-9
MAX_CITATIONS = 200
"""Most different citations of one answer: each costs a search of its artifact's places."""

Span = tuple[int, int]


@record
class SentArtifact:
    """An artifact of which the model was sent the characters `spans` of the content.

    Attributes:
        summarized: the model was sent a summary of it, in other words.
        original: the content is the original one, so that its character positions are valid.
        excerpt: the content is parts of a large document (`core.types.places`).
    """

    artifact_id: str
    source: str
    title: str | None
    content: str
    spans: Sequence[Span]
    summarized: bool = False
    original: bool = True
    excerpt: bool = False


@record
class AnswerCitations:
    """The citations of an answer in its order, each once, as JSON-ready values; and how many others were dropped."""

    found: list[dict[str, Any]]
    dropped: int


def citations_of(answer: str, sent: Callable[[str], Sequence[SentArtifact]]) -> AnswerCitations:
    """Parses the citations in a text.
    `sent`: returns the forwarded artifacts of an id, or of a tool's name in a step. Parallel calls of one tool share a
    name: it refers to the results of all."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    places: dict[str, TextPlaces] = {}
    dropped = 0
    named: dict[tuple[str, str], set[str]] = {}
    begin = 0
    for match in CITATION.finditer(answer):
        said = _words(answer[max(begin, match.start() - STATEMENT_CHARS) : match.start()])
        named.setdefault((match[1], (match[2] or "").strip()), set()).update(said)
        begin = match.end() if said else begin
    for number, ((name, place), said) in enumerate(named.items()):
        before = len(found)
        known = False
        for artifact in sent(name) if number < MAX_CITATIONS else ():
            key = (artifact.artifact_id, place)
            known = known or key in found
            if key in found:
                continue
            if place and artifact.artifact_id not in places:
                places[artifact.artifact_id] = TextPlaces(artifact.content, excerpt=artifact.excerpt)
            within = places[artifact.artifact_id].find(place) if place else [(0, len(artifact.content))]
            citation = _citation(artifact, place, within, said) if within else None
            if citation is not None:
                found[key] = citation
        dropped += len(found) == before and not known
    return AnswerCitations(list(found.values()), dropped)


def _words(statement: str) -> set[str]:
    """Returns the words that a statement may share with its source: those of its last sentences."""
    return set(STATEMENT_WORD.findall(statement.lower()))


def _citation(artifact: SentArtifact, place: str, within: Sequence[Span], said: Set[str]) -> dict[str, Any] | None:
    """Builds a citation; None if the model was sent nothing of that place. `said`: words of the statement."""
    passages = []
    for begin, until in ((max(s, low), min(e, high)) for s, e in artifact.spans for low, high in within):
        if begin >= until or not artifact.content[begin:until].strip():
            continue
        begin, until = _around(artifact.content, begin, until, said)
        at = (begin, until) if artifact.original else (None, None)
        passages.append({"start": at[0], "end": at[1], "text": artifact.content[begin:until]})
        if len(passages) == MAX_PASSAGES:
            break
    if not passages and not artifact.summarized:
        return None
    return {
        "artifact_id": artifact.artifact_id,
        "source": artifact.source,
        "title": artifact.title,
        "place": place or None,
        "passages": passages,
    }


def _around(content: str, begin: int, until: int, said: Set[str]) -> Span:
    """Returns the stretch of at most `PASSAGE_CHARS` with most of the words, weighted by rarity; the first one if there
    is none. It begins at a line, or at a word, if one is close."""
    if until - begin <= PASSAGE_CHARS or not said:
        return begin, min(until, begin + PASSAGE_CHARS)
    found = [(m.start(), m[0].lower()) for m in STATEMENT_WORD.finditer(content, begin, until) if m[0].lower() in said]
    worth = {word: 1 / count for word, count in Counter(word for _, word in found).items()}
    best, score, first = (begin, begin), 0.0, 0
    inside: Counter[str] = Counter()
    value = 0.0
    for last, (at, word) in enumerate(found):
        value += 0 if inside[word] else worth[word]
        inside[word] += 1
        while at + len(word) - found[first][0] > PASSAGE_CHARS:
            gone = found[first][1]
            inside[gone] -= 1
            value -= 0 if inside[gone] else worth[gone]
            first += 1
        if value > score + EQUAL:
            best, score = (found[first][0], found[last][0] + len(word)), value
    spare = PASSAGE_CHARS - (best[1] - best[0])
    start = max(begin, min(best[0] - spare // 2, until - PASSAGE_CHARS))
    line, gap = content.find("\n", start, best[0]), content.find(" ", start, best[0])
    start = start if start == begin else line + 1 if line >= 0 else gap + 1 if gap >= 0 else start
    return start, min(until, start + PASSAGE_CHARS)


log = logs.get_logger("gateway.pipeline.features.citations")


def build() -> RequestFeature:
    return RequestFeature(needs="options.cite", on_bill=_with_citations)


async def _with_citations(settled: SettledRequest) -> SettledRequest:
    """Adds what an answer cites, and how many of its names were dropped (`turn.CITED_FIELDS`), also if it broke off. A
    fault of ours costs the citations, never the answer."""
    prepared, outcome = settled.attempted.prepared, settled.attempted.outcome
    request, built = prepared.request, prepared.context
    if outcome.status == "failed":
        return settled
    found: Json = {"citations": [], "citations_dropped": 0}
    if built is not None and built.material is not None:
        window = partial(_CitableWindow, built.material, built.fitted, prepared.rounds)
        try:
            found = await asyncio.to_thread(_cited, outcome.completion or {}, window, several=request.choices > 1)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with citations, the answer is returned
            log.fault("citations_failed", fault, request_id=request.request_id)
    request.log_facts["citations"] = len(found["citations"])
    request.log_facts["citations_dropped"] = found["citations_dropped"]
    return replace(settled, cited=found)


def _cited(completion: Mapping[str, Any], window_of: Callable[[], "_CitableWindow"], *, several: bool) -> Json:
    """Returns the citations in the texts of an answer, as JSON-ready values.
    `several`: several answers were requested: each citation names its choice."""
    window = window_of()
    found: list[Json] = []
    dropped = 0
    for number, choice in enumerate(completion.get("choices") or ()):
        message = choice.get("message")
        text = tool_steps.text_of(message.get("content")) if isinstance(message, dict) else ""
        of_choice = {"choice": choice.get("index", number)} if several else {}
        here = citations_of(text, window.sent)
        found += [{**citation, **of_choice} for citation in here.found]
        dropped += here.dropped
    return {"citations": found, "citations_dropped": dropped}


class _CitableWindow:
    """What was forwarded, by the names that it can be cited by."""

    def __init__(self, material: WindowInputs, fitted: PackedWindow, rounds: Sequence[Json]) -> None:
        self._fitted = fitted
        forwarded: ForwardedMessages = fitted.forwarded
        pairs = zip(forwarded.indexes, forwarded.messages, strict=True)
        self._forms = {index: body for index, body in pairs if index >= 0}
        changed = [body for index, body in self._forms.items() if body is not material.messages[index].body]
        self._items: dict[str, list[shown_block.ShownSpan]] = defaultdict(list)
        for body in (*changed, *rounds):
            for content_id, shown in shown_block.items_in(tool_steps.text_of(body.get("content"))):
                self._items[content_id].append(shown)
        self._named: dict[str, list[Artifact]] = defaultdict(list)
        self._alike: dict[str, list[Artifact]] = defaultdict(list)
        for artifact in (*material.artifacts, *material.recallable):
            self._named[artifact.artifact_id].append(artifact)
            self._alike[artifact.content_id].append(artifact)
            if artifact.source.startswith("step_"):
                self._named[artifact.source].append(artifact)
        self._found: dict[str, SentArtifact | None] = {}

    def sent(self, name: str) -> list[SentArtifact]:
        """Returns what was sent of the artifacts of that name."""
        found = []
        for artifact in self._named.get(name, ()):
            if artifact.artifact_id not in self._found:
                self._found[artifact.artifact_id] = self._sent(artifact)
            if (sent := self._found[artifact.artifact_id]) is not None:
                found.append(sent)
        return found

    def _sent(self, artifact: Artifact) -> SentArtifact | None:
        """Returns None if nothing of it was sent. If its content occurs more than once, the fullest counts."""
        alike = self._alike[artifact.content_id]
        shown = [*(each for one in alike for each in self._shown(one)), *self._items.get(artifact.content_id, ())]
        spans: set[tuple[int, int]] = set()
        summarized = False
        for each in shown:
            if each.whole or each.spans:
                spans.update([(0, len(artifact.content))] if each.whole else each.spans)
            elif each.text and (found := shown_block.stretches(each.text, artifact.content)):
                spans.update(found)
            elif each.text and each.full:  # compacted: other characters, the same content
                return SentArtifact(
                    artifact.artifact_id, artifact.source, artifact.title, each.text, _all(each.text), original=False
                )
            summarized = summarized or each.summarized
        if not spans and not summarized:
            return None
        merged = _merged(sorted(spans))
        sent = SentArtifact(artifact.artifact_id, artifact.source, artifact.title, artifact.content, merged, summarized)
        return replace(sent, original=False, excerpt=True) if artifact.is_excerpt else sent

    def _shown(self, artifact: Artifact) -> Iterator[shown_block.ShownSpan]:
        """Yields what this request renders, in the block or in its message; else what its message shows."""
        selection, index, name = self._fitted.selection, artifact.place.message, artifact.artifact_id
        rendering = selection.renderings.get(name)
        is_quoted = name in selection.quoted
        in_block = is_quoted or index is None or (name in selection.recalled and index not in self._forms)
        is_worded = rendering is not None and (in_block or index in self._forms)
        if rendering is not None and is_worded:
            yield _shown(rendering, artifact)
        if is_quoted or not is_worded:
            yield from self._in_message(artifact)

    def _in_message(self, artifact: Artifact) -> Iterator[shown_block.ShownSpan]:
        """Yields what its own message shows, which was sent as it came or as an earlier request rendered it."""
        body = self._forms.get(artifact.place.message) if artifact.place.message is not None else None
        if body is None:
            return
        text = tool_steps.text_of(body.get("content"))
        if artifact.content.strip() in text:
            yield shown_block.ShownSpan(whole=True)
        elif (shown := shown_block.in_place_of(text, artifact.content_id)) is not None:
            yield shown
        elif body["role"] in tool_steps.RESULT_ROLES:
            yield shown_block.ShownSpan(text, full=True)


def _shown(rendering: ArtifactRendering, artifact: Artifact) -> shown_block.ShownSpan:
    if rendering.strategy is ProcessingStrategy.EXCLUDE:
        return shown_block.ShownSpan()
    if rendering.strategy.value in window.WHOLE_STRATEGIES:
        is_whole = rendering.text == artifact.content
        return shown_block.ShownSpan(whole=True) if is_whole else shown_block.ShownSpan(rendering.text, full=True)
    summarized = rendering.strategy is ProcessingStrategy.SUMMARIZE
    if rendering.artifact.content == artifact.content:
        return shown_block.ShownSpan(spans=rendering.spans, summarized=summarized)
    pieces = [rendering.artifact.content[start:end] for start, end in rendering.spans]
    return shown_block.ShownSpan(
        "\n".join(pieces), summarized=summarized
    )  # of a compacted content: to be found in the original


def _all(text: str) -> tuple[tuple[int, int], ...]:
    return ((0, len(text)),)


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans in order, joining those that overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
