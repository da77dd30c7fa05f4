"""What became of a request's context: what is forwarded, and the figures that the bill tells of it (guarantee §6)."""

from dataclasses import replace

from gateway.context.assembly.block import one_line
from gateway.context.assembly.body import NO_OWN_FILES, OwnFiles
from gateway.context.build import FinalFit, MeasuredInputs, RequestRanking, WindowProposal, left_out
from gateway.context.gather import ContextInputs
from gateway.context.planner import PlanResult
from gateway.context.planning.decision import SAME_DOCUMENT, EarlierWindow, holds_reduced, records_of
from gateway.context.window.counting import PromptCounter
from gateway.context.window.prompt_budget import PromptBudget
from gateway.core.errors import ContextLengthExceeded
from gateway.core.frozen_records import record
from gateway.core.types.artifacts import UNINDEXED, WORKFLOW_SPEC, Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.bill import ContextUtilizationMetadata, EconomyNote, LeftOutTokens
from gateway.core.types.chat import ChatRequest
from gateway.core.types.memory import MemoryMessage
from gateway.core.types.places import NOTE_END, left_out_of, pages_without_text
from gateway.core.types.tool_steps import turn_starts
from gateway.core.types.window import MEMORY_INDEX, SYSTEM_INDEX, PackedWindow, WindowInputs
from gateway.retrieval.embeddings.search import PendingVectors
from gateway.retrieval.index_cache import PassageFinder

MAX_TURNS = "max_turns"
"""Why older turns are not forwarded, whatever room there is (`ContextUtilizationMetadata.left_by`)."""


@record
class BuiltContext:
    """What is forwarded, what is to be remembered of it, and its figures.

    `material` and `counting` are None where the messages go up as they were sent and nobody looked into them
    (`context/manager.py`). `cached` are digests of contents of which the cache keeps something. `plan` is what a
    planner was asked for, so that a second context of the same request asks nobody. `left_out`: tokens spared, against
    forwarding everything. `indexes` and `vectors` are kept for later questions once the request is stored.
    """

    fitted: PackedWindow
    utilization: ContextUtilizationMetadata
    material: WindowInputs | None
    counting: PromptCounter | None = None
    new_attachments: tuple[Artifact, ...] = ()
    cached: tuple[str, ...] = ()
    plan: PlanResult | None = None
    left_out: LeftOutTokens | None = None
    indexes: PassageFinder | None = None
    vectors: PendingVectors | None = None
    economy: EconomyNote | None = None
    own: OwnFiles = NO_OWN_FILES
    """PDFs and pictures that go up in the place of their ids."""
    recalls: bool = False
    """Its request has the tool `recall`."""
    is_worded: bool = False
    """An assembler worded what is forwarded: it is in none of the stored messages (guarantee §11.2)."""

    @property
    def is_as_sent(self) -> bool:
        """Whether the messages go up as they were sent, by the fast path."""
        return self.material is None and not self.is_worded

    def with_cached(self, digests: tuple[str, ...]) -> "BuiltContext":
        """The same with more contents of which the cache keeps something."""
        return replace(self, cached=tuple(dict.fromkeys((*self.cached, *digests)))) if digests else self


def render(proposal: WindowProposal, final: FinalFit, result: PlanResult | None) -> BuiltContext:
    """The finished context with its figures. Its messages were worded while it was fitted, since they are counted as
    they go up."""
    measured, settings = proposal.measured, proposal.measured.inputs.settings
    utilization = _utilization(measured, final.fitted, settings.warning_threshold)
    utilization.planning_reason = proposal.decision.reason
    utilization.fallback_reason = final.fallback_reason
    if final.follows_plan:
        utilization.llm_planning_used, utilization.strategy = True, "llm_planned"
    if final.comparison is not None:
        utilization.economics = final.comparison.as_economics(applied=final.follows_plan)
    if result is not None:
        _report_summaries(utilization, result)
    request, material = measured.inputs.request, measured.material
    built = BuiltContext(
        final.fitted,
        utilization,
        material,
        measured.counting,
        new_attachments=material.attached[len(measured.inputs.history.attachments) :],
        plan=result if result is not None and result.asked else None,
        left_out=left_out(measured, final),
        economy=final.economy,
    )
    if request.store and not request.options.dry_run and measured.finder.digests:
        built = replace(built, indexes=measured.finder).with_cached(measured.finder.digests)
    return built.with_cached(result.cached) if result is not None else built


def check_whole(built: BuiltContext, budget: PromptBudget) -> None:
    """For a request of which nothing may be left out.
    Raises ContextLengthExceeded: something was, as it did not fit."""
    used = built.utilization
    records = [each for each in used.artifacts_processed if each.reason != SAME_DOCUMENT]
    shape = ProcessingStrategy.SHAPE.value  # of which nothing is missing
    reduced = any(e.processed_size_chars < e.original_size_chars and e.strategy != shape for e in records)
    if used.messages_excluded or reduced:
        raise ContextLengthExceeded(budget.overflow(None), param="messages")


