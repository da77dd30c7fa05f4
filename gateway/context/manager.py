"""`ContextManager`: makes the context of a request, for the pipeline and for library users of the package: what is
forwarded, and its figures on the bill (guarantee §6). A prompt that surely fits is forwarded as it was sent
(`context_as_sent`); for any other, the five steps are called here in turn (`ContextManager.build`)."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from gateway.context.assembly.render import one_line
from gateway.context.build import (
    NO_HOOKS,
    ContextHooks,
    FinalFit,
    MeasuredInputs,
    PassageRanking,
    RequestRanking,
    WindowProposal,
    beside_pages,
    decide,
    fit_as_planned,
    left_out,
    measure,
)
from gateway.context.economising import economised, with_room
from gateway.context.gather import (
    INLINE_CHARS,
    ContextGatherer,
    ContextInputs,
    ContextSources,
    MissingInput,
    collect,
    with_current_excerpts,
)
from gateway.context.planner import (
    ContextPlanning,
    PlannerAccess,
    PlanResult,
    RequestPlanners,
    past_plan,
    planner_task,
    prospects_of,
)
from gateway.context.planning import artifact_decisions, decision
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NO_INLINED_FILES, InlinedFiles, NativePdfs
from gateway.context.window.counting import REPLY_TOKENS, PromptCounter, prompt_tokens
from gateway.conversations import rebuild
from gateway.core import errors, ports
from gateway.core.config.settings import ContextSettings, Settings
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import artifacts, bill, conversation, memory, places, tool_steps, upstreams, window
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.chat import ChatRequest, ModelDeployment, ModelFacts, PlainMessages, PromptBudget
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.window import ForwardedMessages, PackedWindow, WindowInputs, WindowSelection
from gateway.retrieval import PassageFinder, PendingVectors

MAX_TURNS = "max_turns"
"""Why older turns are not forwarded, whatever the budget (`ContextUtilizationMetadata.left_by`)."""


@record
class BuiltContext:
    """What is forwarded, what is stored of it, and its figures.

    `material` and `counting` are None if the messages are sent upstream as they were sent, without being examined
    (`context/manager.py`). `cached` are digests of contents with entries in the cache. `plan` is the planner's plan, so
    that a second context of the same request asks no planner. `left_out`: tokens saved, compared with forwarding
    everything. `indexes` and `vectors` are cached for later questions after the request is stored.
    """

    fitted: PackedWindow
    utilization: bill.ContextUtilizationMetadata
    material: WindowInputs | None
    counting: PromptCounter | None = None
    new_attachments: tuple[Artifact, ...] = ()
    cached: tuple[str, ...] = ()
    plan: PlanResult | None = None
    left_out: bill.LeftOutTokens | None = None
    indexes: PassageFinder | None = None
    vectors: PendingVectors | None = None
    economy: bill.EconomyNote | None = None
    inlined: InlinedFiles = NO_INLINED_FILES
    """PDFs and images that are sent upstream instead of their ids."""
    recalls: bool = False
    """Its request has the tool `recall`."""
    is_worded: bool = False
    """An assembler wrote what is forwarded: it is in none of the stored messages (guarantee §11.2)."""

    @property
    def is_as_sent(self) -> bool:
        """Whether the messages are sent upstream as they were sent, by the fast path."""
        return self.material is None and not self.is_worded

    def with_cached(self, digests: tuple[str, ...]) -> "BuiltContext":
        """Returns the context with the digests of more contents that have entries in the cache."""
        return replace(self, cached=tuple(dict.fromkeys((*self.cached, *digests)))) if digests else self


def propose(inputs: ContextInputs, counter: ports.TokenCounter, ranking: RequestRanking) -> WindowProposal:
    """Measures the inputs and decides without a plan; see `decide`."""
    measured = measure(inputs, counter, ranking)
    roomy = with_room(measured) if measured.unreduced.new_pass else measured
    proposal = decide(roomy)
    if proposal.fitted.new_pass and roomy is not measured:  # the space made is too small for the question
        return decide(measured)
    return proposal


def render(proposal: WindowProposal, final: FinalFit, result: PlanResult | None) -> BuiltContext:
    """Economises, and returns the finished context with its figures. Fitting has rendered the messages already, since
    tokens are counted in the form that is sent upstream."""
    proposal, final = economised(proposal, final)
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
        new_attachments=_new(material),
        plan=result if result is not None and result.asked else None,
        left_out=left_out(measured, final),
        economy=final.economy,
    )
    if request.store and not request.options.dry_run and measured.finder.digests:
        built = replace(built, indexes=measured.finder).with_cached(measured.finder.digests)
    return built.with_cached(result.cached) if result is not None else built


def _new(material: WindowInputs) -> tuple[Artifact, ...]:
    """Returns the attachments that came with this request."""
    return tuple(each for each in material.attached if not each.historical)


def check_whole(built: BuiltContext, budget: PromptBudget) -> None:
    """Checks a request of which nothing may be left out.
    Raises ContextLengthExceeded: something was left out because it did not fit."""
    used = built.utilization
    records = [each for each in used.artifacts_processed if each.reason != bill.SAME_DOCUMENT]
    shape = ProcessingStrategy.SHAPE.value  # a shorter form with nothing missing
    reduced = any(e.processed_size_chars < e.original_size_chars and e.strategy != shape for e in records)
    if used.messages_excluded or reduced:
        raise errors.ContextLengthExceeded(budget.overflow(None), param="messages")


def _utilization(
    measured: MeasuredInputs, fitted: PackedWindow, warning_threshold: float
) -> bill.ContextUtilizationMetadata:
    inputs, material = measured.inputs, measured.material
    history, request = inputs.history, inputs.request
    included = len(set(fitted.forwarded.indexes) - {window.SYSTEM_INDEX, window.MEMORY_INDEX})
    sent = included + len(material.instructions)
    utilization = measured_utilization(request, inputs.budget, fitted, sent, warning_threshold)
    utilization.strategy = _strategy(material, fitted)
    things = fitted.forwarded.things
    is_more = history.restored_count or history.unread or things or material.cites or material.pages
    if is_more and utilization.strategy == "passthrough":
        utilization.strategy = "simple"
    if any(each.metadata.get(artifacts.UNINDEXED) for each in history.attachments):
        utilization.warnings.append("document_index_unfinished")
    utilization.things = [{"memory_id": thing.memory_id, "type": thing.type} for thing in things]
    utilization.pages = [
        {"artifact_id": each.artifact.artifact_id, "source": each.artifact.source, "pages": list(each.numbers)}
        for each in material.pages
    ]
    unread = history.unread - (len(material.instructions) - len(history.instructions))
    utilization.messages_excluded = len(material.messages) - included + unread + inputs.steps.removed
    turns = material.turns_before + len(tool_steps.turn_starts(message.role for message in material.messages))
    if inputs.budget.turns is not None and turns > inputs.budget.turns.most and utilization.messages_excluded:
        utilization.left_by = MAX_TURNS
    earlier = artifact_decisions.EarlierWindow.of(material, measured.unreduced, history.forwarded, _new(material))
    if (memory := fitted.forwarded.memory) is not None:
        tokens = measured.counting.message(memory.body)
        utilization.memory = {"pinned": len(memory.pinned), "segments": len(memory.segments), "tokens": tokens}
    utilization.warnings += _without_text(material)
    utilization.artifacts_processed = artifact_decisions.records_of(
        material, fitted, named=request.store, earlier_window=earlier, cache=history.cache
    )
    utilization.workflow_spec_tokens = _workflow_spec_tokens(measured, utilization)
    return utilization


def _workflow_spec_tokens(measured: MeasuredInputs, utilization: bill.ContextUtilizationMetadata) -> int | None:
    """Estimates the tokens of attached workflow specifications that are forwarded, by their characters; None: none."""
    specs = {each.artifact_id: each for each in measured.material.attached if each.kind == artifacts.WORKFLOW_SPEC}
    if not specs:
        return None
    return sum(
        round(measured.counting.texts([spec.content]) * each.processed_size_chars / max(1, spec.size_chars))
        for each in utilization.artifacts_processed
        if (spec := specs.get(each.artifact_id)) is not None
    )


def _without_text(material: WindowInputs) -> list[str]:
    """Returns a warning for each current document with pages without text (guarantee §14.3), or parts left out (§2)."""
    found: dict[str, None] = {}
    for artifact in material.artifacts:
        is_document = artifact.artifact_type is ArtifactType.DOCUMENT or bool(artifact.documents)
        if artifact.historical or not is_document:
            continue
        name = one_line(artifact.title or artifact.source)
        for text in artifact.documents.values() or (artifact.content,):
            if not text.endswith(places.NOTE_END):
                continue
            if pages := places.pages_without_text(text):
                found[f"document_without_text: {name} page{'' if pages.isdecimal() else 's'} {pages}"] = None
            if omitted := places.left_out_of(text):
                found[f"document_incomplete: {name}: {one_line(omitted)}"] = None
    return list(found)


def _report_summaries(utilization: bill.ContextUtilizationMetadata, result: PlanResult) -> None:
    """Adds the figures of the summaries that a plan wanted, whether the plan was followed or not."""
    utilization.cache_stats = {"hits": len(result.cache_hits), "misses": result.cache_misses}
    summarize = ProcessingStrategy.SUMMARIZE.value
    utilization.artifacts_processed = [
        replace(each, cache_hit=True) if each.strategy == summarize and each.artifact_id in result.cache_hits else each
        for each in utilization.artifacts_processed
    ]


def _strategy(material: WindowInputs, fitted: PackedWindow) -> str:
    """Returns `heuristic` if an artifact was decided on, `simple` if only turns left, else `passthrough` (guarantee
    §6). A tool result that is forwarded as text in full was restored, not decided on."""
    restored = {a.artifact_id: a.content for a in material.restored}
    decided = any(restored.get(key) != r.text for key, r in fitted.selection.renderings.items())
    if material.artifacts and (decided or artifact_decisions.holds_reduced(material, fitted)):
        return "heuristic"
    if fitted.selection.first > 0 or fitted.selection.left_out:
        return "simple"
    return "passthrough"


def measured_utilization(
    request: ChatRequest, budget: PromptBudget, fitted: PackedWindow, included: int, warning_threshold: float
) -> bill.ContextUtilizationMetadata:
    """Returns the figures of a context, with a warning if they call for one.
    `included`: messages that are forwarded; `warning_threshold`: share of the budget."""
    tokens = budget.tokens
    utilization = bill.ContextUtilizationMetadata(
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
        utilization.warnings.append(f"context_window_above_{100 * warning_threshold:.0f}_percent")
    return utilization


def with_vectors(built: BuiltContext, ranking: RequestRanking, inputs: ContextInputs) -> BuiltContext:
    """Adds to the context the embedder's warnings, and the vectors that may be cached."""
    meaning = ranking.meaning
    if meaning is None:
        return built
    built.utilization.warnings += meaning.warnings
    request, conversation_id = inputs.request, inputs.history.conversation_id
    keeps = request.store and not request.options.dry_run and conversation_id
    vectors = meaning.remains(conversation_id) if keeps and conversation_id else None
    return replace(built, vectors=vectors).with_cached(vectors.digests) if vectors else built


