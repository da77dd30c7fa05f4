"""Asks internal models for a plan: who may be asked, what they are asked, and what came of it (guarantee §5).

Nothing is decided here about the window: the plan with its summaries goes to fitting. Whatever fails on the way is a
reason to fit without a plan.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial

from gateway.billing.cost import expected_requests, saving_of
from gateway.context.build import WindowProposal
from gateway.context.internal_calls import Begin, CallBudget, InternalModels, OpenBill
from gateway.context.planning.decision import FORCED, PlanEconomics, PlannerCooldown, without_standing
from gateway.context.planning.processor import ArtifactProcessor, ModelConfig
from gateway.context.planning.prompt import PROMPT_VERSION, PlannerTask
from gateway.context.planning.summaries import ArtifactSummarizer, Make, SummaryCache, SummaryKey
from gateway.context.window import tuning
from gateway.context.window.candidates import as_artifact, candidates, recent_texts, transcript
from gateway.context.window.plan import changeable
from gateway.context.window.recalled_extracts import absent
from gateway.core import jsons
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.ids import content_digest
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import ConversationReader, InternalModel
from gateway.core.tasks import BackgroundTasks
from gateway.core.types.agents import InternalModelFailed, InternalRequest, OverBudget
from gateway.core.types.artifacts import Artifact, ArtifactPlan, ArtifactType, ProcessingStrategy
from gateway.core.types.chat import ChatRequest, ModelDeployment, WhatIf
from gateway.core.types.upstreams import CallScope
from gateway.core.types.window import PlanToFollow

log = get_logger("gateway.context.planning")


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan to follow, or the reason why there is none. A plan may have a reason, too: why a summary that it wants
    could not be made.

    `cache_hits` are the artifacts whose summaries cost nothing, `cache_misses` the number of the others. `cached` are
    digests of the contents of which the summary cache may hold something now. `asked`: a model was asked, so that
    nobody is asked again for the same request.
    """

    planned: PlanToFollow | None = None
    fallback_reason: str | None = None
    cache_hits: frozenset[str] = frozenset()
    cache_misses: int = 0
    cached: tuple[str, ...] = ()
    asked: bool = True


@dataclass(slots=True)
class PlannerAccess:
    """Whose internal models one request may use, and what it has used of them.

    `scope` says who asks, and gets each call, also where the context cannot be made. `result` is the plan of an earlier
    context of the same request: nobody is asked twice. `begin` is awaited before each call of a planner or a
    summarizer.
    """

    deployment: ModelDeployment | None = None
    scope: CallScope = field(default_factory=CallScope)
    result: PlanResult | None = None
    begin: Begin | None = None


@dataclass(frozen=True, slots=True)
class RequestPlanners:
    """The internal models that one request may use; their calls are added to its bill."""

    planner: InternalModel
    summarizer: InternalModel | None
    call_budget: CallBudget


def planner_task(proposal: WindowProposal) -> PlannerTask | None:
    """What a planner is asked: about the artifacts that a plan can change, in the heuristic's order. None where a plan
    can change nothing, or the window's size is unknown: nobody is to be paid for that."""
    measured = proposal.measured
    material, budget = measured.material, measured.limits.tokens
    artifacts, quoted = _artifacts_to_plan(proposal) if budget is not None else ([], frozenset())
    if budget is None or not artifacts:
        return None
    ranked = dict.fromkeys(id(each.of) for each in candidates(material, artifacts, (), measured.tools.relevance))
    rank = {of: number for number, of in enumerate(ranked)}
    artifacts.sort(key=lambda artifact: rank.get(id(artifact), len(rank)))
    goal, recent = measured.inputs.request.options.goal, recent_texts(material)
    return PlannerTask(material.question, goal, budget, artifacts, recent=recent, quoted=quoted)


