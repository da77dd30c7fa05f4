"""`ContextManager`: makes the context of a request, for the pipeline and for those who use the package as a library."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from gateway.artifacts.attached import with_contents
from gateway.assembly.profiles import MODES, Profile, composed, inferred, monolith
from gateway.base.tasks import offload_if
from gateway.config.settings import NO_PROFILES, Settings
from gateway.context.build import FinalFit, PassageRanking, Proposal, RequestRanking, beside_pages, decide, fit, measure
from gateway.context.economising import economised
from gateway.context.fast_path import context_as_sent
from gateway.context.gather import (
    INLINE_CHARS,
    ContextGatherer,
    ContextInputs,
    ContextSources,
    Lack,
    collect,
    read_anew,
)
from gateway.context.hooks import NO_HOOKS, ContextHooks
from gateway.context.native_files import Stays
from gateway.context.planner import ContextPlanning, PlannerAccess, Planners, PlanResult, planner_task, prospects_of
from gateway.context.report import BuiltContext, check_whole, render, with_vectors
from gateway.embeddings.background import Holds
from gateway.errors import ContextLengthExceeded
from gateway.models.conversation import History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.memory import EXTRACTS
from gateway.models.window import Material
from gateway.planning.decision import NO_PLANNER, NOTHING_TO_PLAN, may_be_planned, weighed
from gateway.ports import Spans
from gateway.ports.documents import FileStore
from gateway.tokens.counter import CounterRegistry
from gateway.window.budget import Budget
from gateway.window.counting import prompt_tokens

__all__ = ["BuiltContext", "ContextManager", "ContextSources", "PassageRanking", "PlannerAccess"]
NO_RANKING = PassageRanking()
NOBODYS = PlannerAccess()


class ContextManager:
    """Decides which artifacts and turns enter the window, and words them.

    Args:
        sources: where contexts are read from.
        ranking: what ranks passages beside their words.
        planning: asks internal models for plans; None: nobody is asked.
        spans: marks the steps, where traces are told.
        hooks: what a feature does on the way.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        counters: CounterRegistry,
        sources: ContextSources,
        ranking: PassageRanking = NO_RANKING,
        planning: ContextPlanning | None = None,
        spans: Spans = nullcontext,
        hooks: ContextHooks = NO_HOOKS,
    ) -> None:
        self._hooks = hooks
        self._settings = settings.context
        self._profiles = settings.prompt_profiles if settings.prompt_profiles.is_set else None
        self._counters = counters
        self._sources = sources
        self._ranking = ranking
        self._planning = planning
        self._spans = spans

    async def build(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        access: PlannerAccess | None = None,
    ) -> BuiltContext:
        """Gathers, decides without a plan; asks for a plan where one is called for; fits by it, and renders.

        Args:
            access: whose internal models may be asked; none without it.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1).
            InvalidRequest: a part holds no readable document, or names no picture; names the part.
            NotFound: a part names a file that is not there, where files are kept here; names the part.
            StorageUnavailable: older messages or files are needed and cannot be read.
        """
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
            with self._spans("fit"):
                final = await ranking.run(
                    small, fit, proposal, result.planned, result.fallback_reason, access.scope.calls
                )
        proposal, final = await ranking.run(small, economised, proposal, final)
        built = await ranking.run(small, render, proposal, final, result)
        if request.options.whole:
            check_whole(built, budget)
        built = with_vectors(replace(built, own=gatherer.own), ranking, proposal.measured.inputs)
        return built.with_cached(proposal.measured.inputs.files.cached)

    async def _decided(
        self, gatherer: ContextGatherer, inputs: ContextInputs, access: PlannerAccess, ranking: RequestRanking
    ) -> tuple[Proposal, Planners | None]:
        """The context without a plan, and who may be asked for one. What it turns out to lack is read, and it is made
        anew: twice at most for PDFs that have no room as they came, and once for older messages (`Lack`)."""
        while True:
            try:
                proposal, planners = await self._proposed(inputs, access, ranking)
                lack = proposal.lacks
            except ContextLengthExceeded:
                if inputs.stays is Stays.NONE:
                    raise
                lack = Lack.PDF_TEXTS
            if lack is None:
                break
            inputs = await gatherer.supply(lack, inputs)
        on_proposal = self._hooks.on_proposal
        if on_proposal is not None and (pages := await on_proposal(proposal, gatherer.natives, ranking)):
            proposal = await ranking.run(inputs.is_small, beside_pages, proposal, pages, planners is not None)
        return proposal, planners

    async def _proposed(
        self, inputs: ContextInputs, access: PlannerAccess, ranking: RequestRanking
    ) -> tuple[Proposal, Planners | None]:
        small, counter = inputs.is_small, self._counters.counter(inputs.facts)
        with self._spans("fit"):
            measured = await ranking.run(small, measure, inputs, counter, ranking)
            planners = None
            if self._planning is not None and may_be_planned(inputs.request.options, measured.material):
                planners = self._planning.planners(inputs.request, access)
            return await ranking.run(small, decide, measured, planners is not None), planners

    async def _planned(
        self, proposal: Proposal, planners: Planners | None, ranking: RequestRanking
    ) -> tuple[Proposal, PlanResult | None]:
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
        with self._spans("plan"):
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

    async def as_sent(self, request: ChatRequest, facts: ModelFacts, budget: Budget) -> BuiltContext | None:
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
        self, request: ChatRequest, history: History, facts: ModelFacts, budget: Budget, access: PlannerAccess
    ) -> Material:
        """What a conversation holds, its older messages too, of which a window may have done without.

        Raises:
            StorageUnavailable: they cannot be read.
        """
        gatherer = self._gatherer(request, facts, access)
        inputs = await gatherer.read(await gatherer.with_older(history), budget)
        return await asyncio.to_thread(collect, inputs)

    async def with_excerpts(self, material: Material, tenant: str, question: str) -> Material:
        """The same, of whose large documents it holds what a question needs. Raises: as `with_older`."""
        if self._sources.large is None:
            return material
        return replace(material, attached=await read_anew(material.attached, self._sources.large, tenant, question))

    def profile(self, request: ChatRequest, history: History, facts: ModelFacts) -> Profile | None:
        """The prompt profile that the conversation calls for; None where none is configured or wanted."""
        if not self._is_profiled(request):
            return None
        mode, source = request.options.profile, "request"
        if mode is None:
            mode, source = inferred([message.body for message in history.messages], history.profile)
        return self._composed(mode, source, facts)

    async def profiles(
        self, messages: Sequence[dict[str, Any]], before: str | None, facts: ModelFacts
    ) -> tuple[Profile | None, dict[str, Profile]]:
        """The prompt profile that messages call for, and that of each mode; None and none where none is configured.

        Args:
            before: the mode that the conversation had.
        """
        if self._profiles is None:
            return None, {}
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        found = {mode: self._composed(mode, "request", facts) for mode in MODES}
        mode, source = inferred(messages, before)
        return replace(found[mode], source=source), found

    def _composed(self, mode: str, source: str, facts: ModelFacts) -> Profile:
        profiles = self._profiles or NO_PROFILES
        text, counter = composed(profiles, mode), self._counters.counter(facts)
        tokens = counter.text(text)
        return Profile(mode, source, text, tokens, counter.text(monolith(profiles)) - tokens)

    def _is_profiled(self, request: ChatRequest) -> bool:
        options = request.options
        return self._profiles is not None and options.mode != "off" and options.profile != "off"

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """The request with the texts of its attachments: of those that it names by file id, and of encoded ones.

        Raises:
            InvalidRequest: there is no such file, or it is no document or has no text; names the attachment.
        """
        if not request.attachments:
            return request
        return await with_contents(request, files, self._sources.files.documents, self._sources.files.best)

    def keep(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there (`holds`)."""
        if built.indexes is not None:
            built.indexes.keep()
        if self._ranking.meaning is not None and built.vectors is not None:
            self._ranking.meaning.later(built.vectors, holds)
