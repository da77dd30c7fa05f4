"""Each artifact of a request: what was decided for it, why, its rank, and what of it was shown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway import retrieval
from gateway.context import collect, compact
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import past_turns, tool_steps
from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.inspection.document_parts import ShownArtifact, ShownPassages, found_again, shown_artifacts

FULL, EXCLUDED = ProcessingStrategy.INCLUDE_FULL.value, ProcessingStrategy.EXCLUDE.value
EXCERPTS, SUMMARY_OF_TURNS, NOT_READ, GONE = "excerpts_of_turns", "summary_of_turns", "file_not_read", "not_stored"
"""Why there is no original to mark: it is not a single text, it is a file that is not read for this, or it is no longer
stored."""
MAX_RANKED, MAX_RANKED_CHARS = 100, 1_000_000
"""Most artifacts, and characters of them, that are ranked; beyond either none is, as that would take too long."""
MAX_COMPACTED = 1_000_000
"""Characters of an original that is compacted to find passages in it."""
SIZES = ("original_size_chars", "processed_size_chars")


@record
class ExplainedArtifact:
    """An artifact of a request.

    Attributes:
        record: as in the bill (`artifacts_processed`).
        planned: what the planner decided for it: strategy, priority, rationale, focus, query; None if nothing.
        rank: its rank among the request's artifacts by the words of the question, from 1, computed on construction;
            None where that would take too long, or it has no text.
        original: the text that `passages` point into; None where there is none, for the `reason` given.
        is_compacted: `original` is compacted as it was forwarded.
        shown: the text below its label, if it was reduced or is in a block.
        message_id: the message that contains it; None for an attachment.
        excerpt_of: digest of the large document of which `original` is what the question needed; "" if it is whole.
    """

    record: Json
    planned: Json | None
    rank: int | None
    original: str | None
    reason: str | None
    passages: ShownPassages
    is_compacted: bool = False
    shown: ShownArtifact | None = None
    message_id: str | None = None
    title: str | None = None
    excerpt_of: str = ""

    @property
    def artifact_id(self) -> str:
        return str(self.record.get("artifact_id", ""))

    @property
    def is_reduced(self) -> bool:
        """Whether any of it was left out."""
        return self.record.get("strategy") != FULL


@record
class OriginalTexts:
    """The texts of artifacts by their content ids, and the messages that contain them."""

    texts: Mapping[str, Artifact]
    messages: Mapping[str, str | None]


def originals_of(said: Sequence[past_turns.PathMessage], attached: Iterable[Artifact], min_chars: int) -> OriginalTexts:
    """Collects the artifacts that a branch holds up to a request.
    `said`: the messages up to the request, with those that it brought; `attached`: documents of the conversation;
    `min_chars`: longer texts in user messages may hold documents (`context.document_min_chars`)."""
    messages = [each.message for each in said]
    found = collect.extract_artifacts_from_messages(messages, len(messages))
    found += collect.documents_in_messages(messages, len(messages), min_chars, {})
    texts: dict[str, Artifact] = {}
    places: dict[str, str | None] = {}
    for artifact in (*attached, *found):
        texts[artifact.content_id] = artifact
        index = artifact.place.message
        places[artifact.content_id] = messages[index].message_id if index is not None else None
    return OriginalTexts(texts, places)


def explained_artifacts(
    used: Mapping[str, Any],
    plan: Mapping[str, Any] | None,
    sent: past_turns.SentMessages,
    originals: OriginalTexts,
    question: str,
) -> list[ExplainedArtifact]:
    """Explains the artifacts of a request in the order of its bill.
    `used`: `context_utilization` of the bill, whole; `plan`: the planner's decisions."""
    records = records_of(used)
    decisions = {each.get("artifact_id"): each for each in (plan or {}).get("artifacts", ())}
    shown = shown_artifacts(sent.messages or ())
    ranks = _ranks(question, [(_content_id(each), originals.texts.get(_content_id(each))) for each in records])
    return [
        _explained(each, decisions.get(each.get("artifact_id")), shown, originals, ranks.get(_content_id(each)))
        for each in records
    ]


def records_of(used: Mapping[str, Any]) -> list[Json]:
    """Returns the artifacts that a bill lists, without records that the gateway did not write: the audit finds those.
    `used`: its `context_utilization`."""
    found = [each for each in used.get("artifacts_processed") or () if isinstance(each, dict)]
    return [each for each in found if all(isinstance(each.get(name), int) for name in SIZES)]


def _content_id(record: Mapping[str, Any]) -> str:
    return str(record.get("artifact_id", "")).partition("-")[0]


def _explained(
    record: Json, planned: Json | None, shown: Mapping[str, ShownArtifact], originals: OriginalTexts, rank: int | None
) -> ExplainedArtifact:
    name = _content_id(record)
    artifact = originals.texts.get(name)
    here = shown.get(str(record.get("artifact_id"))) or shown.get(name)
    if artifact is None:
        return ExplainedArtifact(record, planned, None, None, _why_gone(record), ShownPassages(()), shown=here)
    text, passages, is_compacted = _marked(artifact.content, str(record.get("strategy")), here)
    place = originals.messages.get(name)
    title, of = artifact.title, artifact.excerpt_of
    return ExplainedArtifact(record, planned, rank, text, None, passages, is_compacted, here, place, title, of)


def _why_gone(record: Mapping[str, Any]) -> str:
    source = str(record.get("source", ""))
    if source.startswith("turns:"):
        is_summary = record.get("strategy") == ProcessingStrategy.SUMMARIZE.value
        return SUMMARY_OF_TURNS if is_summary else EXCERPTS
    return NOT_READ if "file:" in source else GONE


def _marked(original: str, strategy: str, shown: ShownArtifact | None) -> tuple[str, ShownPassages, bool]:
    """Returns the original, or its compacted form if the passages are from that, with the passages that were shown."""
    if strategy == FULL:
        return original, ShownPassages(((0, len(original)),) if original else ()), False
    if shown is None or strategy == EXCLUDED:
        return original, ShownPassages(()), False
    found = found_again(original, shown.text)
    if found.missing and len(original) <= MAX_COMPACTED and (shorter := compact(original)) != original:
        other = found_again(shorter, shown.text)
        if other.missing < found.missing:
            return shorter, other, True
    return original, found, False


def _ranks(question: str, artifacts: Sequence[tuple[str, Artifact | None]]) -> dict[str, int]:
    """Ranks the artifacts by their best passages for the question."""
    known = {name: artifact for name, artifact in artifacts if artifact is not None}
    size = sum(len(artifact.content) for artifact in known.values())
    if not question or len(known) < 2 or len(known) > MAX_RANKED or size > MAX_RANKED_CHARS:
        return {}

    sources = [
        SearchedSource(each.content, "artifact", each.search_label, number=number, excerpt_of=each.excerpt_of)
        for number, each in enumerate(known.values())
    ]
    ranked = retrieval.relevance(RelevanceQuery(question), sources)
    best = [max((passage.score for passage in found), default=0.0) for found in ranked]
    order = sorted(range(len(best)), key=lambda number: -best[number])
    names = list(known)
    return {names[number]: place for place, number in enumerate(order, 1)}


def question_of(said: Sequence[past_turns.PathMessage]) -> str:
    """Returns the last user message's text."""
    return next(
        (tool_steps.text_of(each.message.content) for each in reversed(said) if each.message.role == "user"), ""
    )
