"""`ContextManager`: steps 2 to 5 as one call, for the pipeline and for those who use the package as a library."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.artifacts.collect import with_content
from gateway.artifacts.files import FilePlace, FileReader
from gateway.artifacts.steps_as_text import steps_as_text
from gateway.assembly.messages import without_items
from gateway.config.settings import ContextSettings
from gateway.context.draft import NO_EARLIER, NO_MATERIAL, BuiltContext, ContextRequest, Draft, Files, is_little
from gateway.context.drafting import Drafting
from gateway.context.fast_path import fitted_as_sent, surely_fits
from gateway.context.planner import ContextPlanning, PlanMade, Planners
from gateway.context.report import measured_utilization
from gateway.embeddings.background import Holds
from gateway.embeddings.meaning import Meaning, RequestMeaning
from gateway.errors import ContextLengthExceeded
from gateway.history.frames import as_frozen
from gateway.models.bill import InternalCall
from gateway.models.conversation import ConversationMessage, History
from gateway.models.exchange import ChatRequest, Deployment, ModelFacts
from gateway.ports import FileStore
from gateway.relevance.index_cache import ContentIndexes
from gateway.telemetry.logs import get_logger
from gateway.tokens.counter import CounterRegistry
from gateway.window.budget import Budget

__all__ = ["BuiltContext", "ContextManager", "PlannerAccess"]

Run = Callable[..., Awaitable[Any]]
TOOL_FIELDS = ("tools", "functions")
COUNTED_APART = ("tools", "functions", "response_format")
NO_ARTIFACTS = "no_artifacts"
log = get_logger("gateway.context.manager")


@dataclass(slots=True)
class PlannerAccess:
    """What a request may ask internal models, and what came of it: `spent` gets their calls, also where the context
    cannot be made. `made` is what an earlier context of the same request was planned by: nobody is asked twice."""

    deployment: Deployment | None = None
    spent: list[InternalCall] = field(default_factory=list)
    made: PlanMade | None = None


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
    ) -> None:
        self._settings = settings
        self._meaning = meaning
        self._files = files
        self._counters = counters
        self._planning = planning
        self._drafting = Drafting(settings, counters, indexes)

    async def __call__(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        asking: PlannerAccess | None = None,
    ) -> BuiltContext:
        """Collect, plan, fit, assemble.

        Args:
            asking: who will answer and whose internal models may be asked; none without it.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1).
            InvalidRequest: a `file` part holds no readable document; names the part.
        """
        asking = asking or PlannerAccess()
        has_tools = any(request.forward.get(name) for name in TOOL_FIELDS)
        origin = asking.deployment.origin if asking.deployment else None
        told = steps_as_text(as_frozen(history), without_items, has_tools=has_tools, origin=origin)
        texts, kept = await self._read(request, facts, told.history.messages, told.history.stored)
        earlier = (told.history.earlier or NO_EARLIER).messages
        texts_earlier, kept_earlier = await self._read(request, facts, earlier, len(earlier))
        planners = self._planners(request, asking)
        files, has_planner = Files(texts, texts_earlier), planners is not None
        asked = ContextRequest(request, told, facts, budget, files, has_planner, is_planned=asking.made is not None)
        meaning = self._meaning_for(request, asking.spent)
        run = _run_of(meaning, asked)
        draft = await run(self._drafting.begin, asked, meaning.relevance if meaning else None)
        built = draft if isinstance(draft, BuiltContext) else await self._planned(draft, planners, asking, run)
        built = _with_remains(built, meaning, request, told.history.conversation_id) if meaning else built
        kept = _all(kept, kept_earlier)
        return replace(built, cached=_all(built.cached, kept)) if kept else built

    async def _planned(self, draft: Draft, planners: Planners | None, asking: PlannerAccess, run: Run) -> BuiltContext:
        """The draft as a plan says. No thread and no transaction is held while the plan is made; whatever is wrong with
        it costs quality, never the answer."""
        made, drafting = asking.made, self._drafting
        if made is None and planners is not None and self._planning is not None:
            made = await self._planning.plan(draft.asked.request, draft.task, planners)
        if made is None or made.planned is None:
            built: BuiltContext = await run(drafting.unplanned, draft, made)
            return built
        try:
            built = await run(drafting.planned, draft, made, made.planned, asking.spent)
        except ContextLengthExceeded:
            built = await run(drafting.unplanned, draft, replace(made, fallback_reason="plan_does_not_fit"))
        except Exception as fault:  # noqa: BLE001 - the same context stands without a plan already
            log.fault("plan_not_followed", fault, request_id=draft.asked.request.request_id)
            built = await run(drafting.unplanned, draft, replace(made, fallback_reason="plan_not_followed"))
        return built

    def _planners(self, request: ChatRequest, asking: PlannerAccess) -> Planners | None:
        if self._planning is None or asking.deployment is None:
            return None
        return self._planning.planners(request, asking.deployment, asking.spent)

    async def _read(
        self, request: ChatRequest, facts: ModelFacts, messages: Sequence[ConversationMessage], first_new: int
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        return await self._files.read(
            messages,
            first_new,
            request.caller.tenant,
            decode_pdf=not facts.supports_pdf_input,
            keep=request.store and not request.options.dry_run,
        )

    def afterwards(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there."""
        if built.indexed is not None:
            built.indexed.keep()
        if self._meaning is not None and built.remains is not None:
            self._meaning.later(built.remains, holds)

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """See `gateway.artifacts.collect`."""
        return await with_content(request, files, self._files.documents)

    def untouched(self, request: ChatRequest, facts: ModelFacts, budget: Budget) -> BuiltContext | None:
        """The context of a request that stands alone and surely fits as it is; None if it needs a closer look."""
        if budget.tokens is None or request.plain is None or any(request.forward.get(name) for name in COUNTED_APART):
            return None
        allowed = int(budget.tokens / max(1.0, self._counters.counter(facts).margin))
        tokens = surely_fits(request.plain, request.size, allowed, self._settings.document_min_chars)
        if tokens is None:
            return None
        fitted = fitted_as_sent(request.messages, request.plain, tokens)
        threshold = self._settings.warning_threshold
        utilization = measured_utilization(request, budget, fitted, len(request.messages), threshold)
        utilization.planning_reason = NO_ARTIFACTS
        return BuiltContext(fitted, utilization, NO_MATERIAL)

    def _meaning_for(self, request: ChatRequest, spent: list[InternalCall]) -> RequestMeaning | None:
        """What ranks by meaning, too; in mode `simple` only what nobody bills (guarantee §2)."""
        if self._meaning is None or (request.options.mode == "simple" and self._meaning.is_billed):
            return None
        return self._meaning.of(request.caller, spent)


def _run_of(meaning: RequestMeaning | None, asked: ContextRequest) -> Run:
    """Where a context is made. Counting and ranking much text takes a while; streams of other requests must not wait
    for it."""
    if meaning is not None:
        return meaning.run
    return _at_once if is_little(asked.request, asked.told, asked.files) else asyncio.to_thread


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def _with_remains(
    built: BuiltContext, meaning: RequestMeaning, request: ChatRequest, conversation_id: str | None
) -> BuiltContext:
    """The context with what went wrong with the embedder, and what may be kept of its vectors."""
    built.utilization.warnings += meaning.warnings
    keeps = request.store and not request.options.dry_run and conversation_id
    remains = meaning.remains(conversation_id) if keeps and conversation_id else None
    return replace(built, remains=remains, cached=_all(built.cached, remains.digests)) if remains else built


def _all(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *others)))
