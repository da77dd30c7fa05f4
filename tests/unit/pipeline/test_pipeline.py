"""The way of a request through the pipeline in this process: how it is prepared, what is tried, and that there is a
bill whatever happens (guarantees §6, §12.6, §12.7). The provider is a script; the storage is a real one."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.core import errors, jsons
from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import GuardEntry, RoutingSettings
from gateway.core.config.settings import ConversationSettings, Settings, StorageSettings
from gateway.core.formats.stream_record import Chunks
from gateway.core.types.bill import InternalCall
from gateway.core.types.chat import ChunkStream, ModelDeployment, RequestCaller
from gateway.core.types.recall import RECALL_TOOL
from gateway.core.types.turn import LedgerEntry, OpenCallRow, TurnCommit
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.guards import GuardedCall, Said, Verdict
from gateway.pipeline.guards.checkpoint import GuardChain, GuardCheckpoint, GuardedUpstream, RunningGuard
from gateway.pipeline.stages import PausedRequest, SettledRequest, not_paused
from tests.support.answers import there
from tests.support.in_process import InProcess, OneProvider
from tests.support.schemas import sqlite_url
from tests.support.scripted_pipeline import FACTS, PRICES, USAGE, Client, Json, Pieces, Script, World

LATE, DOWN, CUT = errors.UpstreamTimeout("late"), errors.UpstreamUnreachable("down"), errors.UpstreamInterrupted("cut")
NO_USAGE = errors.UpstreamRefused(400, {"error": {"message": "stream_options: unknown"}}, {})
LONG = "The beacon of the northern harbour was lit by Ada Fisk. " * 40


class AtOnce(Pieces):
    """The same in one batch."""

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        yield [chunk async for batch in super().batches() for chunk in batch]


@asynccontextmanager
async def world(directory: Path, *said: Exception | Json | Pieces, **routing: Any) -> AsyncIterator[World]:
    settings = Settings(storage=StorageSettings(url=sqlite_url(directory)), routing=RoutingSettings(**routing))
    inside = await InProcess(settings, FACTS, lambda body: {"content": "ok"}).prepare()
    try:
        yield World(inside, Script(*said))
    finally:
        await inside.close()


def purposes(bill: LedgerEntry | None) -> list[tuple[str, str]]:
    assert bill is not None
    return [(call.purpose, call.model) for call in bill.calls]


async def test_a_request_is_prepared_without_being_sent(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        run = await made.pipeline._new_run(made.request())
        assert await made.pipeline._attempts.make_ready(run) is None
        prepared = run.prepared
        assert prepared.messages == [{"role": "user", "content": "hello"}]
        assert (prepared.target.model, prepared.target.number, prepared.is_fallback) == ("m", 0, False)
        assert prepared.conversation_id is not None
        assert (run.has_cost, made.script.sent, len(made.pipeline.settlement.running)) == (False, [], 1)
        made.pipeline.settlement.abandon(run)
        assert await made.bill(run.asked) is None
        assert not len(made.pipeline.settlement.running), "nobody waits for a turn that there will not be"


async def test_an_answer_is_settled_with_its_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        request = made.request()
        completion = await made.answer(request)
        bill = there(await made.bill(request))
        assert (bill.status, purposes(bill)) == ("complete", [("primary", "openai/m")])
        assert completion.cost == Decimal("0.32") == completion.body["usage"]["cost"]
        assert completion.body["response_metadata"] is not None
        assert (bill.conversation_id, bill.completion_id) == (completion.conversation_id, completion.body["id"])
        assert not len(made.pipeline.settlement.running)


@pytest.mark.parametrize(("error", "calls"), [(LATE, [("failed_try", "openai/m")]), (DOWN, [])])
async def test_s6_a_call_that_was_not_made_is_not_billed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: errors.GatewayError, calls: list[tuple[str, str]]
) -> None:
    """The storage is away when it is to be told of the next try."""
    async with world(tmp_path, error, fallbacks={"m": ["other"]}) as made:
        opens = made.inside.store.open_call

        async def away_for_another(call: OpenCallRow) -> None:
            if made.script.sent:
                raise errors.StorageUnavailable("away")
            await opens(call)

        monkeypatch.setattr(made.inside.store, "open_call", away_for_another)
        request = made.request()
        with pytest.raises(errors.StorageUnavailable):
            await made.answer(request)
        assert (len(made.script.sent), purposes(await made.bill(request))) == (1, calls)


async def test_s6_what_a_failed_try_is_known_to_have_used_is_billed(tmp_path: Path) -> None:
    cut = errors.UpstreamInterrupted("cut")
    cut.usage = USAGE
    for routing in ({"fallbacks": {"m": ["other"]}}, {}):
        async with world(tmp_path, cut, **routing) as made:
            request = made.request()
            with contextlib.nullcontext() if routing else pytest.raises(errors.UpstreamInterrupted):
                await made.answer(request)
            bill = there(await made.bill(request))
            assert (bill.calls[0].total, bill.calls[0].estimated) == (Decimal("0.32"), False)


@pytest.mark.parametrize("faults", [1, 2])
async def test_s6_a_client_that_leaves_before_its_answer_is_stored_is_billed_what_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    """Also where what is stored of that has a fault."""
    async with world(tmp_path) as made:
        recorder, raised = made.pipeline.settlement._recorder, [asyncio.CancelledError(), ValueError("odd")][:faults]
        makes = recorder.commit_of

        async def fails_first(settled: SettledRequest) -> TurnCommit:
            if raised:
                raise raised.pop(0)
            return await makes(settled)

        monkeypatch.setattr(recorder, "commit_of", fails_first)
        request = made.request()
        with pytest.raises(asyncio.CancelledError):
            await made.answer(request)
        bill = there(await made.bill(request))
        assert (bill.status, bill.error_code, bill.calls[0].total) == ("failed", "client_disconnected", Decimal("0.32"))


async def test_s6_a_fault_of_what_is_stored_charges_nothing_that_was_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, DOWN, DOWN) as made:
        recorder = made.pipeline.settlement._recorder
        makes = recorder.commit_of
        for faults in (1, 2):
            raised = [ValueError("odd")] * faults

            async def fails_first(settled: SettledRequest, raised: list[ValueError] = raised) -> TurnCommit:
                if raised:
                    raise raised.pop()
                return await makes(settled)

            monkeypatch.setattr(recorder, "commit_of", fails_first)
            request = made.request()
            with pytest.raises(errors.UpstreamUnreachable):
                await made.answer(request)
            bill = await made.bill(request)
            assert [call.total for call in bill.calls] == [0] if bill is not None else faults == 2


async def test_an_error_names_no_conversation_whose_turn_could_not_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("gateway.pipeline.stored_turn.stored_turn", broken)
    async with world(tmp_path, LATE) as made:
        request = made.request()
        with pytest.raises(errors.UpstreamTimeout) as raised:
            await made.answer(request)
        assert purposes(await made.bill(request)) == [("primary", "openai/m")]
        assert "x-conversation-id" not in raised.value.headers


async def test_s6_what_the_storage_did_not_note_of_a_call_is_noted_with_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the try in between costs nothing, so that nothing else has changed."""
    async with world(tmp_path) as made:
        noted: list[OpenCallRow] = []

        async def is_down(call: OpenCallRow) -> None:
            noted.append(call)
            raise errors.StorageUnavailable("down")

        monkeypatch.setattr(made.inside.store, "open_call", is_down)
        run = await made.pipeline._new_run(made.request(store=False))
        await made.pipeline._attempts.make_ready(run)
        for _ in range(2):
            await made.pipeline.settlement.open_calls.begin(run, run.prepared)
        assert len(noted) == 2
        made.pipeline.settlement.abandon(run)


