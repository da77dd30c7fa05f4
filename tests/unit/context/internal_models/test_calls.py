"""Calls of planner and summarizer: made in the best format that their upstream takes, limited in time, on the bill."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.cost import price_internal
from gateway.context.internal_calls import (
    COUNTED_ANSWER_CHARS,
    THINKING_TOKENS,
    BilledModel,
    CallBudget,
    InternalModels,
    OpenBill,
    UnknownModelBreaker,
    text_begun,
    text_of,
)
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import (
    GatewayError,
    UpstreamInterrupted,
    UpstreamInvalidResponse,
    UpstreamRefused,
    UpstreamUnreachable,
)
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.types.agents import InternalModelFailed, InternalRequest, OverBudget
from gateway.core.types.chat import JsonAnswer, ModelDeployment, ModelFacts, RequestCaller, StreamOpener
from gateway.core.types.upstreams import CallScope, UpstreamRequest
from gateway.upstream.http.mending import refusal as refusal_of
from gateway.upstream.routing.router import ConfiguredRouter
from tests.support.answers import assistant, text_part, user
from tests.support.hand_clock import HandClock

PRIMARY = ModelDeployment("gpt-4o", "gpt-4o", "openai/gpt-4o", "http://127.0.0.1:9/v1", "sk", operator_key=False)
CHEAP = ModelDeployment("cheap", "cheap", "openai/cheap", "http://127.0.0.1:9/v1", "sk", operator_key=False)
CALLER = RequestCaller("tenant")
SCHEMA = {"name": "artifact_plan", "strict": True, "schema": {"type": "object"}}
PLAN = InternalRequest("planner", [user("plan this, please")], 100, 0.2, SCHEMA)
PRICES = {"input_cost_per_token": Decimal("0.000001"), "output_cost_per_token": Decimal("0.000002")}
Reply = Callable[[dict[str, Any]], dict[str, Any] | GatewayError]


def says(text: str, usage: dict[str, int] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"choices": [{"index": 0, "message": assistant(text)}]}
    return {**body, "usage": usage} if usage else body


def cut(text: str) -> dict[str, Any]:
    body = says(text)
    body["choices"][0]["finish_reason"] = "length"
    return body


class Upstream:
    """Replies by a function of the body; None of it hangs."""

    def __init__(self, reply: Reply | None) -> None:
        self.reply = reply
        self.bodies: list[dict[str, Any]] = []

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        body = request.body
        self.bodies.append(body)
        if self.reply is None:
            await asyncio.sleep(60)
            raise AssertionError("nobody waits that long")
        found = self.reply(body)
        if isinstance(found, GatewayError):
            raise found
        return JsonAnswer(found, {})

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        raise NotImplementedError


class Router(ConfiguredRouter):
    """Serves every internal model."""

    def __init__(self, served: ModelDeployment | None = CHEAP) -> None:
        self.served = served

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        return CHEAP

    def internal(
        self, name: str, chosen: bool, primary: ModelDeployment, caller: RequestCaller
    ) -> ModelDeployment | None:
        return self.served

    def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
        return ModelFacts(model, prices=PRICES, tokenizer="o200k_base")


CLOCK = HandClock(1000.0)


def refused(status: int, text: str) -> UpstreamRefused:
    return UpstreamRefused(status, {"error": {"message": text}}, {})


def open_bill(**limits: Any) -> OpenBill:
    """Nothing on it yet."""
    budget = CallBudget.of(ContextSettings.model_validate(limits), CLOCK)
    budget.begin()
    return OpenBill(CallScope(CALLER), budget)


def internal_models(upstream: Upstream, router: Router, metrics: GatewayMetrics | None = None) -> InternalModels:
    count_outcome = (metrics or GatewayMetrics(())).internal_call_ended
    return InternalModels(upstream, router, CounterRegistry(), CLOCK, count_outcome)


def billed(models: InternalModels, **limits: Any) -> BilledModel:
    """The model that plans, within these limits."""
    served = models.served("cheap", PRIMARY, open_bill(**limits), chosen=True)
    assert served is not None
    return served


def set_up(
    reply: Reply | None, metrics: GatewayMetrics | None = None, **limits: Any
) -> tuple[Upstream, InternalModels, BilledModel]:
    upstream = Upstream(reply)
    models = internal_models(upstream, Router(), metrics)
    return upstream, models, billed(models, **limits)


async def test_s5_a_planner_is_asked_for_its_schema_and_billed_by_its_usage() -> None:
    upstream, _, model = set_up(lambda _: says("{}", {"prompt_tokens": 10, "completion_tokens": 5}))
    assert (await model.ask(PLAN)).text == "{}"
    (body,) = upstream.bodies
    assert body["response_format"] == {"type": "json_schema", "json_schema": SCHEMA}
    assert (body["max_tokens"], body["temperature"], body["model"]) == (100, 0, "cheap")
    (call,) = model.open_bill.scope.calls
    assert (call.purpose, call.route, price_internal(call).total) == ("planner", "openai/cheap", Decimal("0.00002"))
    assert not call.estimated


async def test_s5_an_upstream_without_schemas_is_asked_for_json_and_then_for_text() -> None:
    def reply(body: dict[str, Any]) -> dict[str, Any] | GatewayError:
        kind = body.get("response_format", {}).get("type")
        text = f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this model."
        return refused(400, text) if kind else says("{}")

    upstream, _, model = set_up(reply)
    for _ in range(2):
        assert (await model.ask(PLAN)).text == "{}"
    kinds = [body.get("response_format", {}).get("type") for body in upstream.bodies]
    assert kinds == ["json_schema", "json_object", None, None]  # what was refused is not asked for again
    assert len(model.open_bill.scope.calls) == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refused(429, "quota"), "planner_over_quota"),
        (refused(400, "no"), "planner_refused"),
        (refused(500, "oops"), "planner_failed"),
        (UpstreamUnreachable("down"), "planner_unreachable"),
    ],
)
async def test_s6_a_call_that_was_refused_is_on_the_bill_and_costs_nothing(error: GatewayError, reason: str) -> None:
    _, _, model = set_up(lambda _: error)
    with pytest.raises(InternalModelFailed, match=reason):
        await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert price_internal(call).total == 0
    unpriced = replace(model, facts=replace(model.facts, prices={})).used(PLAN, None, charged=False)
    assert price_internal(unpriced).total == 0


@pytest.mark.parametrize("reply", [None, lambda _: UpstreamInterrupted("broke off")])
async def test_s5_a_call_that_is_late_or_cut_off_costs_its_prompt(reply: Reply | None) -> None:
    _, _, model = set_up(reply)
    with pytest.raises(InternalModelFailed, match=r"planner_(timeout|failed)"):
        await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert call.estimated
    assert 5 < call.usage["prompt_tokens"] < 20
    assert (price_internal(call).total or 0) > 0


async def test_s6_what_a_call_without_an_answer_reports_is_on_the_bill() -> None:
    fault = UpstreamInvalidResponse("no choices")
    fault.usage = {"prompt_tokens": 50, "completion_tokens": 700, "total_tokens": 750}
    _, _, model = set_up(lambda _: fault)
    with pytest.raises(InternalModelFailed, match="planner_failed"):
        await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert (call.usage, call.estimated) == (fault.usage, False)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"choices": [{"message": {"content": "one two th',
        b'{"type": "message", "content": [{"type": "text", "text": "one two "}, {"type": "text", "text": "th',
        b'{"output": [{"type": "reasoning"}, {"type": "message", "content": [{"text": "one two th',
    ],
)
def test_s5_of_an_answer_that_broke_off_its_text_is_known(raw: bytes) -> None:
    assert text_begun(raw) == "one two th"
    assert text_begun(raw[:12]) == text_begun(b"<html>") == text_begun(b"[1]") == ""


async def test_s6_what_reports_no_usage_is_counted() -> None:
    _, _, model = set_up(lambda _: says("one two three"))
    await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert (call.estimated, call.usage["completion_tokens"]) == (True, 3)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": {"content": 7}}]}])
async def test_s5_an_answer_of_wrong_types_is_no_text(body: dict[str, Any]) -> None:
    _, _, model = set_up(lambda _: body)
    assert (await model.ask(PLAN)).text == ""


UNKNOWN: list[tuple[int, Any]] = [
    (404, {"error": {"message": "The model `cheap` does not exist", "code": None}}),
    (404, {"object": "error", "message": "The model `cheap` does not exist.", "code": 404}),
    (404, {"error": "model 'cheap' not found"}),
    (400, {"error": {"message": "There is no such model.", "code": "model_not_found"}}),
]
PASSING: list[tuple[int, Any]] = [
    (404, b"<html>cheap hosting: nothing here</html>"),
    (404, {"error": {"message": "Invalid URL (POST /v1/chat/completions)"}}),
    (404, {"message": "no cheaper way", "path": "/v1/chat/completions"}),
    (503, {"error": {"message": "The model `cheap` is being loaded"}}),
]


@pytest.mark.parametrize(("status", "original"), UNKNOWN)
async def test_s5_a_model_that_its_upstream_does_not_know_is_not_asked_for_a_while(
    status: int, original: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells it once, until it has answered again."""
    replies: list[Any] = []
    refusal = refusal_of(status, json.dumps(original).encode(), {}, CHEAP)
    _, models, _ = set_up(lambda _: replies.pop(0) if replies else refusal)

    async def refused_once() -> None:
        with pytest.raises(InternalModelFailed, match="planner_unknown_model"):
            await billed(models).ask(PLAN)
        assert models.served("cheap", PRIMARY, open_bill(), chosen=True) is None
        CLOCK.seconds += 61

    await refused_once()
    await refused_once()
    assert [record.getMessage() for record in caplog.records] == ["internal_model_unknown"]
    replies.append(says("{}"))
    await billed(models).ask(PLAN)
    await refused_once()
    assert len(caplog.records) == 2


