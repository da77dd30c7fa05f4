"""Nothing that a request holds of budgets and limits stays behind it, however it ends (guarantee §12.3, §12.4)."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.setting_sections import RateLimits, RoutingSettings, SpendBudget
from gateway.core.config.settings import Settings, StorageSettings
from gateway.core.errors import BudgetExceeded, GatewayError, UpstreamRefused, UpstreamTimeout
from gateway.core.ids import new_id
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types.chat import ChatRequest, JsonAnswer, ModelDeployment, ModelFacts, RequestCaller
from gateway.core.types.keys import KeyPolicy
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.pipeline import LimitedPipeline, build_limited_pipeline
from gateway.pipeline.stages import not_paused
from gateway.storage.quota.local import LocalRates
from tests.support.in_process import InProcess
from tests.support.marks import few_or_many
from tests.support.schemas import sqlite_url

PRICES = {"input_cost_per_token": Decimal("0.001"), "output_cost_per_token": Decimal("0.001")}
FACTS = {name: ModelFacts(name, most, 1000, most, prices=PRICES) for name, most in (("m", 8000), ("small", 1100))}
KEY = KeyPolicy(
    "key_1", "t", budgets=(SpendBudget(usd=Decimal(1000)),), limits=RateLimits(rpm=10**6, tpm=10**9, concurrent=10**6)
)


class Slow:
    """A provider that takes its time, and sometimes refuses."""

    def __init__(self) -> None:
        self.chance = random.Random(3)
        self.answered = 0
        self.written = 3

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.2:
            raise UpstreamRefused(500, {"error": {"message": "no"}}, {})
        self.answered += 1
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 2, "completion_tokens": self.written, "total_tokens": 2 + self.written}
        return JsonAnswer({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}, {})

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> Any:
        raise NotImplementedError


class Late(Slow):
    """A provider whose first answer comes too late, after it was charged."""

    asked = 0

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        self.asked += 1
        if self.asked == 1:
            raise UpstreamTimeout("too slow")
        self.chance = random.Random(0)
        return await super().complete(deployment, request)


@asynccontextmanager
async def world(directory: Path, upstream: Any) -> AsyncIterator[tuple[InProcess, LimitedPipeline]]:
    """A pipeline behind limits, in this process."""
    routing = RoutingSettings(context_window_fallbacks={"small": ("m",)}, retries=1, backoff=0.001)
    settings = Settings(storage=StorageSettings(url=sqlite_url(directory)), routing=routing)
    inside = await InProcess(settings, FACTS, lambda body: {"content": "ok"}).prepare()
    inside.pipeline._attempts.sender._upstream = upstream
    limited = build_limited_pipeline(settings, inside.transactions, inside.store, inside.pipeline, TelemetryHooks())
    try:
        yield inside, limited
    finally:
        await limited.close()
        await inside.close()


def request(settings: Settings, key: KeyPolicy = KEY, **more: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": new_id("q")}], "max_tokens": 10, **more}
    arrival = RequestArrival(new_id("req_"), datetime.now(UTC), time.monotonic(), 100)
    caller = RequestCaller("t", key_id=key.key_id, key=key)
    return parse_chat_request(body, {}, caller, settings, arrival, None)


@few_or_many(4, 100)
async def test_s12_3_requests_that_are_cancelled_anywhere_hold_nothing(tmp_path: Path, number: int) -> None:
    """So many times fifty, each left at another moment; what was billed is what is spent."""
    chance, slow = random.Random(5), Slow()
    async with world(tmp_path, slow) as (inside, limited):
        quota = limited._quota
        for _ in range(number):
            tasks = [
                asyncio.ensure_future(limited.answer(request(inside.settings, store=chance.random() < 0.2)))
                for _ in range(50)
            ]
            for task in tasks:
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                if chance.random() < 0.7:
                    task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            for each in found:
                assert not isinstance(each, BaseException) or isinstance(each, GatewayError | asyncio.CancelledError)
        await inside.pipeline.settlement.drain(30)
        assert slow.answered
        (spending,) = quota.budgets.held()
        assert spending.reserved == 0
        assert isinstance(quota.rates, LocalRates)
        assert quota.rates.running == 0
        spent = await quota.budgets._store.spent(spending.account)
        assert spending.used + spending.spent >= spent  # a read amid bills may count one twice, and forgets none
        assert spent >= slow.answered * 5 * 10**9 - 1


@pytest.mark.parametrize(("usd", "answered"), [("0.05", False), ("0.07", True)])
async def test_s12_3_what_a_failed_try_may_have_cost_is_held_beside_the_next(
    tmp_path: Path, usd: str, answered: bool
) -> None:
    """Where the budget has room for one of them alone, the model is not asked again."""
    late = Late()
    async with world(tmp_path, late) as (inside, limited):
        key = replace(KEY, budgets=(SpendBudget(usd=Decimal(usd)),))
        with nullcontext() if answered else pytest.raises(UpstreamTimeout):
            await limited.answer(request(inside.settings, key, messages=[{"role": "user", "content": "so " * 14}]))
        (spending,) = limited._quota.budgets.held()
        assert late.asked == 1 + answered
        assert spending.reserved == 0
        assert 0 < spending.used <= spending.budget


async def test_s12_3_a_dry_run_holds_nothing(tmp_path: Path) -> None:
    """Also one that another model has room for: no model is asked."""
    async with world(tmp_path, Slow()) as (inside, limited):
        long = [{"role": "system", "content": "Keep the lamps. " * 500}, {"role": "user", "content": "Who?"}]
        for model in ("m", "small"):
            asked = request(inside.settings, model=model, messages=long, context={"dry_run": True})
            told = not_paused(await limited.dry_run(asked))
            assert told["response_metadata"]["routing_path"][-1] == "openai/m"
        (spending,) = limited._quota.budgets.held()
        assert spending.reserved == 0


async def test_s12_3_a_planner_is_not_paid_for_a_budget_that_is_used_up(tmp_path: Path) -> None:
    """It is looked at before anything is read or planned."""
    slow = Slow()
    slow.written = 1000
    async with world(tmp_path, slow) as (inside, limited):
        key = replace(KEY, budgets=(SpendBudget(usd=Decimal("0.5")),))
        while True:
            try:
                await limited.answer(request(inside.settings, key))
            except BudgetExceeded:
                break
            except GatewayError:
                continue
        inside.pipeline._new_run = None  # type: ignore[method-assign, assignment]
        with pytest.raises(BudgetExceeded):
            await limited.answer(request(inside.settings, key))


async def test_s12_3_a_deployments_own_fields_are_reserved_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service tier that the configuration asks for, not the client, costs more than the budget has."""
    prices = {**PRICES, **{f"{name}_priority": 100 * price for name, price in PRICES.items()}}
    monkeypatch.setitem(FACTS, "m", replace(FACTS["m"], prices=prices))
    async with world(tmp_path, Slow()) as (inside, limited):
        key = replace(KEY, budgets=(SpendBudget(usd=Decimal(1)),))
        found = inside.pipeline._parts.router.deployment
        for parameters, refused in (({}, False), ({"service_tier": "priority"}, True)):
            monkeypatch.setattr(
                inside.pipeline._parts.router,
                "deployment",
                lambda model, caller, own=parameters: replace(found(model, caller), parameters=own),
            )
            with pytest.raises(BudgetExceeded) if refused else suppress(UpstreamRefused):
                await limited.answer(request(inside.settings, key, max_tokens=5))