async def test_a_fault_of_the_prefix_metric_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("gateway.pipeline.features.cache_breaks.PromptPrefixes.broken", broken)
    async with world(tmp_path) as made:
        assert (await made.answer(made.request())).body["choices"]


@pytest.mark.parametrize(("error", "calls"), [(LATE, [("primary", "openai/m")]), (DOWN, [("primary", "openai/m")])])
async def test_an_error_is_committed_before_it_is_told(
    tmp_path: Path, error: errors.GatewayError, calls: list[tuple[str, str]]
) -> None:
    async with world(tmp_path, error) as made:
        request = made.request()
        with pytest.raises(type(error)) as raised:
            await made.answer(request)
        bill = await made.bill(request)
        assert purposes(bill) == calls
        assert bill is not None
        assert (bill.status, bill.error_code) == ("failed", error.code)
        assert (bill.metadata["cost"]["total_cost"] > 0) == error.may_be_charged
        assert raised.value.headers["x-conversation-id"] == bill.conversation_id


async def test_a_stream_goes_the_same_road(tmp_path: Path) -> None:
    async with world(tmp_path, NO_USAGE, Pieces(["a", "b"], None, None)) as made:
        request, client = made.request(stream=True), Client()
        await made.stream(request, client)
        bill = await made.bill(request)
        assert (client.text, purposes(bill)) == ("ab", [("primary", "openai/m")])
        assert client.got[0]["response_metadata"]["request_id"] == request.request_id
        assert client.got[-1]["response_metadata"] is not None
        assert ["stream_options" in body for _, body in made.script.sent] == [True, False]
        assert made.pipeline._attempts.routes.answering.count == 0


