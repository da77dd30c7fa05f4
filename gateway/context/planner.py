"""Step 3 where it takes a model: who may plan for a request, and what came of asking (guarantee §5).

Nothing is decided here about the window: a plan with its summaries goes to fitting, and whatever fails on the way is a
reason to fit without it.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from gateway.base.ids import content_digest
from gateway.config.settings import ContextSettings
from gateway.errors import StorageUnavailable
from gateway.internal_models.budget import CallBudget
from gateway.internal_models.calls import InternalModels, OpenBill
from gateway.models.artifacts import Artifact, ArtifactPlan, ArtifactType, ProcessingStrategy
from gateway.models.bill import InternalCall
from gateway.models.exchange import ChatRequest, Deployment
from gateway.models.internal import InternalModelFailed
from gateway.models.window import Planned
from gateway.planning.processor import ArtifactProcessor, ModelConfig
from gateway.planning.prompt import PlannerTask
from gateway.planning.summaries import Summarizer
from gateway.planning.summary_cache import SummaryCache
from gateway.ports import Clock, ConversationStore, InternalModel
from gateway.telemetry.logs import get_logger

NO_PLANNER = "no_planner"
log = get_logger("gateway.planning")


@dataclass(frozen=True, slots=True)
class PlanMade:
    """What came of planning one request: a plan to follow, or the reason why there is none. A plan may have a reason,
    too: why a summary that it asks for could not be made. `hits` are the artifacts whose summaries cost nothing,
    `cached` the digests of contents of which the cache may hold one now."""

    planned: Planned | None = None
    fallback_reason: str | None = None
    hits: frozenset[str] = frozenset()
    misses: int = 0
    cached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planners:
    """The internal models that one request may use; their calls are added to its bill."""

    planner: InternalModel
    summarizer: InternalModel | None
    call_budget: CallBudget


class ContextPlanning:
    """Asks planners and summarizers; holds nothing of any request but what the summary cache keeps."""

    def __init__(
        self,
        settings: ContextSettings,
        models: InternalModels,
        summaries: SummaryCache,
        store: ConversationStore,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._models = models
        self._summaries = summaries
        self._store = store
        self._clock = clock
        self._processor = ArtifactProcessor(settings)
        self._forgetting: set[asyncio.Task[None]] = set()

    def planners(self, request: ChatRequest, primary: Deployment, spent: list[InternalCall]) -> Planners | None:
        """Those that this request may use; None without a planner, or in mode `simple` (guarantee §2)."""
        if request.options.mode != "auto":
            return None
        config = ModelConfig.from_request(request, self._settings)
        call_budget = CallBudget.of(self._settings, self._clock)
        bill = OpenBill(spent, call_budget)

        def served(name: str) -> InternalModel | None:
            return self._models.served(name, primary, request.caller, bill, chosen=name in config.chosen)

        planner = served(config.context_planner)
        return Planners(planner, served(config.summarizer), call_budget) if planner is not None else None

    async def plan(self, request: ChatRequest, task: PlannerTask, planners: Planners) -> PlanMade:
        """One call of the planner, and the summaries that its plan asks for; never an error."""
        planners.call_budget.begin()
        try:
            plan = await self._processor.plan_context(task, planners.planner)
            may_be_summarized = [each for each in task.artifacts if each.artifact_id not in task.quoted]
            return await self._executed(request, plan, may_be_summarized, planners)
        except InternalModelFailed as failed:
            return PlanMade(fallback_reason=str(failed))
        except Exception as fault:  # noqa: BLE001 - a fault in an optional part costs quality, never the answer
            log.fault("planning_failed", fault, request_id=request.request_id)
            return PlanMade(fallback_reason="planning_failed")

    async def _executed(
        self, request: ChatRequest, plan: ArtifactPlan, artifacts: Sequence[Artifact], planners: Planners
    ) -> PlanMade:
        asked = {d.artifact_id for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE}
        wanted = [a for a in artifacts if a.artifact_id in asked and a.artifact_type is not ArtifactType.CONVERSATION]
        summarizer = None
        if planners.summarizer is not None and wanted:
            summarizer = await self._summarizer(request, planners.summarizer)
        digests = tuple(content_digest(artifact.content) for artifact in wanted)
        kept = digests if summarizer is not None and summarizer.keeps else ()
        try:
            prepared = await self._processor.execute_plan(plan, wanted, summarizer, planners.call_budget.seconds)
        except BaseException:  # whoever leaves now leaves no conversation with which summaries could be deleted
            self._later(self._summaries.forget(request.caller.tenant, kept))
            raise
        return PlanMade(
            planned=Planned(plan, prepared.texts, self._settings.trust_planner),
            fallback_reason=next(iter(prepared.failed), None),
            hits=prepared.hits,
            misses=len(wanted) - len(prepared.hits) if summarizer is not None else 0,
            cached=kept,
        )

    async def close(self) -> None:
        """Waits for what is still being kept or forgotten."""
        if self._forgetting:
            await asyncio.wait(self._forgetting)
        await self._summaries.close()

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _summarizer(self, request: ChatRequest, model: InternalModel) -> Summarizer:
        """Nothing of a dry run is kept but its bill; of `store: false` no cache knows (guarantee §2, §5)."""
        reads, keeps = request.store, request.store and not request.options.dry_run
        try:
            secret = await self._store.secret()
        except StorageUnavailable:  # a key that nobody else has finds nothing
            secret, reads, keeps = os.urandom(32), False, False
        seconds, tenant = self._settings.summarizer_timeout, request.caller.tenant
        return Summarizer(model, self._summaries, tenant, secret, reads=reads, keeps=keeps, timeout_seconds=seconds)
