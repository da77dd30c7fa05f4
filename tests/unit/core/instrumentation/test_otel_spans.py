"""Spans that wait for their bill, content as the conventions write it, the SDK's lines in the log (guarantee §13.5)."""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import TelemetrySettings
from gateway.core.types.bill import CallCost
from gateway.core.types.chat import JsonAnswer, ModelDeployment
from gateway.core.types.turn import LedgerEntry
from gateway.core.types.upstreams import UpstreamRequest
from gateway.operations.otel import telemetry as otel
from gateway.operations.otel.attributes import CONTENT_LEFT_OUT, MAX_CONTENT_CHARS, of_input, of_output
from gateway.operations.otel.factory import NoTelemetry, open_telemetry
from gateway.operations.otel.sdk import QUIET_SECONDS, QuietLog
from gateway.operations.otel.telemetry import (
    CURRENT,
    ModelCalls,
    OtelInstruments,
    RequestTracing,
    ToldMetrics,
    TracedUpstream,
)
from tests.support.answers import assistant, image_part, system, text_part, tool_call, tool_result, user

Json = dict[str, Any]
SCOPE: Json = {"type": "http", "path": "/v1/chat/completions", "method": "POST", "headers": []}
USED = CallCost("primary", "m", {"prompt_tokens": 2, "completion_tokens": 1}, Decimal("0.5"), Decimal("0.5"))
BILL = LedgerEntry(
    "req_1", "t", "conv_1", None, "m", "complete", False, datetime(2026, 1, 1, tzinfo=UTC), {}, calls=(USED,)
)


