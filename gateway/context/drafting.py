"""Steps 2, 4 and 5 without any waiting: a context as it is without a plan, and then as a plan says.

All of this runs in a thread where there is much to count and to rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from gateway.accounting.cost import price_internal
from gateway.artifacts.compaction import compact
from gateway.assembly.messages import assemble
from gateway.config.settings import ContextSettings
from gateway.context.draft import FORCED, BuiltContext, ContextRequest, Draft, collect, task_of
from gateway.context.planner import NO_PLANNER, PlanMade
from gateway.context.report import compare, expected_requests, utilization_of, with_hits
from gateway.history.rebuild import lacks_earlier
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.bill import Comparison, ContextUtilizationMetadata, InternalCall
from gateway.models.exchange import ChatRequest
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Forwarded, Material, Planned, Unreduced
from gateway.planning.decision import Decision, facts_of, should_use_llm_planning
from gateway.planning.processor import ModelConfig
from gateway.planning.prompt import PlannerTask
from gateway.ports import TokenCounters
from gateway.relevance.index_cache import ContentIndexes, PassageFinder
from gateway.window.budget import Budget, Limits
from gateway.window.counting import PromptCounter
from gateway.window.fit import fit, measured
from gateway.window.fitting import Tools

# Whether what a plan saves is worth what it cost (guarantee §5: a plan is followed where it is worth its price).


PLANNING = ("planner", "summarizer")


def comparison(draft: Draft, planned: Fitted, calls: Sequence[InternalCall]) -> Comparison:
    """Compares a context without a plan with one that follows it, over all requests that will forward it.

    Args:
        calls: those of internal models that this request has made.
    """
    costs = [price_internal(call).total for call in calls if call.purpose in PLANNING]
    known = [cost for cost in costs if cost is not None]
    answers = draft.material.turns_before + sum(each.role == "assistant" for each in draft.material.messages)
    return compare(
        draft.asked.facts.prices,
        candidate_tokens=draft.fitted.tokens,
        saved_tokens=draft.fitted.tokens - planned.tokens,
        invalidated_tokens=_invalidated(draft.unreduced.forwarded, planned.forwarded, draft),
        requests=expected_requests(answers),
        planning_cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def _invalidated(before: Forwarded, now: Forwarded, draft: Draft) -> int:
    """Tokens that an earlier request forwarded and that no longer stand where a provider cached them: from the first
    message on that differs."""
    old = [
        message
        for index, message in zip(before.indexes, before.messages, strict=True)
        if index < 0 or index < draft.asked.history.stored
    ]
    if len(old) == sum(index < 0 for index in before.indexes):
        return 0  # nothing was forwarded before
    same = 0
    for one, other in zip(old, now.messages, strict=False):
        if one != other:
            break
        same += 1
    return _tokens(old[same:], draft.counting)


def _tokens(messages: Sequence[dict[str, object]], counting: PromptCounter) -> int:
    return sum(map(counting.message, messages))


SAVES_TOO_LITTLE = "plan_saves_too_little"
CHANGES_NOTHING = "plan_changes_nothing"
NOTHING_TO_PLAN = "nothing_to_plan"
NOTHING = PlanMade(fallback_reason=NOTHING_TO_PLAN)


class Drafting:
    """Makes drafts and what becomes of them; holds nothing of any request but the indexes that it keeps."""

    def __init__(self, settings: ContextSettings, counters: TokenCounters, indexes: ContentIndexes | None) -> None:
        self._settings = settings
        self._counters = counters
        self._indexes = indexes

    def begin(
        self, asked: ContextRequest, ranked: Callable[[Relevance], Relevance] | None = None
    ) -> "Draft | BuiltContext":
        """The context; where a plan is called for by somebody who can be asked, or was made before, its draft.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1), whatever a plan may say.
        """
        request, settings = asked.request, self._settings
        finder = PassageFinder(self._indexes, request.caller.tenant)
        tools = Tools(assemble=assemble, relevance=ranked(finder) if ranked else finder, compact=compact)
        material = collect(request, asked.told, asked.files, settings.document_min_chars)
        counter = self._counters.counter(asked.facts)
        counting = PromptCounter(counter, request.forward, material, max(1.0, counter.margin))
        limits = self._limits(asked.budget, request, estimated=counter.margin != 1.0)
        unreduced = measured(material, limits, counting, tools, (settings.fits_share, settings.near_limit_share))
        decision = self._decision(asked, material, unreduced)
        fitted = fit(material, limits, counting, tools, unreduced=unreduced)
        if fitted.anew and not unreduced.anew:  # room for what the question calls for: nothing stands any more
            unreduced = replace(unreduced, anew=True)
            decision = self._decision(asked, material, unreduced)
        task = PlannerTask(material.question, request.options.goal, limits.tokens, ())
        draft = Draft(asked, fitted, material, decision, counting, limits, tools, finder, unreduced, task)
        if asked.is_planned:
            return draft
        # Where more has to be read before this can be decided, the whole context is made once more.
        if not decision.use or not asked.has_planner or (fitted.anew and lacks_earlier(asked.history)):
            return self.unplanned(draft)
        task = task_of(draft) if limits.tokens is not None else task  # a window of unknown size is not managed
        return replace(draft, task=task) if task.artifacts else replace(self.unplanned(draft, NOTHING), made=None)

    def _decision(self, asked: ContextRequest, material: Material, unreduced: Unreduced) -> Decision:
        """Whether a plan is called for, and by which row of the contract's table (§5)."""
        settings = self._settings
        models = ModelConfig.from_request(asked.request, settings)
        expensive = models.is_expensive_primary(asked.facts.prices, settings.expensive_input_cost_per_token)
        facts = facts_of(
            asked.request.options,
            material,
            unreduced,
            stored=asked.history.stored,
            budget=asked.budget.tokens,
            historical_turns=settings.historical_turns,
            has_planner=asked.has_planner,
            expensive_primary=expensive,
        )
        return should_use_llm_planning(facts, settings)

    def unplanned(self, draft: Draft, made: PlanMade | None = None) -> BuiltContext:
        """The draft as it is. Where a plan was called for, `fallback_reason` says why there is none."""
        built = self._built(draft, draft.fitted)
        if made is not None:
            built.utilization.fallback_reason = made.fallback_reason
        elif draft.decision.use:
            built.utilization.fallback_reason = NO_PLANNER
        return self._with_summaries(built, made)

    def planned(self, draft: Draft, made: PlanMade, plan: Planned, spent: Sequence[InternalCall]) -> BuiltContext:
        """The draft as a plan says. Where everything fits without one, it has to be worth its price.

        Raises:
            ContextLengthExceeded: not as it says.
        """
        fitted = fit(draft.material, draft.limits, draft.counting, draft.tools, planned=plan, unreduced=draft.unreduced)
        found = comparison(draft, fitted, spent)
        why = _why_not(draft, fitted, plan, found)
        if why is None:
            built = self._with_summaries(self._built(draft, fitted), made)
            used = built.utilization
            used.llm_planning_used, used.strategy, used.fallback_reason = True, "llm_planned", made.fallback_reason
        elif why == CHANGES_NOTHING:  # records still say what a guard kept
            reason = made.fallback_reason or why
            built = self.unplanned(replace(draft, fitted=fitted), replace(made, fallback_reason=reason))
        else:
            built = self.unplanned(draft, replace(made, fallback_reason=why))
        built.utilization.economics = found.told(applied=why is None)
        return built

    def _built(self, draft: Draft, fitted: Fitted) -> BuiltContext:
        asked, material = draft.asked, draft.material
        request, history = asked.request, asked.history
        utilization = utilization_of(request, material, fitted, asked.budget, self._settings.warning_threshold)
        utilization.planning_reason = draft.decision.reason
        utilization.messages_excluded += history.unread + asked.told.left
        if (history.restored or history.unread) and utilization.strategy == "passthrough":
            utilization.strategy = "simple"
        known = len(history.attachments)
        built = BuiltContext(fitted, utilization, material, material.attached[known:], draft.counting)
        keeps = request.store and not request.options.dry_run and draft.finder.digests
        return replace(built, cached=draft.finder.digests, indexed=draft.finder) if keeps else built

    def _with_summaries(self, built: BuiltContext, made: PlanMade | None) -> BuiltContext:
        """What is known of the summaries that were asked for, used or not."""
        if made is None:
            return built
        used: ContextUtilizationMetadata = built.utilization
        used.cache_stats = {"hits": len(made.hits), "misses": made.misses}
        used.artifacts_processed = with_hits(used.artifacts_processed, made.hits)
        return replace(built, made=made, cached=tuple(dict.fromkeys((*built.cached, *made.cached))))

    def _limits(self, budget: Budget, request: ChatRequest, *, estimated: bool) -> Limits:
        """The budget, and what of it is left full when something has to leave (guarantee §4 I7)."""
        share = self._settings.low_water if request.store else 1.0
        target = int(share * budget.tokens) if budget.tokens is not None else None
        return Limits(budget.tokens, self._settings.history_share, target, estimated)


def _why_not(draft: Draft, fitted: Fitted, plan: Planned, found: Comparison) -> str | None:
    """Why a plan is not used; None if it is. Where something has to leave, it decides what, in any case."""
    if draft.fitted.anew:
        return None
    if fitted.forwarded.messages == draft.fitted.forwarded.messages:
        wants_less = any(d.strategy is not ProcessingStrategy.INCLUDE_FULL for d in plan.plan.artifacts)
        return CHANGES_NOTHING if wants_less else None
    return None if draft.decision.reason == FORCED or found.pays is not False else SAVES_TOO_LITTLE
