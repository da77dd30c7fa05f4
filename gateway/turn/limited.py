"""Requests that budgets or limits apply to: let in before the pipeline, reserved before a model is asked (guarantee
§12.3, §12.4)."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from gateway.config.settings import ContextSettings
from gateway.errors import GatewayError
from gateway.history.recognition import end_user_of
from gateway.models.allowed import Ask
from gateway.models.exchange import Caller, ChatRequest
from gateway.quota.admitted import Admitted
from gateway.quota.costs import most_cost, most_output, prompt_at_most
from gateway.quota.gate import Quota
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange
from gateway.turn.pipeline import Completion, Pipeline
from gateway.turn.streaming import StreamedAnswer


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

    async def answer(self, request: ChatRequest) -> Completion:
        """As `Pipeline.answer`.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left.
        """
        async with self._admitted(request) as (admitted, let_in):
            completion = await self._pipeline.answer(let_in)
        if admitted is None:
            return completion
        return replace(completion, headers={**completion.headers, **admitted.headers})

    async def stream(self, request: ChatRequest) -> StreamedAnswer:
        """As `Pipeline.stream`. Until `aclose` it is one of the requests at once.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left.
        """
        admitted, let_in = await self._admit(request)
        if admitted is None:
            return await self._pipeline.stream(request)
        try:
            with _headed(admitted):
                answer = await self._pipeline.stream(let_in)
        except BaseException:
            admitted.leave()
            raise

        async def close() -> None:
            admitted.leave()
            await answer.aclose()

        return replace(answer, headers={**answer.headers, **admitted.headers}, aclose=close)

    async def dry_run(self, request: ChatRequest) -> dict[str, Any]:
        """As `Pipeline.dry_run`: it is a request, and has no tokens.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left.
        """
        async with self._admitted(request) as (_, let_in):
            return await self._pipeline.dry_run(let_in)

    async def relayed(self, request_id: str, caller: Caller, model: str, at: datetime) -> Admitted | None:
        """Lets in a call that is relayed, of which no more is known than whose it is; None where nothing limits it.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left.
        """
        ask = Ask(request_id, caller.tenant, caller.key_id, caller.project, None, model, at)
        return await self._quota.admit(ask, caller.key)

    async def _admit(self, request: ChatRequest) -> tuple[Admitted | None, ChatRequest]:
        caller, user = request.caller, end_user_of(request.forward)
        ask = Ask(
            request.request_id, caller.tenant, caller.key_id, caller.project, user, request.model, request.arrived_at
        )
        admitted = await self._quota.admit(ask, caller.key)
        return admitted, request if admitted is None else replace(request, admission=admitted)

    @asynccontextmanager
    async def _admitted(self, request: ChatRequest) -> AsyncIterator[tuple[Admitted | None, ChatRequest]]:
        admitted, let_in = await self._admit(request)
        if admitted is None:
            yield None, request
            return
        try:
            with _headed(admitted):
                yield admitted, let_in
        finally:
            admitted.leave()


@contextmanager
def _headed(admitted: Admitted) -> Iterator[None]:
    """Errors, too, say what is left."""
    try:
        yield
    except GatewayError as error:
        error.headers = {**error.headers, **admitted.headers}
        raise
