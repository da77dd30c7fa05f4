"""Asks internal models for a plan: which models, with which prompt, how the answer is parsed, and the result (guarantee
§5).

Nothing is decided here about the window: fitting gets the plan with its summaries. Any failure is a reason to fit
without a plan."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing import cost
from gateway.context.build import WindowProposal
from gateway.context.internal_calls import Begin, CallBudget, InternalModels, OpenBill
from gateway.context.planning.artifact_decisions import without_standing
from gateway.context.planning.decision import FORCED, ModelConfig, PlanEconomics, PlannerCooldown
from gateway.context.planning.prompt import PLANNER_PROMPT_VERSION, PlannerTask, plan_schema, planner_messages
from gateway.context.planning.summaries import (
    ArtifactSummarizer,
    CachedSummary,
    InternalModel,
    Make,
    SummaryCache,
    SummaryKey,
)
from gateway.context.window import tuning
from gateway.context.window.candidates import QuotableMessages, candidates, recent_texts, transcript
from gateway.context.window.extracts import absent, changeable
from gateway.core import errors, ids, jsons, ports
from gateway.core.config.settings import ContextSettings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import agents, artifacts, upstreams
from gateway.core.types.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ArtifactType, ProcessingStrategy
from gateway.core.types.chat import ChatRequest, ModelDeployment, WhatIf
from gateway.core.types.window import PlanToFollow

# Parses a planner's answer: strictly if it keeps the schema, tolerantly if it nearly does (guarantee §5).

MAX_PLAN_CHARS = 200_000
"""Many times the longest answer of a planner; a longer answer is not searched for a plan."""
MAX_PLAN_QUERY_CHARS = 1000
"""Longest search query: a passage, not a document."""
MAX_TEXT_CHARS = 500
"""Longest rationale, focus and extraction query: they go into prompts and metadata."""
MAX_PRIORITY = 1000
"""The lowest priority; also that of a decision without a usable one."""
MAX_OBJECTS_TRIED = 8
"""Braces of an answer at which a plan may begin: each try reads the rest once."""
THOUGHTS_END = "</think>"
PLAN_DECODER = json.JSONDecoder()
STRATEGY_NAMES = {  # the schema's names, and names that models without a schema use
    "full": ProcessingStrategy.INCLUDE_FULL,
    "include": ProcessingStrategy.INCLUDE_FULL,
    "summary": ProcessingStrategy.SUMMARIZE,
    "summarise": ProcessingStrategy.SUMMARIZE,
    "extract": ProcessingStrategy.RAG_EXTRACT,
    "rag": ProcessingStrategy.RAG_EXTRACT,
    "omit": ProcessingStrategy.EXCLUDE,
} | {each.value: each for each in artifacts.PLANNED_STRATEGIES}


class InvalidPlan(ValueError):
    """The planner's answer cannot be used; the message is the `fallback_reason`."""


def read_plan(text: str, known: Collection[str]) -> ArtifactPlan:
    """Parses the plan in a planner's answer, its decisions by priority.

    Unknown ids are dropped, of two entries for one id the first counts, and fields of the wrong type are ignored.
    Raises InvalidPlan: the answer holds no JSON object, or names no known artifact and brings no query."""
    if len(text) > MAX_PLAN_CHARS:
        raise InvalidPlan("planner_answer_too_long")
    value = _object(text)
    if value is None:
        raise InvalidPlan("planner_answer_no_json")
    decisions: dict[str, ArtifactDecision] = {}
    entries = value.get("artifacts")
    for entry in entries if isinstance(entries, list) else ():
        decision = _decision(entry, known)
        if decision is not None:
            decisions.setdefault(decision.artifact_id, decision)
    queries = _queries(value.get("search_queries"))
    if not decisions and not queries:
        raise InvalidPlan("planner_answer_rubbish")
    ordered = sorted(decisions.values(), key=lambda decision: decision.priority)
    return ArtifactPlan(artifacts=tuple(ordered), search_queries=queries, reasoning=_text(value.get("reasoning")) or "")


def is_plan(text: str, known: Collection[str]) -> bool:
    """Returns whether a planner's answer can be used."""
    try:
        read_plan(text, known)
    except InvalidPlan:
        return False
    return True


def _object(text: str) -> dict[str, Any] | None:
    """Returns the plan that an answer is, or the last object in it that looks like one; else any object."""
    found = [value for value in map(_unwrapped, _values(text)) if isinstance(value, dict)]
    plans = [value for value in found if "artifacts" in value or "search_queries" in value]
    return next(reversed(plans or found), None)