@pytest.mark.parametrize(("batches", "status"), [(0, "failed"), (1, "partial")])
async def test_s6_a_client_that_leaves_in_mid_stream_is_billed_as_far_as_it_came(
    tmp_path: Path, batches: int, status: str
) -> None:
    async with world(tmp_path, Pieces(["a", "b"], None, asyncio.Event())) as made:
        request, client = made.request(stream=True), Client(leaves=batches)
        with pytest.raises(asyncio.CancelledError):
            await made.stream(request, client)
        bill = there(await made.bill(request))
        assert (bill.status, bill.error_code) == (status, "client_disconnected")
        assert (client.text, bill.metadata["cost"]["estimated"]) == ("a" * batches, True)
        assert bill.calls[0].usage["completion_tokens"] == 1
        assert (made.pipeline._attempts.routes.answering.count, len(made.pipeline.settlement.running)) == (0, 0)


async def test_s6_a_client_that_leaves_a_stream_that_came_whole_is_billed_what_it_used(tmp_path: Path) -> None:
    async with world(tmp_path, AtOnce(["a", "b"], None, None)) as made:
        request = made.request(stream=True)
        with pytest.raises(asyncio.CancelledError):
            await made.stream(request, Client(leaves=0))
        bill = there(await made.bill(request))
        assert (bill.status, bill.calls[0].total, bill.calls[0].estimated) == ("failed", Decimal("0.32"), False)


async def test_s6_a_stream_that_cannot_be_closed_has_its_bill(tmp_path: Path) -> None:
    class Stuck(Script):
        def stream(
            self, deployment: ModelDeployment, request: UpstreamRequest
        ) -> AbstractAsyncContextManager[ChunkStream]:
            @asynccontextmanager
            async def opened() -> AsyncIterator[ChunkStream]:
                async with Script.stream(self, deployment, request) as stream:
                    yield stream
                raise CUT

            return opened()

    async with world(tmp_path) as made:
        made.pipeline._attempts.sender._upstream = Stuck()
        request = made.request(stream=True)
        answer = not_paused(await made.pipeline.stream(request))
        with pytest.raises(errors.UpstreamInterrupted):
            await answer.aclose()
        assert purposes(await made.bill(request)) == [("primary", "openai/m")]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("error", [LATE, ValueError("odd")], ids=["of upstream", "of our own"])