def _utilization(
    measured: MeasuredInputs, fitted: PackedWindow, warning_threshold: float
) -> ContextUtilizationMetadata:
    source, material = measured.inputs, measured.material
    history, request = source.history, source.request
    included = len(set(fitted.forwarded.indexes) - {SYSTEM_INDEX, MEMORY_INDEX})
    sent = included + len(material.instructions)
    utilization = measured_utilization(request, source.budget, fitted, sent, warning_threshold)
    utilization.strategy = _strategy(material, fitted)
    things = fitted.forwarded.things
    is_more = history.restored_count or history.unread or things or material.cites or material.pages
    if is_more and utilization.strategy == "passthrough":
        utilization.strategy = "simple"
    if any(each.metadata.get(UNINDEXED) for each in history.attachments):
        utilization.warnings.append("document_index_unfinished")
    utilization.things = [{"memory_id": thing.memory_id, "type": thing.type} for thing in things]
    utilization.pages = [
        {"artifact_id": each.artifact.artifact_id, "source": each.artifact.source, "pages": list(each.numbers)}
        for each in material.pages
    ]
    unread = history.unread - (len(material.instructions) - len(history.instructions))
    utilization.messages_excluded = len(material.messages) - included + unread + source.steps.removed
    turns = material.turns_before + len(turn_starts(message.role for message in material.messages))
    if source.budget.turns is not None and turns > source.budget.turns.most and utilization.messages_excluded:
        utilization.left_by = MAX_TURNS
    new = material.attached[len(history.attachments) :]
    earlier = EarlierWindow.of(material, measured.unreduced, history.stored, new)
    if fitted.forwarded.memory is not None:
        utilization.memory = _memory(fitted.forwarded.memory, measured.counting)
    utilization.warnings += _without_text(material)
    utilization.artifacts_processed = records_of(
        material, fitted, named=request.store, earlier_window=earlier, notes=history.notes
    )
    utilization.workflow_spec_tokens = _workflow_spec_tokens(measured, utilization)
    return utilization


def _workflow_spec_tokens(measured: MeasuredInputs, utilization: ContextUtilizationMetadata) -> int | None:
    """About the tokens of attached workflow specifications that are forwarded, by their characters; None: none."""
    specs = {each.artifact_id: each for each in measured.material.attached if each.kind == WORKFLOW_SPEC}
    if not specs:
        return None
    return sum(
        round(measured.counting.texts([spec.content]) * each.processed_size_chars / max(1, spec.size_chars))
        for each in utilization.artifacts_processed
        if (spec := specs.get(each.artifact_id)) is not None
    )


def _without_text(material: WindowInputs) -> list[str]:
    """A warning for each document of now with pages without text (guarantee §14.3), or with parts left out (§2)."""
    found: dict[str, None] = {}
    for artifact in material.artifacts:
        is_document = artifact.artifact_type is ArtifactType.DOCUMENT or bool(artifact.documents)
        if artifact.historical or not is_document:
            continue
        name = one_line(artifact.title or artifact.source)
        for text in artifact.documents.values() or (artifact.content,):
            if not text.endswith(NOTE_END):
                continue
            if pages := pages_without_text(text):
                found[f"document_without_text: {name} page{'' if pages.isdecimal() else 's'} {pages}"] = None
            if told := left_out_of(text):
                found[f"document_incomplete: {name}: {one_line(told)}"] = None
    return list(found)


def _memory(message: MemoryMessage, counting: PromptCounter) -> dict[str, int]:
    held, tokens = message, counting.message(message.body)
    return {"pinned": len(held.pinned), "segments": len(held.segments), "tokens": tokens}


def _report_summaries(utilization: ContextUtilizationMetadata, result: PlanResult) -> None:
    """Adds what is known of the summaries that a plan wanted, whether it was followed or not."""
    utilization.cache_stats = {"hits": len(result.cache_hits), "misses": result.cache_misses}
    summarize = ProcessingStrategy.SUMMARIZE.value
    utilization.artifacts_processed = [
        replace(each, cache_hit=True) if each.strategy == summarize and each.artifact_id in result.cache_hits else each
        for each in utilization.artifacts_processed
    ]


def _strategy(material: WindowInputs, fitted: PackedWindow) -> str:
    """`heuristic` if an artifact was decided on, `simple` if only turns left, else `passthrough` (guarantee §6). A tool
    result that is forwarded as text in full was restored, not decided on."""
    restored = {a.artifact_id: a.content for a in material.restored}
    decided = any(restored.get(key) != r.text for key, r in fitted.selection.renderings.items())
    if material.artifacts and (decided or holds_reduced(material, fitted)):
        return "heuristic"
    if fitted.selection.first > 0 or fitted.selection.left_out:
        return "simple"
    return "passthrough"


def measured_utilization(
    request: ChatRequest, budget: PromptBudget, fitted: PackedWindow, included: int, warning_threshold: float
) -> ContextUtilizationMetadata:
    """The figures of a context, and a warning where they call for one.
    `included`: messages that are forwarded; `warning_threshold`: share of the budget."""
    tokens = budget.tokens
    utilization = ContextUtilizationMetadata(
        model_name=request.model,
        goal=request.options.goal.value,
        context_window=budget.context_window,
        budget_tokens=tokens,
        tokens_used=fitted.tokens,
        tokens_estimated=fitted.estimated,
        utilization=round(fitted.tokens / tokens, 4) if tokens else None,
        breakdown=fitted.breakdown,
        messages_included=included,
    )
    if tokens is None:
        utilization.warnings.append("context_window_unknown")
    elif fitted.tokens > warning_threshold * tokens:
        utilization.warnings.append(f"context_window_above_{warning_threshold:.0%}"[:-1] + "_percent")
    return utilization


def with_vectors(built: BuiltContext, ranking: RequestRanking, inputs: ContextInputs) -> BuiltContext:
    """The context with what went wrong with the embedder, and what may be kept of its vectors."""
    meaning = ranking.meaning
    if meaning is None:
        return built
    built.utilization.warnings += meaning.warnings
    request, conversation_id = inputs.request, inputs.history.conversation_id
    keeps = request.store and not request.options.dry_run and conversation_id
    vectors = meaning.remains(conversation_id) if keeps and conversation_id else None
    return replace(built, vectors=vectors).with_cached(vectors.digests) if vectors else built
