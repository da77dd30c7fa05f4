"""`ContextManager`: makes the context of a request, for the pipeline and for those who use the package as a library."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from gateway.artifacts.collect import with_content
from gateway.artifacts.files import FilePlace, FileReader
from gateway.artifacts.steps_as_text import steps_as_text
from gateway.assembly.messages import without_items
from gateway.base.tasks import inline, offload
from gateway.config.settings import ContextSettings
from gateway.context.collect import NO_EARLIER, ContextInput, Files, collect
from gateway.context.draft import Draft, Measured, draft, measure
from gateway.context.fast_path import context_as_sent
from gateway.context.planned_fit import FinalFit, fit_as_planned
from gateway.context.planner import (
    NO_PLANNER,
    NOTHING_TO_PLAN,
    ContextPlanning,
    PlannerAccess,
    Planners,
    PlanResult,
    planner_task,
)
from gateway.context.report import BuiltContext, report
from gateway.embeddings.background import Holds
from gateway.embeddings.meaning import Meaning, RequestMeaning
from gateway.history.frames import as_frozen
from gateway.history.rebuild import begins_turn, has_unread, with_older_messages
from gateway.models.bill import InternalCall
from gateway.models.conversation import ConversationMessage, History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.ports import ConversationReader, FileStore
from gateway.relevance.index_cache import ContentIndexes, PassageFinder
from gateway.tokens.counter import CounterRegistry
from gateway.window.budget import Budget

__all__ = ["BuiltContext", "ContextManager", "PlannerAccess"]

Run = Callable[..., Awaitable[Any]]
TOOL_FIELDS = ("tools", "functions")


class ContextManager:
    """Decides which artifacts and turns enter the window, and words them."""

    def __init__(
        self,
        settings: ContextSettings,
        counters: CounterRegistry,
        files: FileReader,
        meaning: Meaning | None = None,
        indexes: ContentIndexes | None = None,
        planning: ContextPlanning | None = None,
        store: ConversationReader | None = None,
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._files = files
        self._meaning = meaning
        self._indexes = indexes
        self._planning = planning
        self._store = store

    async def build(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        access: PlannerAccess | None = None,
    ) -> BuiltContext:
        """Collects, measures, decides, plans, fits and reports.

        Args:
            access: whose internal models may be asked; none without it.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1).
            InvalidRequest: a `file` part holds no readable document; names the part.
            StorageUnavailable: older messages are needed and cannot be read.
        """
        access = access or PlannerAccess()
        meaning = self._meaning_for(request, access.spent)
        if begins_turn(history):
            history = await self._with_older_messages(request, history)
        while True:
            source, cached = await self._read(request, history, facts, budget, access)
            run: Run = meaning.run if meaning else inline if source.is_small else offload
            candidate = await run(self._measure, source, meaning)
            planners = self._planners(candidate, access)
            found: Draft = await run(draft, candidate, self._settings, planners is not None)
            if not (found.fitted.new_pass and has_unread(history)) or self._store is None:
                break
            history = await self._with_older_messages(request, history)  # all is decided anew, older turns too
        plan = access.result or await self._plan(found, planners, run)
        final = await run(fit_as_planned, found, plan, access.spent) if plan else FinalFit(found.fitted)
        built: BuiltContext = await run(report, found, final, plan, self._settings.warning_threshold)
        return _with_vectors(built, meaning, source).with_cached(cached)

    def as_sent(self, request: ChatRequest, facts: ModelFacts, budget: Budget) -> BuiltContext | None:
        """The context of a request that surely fits as it was sent; None if it needs a closer look."""
        return context_as_sent(request, budget, self._counters.counter(facts).margin, self._settings)

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """The request with the content of attachments that it names by file id.

        Raises:
            InvalidRequest: there is no such file, or it is no document; names the attachment.
        """
        return await with_content(request, files, self._files.documents) if request.attachments else request

    def keep(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there (`holds`)."""
        if built.indexes is not None:
            built.indexes.keep()
        if self._meaning is not None and built.vectors is not None:
            self._meaning.later(built.vectors, holds)

    async def _read(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        access: PlannerAccess,
    ) -> tuple[ContextInput, tuple[str, ...]]:
        """All that has to be read before the context is made; and digests of the documents that the cache keeps."""
        has_tools = any(request.forward.get(name) for name in TOOL_FIELDS)
        origin = access.deployment.origin if access.deployment else None
        steps = steps_as_text(as_frozen(history), without_items, has_tools=has_tools, origin=origin)
        sent, kept = await self._read_files(request, facts, steps.history.messages, steps.history.stored)
        older = (steps.history.earlier or NO_EARLIER).messages
        earlier, kept_earlier = await self._read_files(request, facts, older, len(older))
        source = ContextInput(request, steps, facts, budget, Files(sent, earlier))
        return source, (*kept, *kept_earlier)

    async def _read_files(
        self, request: ChatRequest, facts: ModelFacts, messages: Sequence[ConversationMessage], first_new: int
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        return await self._files.read(
            messages,
            first_new,
            request.caller.tenant,
            decode_pdf=not facts.supports_pdf_input,
            keep=request.store and not request.options.dry_run,
        )

    async def _with_older_messages(self, request: ChatRequest, history: History) -> History:
        if self._store is None:
            return history
        return await with_older_messages(history, self._store, request.caller.tenant, self._settings.recall_bytes)

    def _measure(self, source: ContextInput, meaning: RequestMeaning | None) -> Measured:
        material = collect(source, self._settings.document_min_chars)
        finder = PassageFinder(self._indexes, source.request.caller.tenant)
        ranked = meaning.relevance if meaning else None
        return measure(source, material, self._counters.counter(source.facts), finder, ranked, self._settings)

    def _planners(self, candidate: Measured, access: PlannerAccess) -> Planners | None:
        """Who may be asked for a plan; None also where there is nothing to plan."""
        request = candidate.source.request
        if self._planning is None or not (candidate.material.artifacts or request.options.planning == "always"):
            return None
        return self._planning.planners(request, access)

    async def _plan(self, found: Draft, planners: Planners | None, run: Run) -> PlanResult | None:
        """The planner's plan, where one is called for. No thread and no transaction is held while a model is waited
        for."""
        if not found.decision.use:
            return None
        if planners is None or self._planning is None:
            return NO_PLANNER
        task = await run(planner_task, found)
        return await self._planning.plan(found.source.request, task, planners) if task else NOTHING_TO_PLAN

    def _meaning_for(self, request: ChatRequest, spent: list[InternalCall]) -> RequestMeaning | None:
        """What ranks by meaning, too; in mode `simple` only an embedder that nobody bills (guarantee §2)."""
        if self._meaning is None or (request.options.mode == "simple" and self._meaning.is_billed):
            return None
        return self._meaning.of(request.caller, spent)


def _with_vectors(built: BuiltContext, meaning: RequestMeaning | None, source: ContextInput) -> BuiltContext:
    """The context with what went wrong with the embedder, and what may be kept of its vectors."""
    if meaning is None:
        return built
    built.utilization.warnings += meaning.warnings
    request, conversation_id = source.request, source.history.conversation_id
    keeps = request.store and not request.options.dry_run and conversation_id
    vectors = meaning.remains(conversation_id) if keeps and conversation_id else None
    return replace(built, vectors=vectors).with_cached(vectors.digests) if vectors else built