def _values(text: str) -> Iterator[Any]:
    """Yields the JSON values in an answer, from the first braces on. Reads no part twice, so no answer takes long."""
    try:
        yield jsons.loads(text)
        return
    except jsons.JSONDecodeError:
        pass
    at = text.rfind(THOUGHTS_END) + 1  # after the reasoning, else from the beginning
    for _ in range(MAX_OBJECTS_TRIED):
        at = text.find("{", at)
        if at < 0:
            return
        end = at + 1
        try:
            _, end = PLAN_DECODER.raw_decode(text, at)
            yield jsons.loads(text[at:end])
        except (ValueError, RecursionError):
            end = at + 1
        at = end


def _unwrapped(value: Any) -> Any:
    """Removes the wrappers that models without a schema put around a plan: its name, or a list."""
    if isinstance(value, list):
        entries = [item for item in value if isinstance(item, dict)]
        return {"artifacts": entries} if entries and "artifact_id" in entries[0] else next(iter(entries), None)
    if isinstance(value, dict) and len(value) == 1:
        (inner,) = value.values()
        return inner if isinstance(inner, dict) else value
    return value


def _decision(entry: Any, known: Collection[str]) -> ArtifactDecision | None:
    if not isinstance(entry, dict):
        return None
    artifact_id, named = entry.get("artifact_id"), entry.get("strategy")
    strategy = STRATEGY_NAMES.get(named.strip().lower()) if isinstance(named, str) else None
    if not isinstance(artifact_id, str) or artifact_id not in known or strategy is None:
        return None
    given = entry.get("priority")
    priority = given if isinstance(given, int) and not isinstance(given, bool) else MAX_PRIORITY
    return ArtifactDecision(
        artifact_id=artifact_id,
        strategy=strategy,
        priority=min(MAX_PRIORITY, max(1, priority)),
        relevance_rationale=_text(entry.get("relevance_rationale")) or "",
        summarization_focus=_text(entry.get("summarization_focus")),
        extraction_query=_text(entry.get("extraction_query")),
    )


def _queries(value: Any) -> tuple[str, ...]:
    """Returns up to four queries, each once; a single text is one query."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [" ".join(item.split())[:MAX_PLAN_QUERY_CHARS] for item in given if isinstance(item, str)]
    return tuple(dict.fromkeys(filter(None, texts)))[: artifacts.MAX_QUERIES]


def _text(value: Any) -> str | None:
    """Returns the text on one line, cut at its limit; None for an empty text or no text."""
    return (" ".join(value.split())[:MAX_TEXT_CHARS] or None) if isinstance(value, str) else None


Share = Callable[[agents.InternalRequest, Make], Awaitable[str]]
"""Makes the answer to a question, or shares the answer that an equal request is getting."""
DECISION_TOKENS = 90
"""Tokens of one artifact's decision in a plan, with a sentence of rationale and a query."""
QUERIES_TOKENS = 400
"""Tokens of search queries and reasoning beside the decisions."""
MAX_PLAN_TOKENS = 16_000
"""The longest plan of a planner whose output limit is unknown."""
MIN_SHOWN_ARTIFACTS = 4
"""Artifacts that are shown however small the planner's window is."""
PROMPT_CHARS_PER_TOKEN = 2.5
"""Value for a prompt of many short previews; lower than for most text."""
MIN_PROMPT_CHARS = 2000