COUNTED_APART = ("tools", "functions", "response_format")
"""Fields that add to the prompt: a request that has one needs a count."""
PROSE_BYTES_PER_TOKEN = 4
"""Approximate value for English prose; a token of other text may have fewer."""
ESTIMATED_SHARE = 0.5
"""Share of the budget below which an estimate is enough."""
SAMPLES = 12
SAMPLE_CHARS = 128
SPACES = (0.08, 0.4)
"""Lowest and highest share of spaces in the characters of prose."""
VOWELS = 0.22
"""Lowest share of vowels in the characters of prose; base64 and hexadecimal have fewer."""
NOT_VOWELS = bytes(byte for byte in range(256) if byte not in b"aeiou")


def context_as_sent(
    request: ChatRequest, budget: PromptBudget, counter: ports.TokenCounter, settings: ContextSettings
) -> BuiltContext | None:
    """Returns the context of a request that is sent upstream as it was sent (ADR 7): it surely fits, and nothing stored
    belongs to it. None if it needs a closer look: it may not fit, or holds more than roles and texts.

    A few hundred characters decide that, and long texts are counted by samples: the work on a request must not cost
    more than the request is worth."""
    plain = request.plain
    if budget.tokens is None or plain is None or request.attachments:
        return None
    if budget.turns is not None and plain.roles.count("user") > budget.turns.most:
        return None
    if any(map(request.forward.get, COUNTED_APART)):
        return None
    if not surely_fits(plain, request.size, int(budget.tokens / max(1.0, counter.margin)), settings.document_min_chars):
        return None
    fitted = fitted_as_sent(request.messages, plain, counter)
    utilization = measured_utilization(request, budget, fitted, len(request.messages), settings.warning_threshold)
    utilization.planning_reason = decision.NO_ARTIFACTS
    return BuiltContext(fitted, utilization, material=None)