def test_s8_what_one_clients_account_lacks_is_asked_for_with_anothers() -> None:
    """An upstream says of a model that a key may not use what it says of one that is not there."""
    refusal = refusal_of(404, json.dumps(UNKNOWN[0][1]).encode(), {}, CHEAP)
    assert isinstance(refusal, UpstreamRefused)
    found = UnknownModelBreaker(CLOCK)
    mine, yours = (replace(CHEAP, operator_key=False, api_key=key) for key in ("sk-mine", "sk-yours"))
    elsewhere = replace(mine, headers={"openai-project": "proj-2"})
    found.refused(mine, refusal)
    assert [found.is_open(each) for each in (mine, yours, elsewhere)] == [True, False, False]
    operators = replace(CHEAP, operator_key=True)
    found.refused(operators, refusal)
    assert found.is_open(replace(operators, headers={"openai-project": "proj-2"})), "the operator's is everybody's"


@pytest.mark.parametrize(("status", "original"), PASSING)
async def test_s5_a_refusal_that_does_not_speak_of_the_model_is_a_call_that_failed(status: int, original: Any) -> None:
    """A proxy that is being restarted says 404, too: the next request asks again."""
    refusal = refusal_of(status, original if isinstance(original, bytes) else json.dumps(original).encode(), {}, CHEAP)
    _, models, model = set_up(lambda _: refusal)
    with pytest.raises(InternalModelFailed, match="planner_failed" if status >= 500 else "planner_refused"):
        await model.ask(PLAN)
    assert models.served("cheap", PRIMARY, open_bill(), chosen=True) is not None