@record
class PreparedPlan:
    """The summaries that could be made for a plan, by artifact id; `failed` are the reasons why others could not."""

    summaries: dict[str, CachedSummary] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The texts of the summaries."""
        return {artifact_id: summary.text for artifact_id, summary in self.summaries.items()}

    @property
    def hits(self) -> frozenset[str]:
        """The artifacts whose summaries cost this request nothing."""
        return frozenset(artifact_id for artifact_id, summary in self.summaries.items() if summary.hit)


class ArtifactProcessor:
    """Plans with one call of a model, and makes the summaries of a plan."""

    def __init__(self, settings: ContextSettings) -> None:
        self._settings = settings

    async def plan_context(self, task: PlannerTask, planner: InternalModel, share: Share | None = None) -> ArtifactPlan:
        """Asks the planner for a plan: one call, within its deadline.
        `share`: shares the call with equal ones.
        Raises InternalModelFailed: no answer in time, or an unusable one; the message is the `fallback_reason`."""
        ask, ids = self._request(task, planner)

        async def make() -> str:
            text = (await planner.ask(ask)).text
            try:
                read_plan(text, ids)
            except InvalidPlan as rubbish:
                raise agents.InternalModelFailed(str(rubbish)) from None
            return text

        plan = read_plan(await (share(ask, make) if share is not None else make()), ids)
        prompt = "\n\n".join(message["content"] for message in ask.messages)
        return plan.model_copy(update={"prompt": prompt[: self._settings.planner_prompt_chars]})

    def price(self, task: PlannerTask, planner: InternalModel) -> Decimal | None:
        """Returns the price in USD of asking for such a plan, with the longest answer for its ids; None if unknown."""
        return planner.price(self._request(task, planner)[0])

    def _request(self, task: PlannerTask, planner: InternalModel) -> tuple[agents.InternalRequest, Sequence[str]]:
        """Returns the call, and the ids that its plan may name."""
        most = most_tokens(planner)
        room = prompt_chars(planner, self._settings.planner_prompt_chars)
        messages, ids = planner_messages(
            task, room, max(MIN_SHOWN_ARTIFACTS, (most - QUERIES_TOKENS) // DECISION_TOKENS)
        )
        ask = agents.InternalRequest(
            purpose="planner",
            messages=messages,
            max_tokens=min(most, QUERIES_TOKENS + DECISION_TOKENS * len(ids)),
            timeout_seconds=self._settings.planner_timeout,
            schema=plan_schema(ids),
            is_useful=lambda text: is_plan(text, ids),
        )
        return ask, ids

    async def execute_plan(
        self, plan: ArtifactPlan, artifacts: Sequence[Artifact], summarizer: ArtifactSummarizer | None, seconds: float
    ) -> PreparedPlan:
        """Makes the summaries that a plan asks for, concurrently and within `seconds`; an artifact whose summary fails
        is extracted from instead."""
        by_id = {a.artifact_id: a for a in artifacts if not a.is_excerpt}  # no summary of a document by parts of it
        wanted = [d for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE and d.artifact_id in by_id]
        if not wanted or summarizer is None:
            return PreparedPlan(failed=("no_summarizer",) if wanted else ())
        made = await asyncio.gather(*(_made(summarizer, by_id[d.artifact_id], d, seconds) for d in wanted))
        summaries = {d.artifact_id: one for d, one in zip(wanted, made, strict=True) if isinstance(one, CachedSummary)}
        failed = dict.fromkeys(one for one in made if isinstance(one, str))
        return PreparedPlan(summaries, tuple(failed))


def most_tokens(planner: InternalModel) -> int:
    """Returns the longest answer in tokens; half of a small window is left to the prompt."""
    window = planner.max_input_tokens
    return min(planner.max_output_tokens or MAX_PLAN_TOKENS, window // 2 if window else MAX_PLAN_TOKENS)


def prompt_chars(planner: InternalModel, most: int) -> int:
    """Returns the longest prompt in characters: `most`, or less if the planner's window leaves less beside its
    answer."""
    if planner.max_input_tokens is None:
        return most
    left = int((planner.max_input_tokens - most_tokens(planner)) * PROMPT_CHARS_PER_TOKEN)
    return min(most, max(MIN_PROMPT_CHARS, left))


async def _made(
    summarizer: ArtifactSummarizer, artifact: Artifact, decision: ArtifactDecision, seconds: float
) -> CachedSummary | str:
    """Returns the summary, or the reason why there is none."""
    try:
        async with asyncio.timeout(seconds):  # it may wait for another request that is making it
            return await summarizer.summarize(artifact, decision.summarization_focus or "")
    except agents.InternalModelFailed as error:
        return str(error)
    except TimeoutError:
        return "summarizer_over_time_ceiling"


log = logs.get_logger("gateway.context.planning")


@record
class PlanResult:
    """A plan to follow, or the reason why there is none. A plan may have a reason, too: why a summary that it wants
    could not be made.

    `cache_hits` are the artifacts whose summaries cost nothing, `cache_misses` the number of the others. `cached` are
    digests of the contents that may have entries in the summary cache now. `asked`: a model was asked, so that none is
    asked again for the same request.
    """

    planned: PlanToFollow | None = None
    fallback_reason: str | None = None
    cache_hits: frozenset[str] = frozenset()
    cache_misses: int = 0
    cached: tuple[str, ...] = ()
    asked: bool = True


@dataclass(slots=True)
class PlannerAccess:
    """Whose internal models one request may use, and which calls it has made.

    `deployment` is the primary model's. `scope` names the caller, and gets each call, even if the context cannot be
    made. `result` is the plan of an earlier context of the same request: no model is asked twice. `begin` is that of
    `OpenBill`.
    """

    deployment: ModelDeployment | None = None
    scope: upstreams.CallScope = field(default_factory=upstreams.CallScope)
    result: PlanResult | None = None
    begin: Begin | None = None


@record
class RequestPlanners:
    """The internal models that one request may use; their calls are added to its bill."""

    planner: InternalModel
    summarizer: InternalModel | None
    call_budget: CallBudget


def planner_task(proposal: WindowProposal) -> PlannerTask | None:
    """Returns the planner's task: the artifacts that a plan can change, in the heuristic's order. None if a plan can
    change nothing, or the window's size is unknown: then no planner is to be paid."""
    measured = proposal.measured
    material, budget = measured.material, measured.limits.tokens
    artifacts, quoted = _artifacts_to_plan(proposal) if budget is not None else ([], frozenset())
    if budget is None or not artifacts:
        return None
    ranked = dict.fromkeys(id(each.of) for each in candidates(material, artifacts, (), measured.callbacks.relevance))
    rank = {of: number for number, of in enumerate(ranked)}
    artifacts.sort(key=lambda artifact: rank.get(id(artifact), len(rank)))
    goal, recent = measured.inputs.request.options.goal, recent_texts(material)
    return PlannerTask(material.question, goal, budget, artifacts, recent=recent, quoted=quoted)


