"""Calls of a model behind guards and masking: who is told what, and who is charged (guarantees §12.9, §12.10)."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.config.setting_sections import GuardEntry, MaskingSettings
from gateway.core.errors import ContentRefused
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment, RequestCaller
from gateway.core.types.upstreams import CallScope, UpstreamRequest
from gateway.pipeline.guards import GuardedCall, Said, Verdict
from gateway.pipeline.guards.checkpoint import (
    GuardChain,
    GuardCheckpoint,
    GuardedEmbedder,
    GuardedUpstream,
    RunningGuard,
)
from gateway.pipeline.guards.masking import TenantMasker
from tests.support.hand_clock import HandClock
from tests.unit.pipeline.guards.values import SECRET
from tests.unit.retrieval.embeddings.fakes import Scripted

Json = dict[str, Any]
AT = ModelDeployment("m", "provider-m", "openai/m", "http://127.0.0.1:9", None, operator_key=True)
MAIL = "ann@example.org"


class Echo:
    """Says what it was asked last, and keeps what it was sent (an `Upstream`)."""

    def __init__(self) -> None:
        self.sent: list[UpstreamRequest] = []

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        self.sent.append(request)
        said = request.body["messages"][-1]["content"]
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return JsonAnswer({"choices": [choice], "usage": {"prompt_tokens": 3}}, {})

    @asynccontextmanager
    async def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> Any:
        self.sent.append(request)
        yield EchoStream(request.body["messages"][-1]["content"])


class EchoStream(ChunkStream):
    """The same in chunks of one character."""

    headers: dict[str, str] = {}  # noqa: RUF012 - as the protocol has it
    done = True

    def __init__(self, said: str) -> None:
        self._said = said

    async def batches(self) -> Any:
        for each in self._said:
            yield [{"choices": [{"index": 0, "delta": {"content": each}, "finish_reason": None}]}]
        yield [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]

    async def push(self, take: Any) -> None:
        return None


class Watcher:
    """A guard that keeps what it is shown, gives bodies back as other objects, and refuses a word."""

    def __init__(self) -> None:
        self.calls: list[GuardedCall] = []
        self.said: list[str] = []

    async def before(self, call: GuardedCall) -> Verdict:
        self.calls.append(call)
        return Verdict(body=json.loads(json.dumps(call.body)), cost=Decimal("0.01"))

    async def after(self, call: GuardedCall, said: Said) -> Verdict:
        self.said.append(said.text)
        return Verdict(refused="a word") if "secret" in said.text else Verdict()


class Failing:
    """A guard that cannot be asked."""

    asked = 0

    async def before(self, call: GuardedCall) -> Verdict:
        self.asked += 1
        raise RuntimeError("down")


async def _secret() -> bytes:
    return SECRET


def checkpoint(*guards: Any, masks: bool = False, clock: HandClock | None = None) -> GuardCheckpoint:
    entry = GuardEntry(name="g", on_failure="open")
    running = [RunningGuard(entry, guard, clock or HandClock()) for guard in guards]
    masker = TenantMasker(MaskingSettings(enabled=True), _secret) if masks else None
    return GuardCheckpoint(GuardChain(running) if running else None, masker)


def asks(text: str, native: Json | None = None, **scope: Any) -> UpstreamRequest:
    body = {"messages": [{"role": "user", "content": text}]}
    return UpstreamRequest(body, native, {"x-one": "1"}, CallScope(RequestCaller("a"), "req_1", **scope))


class NullDeltas(EchoStream):
    """Chunks of a server that writes a delta of nothing as null."""

    async def batches(self) -> Any:
        yield [{"choices": [{"index": 0, "delta": None, "finish_reason": None}]}]
        async for batch in super().batches():
            yield batch


async def test_s12_9_a_delta_of_null_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "EchoStream", NullDeltas)
    said = ""
    async with GuardedUpstream(Echo(), checkpoint(Watcher())).stream(AT, asks("hello")) as opened:
        async for batch in opened.batches():
            said += "".join(
                (choice["delta"] or {}).get("content") or "" for each in batch for choice in each["choices"]
            )
    assert said == "hello"


async def test_s12_9_a_guard_is_told_who_asks_and_charges_the_bill_of_that_call() -> None:
    watcher, echo = Watcher(), Echo()
    upstream = GuardedUpstream(echo, checkpoint(watcher))
    first, second = asks("hello"), asks("hello", purpose="planner")
    for request in (first, second):
        await upstream.complete(AT, request)
    told = [(call.tenant, call.request_id, call.purpose, call.model) for call in watcher.calls]
    assert told == [("a", "req_1", "primary", "provider-m"), ("a", "req_1", "planner", "provider-m")]
    assert [[call.usage["units"]["usd"] for call in each.scope.calls] for each in (first, second)] == [
        [Decimal("0.01")],
        [Decimal("0.01")],
    ]


async def test_s12_9_a_guard_sees_what_is_said_in_the_apis_own_words_and_may_make_the_body_anew() -> None:
    watcher, echo, native = Watcher(), Echo(), {"instructions": "Be brief."}
    await GuardedUpstream(echo, checkpoint(watcher)).complete(AT, asks("hello", native))
    assert "Be brief." in json.dumps(dict(watcher.calls[0].body))
    (sent,) = echo.sent
    assert (sent.body, sent.native, sent.headers) == (asks("hello").body, native, {"x-one": "1"})


async def test_s12_9_a_guard_that_cannot_be_asked_is_a_warning_of_that_request() -> None:
    request = asks("hello")
    await GuardedUpstream(Echo(), checkpoint(Failing())).complete(AT, request)
    assert request.scope.warnings == ["guard_failed:g"]


@pytest.mark.parametrize("fault", [asyncio.CancelledError, SystemExit])
async def test_s12_9_whatever_ends_a_guard_is_a_failure_of_the_guard(fault: type[BaseException]) -> None:
    """What it waited for was cancelled, not the request: only that may cancel the call."""
    request, waits = asks("hello"), asyncio.Event()

    class Ended:
        async def before(self, call: GuardedCall) -> Verdict:
            if waits.is_set():
                await asyncio.sleep(60)
            raise fault

    upstream = GuardedUpstream(Echo(), checkpoint(Ended()))
    await upstream.complete(AT, request)
    assert request.scope.warnings == ["guard_failed:g"]
    waits.set()
    task = asyncio.create_task(upstream.complete(AT, asks("hello")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("native", [None, {"instructions": f"He is {MAIL}."}])
async def test_s12_10_a_value_is_masked_on_its_way_up_and_put_back_on_its_way_down(native: Json | None) -> None:
    echo, request = Echo(), asks(f"I am {MAIL}.", native)
    upstream = GuardedUpstream(echo, checkpoint(masks=True))
    answer = await upstream.complete(AT, request)
    assert answer.body["choices"][0]["message"]["content"] == f"I am {MAIL}."
    async with upstream.stream(AT, request) as opened:
        chunks = [chunk async for batch in opened.batches() for chunk in batch]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == f"I am {MAIL}."
    assert len(echo.sent) == 2
    for sent in echo.sent:
        assert MAIL not in repr((sent.body, sent.native))
        assert (sent.native is None) is (native is None)
    assert MAIL in repr(request.body)  # what came is not changed


async def test_s12_9_an_answer_that_is_refused_is_charged_with_its_usage() -> None:
    watcher = Watcher()
    with pytest.raises(ContentRefused) as refused:
        await GuardedUpstream(Echo(), checkpoint(watcher)).complete(AT, asks("the secret"))
    assert (refused.value.usage, refused.value.may_be_charged) == ({"prompt_tokens": 3}, True)


async def test_s12_9_texts_to_embed_are_guarded_for_whoever_asks() -> None:
    watcher, model = Watcher(), Scripted(HandClock())
    scope = CallScope(RequestCaller("b"), "req_2")
    found = await GuardedEmbedder(model, checkpoint(watcher)).embed(["one", "two"], scope)
    assert len(found.vectors) == 2
    (call,) = watcher.calls
    assert (call.tenant, call.request_id, call.purpose) == ("b", "req_2", "embedder")
    assert [each.purpose for each in scope.calls] == ["guard"]
    assert scope.purpose == "primary"


async def test_s12_9_a_guard_that_fails_three_times_in_a_row_is_left_alone_for_half_a_minute() -> None:
    clock, guard = HandClock(), Failing()
    upstream, asked = GuardedUpstream(Echo(), checkpoint(guard, clock=clock)), []
    for clock.seconds in (0, 0, 0, 0, 29.9, 30, 30, 30, 30):
        await upstream.complete(AT, asks("hello"))
        asked.append(guard.asked)
    assert asked == [1, 2, 3, 3, 3, 4, 5, 6, 6], "afterwards it may fail as often again"


def repeated(said: str) -> Json:
    """What repeats an answer's text for the APIs of Anthropic and of Responses."""
    return {
        "native_blocks": [{"type": "text", "text": said}],
        "item_order": [{"role": "assistant", "content": said}],
    }