class Upstream:
    """Answers, or raises what it is told to."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.fault = fault
        self.sent: list[tuple[ModelDeployment, Json, dict[str, str]]] = []
        self.answered: asyncio.Event | None = None

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        self.sent.append((deployment, request.body, request.headers))
        if self.fault is not None:
            raise self.fault
        if self.answered is not None:
            await self.answered.wait()
        return JsonAnswer({"id": "up-1", "choices": [{"finish_reason": "stop"}]}, {})

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> Any:
        raise NotImplementedError


class World:
    """Tracing that keeps its spans in memory."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = RequestTracing(provider.get_tracer("test"))
        self.inner = Upstream(fault)
        instruments = OtelInstruments(NoOpMeterProvider().get_meter("test"))
        self.upstream = TracedUpstream(self.inner, ModelCalls(self.tracing, instruments, content=False))

    @property
    def ended(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def deployment(**more: Any) -> ModelDeployment:
    return ModelDeployment("m", "m", "openai/m", "http://127.0.0.1:1", None, operator_key=False, **more)


def bill_it() -> None:
    """The bill of the request in whose context this runs."""
    current = CURRENT.get()
    assert current is not None
    current.billed(BILL)


async def test_spans_wait_for_a_bill_that_comes_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end when their work ended, and say what the bill says."""
    world, later = World(), asyncio.Event()
    monkeypatch.setattr(otel, "BILL_SECONDS", 60)

    async def bill() -> None:
        await later.wait()
        bill_it()

    tasks = []

    async def app(scope: Json, receive: Any, send: Any) -> None:
        await world.upstream.complete(deployment(), UpstreamRequest({}))
        tasks.append(asyncio.ensure_future(bill()))

    await world.tracing.app(app)(dict(SCOPE), None, None)
    assert not world.ended
    later.set()
    await asyncio.gather(*tasks)
    server, call = world.ended["POST /v1/chat/completions"], world.ended["chat m"]
    assert server.attributes["gateway.request_id"] == "req_1"
    assert call.attributes["gen_ai.usage.cost"] == 1.0
    assert call.attributes["gen_ai.conversation.id"] == "conv_1"
    assert call.start_time <= call.end_time <= server.end_time


async def test_spans_whose_bill_does_not_come_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(otel, "BILL_SECONDS", 0)

    async def app(scope: Json, receive: Any, send: Any) -> None:
        await world.upstream.complete(deployment(), UpstreamRequest({}))

    await world.tracing.app(app)(dict(SCOPE), None, None)
    await asyncio.sleep(0.01)
    assert set(world.ended) == {"POST /v1/chat/completions", "chat m"}
    monkeypatch.setattr(otel, "BILL_SECONDS", 60)
    world.exporter.clear()
    await world.tracing.app(app)(dict(SCOPE), None, None)
    world.tracing.close()
    assert set(world.ended) == {"POST /v1/chat/completions", "chat m"}


async def test_a_call_that_goes_on_without_its_client_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one with an `Idempotency-Key` does; its span ends with it."""
    world, goes_on = World(), asyncio.Event()
    monkeypatch.setattr(otel, "BILL_SECONDS", 0.001)
    tasks = []

    async def call() -> None:
        world.inner.answered = goes_on
        await world.upstream.complete(deployment(), UpstreamRequest({}))
        bill_it()

    async def app(scope: Json, receive: Any, send: Any) -> None:
        tasks.append(asyncio.ensure_future(call()))
        await asyncio.sleep(0)

    await world.tracing.app(app)(dict(SCOPE), None, None)
    await asyncio.sleep(0.02)
    assert not world.ended
    goes_on.set()
    await asyncio.gather(*tasks)
    server, done = world.ended["POST /v1/chat/completions"], world.ended["chat m"]
    assert server.attributes["gateway.status"] == "complete"
    assert done.attributes["gen_ai.usage.cost"] == 1.0
    assert server.end_time < done.end_time


async def test_of_a_request_that_nobody_traces_nothing_is_made() -> None:
    """The caller's decision goes on; no span is made for steps and calls."""
    world = World()
    scope = {**SCOPE, "headers": [(b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-00")]}

    async def app(scope: Json, receive: Any, send: Any) -> None:
        with world.tracing.step("rebuild"):
            await world.upstream.complete(deployment(), UpstreamRequest({}))

    await world.tracing.app(app)(scope, None, None)
    assert not world.ended
    ((_, _, headers),) = world.inner.sent
    assert headers["traceparent"].startswith(f"00-{'a' * 32}-")
    assert headers["traceparent"].endswith("-00")


async def test_the_purpose_of_a_call_is_that_of_its_step() -> None:
    """Calls of internal models wait for no bill."""
    world = World()
    with world.tracing.step("planner"):
        await world.upstream.complete(deployment(), UpstreamRequest({}))
    assert world.ended["chat m"].attributes["gateway.purpose"] == "planner"
    await world.upstream.complete(deployment(), UpstreamRequest({}))
    purposes = [span.attributes["gateway.purpose"] for span in world.exporter.get_finished_spans() if span.attributes]
    assert purposes == ["planner", "primary"]


async def test_an_error_has_no_words_on_a_span() -> None:
    world = World(ValueError("words"))
    with pytest.raises(ValueError, match="words"), world.tracing.step("plan"):
        await world.upstream.complete(deployment(), UpstreamRequest({}))
    for name in ("plan", "chat m"):
        span = world.ended[name]
        assert span.attributes["error.type"] == "ValueError"
        assert not span.status.is_ok
        assert "words" not in span.to_json()


async def test_litellm_is_told_of_the_trace_by_a_header_of_the_deployment() -> None:
    world = World()
    await world.upstream.complete(deployment(protocol="litellm", headers={"x-own": "1"}), UpstreamRequest({}))
    ((sent, _, _),) = world.inner.sent
    span = world.ended["chat m"].context
    assert set(sent.headers) == {"x-own", "traceparent"}
    assert sent.headers["traceparent"].startswith(f"00-{span.trace_id:032x}-{span.span_id:016x}-")


async def test_a_fault_of_telemetry_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is: what it would have told is lost."""
    world = World()

    def fault(*_: Any, **__: Any) -> Any:
        raise RuntimeError("of telemetry")

    for place in ("of_request", "of_answer", "of_bill"):
        monkeypatch.setattr(otel, place, fault)
    monkeypatch.setattr("gateway.core.instrumentation.metrics.endpoint_of", fault)
    monkeypatch.setattr(otel.CONTEXT, "inject", fault)
    answered = []

    async def app(scope: Json, receive: Any, send: Any) -> None:
        answered.append(await world.upstream.complete(deployment(), UpstreamRequest({})))

    await world.tracing.app(app)(dict(SCOPE), None, None)
    assert answered[0].body["id"] == "up-1"
    metrics = ToldMetrics([], SystemClock().now, OtelInstruments(NoOpMeterProvider().get_meter("test")))
    token = CURRENT.set(otel.RequestSpans(world.tracing.tracer.start_span("x"), dict, lambda _: None))
    try:
        metrics.billed(replace(BILL, metadata={}))
    finally:
        CURRENT.reset(token)
    assert metrics.snapshot().bills["m", "complete"] == 1


def test_content_as_the_conventions_write_it() -> None:
    call = tool_call("c1", "f")
    messages: list[Json] = [
        system("be brief"),
        user([text_part("look"), image_part("x")]),
        assistant(None, tool_calls=[call, "odd"]),
        tool_result("c1", [text_part("done")]),
    ]
    assert json.loads(of_input({"messages": messages})["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "look"}, {"type": "image_url"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "done"}]},
    ]
    answer = {"choices": [{"message": assistant("yes"), "finish_reason": "stop"}, {"message": 5}]}
    assert json.loads(of_output(answer)["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "yes"}], "finish_reason": "stop"}
    ]
    assert of_input({}) == of_output({}) == {}


def test_of_long_content_the_latest_is_exported() -> None:
    long = [user(text * (MAX_CONTENT_CHARS // 2 + 1)) for text in "ab"] + [user("c")]
    found = json.loads(of_input({"messages": long})["gen_ai.input.messages"])
    assert [each["parts"][0]["content"][:1] for each in found] == ["[", "b", "c"]
    assert found[0]["parts"] == [{"type": "text", "content": CONTENT_LEFT_OUT}]


def test_what_the_sdk_logs_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((100.0, 101.0, 100.0 + QUIET_SECONDS, 101.0 + QUIET_SECONDS))
    handler = QuietLog(lambda: next(times))
    record = logging.makeLogRecord({"msg": "Failed to export to %s", "args": ("http://me:secret@host",), "levelno": 40})
    for _ in range(4):
        handler.emit(record)
    told = [each.fields for each in caplog.records]  # type: ignore[attr-defined]
    assert [each["untold"] for each in told] == [0, 1]
    assert "secret" not in str(told)


def test_without_an_endpoint_every_part_stays_as_it_is() -> None:
    for settings in (TelemetrySettings(), TelemetrySettings(otlp_endpoint="http://x", traces=False, metrics=False)):
        telemetry, upstream = open_telemetry(settings), Upstream()
        assert isinstance(telemetry, NoTelemetry)
        assert telemetry.upstream(upstream) is upstream