async def test_s6_a_client_that_leaves_while_its_failure_is_written_down_is_billed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, streamed: bool
) -> None:
    """Whether or not anything of it has gone to the storage by then."""
    async with world(tmp_path, Pieces(["a"], error, None) if streamed else error) as made:
        recorder, counted, left = made.pipeline.settlement._recorder, asyncio.Event(), asyncio.Event()
        makes = recorder.commit_of

        async def waits(settled: SettledRequest) -> TurnCommit:
            counted.set()
            await left.wait()
            return await makes(settled)

        monkeypatch.setattr(recorder, "commit_of", waits)
        request = made.request(stream=streamed)
        asked = asyncio.ensure_future(made.stream(request, Client()) if streamed else made.answer(request))
        await counted.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        left.set()
        bill = await made.bill(request)
        assert purposes(bill) == [("primary", "openai/m")]
        assert bill is not None
        assert (bill.status, bill.error_code) == (
            "partial" if streamed else "failed",
            "internal_error" if isinstance(error, ValueError) else LATE.code,
        )


class Ponders:
    """A guard that looks at an answer for so long that its client leaves, or refuses it."""

    def __init__(self, *, refuses: bool) -> None:
        self.looks, self._refuses = asyncio.Event(), refuses

    async def after(self, call: GuardedCall, said: Said) -> Verdict:
        self.looks.set()
        if not self._refuses:
            await asyncio.Event().wait()
        return Verdict(refused="a word")


