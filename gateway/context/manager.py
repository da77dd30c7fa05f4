"""`ContextManager`: makes the context of a request, for the pipeline and for those who use the package as a library."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from gateway.context.artifacts.in_messages import with_contents
from gateway.context.assembly.body import MODES, PromptProfile, composed, inferred, monolith
from gateway.context.build import (
    FinalFit,
    PassageRanking,
    RequestRanking,
    WindowProposal,
    beside_pages,
    decide,
    fit_as_planned,
    measure,
)
from gateway.context.context_hooks import NO_HOOKS, ContextHooks
from gateway.context.economising import economised, with_room
from gateway.context.gather import (
    INLINE_CHARS,
    ContextGatherer,
    ContextInputs,
    ContextSources,
    MissingInput,
    collect,
    read_anew,
)
from gateway.context.planner import (
    ContextPlanning,
    PlannerAccess,
    PlanResult,
    RequestPlanners,
    planner_task,
    prospects_of,
)
from gateway.context.planning.decision import NO_ARTIFACTS, NO_PLANNER, NOTHING_TO_PLAN, may_be_planned, weighed
from gateway.context.report import BuiltContext, check_whole, measured_utilization, render, with_vectors
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NativePdfs
from gateway.context.window.counting import REPLY_TOKENS, prompt_tokens
from gateway.context.window.prompt_budget import PromptBudget
from gateway.core.config.settings import NO_PROFILES, ContextSettings, Settings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.ports import FileStore, TokenCounter
from gateway.core.tasks import offload_if
from gateway.core.types.chat import ChatRequest, ModelFacts, PlainMessages
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationHistory
from gateway.core.types.memory import EXTRACTS
from gateway.core.types.window import ForwardedMessages, PackedWindow, WindowInputs, WindowSelection
from gateway.retrieval.embeddings.search import Holds

__all__ = ["BuiltContext", "ContextManager", "ContextSources", "PassageRanking", "PlannerAccess"]
COUNTED_APART = ("tools", "functions", "response_format")
"""Fields that add to the prompt: a request that has one needs a count."""
BYTES_PER_TOKEN = 4
"""Of English prose, about; a token of other text may have fewer."""
MESSAGE_TOKENS = 4
"""Tokens that frame a message: its role and its delimiters, as OpenAI's chat format has them."""
ESTIMATED_SHARE = 0.5
"""Share of the budget below which an estimate is enough."""
SAMPLES = 12
SAMPLE_CHARS = 128
SPACES = (0.08, 0.4)
"""Share of spaces in the characters of prose, from … to."""
VOWELS = 0.22
"""Share of vowels in the characters of prose, at least; base64 and hexadecimal have fewer."""
NOT_VOWELS = bytes(byte for byte in range(256) if byte not in b"aeiou")


def context_as_sent(
    request: ChatRequest, budget: PromptBudget, counter: TokenCounter, settings: ContextSettings
) -> BuiltContext | None:
    """The context of a request that needs nothing done to it: it surely fits, nothing stored belongs to it, and it goes
    up as it was sent (ADR 7). None if it needs a closer look: it may not fit, or holds more than roles and texts.

    That is found out from a few hundred of its characters, and what is long is counted by samples: the work on a
    request must not cost more than the request is worth."""
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
    utilization.planning_reason = NO_ARTIFACTS
    return BuiltContext(fitted, utilization, material=None)


def surely_fits(plain: PlainMessages, size: int, budget: int, largest: int) -> bool:
    """Whether messages need no managing: without a document in them, surely within the budget. It costs a few
    microseconds, whatever the size of the texts.
    `size`: bytes of the request's body, so at least those of all its texts; `largest`: characters from which a user
    message may hold a document (guarantee §4 I4)."""
    count, lengths = len(plain.lengths), plain.lengths
    if size / BYTES_PER_TOKEN + MESSAGE_TOKENS * count > ESTIMATED_SHARE * budget:
        return False
    if max(lengths) > largest and any(
        n > largest and role == "user" for n, role in zip(lengths, plain.roles, strict=True)
    ):
        return False
    # No token of a byte-level vocabulary is shorter than a byte; prose has far longer ones.
    return size + 3 * MESSAGE_TOKENS * count <= budget or _is_prose(plain.texts, lengths)


def _is_prose(texts: list[str], lengths: list[int]) -> bool:
    """Whether places spread over the texts all look like words of a language: letters with vowels, and spaces between.
    Encoded data, numbers and scripts of which a character may be a token of its own do not."""
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