async def test_s5_a_model_that_nobody_serves_is_none() -> None:
    models = internal_models(Upstream(None), Router(None))
    assert models.served("cheap", PRIMARY, open_bill(), chosen=False) is None


async def test_s5_a_cancelled_call_is_on_the_bill() -> None:
    _, _, model = set_up(None)
    asking = asyncio.ensure_future(model.ask(PLAN))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(model.open_bill.scope.calls) == 1


LIMITED: list[tuple[dict[str, Any], str]] = [
    ({"planning_max_tokens": 100}, "planner_over_token_ceiling"),
    ({"planning_max_cost": "0.0002"}, "planner_over_cost_ceiling"),
]


@pytest.mark.parametrize(("limits", "reason"), LIMITED)
async def test_s5_a_call_that_could_exceed_a_ceiling_is_not_made(limits: dict[str, Any], reason: str) -> None:
    """The prompt is about 12 tokens, the answer at most 100."""
    upstream, _, model = set_up(lambda _: says("{}"), **limits)
    with pytest.raises(InternalModelFailed, match=reason):
        await model.ask(PLAN)
    assert (upstream.bodies, model.open_bill.scope.calls) == ([], [])


async def test_s5_what_a_call_did_not_use_is_there_for_the_next() -> None:
    used = {"prompt_tokens": 10, "completion_tokens": 5}
    upstream, _, model = set_up(lambda _: says("{}", used), planning_max_tokens=135)
    assert [(await model.ask(PLAN)).text for _ in range(2)] == ["{}", "{}"]
    with pytest.raises(InternalModelFailed, match="planner_over_token_ceiling"):
        await model.ask(PLAN)
    assert len(model.open_bill.scope.calls) == len(upstream.bodies) == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"planning_max_tokens": 150}, "token_ceiling"), ({"planning_max_cost": "0.00015"}, "cost_ceiling"), ({}, None)],
)
async def test_s5_several_calls_are_allowed_together_or_not_at_all(limits: dict[str, Any], reason: str | None) -> None:
    """By their prompts, which are used in any case; nothing is set aside or billed by asking."""
    upstream, _, model = set_up(lambda _: says("{}", {"prompt_tokens": 10, "completion_tokens": 5}), **limits)
    asks = [replace(PLAN, max_tokens=1)] * 20
    if reason is None:
        await model.allow(asks)
    else:
        with pytest.raises(OverBudget, match=f"planner_over_{reason}"):
            await model.allow(asks)
    assert (model.open_bill.scope.calls, upstream.bodies) == ([], [])
    await model.allow(asks[:1])
    await model.ask(asks[0])
    assert len(model.open_bill.scope.calls) == 1