@pytest.mark.parametrize("refuses", [False, True], ids=["left", "refused"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_s6_what_is_reported_of_an_answer_that_a_guard_keeps_back_is_billed(
    tmp_path: Path, streamed: bool, refuses: bool
) -> None:
    async with world(tmp_path, *([AtOnce(["a", "b"], None, None)] if streamed else [])) as made:
        guard = Ponders(refuses=refuses)
        chain = GuardChain([RunningGuard(GuardEntry(name="g", timeout=60), guard, SystemClock())])
        made.pipeline._attempts.sender._upstream = GuardedUpstream(made.script, GuardCheckpoint(chain, None))
        request = made.request(stream=streamed)
        asked = asyncio.ensure_future(made.stream(request, Client()) if streamed else made.answer(request))
        await guard.looks.wait()
        if not refuses:
            asked.cancel()
        with pytest.raises((asyncio.CancelledError, errors.ContentRefused)):
            await asked
        bill = there(await made.bill(request))
        assert bill.status == ("partial" if streamed and refuses else "failed"), "its role may have gone out"
        assert (bill.calls[0].total, bill.calls[0].estimated) == (Decimal("0.32"), False)


async def test_s6_a_stream_that_breaks_off_is_stored_as_far_as_it_came(tmp_path: Path) -> None:
    async with world(tmp_path, Pieces(["a", "b"], CUT, None), fallbacks={"m": ["other"]}) as made:
        request, client = made.request(stream=True), Client()
        with pytest.raises(errors.UpstreamInterrupted):
            await made.stream(request, client)
        bill = there(await made.bill(request))
        assert (client.text, bill.status, bill.error_code) == ("ab", "partial", CUT.code)
        assert purposes(bill) == [("primary", "openai/m")], "nothing is tried once something was delivered"


async def test_a_stream_that_does_not_open_holds_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, DOWN) as made:
        with pytest.raises(errors.UpstreamUnreachable):
            await made.pipeline.stream(made.request(stream=True))
        assert made.pipeline._attempts.routes.answering.count == 0


def recalling(number: int) -> Json:
    function = {"name": RECALL_TOOL, "arguments": '{"question": "Who lit the beacon?"}'}
    return {"content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


async def test_s10_11_rounds_of_recall_are_calls_of_one_bill(tmp_path: Path) -> None:
    async with world(tmp_path, recalling(1), recalling(2), {"content": "Ada Fisk"}) as made:
        request = made.request(context={"recall": True})
        completion = await made.answer(request)
        bill = await made.bill(request)
        assert purposes(bill) == [("primary", "openai/m")] * 3
        assert bill is not None
        assert bill.metadata["context_utilization"]["recall"]["rounds"] == 2
        assert completion.body["choices"][0]["message"]["content"] == "Ada Fisk"
        assert completion.body["usage"]["prompt_tokens"] == 3 * USAGE["prompt_tokens"]
        assert [len(body["messages"]) for _, body in made.script.sent] == [1, 3, 5]


@pytest.mark.parametrize("error", [LATE, DOWN])
async def test_s10_11_a_round_of_a_stream_is_not_billed_again_where_the_next_one_fails(
    tmp_path: Path, error: errors.GatewayError
) -> None:
    called = recalling(1)["tool_calls"][0]
    async with world(tmp_path, Pieces([LONG, {"tool_calls": [{"index": 0, **called}]}], None, None), error) as made:
        request, client = made.request(stream=True, context={"recall": True}), Client()
        with pytest.raises(type(error)):
            await made.stream(request, client)
        bill = there(await made.bill(request))
        assert (client.text.strip(), bill.status) == (LONG.strip(), "partial")
        assert [call.usage["completion_tokens"] for call in bill.calls] == [USAGE["completion_tokens"], 0]
        assert (bill.calls[1].total != 0) == error.may_be_charged


async def test_s10_11_rounds_whose_usage_is_not_reported_are_counted_once(tmp_path: Path) -> None:
    """Their text is a part of the whole answer."""
    async with world(tmp_path, {**recalling(1), "content": LONG}, {"content": "Ada Fisk"}) as made:
        made.script.usage = {}
        request = made.request(context={"recall": True})
        completion = await made.answer(request)
        bill = there(await made.bill(request))
        first, last = (call.usage["completion_tokens"] for call in bill.calls)
        assert last < 5 < first
        assert completion.body["choices"][0]["message"]["content"].startswith(LONG)


async def test_a_request_that_wants_to_know_of_room_first_is_paused(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        messages = [{"role": role, "content": LONG} for role in ("user", "assistant") * 4]
        messages.append({"role": "user", "content": "Who lit it?"})
        request = made.request(messages=messages)
        options = replace(request.options, clear_above=1000, compacts=True, pauses=True)
        paused = await made.pipeline.answer(replace(request, options=options, size=40_000))
        assert isinstance(paused, PausedRequest)
        assert made.script.sent == []
        assert await made.bill(request) is None


async def test_s6_the_bill_of_a_paused_request_names_no_fault(tmp_path: Path) -> None:
    """Only internal models were called for it, and nothing went wrong."""
    async with world(tmp_path) as made:
        request = made.request()
        run = await made.pipeline._new_run(request)
        run.internal.append(InternalCall("planner", "openai/m", USAGE, PRICES))
        await made.pipeline.settlement.paused(run)
        bill = there(await made.bill(request))
        assert (bill.status, bill.error_code, purposes(bill)) == ("failed", "compaction", [("planner", "openai/m")])


def test_every_model_has_its_own_place() -> None:
    """What the tests of fallbacks rest on."""
    router = OneProvider(FACTS)
    assert router.deployment("m", RequestCaller("t")) != router.deployment("other", RequestCaller("t"))


async def test_s3_11_a_window_that_is_told_leaves_the_bound_of_turns(tmp_path: Path) -> None:
    """A prompt is fitted once more by the window that its upstream named: turns are bounded as before."""
    storage = StorageSettings(url=sqlite_url(tmp_path))
    settings = Settings(storage=storage, conversation=ConversationSettings(max_turns=2))
    inside = await InProcess(settings, dict(FACTS), lambda body: {"content": "ok"}).prepare()
    made = World(inside, Script(errors.UpstreamOverflow({}, {}, 900, 500)))
    router = made.pipeline._parts.router
    assert isinstance(router, OneProvider)

    def refused(model: str, deployment: ModelDeployment, window: int | None) -> None:
        router._by_name[model] = replace(FACTS[model], max_input_tokens=window)

    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(router, "refused", refused)
            said = [{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("user", "assistant")]
            answer = await made.answer(made.request(messages=[*said, {"role": "user", "content": "and now?"}]))
        assert len(made.script.sent) == 2
        used = json.loads(jsons.dumps(answer.body))["response_metadata"]["context_utilization"]
        assert used["left_by"] == "max_turns"
        assert "refitted_after_upstream_overflow" in used["warnings"]
    finally:
        await inside.close()