def fitted_as_sent(messages: Sequence[dict[str, Any]], plain: PlainMessages, counter: TokenCounter) -> PackedWindow:
    """The messages as they came, with their figures."""
    roles, texts, lengths = plain.roles, plain.texts, plain.lengths
    first, last = 0, len(roles) - 1
    while first < last and roles[first] in INSTRUCTION_ROLES:
        first += 1
    while last > first and roles[last] != "user":
        last -= 1
    system, in_full = counter.estimate_texts(texts[:first], lengths[:first])
    history, also = counter.estimate_texts(texts[first:last], lengths[first:last])
    current, too = counter.estimate_texts(texts[last:], lengths[last:])
    breakdown = {
        "system": system + REPLY_TOKENS,
        "tools": 0,
        "history": history,
        "artifacts": 0,
        "current": current,
    }
    tokens, forwarded = sum(breakdown.values()), ForwardedMessages(list(messages), [])
    estimated = not (in_full and also and too and counter.is_own)
    return PackedWindow(WindowSelection(), forwarded, tokens, exact=False, breakdown=breakdown, estimated=estimated)


NO_RANKING = PassageRanking()
NOBODYS = PlannerAccess()


class ContextManager:
    """Decides which artifacts and turns enter the window, and words them.
    `sources`: where contexts are read from; `ranking`: what ranks passages beside their words; `planning`: asks
    internal models for plans; None: nobody is asked; `hooks`: what a feature or a trace does
    on the way."""

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
        self._profiles = settings.prompt_profiles if settings.prompt_profiles.is_set else None
        self._counters = counters
        self._sources = sources
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
        """Gathers; decides without a plan, and asks for one where one is called for; fits by it; economises, which may
        change the fitted window, as old results become labels where that pays; and renders.
        `access`: whose internal models may be asked; none without it.
        Raises ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1); InvalidRequest: a part holds no
        readable document, or names no picture; names the part; NotFound: a part names a file that is not there, where
        files are kept here; names the part; StorageUnavailable: older messages or files are needed and cannot be
        read."""
        access = access or PlannerAccess()
        ranking = self._ranking.of(request, access.scope)
        gatherer = self._gatherer(request, facts, access)
        inputs = await gatherer.gather(history, budget)
        proposal, planners = await self._decided(gatherer, inputs, access, ranking)
        small, result = proposal.measured.inputs.is_small, access.result
        if result is None:
            proposal, result = await self._planned(proposal, planners, ranking)
        final = FinalFit(proposal.fitted)
        if result is not None:
            with self._hooks.on_step("fit"):
                final = await ranking.run(
                    small, fit_as_planned, proposal, result.planned, result.fallback_reason, access.scope.calls
                )
        proposal, final = await ranking.run(small, economised, proposal, final)
        built = await ranking.run(small, render, proposal, final, result)
        if request.options.whole:
            check_whole(built, budget)
        built = with_vectors(replace(built, own=gatherer.own), ranking, proposal.measured.inputs)
        return built.with_cached(proposal.measured.inputs.files.cached)

    async def _decided(
        self, gatherer: ContextGatherer, inputs: ContextInputs, access: PlannerAccess, ranking: RequestRanking
    ) -> tuple[WindowProposal, RequestPlanners | None]:
        """The context without a plan, and who may be asked for one. What it turns out to lack is read, and it is made
        anew: twice at most for PDFs that have no room as they came, and once for older messages (`MissingInput`)."""
        while True:
            try:
                proposal, planners = await self._proposed(inputs, access, ranking)
                lack = proposal.lacks
            except ContextLengthExceeded:
                if inputs.stays is NativePdfs.NONE:
                    raise
                lack = MissingInput.PDF_TEXTS
            if lack is None:
                break
            inputs = await gatherer.supply(lack, inputs)
        on_proposal = self._hooks.on_proposal
        if on_proposal is not None and (pages := await on_proposal(proposal, gatherer.natives, ranking)):
            proposal = await ranking.run(inputs.is_small, beside_pages, proposal, pages, planners is not None)
        return proposal, planners

    async def _proposed(
        self, inputs: ContextInputs, access: PlannerAccess, ranking: RequestRanking
    ) -> tuple[WindowProposal, RequestPlanners | None]:
        small, counter = inputs.is_small, self._counters.counter(inputs.facts)
        with self._hooks.on_step("fit"):
            measured = await ranking.run(small, measure, inputs, counter, ranking)
            roomy = await ranking.run(small, with_room, measured) if measured.unreduced.new_pass else measured
            planners = None
            if self._planning is not None and may_be_planned(inputs.request.options, measured.material):
                planners = self._planning.planners(inputs.request, access)
            proposal = await ranking.run(small, decide, roomy, planners is not None)
            if proposal.fitted.new_pass and roomy is not measured:  # it was not enough for what the question needs
                proposal = await ranking.run(small, decide, measured, planners is not None)
            return proposal, planners

    async def _planned(
        self, proposal: WindowProposal, planners: RequestPlanners | None, ranking: RequestRanking
    ) -> tuple[WindowProposal, PlanResult | None]:
        """The planner's plan, where one is called for and may pay; the proposal with what was decided. No thread and no
        transaction is held while a model is waited for."""
        planning, request = self._planning, proposal.measured.inputs.request
        small = proposal.measured.inputs.is_small
        if proposal.decision.use and (planners is None or planning is None):
            return proposal, PlanResult(fallback_reason=NO_PLANNER, asked=False)
        proposal = replace(proposal, decision=weighed(proposal.decision, prospects_of(proposal)))
        if not proposal.decision.use or planners is None or planning is None:
            return proposal, None
        task = await ranking.run(small, planner_task, proposal)
        if task is None:
            return proposal, PlanResult(fallback_reason=NOTHING_TO_PLAN, asked=False)
        if not proposal.fitted.new_pass:
            prospects = await ranking.run(small, planning.prospects, proposal, task, planners)
            resting = await planning.is_resting(request, planners)
            proposal = replace(proposal, decision=weighed(proposal.decision, replace(prospects, resting=resting)))
        if not proposal.decision.use:
            return proposal, None
        with self._hooks.on_step("plan"):
            return proposal, await planning.plan(request, task, planners)

    def _gatherer(self, request: ChatRequest, facts: ModelFacts, access: PlannerAccess = NOBODYS) -> ContextGatherer:
        return ContextGatherer(
            self._sources,
            self._counters,
            self._settings,
            request,
            facts,
            access.deployment,
            on_forwarded=self._hooks.on_forwarded,
        )

    async def as_sent(self, request: ChatRequest, facts: ModelFacts, budget: PromptBudget) -> BuiltContext | None:
        """The context of a request that surely fits as it was sent; None if it needs a closer look."""
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        options = request.options
        adds = options.recall is True or options.cite
        if request.is_worded or request.remembers or adds or self._is_profiled(request):
            return None
        if options.memory != EXTRACTS and request.plain is not None and "assistant" in request.plain.roles:
            return None  # a summary may wait to be shown
        return context_as_sent(request, budget, self._counters.counter(facts), self._settings)

    async def count(self, request: ChatRequest, facts: ModelFacts) -> int:
        """Tokens of a request as it was sent, as its budget is kept (guarantee §4 I1)."""
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        counter = self._counters.counter(facts)
        gatherer = self._gatherer(request, facts)
        if facts.supports_pdf_input:
            await gatherer.natives.note_in(request.messages)
        await gatherer.whole.fetch_sent(request.messages)
        return await offload_if(request.size >= INLINE_CHARS, prompt_tokens, counter, request.messages, request.forward)

    async def with_older(
        self,
        request: ChatRequest,
        history: ConversationHistory,
        facts: ModelFacts,
        budget: PromptBudget,
        access: PlannerAccess,
    ) -> WindowInputs:
        """What a conversation holds, its older messages too, of which a window may have done without.
        Raises StorageUnavailable: they cannot be read."""
        gatherer = self._gatherer(request, facts, access)
        inputs = await gatherer.read(await gatherer.with_older(history), budget)
        return await asyncio.to_thread(collect, inputs)

    async def with_excerpts(self, material: WindowInputs, tenant: str, question: str) -> WindowInputs:
        """The same, of whose large documents it holds what a question needs. Raises: as `with_older`."""
        if self._sources.large is None:
            return material
        return replace(material, attached=await read_anew(material.attached, self._sources.large, tenant, question))

    def profile(self, request: ChatRequest, history: ConversationHistory, facts: ModelFacts) -> PromptProfile | None:
        """The prompt profile that the conversation calls for; None where none is configured or wanted."""
        if not self._is_profiled(request):
            return None
        mode, source = request.options.profile, "request"
        if mode is None:
            mode, source = inferred([message.body for message in history.messages], history.profile)
        return self._composed(mode, source, facts)

    async def profiles(
        self, messages: Sequence[dict[str, Any]], before: str | None, facts: ModelFacts
    ) -> tuple[PromptProfile | None, dict[str, PromptProfile]]:
        """The prompt profile that messages call for, and that of each mode; None and none where none is configured.
        `before`: the mode that the conversation had."""
        if self._profiles is None:
            return None, {}
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        found = {mode: self._composed(mode, "request", facts) for mode in MODES}
        mode, source = inferred(messages, before)
        return replace(found[mode], source=source), found

    def _composed(self, mode: str, source: str, facts: ModelFacts) -> PromptProfile:
        profiles = self._profiles or NO_PROFILES
        text, counter = composed(profiles, mode), self._counters.counter(facts)
        tokens = counter.text(text)
        return PromptProfile(mode, source, text, tokens, counter.text(monolith(profiles)) - tokens)

    def _is_profiled(self, request: ChatRequest) -> bool:
        options = request.options
        return self._profiles is not None and options.mode != "off" and options.profile != "off"

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """The request with the texts of its attachments: of those that it names by file id, and of encoded ones.
        Raises InvalidRequest: there is no such file, or it is no document or has no text; names the attachment."""
        if not request.attachments:
            return request
        return await with_contents(request, files, self._sources.files.documents, self._sources.files.best)

    def keep(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there (`holds`)."""
        if built.indexes is not None:
            built.indexes.keep()
        if self._ranking.meaning is not None and built.vectors is not None:
            self._ranking.meaning.later(built.vectors, holds)