async def test_s5_a_model_without_a_price_is_not_called_where_money_is_limited() -> None:
    class Unpriced(Router):
        def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
            return ModelFacts(model, tokenizer="o200k_base")

    upstream = Upstream(lambda _: says("{}"))
    models = internal_models(upstream, Unpriced())
    for limits, answered in (({"planning_max_cost": "5"}, 0), ({}, 1)):
        model = billed(models, **limits)
        if answered:
            await model.ask(PLAN)
        else:
            with pytest.raises(InternalModelFailed, match="planner_price_unknown"):
                await model.ask(PLAN)
        assert len(upstream.bodies) == answered


async def test_s5_when_the_time_for_planning_is_over_nothing_is_begun() -> None:
    upstream, _, model = set_up(lambda _: says("{}"), planning_max_seconds=5)
    CLOCK.seconds += 5
    with pytest.raises(InternalModelFailed, match="planner_over_time_ceiling"):
        await model.ask(PLAN)
    assert upstream.bodies == []


async def test_s5_a_call_is_cut_off_when_the_time_for_planning_is_over() -> None:
    _, _, model = set_up(None, planning_max_seconds=0.05)
    with pytest.raises(InternalModelFailed, match="planner_over_time_ceiling"):
        await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert call.estimated


async def test_s5_a_model_that_thinks_has_room_for_it() -> None:
    thinking = replace(CHEAP, provider_model="gpt-5-mini", parameters={"max_tokens": 5, "seed": 7})
    upstream = Upstream(lambda _: says("{}"))
    await billed(internal_models(upstream, Router(thinking))).ask(PLAN)
    (body,) = upstream.bodies
    assert body["max_completion_tokens"] == 100 + THINKING_TOKENS
    assert body["seed"] == 7
    assert not {"max_tokens", "temperature"} & set(body)


async def test_s6_an_absurdly_long_answer_is_counted_by_its_beginning() -> None:
    _, _, model = set_up(lambda _: says("word " * COUNTED_ANSWER_CHARS))
    await model.ask(PLAN)
    (call,) = model.open_bill.scope.calls
    assert call.usage["completion_tokens"] == pytest.approx(COUNTED_ANSWER_CHARS, rel=0.01)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (lambda _: says('{"a": 1}'), "ok"),
        (lambda _: says("no plan"), "rubbish"),
        (lambda _: refused(429, "slow down"), "over_quota"),
        (lambda _: UpstreamUnreachable("gone"), "unreachable"),
        (None, "timeout"),
        (lambda _: cut('{"a": 1}'), "cut"),
        (lambda _: cut("no pl"), "rubbish"),
    ],
)
async def test_what_came_of_a_call_is_counted(reply: Reply | None, outcome: str) -> None:
    """In the words of `fallback_reason`, whoever asked may have read more than text in it."""
    metrics = GatewayMetrics(())
    _, _, model = set_up(reply, metrics)
    with contextlib.suppress(InternalModelFailed):
        await model.ask(replace(PLAN, is_useful=lambda text: text.startswith("{")))
    assert metrics.snapshot().internal_calls == {("planner", outcome): 1}


async def test_a_cancelled_call_and_one_over_a_ceiling_are_counted_as_such() -> None:
    metrics = GatewayMetrics(())
    models = internal_models(Upstream(None), Router(), metrics)
    for limits in ({}, {"planning_max_tokens": 100}):
        model = billed(models, **limits)
        asking = asyncio.ensure_future(model.ask(PLAN))
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.wait([asking])
    assert metrics.snapshot().internal_calls == {("planner", "cancelled"): 1, ("planner", "over_token_ceiling"): 1}


def test_s5_the_text_of_an_answer_is_all_its_parts_and_can_be_kept() -> None:
    """Some servers answer in parts; half of a surrogate pair can be neither kept in a cache nor sent to anybody."""
    parts = [{"type": "thinking", "thinking": "hm"}, text_part('{"search'), text_part('_"}')]
    assert text_of({"choices": [{"message": {"content": parts}}]}) == '{"search_"}'
    assert text_of({"choices": [{"message": {"content": "a \ud83d summary"}}]}) == "a ? summary"
    odd_ones: list[Any] = [None, 7, {}, [7, None], [text_part(7)]]
    for odd in odd_ones:
        assert text_of({"choices": [{"message": {"content": odd}}]}) == ""
