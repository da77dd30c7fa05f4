"""Chunks are handed on where their bytes arrive; what only a reader can be told is left to the reader."""

import asyncio
import json

import pytest

from gateway.core.errors import UpstreamInterrupted, UpstreamInvalidResponse, UpstreamRefused, UpstreamTimeout
from gateway.core.jsons import Json
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.answers import HttpChunkStream
from gateway.upstream.http_client import HIGH_WATER_BYTES, ConnectionOrigin, ConnectionPool, UpstreamConnection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"


class Socket:
    """A transport whose peer is the test."""

    def __init__(self) -> None:
        self.paused = False

    def write(self, data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Upstream:
    """A stream that has begun with the word "first", and what its client was given since."""

    def __init__(self, idle: float = 60.0) -> None:
        self.socket = Socket()
        self.connection = UpstreamConnection(ConnectionPool(1), ConnectionOrigin("127.0.0.1", 9, False))
        self.connection.connection_made(self.socket)  # type: ignore[arg-type]
        self.connection.begin(b"POST / HTTP/1.1\r\n\r\n")
        self.taken: list[str] = []
        self._idle = idle

    async def opened(self, encoding: bytes = b"identity") -> HttpChunkStream:
        self.connection.data_received(HEAD + b"content-encoding: " + encoding + b"\r\n\r\n")
        deployment = ModelDeployment(
            "m", "m", "openai/m", "http://127.0.0.1:9/v1", "sk-test", operator_key=True, idle_timeout=self._idle
        )
        stream = HttpChunkStream(self.connection, deployment, {})
        if encoding == b"identity":
            self.says(word("first"))
            await stream.begin()
            assert words(await anext(stream.batches())) == ["first"]
        return stream

    def says(self, *events: bytes) -> None:
        body = b"".join(events)
        self.connection.data_received(b"%x\r\n%b\r\n" % (len(body), body))

    def take(self, batch: list[Json]) -> bool:
        self.taken += words(batch)
        return self.taken[-1] != "enough"


def word(text: str) -> bytes:
    chunk = {"id": "up-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def words(batch: list[Json]) -> list[str]:
    return [chunk["choices"][0]["delta"]["content"] for chunk in batch]


async def pushing(idle: float = 60.0) -> "tuple[Upstream, HttpChunkStream, asyncio.Task[None]]":
    """A stream whose client takes what comes."""
    upstream = Upstream(idle)
    stream = await upstream.opened()
    task = asyncio.ensure_future(stream.push(upstream.take))
    await asyncio.sleep(0)
    return upstream, stream, task


async def test_no_task_is_woken_for_a_chunk() -> None:
    upstream, _, task = await pushing()
    for number in range(100):
        upstream.says(word(f"word {number}"))
        assert upstream.taken[-1] == f"word {number}", "it is there before anything else has run"
    upstream.says(word("two"), word("at once"))
    assert upstream.taken[-2:] == ["two", "at once"]
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_who_has_enough_reads_the_rest_in_order() -> None:
    upstream, stream, task = await pushing()
    upstream.says(word("enough"))
    upstream.says(word("more"))
    upstream.says(word("and more"))
    await task
    assert upstream.taken == ["enough"]
    await stream.push(upstream.take)  # what has come is to be read first
    batches = stream.batches()
    assert words(await anext(batches)) == ["first"]
    assert words(await anext(batches)) == ["more", "and more"]


async def test_a_piece_of_an_event_is_completed_by_the_reader() -> None:
    upstream, stream, task = await pushing()
    whole = word("in two")
    upstream.says(whole[:20])
    await task
    upstream.says(whole[20:])
    batches = stream.batches()
    await anext(batches)
    assert words(await anext(batches)) == ["in two"]


async def test_the_end_is_told_to_the_reader() -> None:
    upstream, stream, task = await pushing()
    upstream.says(word("last"), b"data: [DONE]\n\n")
    await task
    assert upstream.taken == ["last"]
    assert stream.done
    batches = stream.batches()
    await anext(batches)
    assert await anext(batches, None) is None


@pytest.mark.parametrize(
    ("end", "fault"),
    [(b"data: {broken\n\n", UpstreamInvalidResponse), (b"", UpstreamInterrupted), (None, UpstreamTimeout)],
    ids=["broken", "lost", "silent"],
)
async def test_what_came_before_a_fault_was_said(end: bytes | None, fault: type[Exception]) -> None:
    upstream, _, task = await pushing(idle=0.05)
    upstream.says(word("before"), *([end] if end else ()))
    if end == b"":
        upstream.connection.eof_received()
    with pytest.raises(fault):
        await task
    assert upstream.taken == ["before"]


NOTICES = [{"message": "busy"}, {"detail": "busy", "status": "x"}]


@pytest.mark.parametrize("said", NOTICES)
@pytest.mark.parametrize("behind", [b"", b"data: [DONE]\n\n", None], ids=["the end", "done", "silence"])
async def test_what_is_no_part_of_an_answer_is_why_it_does_not_go_on(said: Json, behind: bytes | None) -> None:
    upstream = Upstream(idle=0.2)
    stream = await upstream.opened()
    upstream.says(b"data: " + json.dumps(said).encode() + b"\n\n")
    if behind is not None:
        upstream.connection.data_received(b"%x\r\n%b\r\n" % (len(behind), behind) + b"0\r\n\r\n" * bool(behind))
    with pytest.raises(UpstreamRefused, match="busy"):
        async for _ in stream._rest:
            pass


@pytest.mark.parametrize("said", NOTICES)
async def test_an_answer_that_goes_on_behind_a_notice_is_whole(said: Json) -> None:
    upstream, notice = Upstream(), b"data: " + json.dumps(said).encode() + b"\n\n"
    stream = await upstream.opened()
    upstream.says(notice, word("one"), notice, word("two"), word("").replace(b"null", b'"stop"'), notice)
    upstream.connection.data_received(b"0\r\n\r\n")
    assert [text async for batch in stream._rest for text in words(batch)] == ["one", "two", ""]


async def test_a_fault_of_the_taker_is_raised_where_the_stream_is_awaited() -> None:
    upstream = Upstream()
    stream = await upstream.opened()

    def take(_: list[Json]) -> bool:
        raise ValueError("cannot be written")

    task = asyncio.ensure_future(stream.push(take))
    await asyncio.sleep(0)
    upstream.says(word("one"))
    with pytest.raises(ValueError, match="cannot be written"):
        await task


async def test_a_large_piece_does_not_leave_the_socket_paused() -> None:
    upstream, _, task = await pushing()
    upstream.says(word("x" * (HIGH_WATER_BYTES + 1)))
    assert len(upstream.taken) == 1
    assert not upstream.socket.paused
    task.cancel()


async def test_a_compressed_stream_is_only_read() -> None:
    upstream = Upstream()
    stream = await upstream.opened(b"gzip")
    await stream.push(upstream.take)
    assert upstream.taken == []