def surely_fits(plain: PlainMessages, size: int, budget: int, largest: int) -> bool:
    """Returns whether messages need no managing: they hold no document and surely fit the budget. Takes a few
    microseconds, whatever the size of the texts.
    `size`: bytes of the request's body, so at least those of all its texts; `largest`: characters above which a user
    message may hold a document (guarantee §4 I4)."""
    count, lengths = len(plain.lengths), plain.lengths
    if size / PROSE_BYTES_PER_TOKEN + upstreams.MESSAGE_TOKENS * count > ESTIMATED_SHARE * budget:
        return False
    if max(lengths) > largest and any(
        n > largest and role == "user" for n, role in zip(lengths, plain.roles, strict=True)
    ):
        return False
    # No token of a byte-level vocabulary is shorter than a byte; tokens of prose are far longer.
    return size + 3 * upstreams.MESSAGE_TOKENS * count <= budget or _is_prose(plain.texts, lengths)


def _is_prose(texts: list[str], lengths: list[int]) -> bool:
    """Returns whether samples spread over the texts all look like words of a language: letters with vowels, and spaces
    between. Encoded data, numbers and scripts in which a character may be a token of its own do not."""
    ends = list(accumulate(lengths))
    total = ends[-1]
    for number in range(SAMPLES if total else 0):
        at = total * (2 * number + 1) // (2 * SAMPLES)
        index = bisect_right(ends, at)
        start = at - (ends[index] - lengths[index])
        sample = texts[index][max(0, min(start, lengths[index] - SAMPLE_CHARS)) :][:SAMPLE_CHARS]
        if not sample.isascii():
            return False
        raw, size = sample.encode(), len(sample)
        spaces, vowels = raw.count(b" "), len(raw.translate(None, NOT_VOWELS))
        if not SPACES[0] * size <= spaces <= SPACES[1] * size or vowels < VOWELS * size:
            return False
    return True