class Repeating(Echo):
    """Repeats what it says, in a stream one after the other, and when half of it was said."""

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        answer = await super().complete(deployment, request)
        message = answer.body["choices"][0]["message"]
        cited = {"citations": [{"supported_text": message["content"]}], "more": 1}
        message |= {**repeated(message["content"]), "provider_specific_fields": cited}
        return answer

    @asynccontextmanager
    async def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> Any:
        yield RepeatingStream(request.body["messages"][-1]["content"])


class RepeatingStream(EchoStream):
    async def batches(self) -> Any:
        for half in self._said.partition("; "):
            for name, value in {"content": half, **repeated(half)}.items():
                yield [{"choices": [{"index": 0, "delta": {name: value}, "finish_reason": None}]}]
        yield [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


class Kind(Watcher):
    """A guard that changes a word."""

    async def after(self, call: GuardedCall, said: Said) -> Verdict:
        return Verdict(text=said.text.replace("rude", "kind"))


@pytest.mark.parametrize("said", ["a good word; and a kind one", "a good word; and a rude one"])
async def test_s12_9_what_a_guard_changed_is_not_repeated_as_it_was(said: str) -> None:
    """For whichever API: also what came of it before. An answer that no guard changes keeps all."""
    upstream = GuardedUpstream(Repeating(), checkpoint(Kind()))
    message = (await upstream.complete(AT, asks(said))).body["choices"][0]["message"]
    async with upstream.stream(AT, asks(said)) as opened:
        deltas = [chunk["choices"][0]["delta"] async for batch in opened.batches() for chunk in batch]
    is_changed = "rude" in said
    assert message["content"] == "".join(each.get("content", "") for each in deltas) == "a good word; and a kind one"
    assert "rude" not in json.dumps([message, deltas])
    assert message["provider_specific_fields"]["more"] == 1
    for name, whole in repeated(said).items():
        assert message.get(name) == (None if is_changed else whole)
        streamed = [each for delta in deltas for each in delta.get(name, ())]
        assert streamed == (
            [] if is_changed else [one for half in said.partition("; ") for one in repeated(half)[name]]
        )