def _artifacts_to_plan(proposal: WindowProposal) -> tuple[list[Artifact], frozenset[str]]:
    """The artifacts that a plan can change, and the ids of those of which it can only find other passages."""
    measured, material, fitted = proposal.measured, proposal.measured.material, proposal.fitted
    undecided = without_standing(material, measured.unreduced, measured.inputs.history.stored)
    if fitted.new_pass:
        said = transcript(material, frozenset()) if material.current > 0 else []
        return list(undecided) or ([as_artifact(said)] if said else []), frozenset()
    free = {id(artifact) for artifact in changeable(material, fitted)}
    artifacts = [artifact for artifact in undecided if id(artifact) in free]
    if artifacts or proposal.decision.reason != FORCED:
        return artifacts, frozenset()
    outside, said = absent(material, fitted)  # what is frozen stays, but a plan's queries find more beside it
    found = outside or ([as_artifact(said)] if said else [])
    return found, frozenset(artifact.artifact_id for artifact in found)


def plan_of_then(what_if: WhatIf, *, trusted: bool) -> PlanResult:
    """The plan that was made then, for all but what is in full; nobody is asked again. Summaries are not made anew:
    extracts stand for them."""
    plan = what_if.plan
    if plan is None:
        return PlanResult(asked=False)
    others = tuple(each for each in plan.artifacts if each.artifact_id.partition("-")[0] not in what_if.in_full)
    return PlanResult(planned=PlanToFollow(plan.model_copy(update={"artifacts": others}), {}, trusted))


def prospects_of(proposal: WindowProposal) -> PlanEconomics:
    """What is known of a plan before it is known what it would be asked."""
    inputs, material = proposal.measured.inputs, proposal.measured.material
    begun = material.messages[material.current].message_id if material.messages else None
    planned = inputs.history.planned
    asked = begun is not None and material.frame is not None and material.frame.asked == begun
    return PlanEconomics(
        must_leave=proposal.fitted.new_pass and not planned,
        asked_this_turn=planned or asked,
        stands=inputs.request.store,
    )


def most_saved(proposal: WindowProposal, task: PlannerTask, *, trusted: bool) -> Decimal | None:
    """The most that a plan of these artifacts can save in USD while everything fits: all of them, or what the heuristic
    leaves to a planner that is not trusted, in all requests that are expected to forward this one's messages. None if
    the price is unknown."""
    measured = proposal.measured
    changeable = [artifact.content for artifact in task.artifacts if artifact.artifact_id not in task.quoted]
    tokens = measured.counting.texts(changeable) * (1 if trusted else 1 - tuning.HEURISTIC_SHARE)
    requests = expected_requests(measured.answers)
    return saving_of(measured.inputs.facts.prices, round(tokens), requests, proposal.fitted.tokens)