def fitted_as_sent(
    messages: Sequence[dict[str, Any]], plain: PlainMessages, counter: ports.TokenCounter
) -> PackedWindow:
    """Returns the messages unchanged, with their figures."""
    roles, texts, lengths = plain.roles, plain.texts, plain.lengths
    first, last = 0, len(roles) - 1
    while first < last and roles[first] in conversation.INSTRUCTION_ROLES:
        first += 1
    while last > first and roles[last] != "user":
        last -= 1
    system, is_exact = counter.estimate_texts(texts[:first], lengths[:first])
    history, is_history_exact = counter.estimate_texts(texts[first:last], lengths[first:last])
    current, is_current_exact = counter.estimate_texts(texts[last:], lengths[last:])
    breakdown = {"system": system + REPLY_TOKENS, "tools": 0, "history": history, "artifacts": 0, "current": current}
    tokens, forwarded = sum(breakdown.values()), ForwardedMessages(list(messages), [])
    estimated = not (is_exact and is_history_exact and is_current_exact and counter.is_own)
    return PackedWindow(WindowSelection(), forwarded, tokens, exact=False, breakdown=breakdown, estimated=estimated)


NO_RANKING = PassageRanking()


class ContextManager:
    """Decides which artifacts and turns enter the window, and renders them.
    `sources`: where contexts are read from; `ranking`: what ranks passages beside their words; `planning`: asks
    internal models for plans; None: no model is asked; `hooks`: where features and traces act on the making of a
    context."""

    def __init__(
        self,
        *,
        settings: Settings,
        counters: CounterRegistry,
        sources: ContextSources,
        ranking: PassageRanking = NO_RANKING,
        planning: ContextPlanning | None = None,
        hooks: ContextHooks = NO_HOOKS,
    ) -> None:
        self._hooks = hooks
        self._settings = settings.context
        self._counters = counters
        self._sources = replace(sources, on_forwarded=hooks.on_forwarded)
        self._ranking = ranking
        self._planning = planning

    async def build(
        self,
        request: ChatRequest,
        history: ConversationHistory,
        facts: ModelFacts,
        budget: PromptBudget,
        access: PlannerAccess | None = None,
    ) -> BuiltContext:
        """Gathers the inputs; decides without a plan, and asks for a plan if one is called for; fits by it; economises,
        which may replace old results in the window by labels if that pays; and renders.
        `access`: whose internal models may be asked; none without it.
        Raises ContextLengthExceeded: the context cannot be made to fit (guarantee §4 I1); InvalidRequest: a part holds
        no readable document, or names as an image what is none; names the part; NotFound: a part names a file that the
        file store, if there is one, does not hold; names the part; StorageUnavailable: older messages or files are
        needed and cannot be read."""
        access = access or PlannerAccess()  # one of its own: calls are added to its scope
        ranking = self._ranking.of(request, access.scope)
        gatherer = self._gatherer(request, facts, access.deployment)
        inputs = await gatherer.gather(history, budget)
        proposal, planners = await self._decided(gatherer, inputs, access, ranking)
        small, result, what_if = proposal.measured.inputs.is_small, access.result, request.options.what_if
        if what_if is not None:
            result = past_plan(what_if, trusted=self._settings.trust_planner)
        if result is None:
            proposal, result = await self._planned(proposal, planners, ranking)
        final = FinalFit(proposal.fitted)
        if result is not None:
            with self._hooks.on_step("fit"):
                final = await ranking.run(
                    small, fit_as_planned, proposal, result.planned, result.fallback_reason, access.scope.calls
                )
        built = await ranking.run(small, render, proposal, final, result)
        if request.options.whole:
            check_whole(built, budget)
        built = with_vectors(replace(built, inlined=gatherer.inlined), ranking, proposal.measured.inputs)
        return built.with_cached(proposal.measured.inputs.files.cached)

    async def _decided(
        self, gatherer: ContextGatherer, inputs: ContextInputs, access: PlannerAccess, ranking: RequestRanking
    ) -> tuple[WindowProposal, RequestPlanners | None]:
        """Returns the context without a plan, and who may be asked for one. Reads what it turns out to lack, and makes
        it again: at most twice for PDFs that do not fit unchanged, and once for older messages (`MissingInput`)."""
        while True:
            try:
                with self._hooks.on_step("fit"):
                    counter = self._counters.counter(inputs.facts)
                    proposal = await ranking.run(inputs.is_small, propose, inputs, counter, ranking)
                lack = proposal.lacks
            except errors.ContextLengthExceeded:
                if inputs.stays is NativePdfs.NONE:
                    raise
                lack = MissingInput.PDF_TEXTS
            if lack is None:
                break
            inputs = await gatherer.supply(lack, inputs)
        on_proposal = self._hooks.on_proposal
        if on_proposal is not None and (pages := await on_proposal(proposal, gatherer.natives, ranking)):
            proposal = await ranking.run(inputs.is_small, beside_pages, proposal, pages)
        planners = None
        if self._planning is not None and proposal.decision.reason != decision.NO_ARTIFACTS:
            planners = self._planning.planners(inputs.request, access)
        if planners is None:
            proposal = replace(proposal, decision=decision.without_planner(proposal.decision))
        return proposal, planners

    async def _planned(
        self, proposal: WindowProposal, planners: RequestPlanners | None, ranking: RequestRanking
    ) -> tuple[WindowProposal, PlanResult | None]:
        """Returns the proposal with its final decision, and the plan, if one was worth asking for. Holds no thread and
        no transaction while waiting for a model."""
        planning, request = self._planning, proposal.measured.inputs.request
        small = proposal.measured.inputs.is_small
        if not proposal.decision.use:
            return proposal, None
        if planners is None or planning is None:
            return proposal, PlanResult(fallback_reason=decision.NO_PLANNER, asked=False)
        proposal = replace(proposal, decision=decision.weighed(proposal.decision, prospects_of(proposal)))
        if not proposal.decision.use:
            return proposal, None
        task = await ranking.run(small, planner_task, proposal)
        if task is None:
            return proposal, PlanResult(fallback_reason=decision.NOTHING_TO_PLAN, asked=False)
        if not proposal.fitted.new_pass:
            prospects = await ranking.run(small, planning.prospects, proposal, task, planners)
            resting = await planning.is_resting(request, planners)
            proposal = replace(
                proposal, decision=decision.weighed(proposal.decision, replace(prospects, resting=resting))
            )
        if not proposal.decision.use:
            return proposal, None
        with self._hooks.on_step("plan"):
            return proposal, await planning.plan(request, task, planners)

    def _gatherer(
        self, request: ChatRequest, facts: ModelFacts, deployment: ModelDeployment | None = None
    ) -> ContextGatherer:
        return ContextGatherer(self._sources, self._counters, self._settings, request, facts, deployment)

    def as_sent(self, request: ChatRequest, facts: ModelFacts, budget: PromptBudget) -> BuiltContext | None:
        """Returns the context of a request that surely fits as it was sent; None if it needs a closer look."""
        options = request.options
        if options.recall is True or options.cite or request.remembers:
            return None
        if options.memory != memory.EXTRACTS and request.plain is not None and "assistant" in request.plain.roles:
            return None  # a summary may wait to be shown
        return context_as_sent(request, budget, self._counters.counter(facts), self._settings)

    async def warm_up(self, request: ChatRequest, facts: ModelFacts, budget: PromptBudget) -> None:
        """Makes a context that is not sent, by each path, so that everything loaded at first use is loaded."""
        await self._counters.ready(facts)
        self.as_sent(request, facts, budget)
        await self.build(request, rebuild.new_history(request), facts, budget)

    async def count(self, request: ChatRequest, facts: ModelFacts, history: ConversationHistory | None = None) -> int:
        """Counts the tokens of a request as it was sent, by the rules of its budget (guarantee §4 I1); documents count
        as they are forwarded.
        `history`: the conversation that it continues, with its own messages; None: it stands alone.
        Raises: as `ContextGatherer.gather`."""
        await self._counters.ready(facts)
        is_small = history is None and request.size < INLINE_CHARS
        if history is None:
            sent = (conversation.new_message(body, number) for number, body in enumerate(request.messages))
            history = ConversationHistory(None, created=True, instructions=(), messages=tuple(sent))
        messages = await self._gatherer(request, facts).with_document_texts(history)
        return await offload_if(not is_small, prompt_tokens, self._counters.counter(facts), messages, request.forward)

    async def with_older(
        self,
        request: ChatRequest,
        history: ConversationHistory,
        facts: ModelFacts,
        budget: PromptBudget,
        deployment: ModelDeployment,
    ) -> WindowInputs:
        """Reads all that a conversation holds, including older messages that its window may have done without.
        `deployment`: the model that answers.
        Raises StorageUnavailable: the older messages cannot be read."""
        gatherer = self._gatherer(request, facts, deployment)
        inputs = await gatherer.read(await gatherer.with_older(history), budget)
        return await asyncio.to_thread(collect, inputs)

    async def with_excerpts(self, material: WindowInputs, tenant: str, question: str) -> WindowInputs:
        """Returns the material with excerpts of its large documents that a question needs. Raises: as `with_older`."""
        if self._sources.large is None:
            return material
        return replace(
            material, attached=await with_current_excerpts(material.attached, self._sources.large, tenant, question)
        )

    def keep(self, built: BuiltContext, conversation_id: str) -> None:
        """Caches for later questions what a request stored in that conversation leaves behind: indexes and vectors."""
        if built.indexes is not None:
            built.indexes.keep()
        if self._ranking.meaning is not None and built.vectors is not None:
            self._ranking.meaning.later(built.vectors, conversation_id)
