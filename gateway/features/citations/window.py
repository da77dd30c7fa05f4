"""What an answer cites of what its model was sent (guarantee §14.8)."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.assembly.block import Shown, in_place_of, items_in, stretches
from gateway.features.citations.reading import Sent, citations_of
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.tool_steps import RESULT_ROLES, text_of
from gateway.models.window import Fitted, Forwarded, Material, Rendering
from gateway.telemetry.logs import get_logger
from gateway.turn.hooks import Feature
from gateway.turn.stages import Settled

log = get_logger("gateway.features.citations")
Json = dict[str, Any]


def build() -> Feature:
    """Builds the feature."""
    return Feature(on_bill=_with_citations)


async def _with_citations(settled: Settled) -> Settled:
    """Adds what an answer cites, and how many of the names in it were dropped (`models.turn.CITED`), also of one that
    broke off. A fault of ours costs the citations, never the answer."""
    prepared, outcome = settled.attempted.prepared, settled.attempted.outcome
    request, built = prepared.request, prepared.context
    if not request.options.cite or outcome.status == "failed":
        return settled
    found: Json = {"citations": [], "citations_dropped": 0}
    if built is not None and built.material is not None:
        window = partial(_Window, built.material, built.fitted, prepared.rounds)
        try:
            found = await asyncio.to_thread(_cited, outcome.completion or {}, window, several=request.choices > 1)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with citations, the answer is given
            log.fault("citations_failed", fault, request_id=request.request_id)
    request.log_facts["citations"] = len(found["citations"])
    request.log_facts["citations_dropped"] = found["citations_dropped"]
    return replace(settled, cited=found)


def _cited(completion: Mapping[str, Any], window_of: Callable[[], "_Window"], *, several: bool) -> Json:
    """The citations in the texts of an answer, as JSON-ready values.

    Args:
        several: several answers were asked for: each citation says in which it stands.
    """
    window = window_of()
    found: list[Json] = []
    dropped = 0
    for number, choice in enumerate(completion.get("choices") or ()):
        message = choice.get("message")
        text = text_of(message.get("content")) if isinstance(message, dict) else ""
        of_choice = {"choice": choice.get("index", number)} if several else {}
        here = citations_of(text, window.sent)
        found += [{**citation, **of_choice} for citation in here.found]
        dropped += here.dropped
    return {"citations": found, "citations_dropped": dropped}


class _Window:
    """What was forwarded, by the names by which it can be cited."""

    def __init__(self, material: Material, fitted: Fitted, rounds: Sequence[Json]) -> None:
        self._material, self._fitted = material, fitted
        forwarded: Forwarded = fitted.forwarded
        pairs = zip(forwarded.indexes, forwarded.messages, strict=True)
        self._forms = {index: body for index, body in pairs if index >= 0}
        changed = [body for index, body in self._forms.items() if body is not material.messages[index].body]
        self._items: dict[str, list[Shown]] = defaultdict(list)
        for body in (*changed, *rounds):
            for content_id, shown in items_in(text_of(body.get("content"))):
                self._items[content_id].append(shown)
        self._named: dict[str, list[Artifact]] = defaultdict(list)
        self._alike: dict[str, list[Artifact]] = defaultdict(list)
        for artifact in (*material.artifacts, *material.recallable):
            self._named[artifact.artifact_id].append(artifact)
            self._alike[artifact.content_id].append(artifact)
            if artifact.source.startswith("step_"):
                self._named[artifact.source].append(artifact)
        self._found: dict[str, Sent | None] = {}

    def sent(self, name: str) -> list[Sent]:
        """What was sent of the artifacts of that name."""
        found = []
        for artifact in self._named.get(name, ()):
            if artifact.artifact_id not in self._found:
                self._found[artifact.artifact_id] = self._sent(artifact)
            if (sent := self._found[artifact.artifact_id]) is not None:
                found.append(sent)
        return found

    def _sent(self, artifact: Artifact) -> Sent | None:
        """None if nothing of it was sent. Where its content stands more than once, the fullest counts."""
        alike = self._alike[artifact.content_id]
        shown = [*(each for one in alike for each in self._shown(one)), *self._items.get(artifact.content_id, ())]
        spans: set[tuple[int, int]] = set()
        summarized = False
        for each in shown:
            if each.whole or each.spans:
                spans.update([(0, len(artifact.content))] if each.whole else each.spans)
            elif each.text and (found := stretches(each.text, artifact.content)):
                spans.update(found)
            elif each.text and each.full:  # compacted: other characters, the same content
                return Sent(
                    artifact.artifact_id, artifact.source, artifact.title, each.text, _all(each.text), original=False
                )
            summarized = summarized or each.summarized
        if not spans and not summarized:
            return None
        merged = _merged(sorted(spans))
        sent = Sent(artifact.artifact_id, artifact.source, artifact.title, artifact.content, merged, summarized)
        return replace(sent, original=False, excerpt=True) if artifact.is_excerpt else sent

    def _shown(self, artifact: Artifact) -> Iterator[Shown]:
        """As this request words it, in the block or in its message; else as its message went up."""
        selection, index, name = self._fitted.selection, artifact.place.message, artifact.artifact_id
        rendering = selection.renderings.get(name)
        is_quoted = name in selection.quoted
        in_block = is_quoted or index is None or (name in selection.recalled and index not in self._forms)
        is_worded = rendering is not None and (in_block or index in self._forms)
        if rendering is not None and is_worded:
            yield _shown(rendering, artifact)
        if is_quoted or not is_worded:
            yield from self._in_message(artifact)

    def _in_message(self, artifact: Artifact) -> Iterator[Shown]:
        """As it stands in its own message, which went up as it came or as an earlier request worded it."""
        body = self._forms.get(artifact.place.message) if artifact.place.message is not None else None
        if body is None:
            return
        text = text_of(body.get("content"))
        if artifact.content.strip() in text:
            yield Shown(whole=True)
        elif (shown := in_place_of(text, artifact.content_id)) is not None:
            yield shown
        elif body["role"] in RESULT_ROLES:
            yield Shown(text, full=True)


def _shown(rendering: Rendering, artifact: Artifact) -> Shown:
    if rendering.strategy is ProcessingStrategy.EXCLUDE:
        return Shown()
    is_full = rendering.strategy is ProcessingStrategy.INCLUDE_FULL
    if is_full:
        return Shown(whole=True) if rendering.text == artifact.content else Shown(rendering.text, full=True)
    summarized = rendering.strategy is ProcessingStrategy.SUMMARIZE
    if rendering.artifact.content == artifact.content:
        return Shown(spans=rendering.spans, summarized=summarized)
    pieces = [rendering.artifact.content[start:end] for start, end in rendering.spans]
    return Shown("\n".join(pieces), summarized=summarized)  # of a compacted content: what stands in the original


def _all(text: str) -> tuple[tuple[int, int], ...]:
    return ((0, len(text)),)


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that overlap joined."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