class ContextPlanning:
    """Asks planners and summarizers. Of a request only what the summary cache keeps remains."""

    def __init__(
        self,
        settings: ContextSettings,
        models: InternalModels,
        summaries: SummaryCache,
        plans: SummaryCache,
        store: ConversationReader,
        rest: PlannerCooldown,
    ) -> None:
        self._settings = settings
        self._models = models
        self._summaries = summaries
        self._plans = plans
        self._store = store
        self._rest = rest
        self._clock = models.clock
        self._processor = ArtifactProcessor(settings)
        self._tasks = BackgroundTasks()

    def planners(self, request: ChatRequest, access: PlannerAccess) -> RequestPlanners | None:
        """Those that this request may use; None without a planner, or in mode `simple` (guarantee §2)."""
        primary = access.deployment
        if primary is None or request.options.mode != "auto":
            return None
        config = ModelConfig.from_request(request, self._settings)
        call_budget = CallBudget.of(self._settings, self._clock)
        bill = OpenBill(access.scope, call_budget, access.begin)

        def served(name: str) -> InternalModel | None:
            return self._models.served(name, primary, bill, chosen=name in config.chosen)

        planner = served(config.context_planner)
        return RequestPlanners(planner, served(config.summarizer), call_budget) if planner is not None else None

    async def plan(self, request: ChatRequest, task: PlannerTask, planners: RequestPlanners) -> PlanResult:
        """One call of the planner, and the summaries that its plan asks for; never an error."""
        planners.call_budget.begin()
        try:
            plan = await self._asked(request, task, planners.planner)
            may_be_summarized = [each for each in task.artifacts if each.artifact_id not in task.quoted]
            return await self._with_summaries(request, plan, may_be_summarized, planners)
        except InternalModelFailed as failed:
            return PlanResult(fallback_reason=str(failed))
        except Exception as fault:  # noqa: BLE001 - a fault in an optional part costs quality, never the answer
            log.fault("planning_failed", fault, request_id=request.request_id)
            return PlanResult(fallback_reason="planning_failed")

    async def is_resting(self, request: ChatRequest, planners: RequestPlanners) -> bool:
        """Whether the planner's last answers to this tenant were unusable."""
        return await self._rest.is_resting(request.caller.tenant, planners.planner.name)

    def prospects(self, proposal: WindowProposal, task: PlannerTask, planners: RequestPlanners) -> PlanEconomics:
        """What asking for this plan would cost and could save (ADR 16). It counts prompts and artifacts."""
        saving = most_saved(proposal, task, trusted=self._settings.trust_planner)
        return replace(prospects_of(proposal), price=self._processor.price(task, planners.planner), saving=saving)

    async def _asked(self, request: ChatRequest, task: PlannerTask, planner: InternalModel) -> ArtifactPlan:
        """The planner's plan, or that of an equal request that is being answered."""
        tenant = request.caller.tenant

        async def once(ask: InternalRequest, make: Make) -> str:
            secret, _, keep = await self._cached_as(request)
            said = content_digest(jsons.canonical([ask.messages, ask.schema, ask.max_tokens]).decode())
            key = SummaryKey(tenant, "", said, planner.name, PROMPT_VERSION, kind="plan")
            made = await self._plans.get_or_make(
                key, partial(self._noted, tenant, planner, make), secret, read=False, keep=keep
            )
            return made.text

        return await self._processor.plan_context(task, planner, once)

    async def _noted(self, tenant: str, planner: InternalModel, make: Make) -> str:
        """The planner's answer; whether it could be used is noted once, however many wait for it."""
        try:
            text = await make()
        except OverBudget:  # it was not asked, or had no time left: that says nothing of it
            raise
        except InternalModelFailed:
            await self._rest.answered(tenant, planner.name, usable=False)
            raise
        await self._rest.answered(tenant, planner.name, usable=True)
        return text

    async def _with_summaries(
        self, request: ChatRequest, plan: ArtifactPlan, artifacts: Sequence[Artifact], planners: RequestPlanners
    ) -> PlanResult:
        ids = {d.artifact_id for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE}
        chosen = [a for a in artifacts if a.artifact_id in ids and a.artifact_type is not ArtifactType.CONVERSATION]
        summarizer = None
        # What is to go up again without being stored is told by ranges (ADR 12), and a model's words have none.
        is_sayable = not request.store and request.goes_on
        if planners.summarizer is not None and chosen and not is_sayable:
            summarizer = await self._summarizer(request, planners.summarizer)
        digests = tuple(content_digest(artifact.content) for artifact in chosen)
        cached = digests if summarizer is not None and summarizer.keeps else ()
        try:
            prepared = await self._processor.execute_plan(plan, chosen, summarizer, planners.call_budget.seconds)
        except BaseException:  # a request that ends now leaves no conversation with which summaries could be deleted
            self._tasks.start(self._summaries.evict(request.caller.tenant, cached))
            raise
        return PlanResult(
            planned=PlanToFollow(plan, prepared.texts, self._settings.trust_planner),
            fallback_reason=next(iter(prepared.failed), None),
            cache_hits=prepared.hits,
            cache_misses=len(chosen) - len(prepared.hits) if summarizer is not None else 0,
            cached=cached,
        )

    async def _summarizer(self, request: ChatRequest, model: InternalModel) -> ArtifactSummarizer:
        secret, reads, keeps = await self._cached_as(request)
        seconds, tenant = self._settings.summarizer_timeout, request.caller.tenant
        return ArtifactSummarizer(
            model, self._summaries, tenant, secret, reads=reads, keeps=keeps, timeout_seconds=seconds
        )

    async def _cached_as(self, request: ChatRequest) -> tuple[bytes, bool, bool]:
        """The secret of what is cached for a request, and whether it may be read and kept: of a dry run nothing is kept
        but its bill; no cache knows of `store: false` (guarantee §2, §5)."""
        try:
            return await self._store.secret(), request.store, request.store and not request.options.dry_run
        except StorageUnavailable:  # a key that nobody else has finds nothing
            return os.urandom(32), False, False

    async def close(self) -> None:
        """Waits for what is still being kept or deleted."""
        await self._tasks.finish()
        await self._summaries.close()
        await self._plans.close()
