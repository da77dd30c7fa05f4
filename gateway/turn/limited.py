"""Requests that budgets or limits apply to: let in before the pipeline, reserved before a model is asked (guarantee
§12.3, §12.4)."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from gateway.base.ids import new_id
from gateway.config.settings import ContextSettings, Settings
from gateway.history.recognition import end_user_of
from gateway.models.allowed import Ask
from gateway.models.exchange import Caller, ChatRequest
from gateway.ports import RateStore
from gateway.quota.costs import most_cost, most_output, prompt_at_most
from gateway.quota.gate import Admitted, Quota
from gateway.storage.database.engine import Transactions
from gateway.storage.quota.budgets import SqlBudgets
from gateway.storage.quota.local import open_rates
from gateway.storage.secret import USER_CHARS
from gateway.storage.store import ConversationStore
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange
from gateway.turn.pipeline import Completion, Pipeline
from gateway.turn.settlement import Settlement
from gateway.turn.streaming import StreamedAnswer

MODEL_CHARS = 512
"""Of the model that a relayed call names: as many as a chat may."""
CACHE_TIMES = 5
"""How many times as long as a cache's answer that of a limiter is waited for: it cannot be missed as easily."""


class Reserve:
    """What the model is asked for may not be more than is left."""

    def __init__(self, counters: CounterRegistry, settings: ContextSettings) -> None:
        self._counters = counters
        self._settings = settings

    async def __call__(self, exchange: Exchange) -> None:
        """Reserves what a request may cost at the most: its prompt as it was counted, the longest answer, each as often
        as the tool `recall` may have it asked again, and what was paid for internal models already.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: the model must not be asked.
        """
        request, facts = exchange.request, exchange.facts
        if request.admission is None:
            return
        prompt = self._prompt(exchange)
        reserved = exchange.budget.reserved_output or self._settings.reserved_output_tokens
        output = most_output(request.forward, request.choices, facts.max_output_tokens, reserved)
        cost = most_cost(facts.prices, prompt, output, request.forward.get("service_tier"))
        if cost is not None and exchange.recall is not None:
            cost *= 1 + self._settings.recall_rounds
        await request.admission.reserve(cost, prompt + output)

    def _prompt(self, exchange: Exchange) -> int:
        built = exchange.built
        if built is not None and built.fitted.tokens:
            return prompt_at_most(built.fitted.tokens, exact=built.fitted.exact)
        counter = self._counters.counter(exchange.facts)
        tokens, exact = counter.estimate(exchange.messages)
        return prompt_at_most(tokens + counter.tools(exchange.request.forward), exact=exact)


class LimitedPipeline:
    """The pipeline behind the budgets and limits of who asks."""

    def __init__(self, pipeline: Pipeline, quota: Quota) -> None:
        self._pipeline = pipeline
        self._quota = quota
        self.may_limit = quota.may_limit

    async def answer(self, request: ChatRequest) -> Completion:
        """As `Pipeline.answer`.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left.
        """
        admitted = await self._admit(request)
        if admitted is None:
            return await self._pipeline.answer(request)
        try:
            completion = await self._pipeline.answer(request)
        except BaseException as error:
            admitted.failed(error)
            raise
        admitted.leave()
        if not (ours := admitted.headers):
            return completion
        return replace(completion, headers={**completion.headers, **ours})

    async def stream(self, request: ChatRequest) -> StreamedAnswer:
        """As `Pipeline.stream`. Until `aclose` it is one of the requests at once.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left.
        """
        admitted = await self._admit(request)
        if admitted is None:
            return await self._pipeline.stream(request)
        try:
            answer = await self._pipeline.stream(request)
        except BaseException as error:
            admitted.failed(error)
            raise

        end = answer.aclose

        async def close() -> None:
            admitted.leave()
            await end()

        answer.headers = {**answer.headers, **admitted.headers}
        answer.aclose = close
        return answer

    async def dry_run(self, request: ChatRequest) -> dict[str, Any]:
        """As `Pipeline.dry_run`: it is a request, and has no tokens.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left.
        """
        admitted = await self._admit(request)
        if admitted is None:
            return await self._pipeline.dry_run(request)
        try:
            return await self._pipeline.dry_run(request)
        finally:
            admitted.leave()

    async def relayed(
        self, request_id: str, caller: Caller, named: tuple[str, str | None], at: datetime
    ) -> Admitted | None:
        """Lets in a call that is relayed, of which no more is known than whose it is and which model and user it names;
        None where nothing limits it.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left.
        """
        model, user = named[0][:MODEL_CHARS], _cut(named[1])
        ask = Ask(request_id, caller.tenant, caller.key_id, caller.project, user, model, at)
        return await self._quota.admit(ask, caller.key)

    async def _admit(self, request: ChatRequest) -> Admitted | None:
        caller, user = request.caller, _cut(end_user_of(request.forward))
        who = request.request_id, caller.tenant, caller.key_id, caller.project
        admitted = await self._quota.admit(Ask(*who, user, request.model, request.arrived_at), caller.key)
        if admitted is not None:
            request.admissions.append(admitted)
        return admitted

    async def close(self) -> None:
        """Gives back what this process holds of budgets."""
        await self._quota.close()


def _cut(user: str | None) -> str | None:
    """A user as the ledger names it: what its client sends may be endless, and is kept for a while."""
    return user[:USER_CHARS] if user is not None else None


def open_limited(
    settings: Settings,
    transactions: Transactions,
    store: ConversationStore,
    pipeline: Pipeline,
    settlement: Settlement,
    counters: CounterRegistry,
) -> LimitedPipeline:
    """The pipeline behind budgets and limits; nothing of them is loaded before a request comes that has one."""
    clock, cache = settlement.clock, settings.cache
    budgets = SqlBudgets(transactions, clock, store.secret, new_id("proc_"), settings.accounting.users)

    def rates() -> RateStore:
        return open_rates(cache.url, CACHE_TIMES * cache.timeout, transactions)

    pipeline.reserve = Reserve(counters, settings.context)
    quota = Quota(settings.limits, budgets, rates, clock, settlement.metrics, settlement.hooks)
    return LimitedPipeline(pipeline, quota)