def _artifacts_to_plan(proposal: WindowProposal) -> tuple[list[Artifact], frozenset[str]]:
    """Returns the artifacts that a plan can change, and the ids of those for which it can only find other passages."""
    measured, material, fitted = proposal.measured, proposal.measured.material, proposal.fitted
    undecided = without_standing(material, measured.unreduced, measured.inputs.history.forwarded)
    if fitted.new_pass:
        said = transcript(material, frozenset()) if material.current > 0 else []
        return list(undecided) or ([QuotableMessages(said).artifact] if said else []), frozenset()
    free = {id(artifact) for artifact in changeable(material, fitted)}
    artifacts = [artifact for artifact in undecided if id(artifact) in free]
    if artifacts or proposal.decision.reason != FORCED:
        return artifacts, frozenset()
    outside, said = absent(material, fitted)  # what is frozen stays, but a plan's queries find more beside it
    found = outside or ([QuotableMessages(said).artifact] if said else [])
    return found, frozenset(artifact.artifact_id for artifact in found)


def past_plan(what_if: WhatIf, *, trusted: bool) -> PlanResult:
    """Returns the plan of a past request, without the artifacts in full. No model is asked: extracts replace its
    summaries."""
    plan = what_if.plan
    if plan is None:
        return PlanResult(asked=False)
    others = tuple(each for each in plan.artifacts if each.artifact_id.partition("-")[0] not in what_if.in_full)
    return PlanResult(planned=PlanToFollow(plan.model_copy(update={"artifacts": others}), {}, trusted))


def prospects_of(proposal: WindowProposal) -> PlanEconomics:
    """Returns what is known of a plan's economics before its prompt is known."""
    inputs, material = proposal.measured.inputs, proposal.measured.material
    begun = material.messages[material.current].message_id if material.messages else None
    planned = inputs.history.planned
    asked = begun is not None and material.frame is not None and material.frame.asked == begun
    return PlanEconomics(
        must_leave=proposal.fitted.new_pass and not planned,
        asked_this_turn=planned or asked,
        can_last=inputs.request.store,
    )


def most_saved(proposal: WindowProposal, task: PlannerTask, *, trusted: bool) -> Decimal | None:
    """Returns the most that a plan of these artifacts can save in USD while everything fits: all of them, or what the
    heuristic leaves to an untrusted planner, in all requests that are expected to forward this one's messages. None if
    the price is unknown."""
    measured = proposal.measured
    changeable = [artifact.content for artifact in task.artifacts if artifact.artifact_id not in task.quoted]
    tokens = measured.counting.texts(changeable) * (1 if trusted else 1 - tuning.HEURISTIC_SHARE)
    requests = cost.expected_requests(measured.answers)
    return cost.saving_of(measured.inputs.facts.prices, round(tokens), requests, proposal.fitted.tokens)


