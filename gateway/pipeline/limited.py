"""Requests that budgets or limits apply to: let in before the pipeline (guarantee §12.3, §12.4)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from gateway.billing.quota.gate import AdmittedRequest, Quota
from gateway.conversations.rebuild import end_user_of
from gateway.core.config.settings import Settings
from gateway.core.ids import new_id
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.ports import RateStore
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.keys import AdmissionRequest
from gateway.pipeline.pipeline import Pipeline, WholeCompletion
from gateway.pipeline.stages import PausedRequest
from gateway.pipeline.streaming import StreamedAnswer
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.quota.budget_rows import SqlBudgets
from gateway.storage.quota.local import open_rates
from gateway.storage.store import ConversationStore
from gateway.storage.stored_keys import USER_CHARS

T = TypeVar("T")
MAX_LIMITED_MODEL_CHARS = 512
"""Of the model that a relayed call names: as many as a chat may."""
CACHE_TIMES = 5
"""How many times as long as a cache's answer that of a limiter is waited for: it cannot be missed as easily."""


class LimitedPipeline:
    """The pipeline behind the budgets and limits of who asks."""

    def __init__(self, pipeline: Pipeline, quota: Quota) -> None:
        self._pipeline = pipeline
        self._quota = quota
        self.may_limit = quota.may_limit

    def of(self, caller: RequestCaller) -> "LimitedPipeline | Pipeline":
        """What a caller's requests go through: this, or the pipeline alone where no budget or limit can apply."""
        return self if self.may_limit(caller.key) else self._pipeline

    async def answer(self, request: ChatRequest) -> WholeCompletion | PausedRequest:
        """As `Pipeline.answer`.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left."""
        completion, admitted = await self._within(request, self._pipeline.answer)
        if admitted is None or isinstance(completion, PausedRequest):
            return completion
        admitted.leave()
        return replace(completion, headers={**completion.headers, **admitted.headers})

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """As `Pipeline.stream`. Until `aclose` it is one of the requests at once. Raises as `answer`."""
        answer, admitted = await self._within(request, self._pipeline.stream)
        if admitted is None or isinstance(answer, PausedRequest):
            return answer
        held, end = admitted, answer.aclose

        async def close() -> None:
            held.leave()
            await end()

        answer.headers = {**answer.headers, **admitted.headers}
        answer.aclose = close
        return answer

    async def dry_run(self, request: ChatRequest) -> dict[str, Any] | PausedRequest:
        """As `Pipeline.dry_run`: it is a request, and has no tokens. Raises as `answer`."""
        admitted = await self._admit(request)
        try:
            return await self._pipeline.dry_run(request)
        finally:
            if admitted is not None:
                admitted.leave()

    async def _within(
        self, request: ChatRequest, ask: Callable[[ChatRequest], Awaitable[T]]
    ) -> tuple[T, AdmittedRequest | None]:
        admitted = await self._admit(request)
        if admitted is None:
            return await ask(request), None
        try:
            result = await ask(request)
        except BaseException as error:
            admitted.failed(error)
            raise
        if isinstance(result, PausedRequest):
            admitted.leave()
        return result, admitted

    async def relayed(
        self, request_id: str, caller: RequestCaller, named: tuple[str, str | None], at: datetime
    ) -> AdmittedRequest | None:
        """Lets in a call that is relayed, of which no more is known than whose it is and which model and user it names;
        None where nothing limits it.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left."""
        model, user = named[0][:MAX_LIMITED_MODEL_CHARS], _cut(named[1])
        ask = AdmissionRequest(request_id, caller.tenant, caller.key_id, caller.project, user, model, at)
        return await self._quota.admit(ask, caller.key)

    async def _admit(self, request: ChatRequest) -> AdmittedRequest | None:
        caller, user = request.caller, _cut(end_user_of(request.forward, request.caller))
        who = request.request_id, caller.tenant, caller.key_id, caller.project
        admitted = await self._quota.admit(AdmissionRequest(*who, user, request.model, request.arrived_at), caller.key)
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
    transactions: DatabaseTransactions,
    store: ConversationStore,
    pipeline: Pipeline,
    hooks: TelemetryHooks,
) -> LimitedPipeline:
    """The pipeline behind budgets and limits; nothing of them is loaded before a request comes that has one."""
    clock, metrics, cache = pipeline.settlement.clock, pipeline.settlement.metrics, settings.cache
    budgets = SqlBudgets(transactions, clock, store.secret, new_id("proc_"), settings.accounting.users)

    def rates() -> RateStore:
        return open_rates(cache.url, CACHE_TIMES * cache.timeout, transactions)

    return LimitedPipeline(pipeline, Quota(settings.limits, budgets, rates, clock, metrics, hooks))
