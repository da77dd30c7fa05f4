"""The points at which features act on a request (ADR 35): which are reached, in which order, and with what."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import cast

import pytest

from gateway.core import jsons
from gateway.core.config.settings import Settings, StorageSettings
from gateway.core.errors import GatewayError, InternalError, UpstreamRefused, UpstreamTimeout
from gateway.core.ports import TokenCounter
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment, PromptBudget
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.stages import FeatureHooks, PreparedRequest, ReadAs, RequestFeature, RequestRun, SettledRequest
from tests.support.in_process import InProcess
from tests.support.schemas import sqlite_url
from tests.support.scripted_pipeline import FACTS, Client, Script, World

MADE = ["on_request", "on_history", "on_inputs", "on_context", "on_payload"]
REFUSED = UpstreamRefused(400, {"error": {"message": "no"}}, {})


class Noting:
    """Acts at every point, and notes that it did. `mends`: what is refused is sent again."""

    def __init__(self, *, mends: bool = False) -> None:
        self.seen: list[str] = []
        self._mends = mends

    def _sees(self, name: str) -> None:
        if self.seen[-1:] != [name]:
            self.seen.append(name)

    def feature(self) -> RequestFeature:
        def on_request(prepared: PreparedRequest) -> PreparedRequest:
            self._sees("on_request")
            assert prepared.history is None
            return replace(prepared, request=replace(prepared.request, forward={"user": "ann"}))

        async def on_history(prepared: PreparedRequest) -> PreparedRequest:
            self._sees("on_history")
            assert prepared.history is not None
            return prepared

        async def on_inputs(
            prepared: PreparedRequest, history: ConversationHistory, budget: PromptBudget
        ) -> ReadAs | None:
            self._sees("on_inputs")
            return ReadAs(replace(history, instructions=({"role": "system", "content": "Be kind."},)), None)

        def on_context(prepared: PreparedRequest) -> PreparedRequest | None:
            self._sees("on_context")
            assert prepared.context is not None
            return None

        async def on_payload(prepared: PreparedRequest, counter: TokenCounter) -> int:
            self._sees("on_payload")
            return 7

        def on_answer(prepared: PreparedRequest, answer: JsonAnswer) -> JsonAnswer:
            self._sees("on_answer")
            return answer

        def on_stream(prepared: PreparedRequest, opened: ChunkStream) -> ChunkStream:
            self._sees("on_stream")
            return opened

        def on_refusal(prepared: PreparedRequest, refusal: UpstreamRefused) -> PreparedRequest | None:
            self._sees("on_refusal")
            return prepared if self._mends else None

        async def on_reply(
            run: RequestRun, answer: JsonAnswer, again: Callable[[], Awaitable[JsonAnswer]]
        ) -> JsonAnswer:
            self._sees("on_reply")
            return answer

        def on_reply_stream(
            run: RequestRun, opened: ChunkStream, again: Callable[[], Awaitable[ChunkStream]]
        ) -> ChunkStream:
            self._sees("on_reply_stream")
            return opened

        async def on_bill(settled: SettledRequest) -> SettledRequest:
            self._sees("on_bill")
            return replace(settled, cited={"citations": [], "citations_dropped": 1})

        def on_settled(prepared: PreparedRequest) -> None:
            self._sees("on_settled")
            assert prepared.conversation_id is not None

        return RequestFeature(
            on_request=on_request,
            on_history=on_history,
            on_inputs=on_inputs,
            on_context=on_context,
            on_payload=on_payload,
            on_answer=on_answer,
            on_stream=on_stream,
            on_refusal=on_refusal,
            on_reply=on_reply,
            on_reply_stream=on_reply_stream,
            on_bill=on_bill,
            on_settled=on_settled,
        )


class Ending(Script):
    """Counts the calls that were ended."""

    ended = 0

    @asynccontextmanager
    async def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> AsyncIterator[ChunkStream]:
        async with super().stream(deployment, request) as stream:
            try:
                yield stream
            finally:
                self.ended += 1


async def world(directory: Path, feature: RequestFeature, script: Script) -> World:
    settings = Settings(storage=StorageSettings(url=sqlite_url(directory)))
    features = FeatureHooks([feature])
    made = InProcess(settings, FACTS, lambda body: {"content": "ok"}, features=features)
    return World(await made.prepare(), script)


@pytest.mark.parametrize(
    ("said", "streamed", "mends", "then"),
    [
        ([], False, False, ["on_answer", "on_reply", "on_bill", "on_settled"]),
        ([], True, False, ["on_stream", "on_reply_stream", "on_bill", "on_settled"]),
        ([REFUSED], False, True, ["on_refusal", "on_answer", "on_reply", "on_bill", "on_settled"]),
        ([REFUSED], True, True, ["on_refusal", "on_stream", "on_reply_stream", "on_bill", "on_settled"]),
        ([REFUSED], False, False, ["on_refusal", "on_bill"]),
        ([UpstreamTimeout("late")], True, False, ["on_bill"]),
    ],
    ids=["whole", "streamed", "whole, mended", "streamed, mended", "refused", "late"],
)
async def test_each_point_is_reached_in_its_order(
    tmp_path: Path, said: list[Exception], streamed: bool, mends: bool, then: list[str]
) -> None:
    noting = Noting(mends=mends)
    made = await world(tmp_path, noting.feature(), Script(*said))
    try:
        request = made.request(context={"recall": True})  # it is looked at more closely than one that surely fits
        try:
            await (made.stream(request, Client()) if streamed else made.answer(request))
        except GatewayError:
            assert "on_settled" not in then
        assert noting.seen == [*MADE, *then]
        for _, body in made.script.sent:
            assert [message["content"] for message in body["messages"]] == ["Be kind.", "hello"]
            assert body["user"] == "ann"
    finally:
        await made.inside.close()


async def test_what_a_feature_reads_otherwise_never_goes_up_as_it_came(tmp_path: Path) -> None:
    made = await world(tmp_path, Noting().feature(), Script())
    try:
        await made.answer(made.request())
        ((_, body),) = made.script.sent
        assert [message["content"] for message in body["messages"]] == ["Be kind.", "hello"]
    finally:
        await made.inside.close()


async def test_what_is_told_at_the_bill_is_in_the_answer(tmp_path: Path) -> None:
    made = await world(tmp_path, Noting().feature(), Script())
    try:
        answer = await made.answer(made.request())
        assert b'"citations_dropped":1' in jsons.dumps(answer.body)
    finally:
        await made.inside.close()


async def test_a_feature_that_fails_on_a_begun_stream_ends_the_call_and_leaves_its_bill(tmp_path: Path) -> None:
    def broken(run: RequestRun, opened: ChunkStream, again: Callable[[], Awaitable[ChunkStream]]) -> ChunkStream:
        raise ValueError("odd")

    made = await world(tmp_path, RequestFeature(on_reply_stream=broken), Ending())
    try:
        request = made.request()
        with pytest.raises(InternalError):
            await made.stream(request, Client())
        bill = await made.bill(request)
        assert bill is not None
        assert (bill.status, bill.error_code, [call.purpose for call in bill.calls]) == (
            "failed",
            "internal_error",
            ["primary"],
        )
        assert cast(Ending, made.script).ended == 1
        assert (made.pipeline._attempts.routes.answering.count, len(made.pipeline.settlement.running)) == (0, 0)
    finally:
        await made.inside.close()


@pytest.mark.parametrize("has", [True, False])
async def test_a_feature_acts_on_requests_that_have_what_it_needs(tmp_path: Path, has: bool) -> None:
    noting = Noting()
    made = await world(tmp_path, replace(noting.feature(), needs="options.cite"), Script())
    try:
        await made.answer(made.request(context={"recall": True, "cite": has}))
        assert noting.seen == ([*MADE, "on_answer", "on_reply", "on_bill", "on_settled"] if has else [])
    finally:
        await made.inside.close()


def test_a_feature_acts_where_it_says_so() -> None:
    noting = Noting().feature()
    for point in (each.name for each in fields(RequestFeature) if each.name.startswith("on_")):
        alone = RequestFeature(**{point: getattr(noting, point)})
        hooks = FeatureHooks([alone, RequestFeature(), alone])
        reached = {name: len(found) for name, found in vars(hooks).items() if name.startswith("on_") and found}
        assert reached == {point: 2}