class ContextPlanning:
    """Asks planners and summarizers. Only entries of the summary cache outlive a request."""

    def __init__(
        self,
        settings: ContextSettings,
        models: InternalModels,
        summaries: SummaryCache,
        plans: SummaryCache,
        store: ports.HistoryStore,
        rest: PlannerCooldown,
    ) -> None:
        self._settings, self._models, self._store, self._rest = settings, models, store, rest
        self._summaries, self._plans = summaries, plans
        self._processor = ArtifactProcessor(settings)
        self._tasks = BackgroundTasks()

    def planners(self, request: ChatRequest, access: PlannerAccess) -> RequestPlanners | None:
        """Returns the models that this request may use; None without a planner, or in mode `simple` (guarantee §2)."""
        primary = access.deployment
        if primary is None or request.options.mode != "auto":
            return None
        config = ModelConfig.from_request(request, self._settings)
        call_budget = CallBudget.of(self._settings, self._models.clock)
        bill = OpenBill(access.scope, call_budget, access.begin)

        def served(name: str) -> InternalModel | None:
            return self._models.served(name, primary, bill, chosen=name in config.chosen)

        planner = served(config.context_planner)
        return RequestPlanners(planner, served(config.summarizer), call_budget) if planner is not None else None

    async def plan(self, request: ChatRequest, task: PlannerTask, planners: RequestPlanners) -> PlanResult:
        """Calls the planner once, and makes the summaries that its plan asks for; never raises an error."""
        planners.call_budget.begin()
        try:
            plan = await self._asked(request, task, planners.planner)
            may_be_summarized = [each for each in task.artifacts if each.artifact_id not in task.quoted]
            return await self._with_summaries(request, plan, may_be_summarized, planners)
        except agents.InternalModelFailed as failed:
            return PlanResult(fallback_reason=str(failed))
        except Exception as fault:  # noqa: BLE001 - a fault in an optional part costs quality, never the answer
            log.fault("planning_failed", fault, request_id=request.request_id)
            return PlanResult(fallback_reason="planning_failed")

    async def is_resting(self, request: ChatRequest, planners: RequestPlanners) -> bool:
        """Returns whether the planner's last answers to this tenant were unusable."""
        return await self._rest.is_resting(request.caller.tenant, planners.planner.name)

    def prospects(self, proposal: WindowProposal, task: PlannerTask, planners: RequestPlanners) -> PlanEconomics:
        """Returns what asking for this plan would cost and could save (ADR 16). Counts prompts and artifacts."""
        saving = most_saved(proposal, task, trusted=self._settings.trust_planner)
        return replace(prospects_of(proposal), price=self._processor.price(task, planners.planner), saving=saving)

    async def _asked(self, request: ChatRequest, task: PlannerTask, planner: InternalModel) -> ArtifactPlan:
        """Returns the planner's plan, or that of an equal request that is being answered."""
        tenant = request.caller.tenant

        async def share(ask: agents.InternalRequest, make: Make) -> str:
            secret, _, keep = await self._cached_as(request)
            said = ids.content_digest(jsons.canonical([ask.messages, ask.schema, ask.max_tokens]).decode())
            key = SummaryKey(tenant, "", said, planner.name, PLANNER_PROMPT_VERSION, kind="plan")
            made = await self._plans.get_or_make(
                key, partial(self._noted, tenant, planner, make), secret, read=False, keep=keep
            )
            return made.text

        return await self._processor.plan_context(task, planner, share)

    async def _noted(self, tenant: str, planner: InternalModel, make: Make) -> str:
        """Returns the planner's answer; records once whether it was usable, however many requests wait for it."""
        try:
            text = await make()
        except agents.OverBudget:  # the planner was not asked, or had no time left: that is not its fault
            raise
        except agents.InternalModelFailed:
            await self._rest.answered(tenant, planner.name, usable=False)
            raise
        await self._rest.answered(tenant, planner.name, usable=True)
        return text

    async def _with_summaries(
        self, request: ChatRequest, plan: ArtifactPlan, artifacts: Sequence[Artifact], planners: RequestPlanners
    ) -> PlanResult:
        summarized = {d.artifact_id for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE}
        chosen = [
            a for a in artifacts if a.artifact_id in summarized and a.artifact_type is not ArtifactType.CONVERSATION
        ]
        summarizer = None
        # Content that is sent upstream again without being stored is named by ranges (ADR 12); summaries have none.
        is_sayable = not request.store and request.goes_on
        if planners.summarizer is not None and chosen and not is_sayable:
            summarizer = await self._summarizer(request, planners.summarizer)
        digests = tuple(ids.content_digest(artifact.content) for artifact in chosen)
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
        """Returns the secret for a request's cache entries, and whether they may be read and stored: a dry run stores
        nothing but its bill; with `store: false` no cache is used (guarantee §2, §5)."""
        try:
            return await self._store.secret(), request.store, request.store and not request.options.dry_run
        except errors.StorageUnavailable:  # a random secret finds nothing
            return os.urandom(32), False, False

    async def close(self) -> None:
        """Waits for pending writes and deletions."""
        await self._tasks.finish()
        await self._summaries.close()
        await self._plans.close()
