"""Upstreams that keep no protocol: bytes, ends and silences as no provider means them (guarantee §7)."""

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, exact, http, stored, user
from tests.support.factory import GatewayFactory, default_config
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, free_port, wait_until
from tests.support.raw import LAST, SSE_HEAD, End, Forever, Step, event, head, piece, whole

CHAT: Json = {"model": "small", "messages": [user("hello")]}
SHORT = 0.3
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
NAMED = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def said(text: str, finish: str | None = None) -> Json:
    """A chunk of a stream."""
    return {**NAMED, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


ANSWER: Json = {
    **NAMED,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one two"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
BODY = json.dumps(ANSWER).encode()
BEGUN = SSE_HEAD + event(said("one")) + event(said(" two"))
FINISH = event(said("", "stop")) + event({**NAMED, "choices": [], "usage": USAGE}) + event(b"[DONE]") + LAST
STREAM = b"data: " + b"\n\ndata: ".join(
    [*(json.dumps(each).encode() for each in (said("one"), said(" two"), said("", "stop"))), b"[DONE]\n\n"]
)


def times(upstream: MockUpstream) -> Json:
    """The default models, each to be given up after a short time."""
    models = default_config(upstream, "")["model_list"]
    return {"model_list": models, "upstream": {"connect": SHORT, "first_byte": SHORT, "idle": SHORT}}


@pytest.fixture(scope="module")
def module_hasty(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    return module_start_gateway(times(module_upstream))


@pytest.fixture
def hasty(module_hasty: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway that waits 0.3 s for anything. After the test it must be as good as before: a next request works at
    once, and no call to the upstream is left open."""
    logged = len(module_hasty.log_text())
    yield module_hasty
    wait_until(lambda: upstream.in_flight == 0, "the end of all upstream calls")
    with http(module_hasty) as client:
        after = client.post("/chat/completions", json=CHAT)
    assert (after.status_code, after.json()["choices"][0]["message"]["content"]) == (200, "echo: hello")
    assert "Traceback" not in module_hasty.log_text()[logged:], "it was no fault of our own"


def ask(gateway: GatewayProcess, streamed: bool, **more: Any) -> httpx.Response:
    with http(gateway) as client:
        return client.post("/chat/completions", json={**CHAT, "stream": streamed, **more})


def error_of(answer: httpx.Response) -> Json:
    """The error of an answer, or the one that ended its stream."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        found: Json = answer.json()["error"]
        return found
    assert "[DONE]" not in answer.text, "a dead stream never ends cleanly"
    last: Json = json.loads(answer.text.removesuffix("\n\n").rpartition("\n\n")[2].removeprefix("data: "))
    return last["error"]  # type: ignore[no-any-return]


def checked_failure(gateway: GatewayProcess, answer: httpx.Response, status: int, code: str, *, charged: bool) -> Json:
    """What every failure has in common: shape, silence about insides, and its row in the ledger."""
    error = error_of(answer)
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["code"] == code
    if not answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.status_code == status
    told = answer.text + str(answer.headers)
    if code != "upstream_unreachable":
        assert "127.0.0.1" not in told
    for secret in ("sk-upstream", "sk-test", "Traceback", "aiohttp", "httpx", "elsewhere"):
        assert secret not in told
    bill = stored(gateway, answer.headers["x-request-id"])
    cost = bill["response_metadata"]["cost"]
    assert bill["status"] == "failed"
    assert (cost["estimated"], cost["total_cost"] > 0) == (charged, charged)
    return bill


# name: steps, times the upstream is called, code, whether it may have cost something
NO_ANSWER: dict[str, tuple[tuple[Step, ...], int, int, str, bool]] = {
    "a reset": ((End.RESET,), 2, 502, "upstream_unreachable", False),
    "a close": ((End.CLOSE,), 2, 502, "upstream_unreachable", False),
    "silence": ((End.HANG,), 1, 504, "upstream_timeout", True),
    "half a status line, then a close": ((b"HTTP/1.1 2", End.CLOSE), 1, 502, "upstream_interrupted", True),
    "half a head, then a close": ((b"HTTP/1.1 200 OK\r\nconte", 0.05, End.CLOSE), 1, 502, "upstream_interrupted", True),
    "half a head, then silence": ((b"HTTP/1.1 200 OK\r\nconte", End.HANG), 1, 504, "upstream_timeout", True),
    "another protocol": ((b"SSH-2.0-OpenSSH_9.6\r\n", End.HANG), 1, 502, "upstream_invalid_response", True),
    "a TLS alert": ((b"\x15\x03\x01\x00\x02\x02\x16", End.CLOSE), 1, 502, "upstream_invalid_response", True),
    "a head that never ends": (
        (b"HTTP/1.1 200 OK\r\n", Forever(b"x-pad: " + b"y" * 4000 + b"\r\n")), 1, 502, "upstream_invalid_response", True
    ),
    "a length that is none": (
        (head(content_length="many"), End.HANG), 1, 502, "upstream_invalid_response", True
    ),
    "two lengths": ((b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 900\r\n\r\n", BODY, End.HANG), 1, 502,
                    "upstream_invalid_response", True),
    "a length below nothing": ((head(content_length="-5"), End.HANG), 1, 502, "upstream_invalid_response", True),
    "a header that is none": ((b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", End.HANG), 1, 502, "upstream_invalid_response",
                              True),
    "another HTTP": ((b"HTTP/9.9 200 OK\r\n\r\n", End.HANG), 1, 502, "upstream_invalid_response", True),
    "100 for ever": ((Forever(head(100, None), 0.02),), 1, 504, "upstream_timeout", True),
    "a head letter by letter": ((b"HTTP/1.1 200 OK\r\nx: ", Forever(b"y", 0.02)), 1, 504, "upstream_timeout", True),
    "a redirect": (
        (whole(b"", 302, location="http://elsewhere.invalid/v1"), End.KEEP), 1, 502, "upstream_invalid_response", True
    ),
    "a permanent redirect": (
        (whole(b"{}", 308, location="https://elsewhere.invalid/"), End.KEEP), 1, 502, "upstream_invalid_response", True
    ),
    "not modified": ((head(304), End.KEEP), 1, 502, "upstream_invalid_response", True),
    "no content": ((head(204), End.KEEP), 1, 502, "upstream_invalid_response", True),
    "other protocols": (
        (head(101, upgrade="websocket", connection="upgrade"), End.HANG), 1, 502, "upstream_invalid_response", True
    ),
    "invalid UTF-8": ((whole(BODY.replace(b"one", b"\xff\xfe")), End.KEEP), 1, 502, "upstream_invalid_response", True),
    "a thousand brackets": ((whole(b"[" * 100_000), End.KEEP), 1, 502, "upstream_invalid_response", True),
    "choices that are none": (
        (whole(b'{"choices": [1, "two", null]}'), End.KEEP), 1, 502, "upstream_invalid_response", True
    ),
    "compressed rubbish": (
        (whole(b"\x1f\x8b rubbish", content_encoding="gzip"), End.KEEP), 1, 502, "upstream_invalid_response", True
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", NO_ANSWER)
def test_s7_no_answer_at_all(hasty: GatewayProcess, upstream: MockUpstream, name: str, streamed: bool) -> None:
    """What is no answer is a 502, what is too late a 504; only a connection that fails before any byte is tried once
    more; a redirect is never followed."""
    steps, calls, status, code, charged = NO_ANSWER[name]
    for _ in range(calls):
        upstream.reply(raw=steps)
    answer = ask(hasty, streamed)
    assert answer.status_code == status, "nothing has been sent: the status can still say it"
    checked_failure(hasty, answer, status, code, charged=charged)
    assert (len(upstream.chats), upstream.queued) == (calls, 0)


@BOTH
@pytest.mark.parametrize("connections", [1, 2])
def test_s7_reset_at_accept(hasty: GatewayProcess, upstream: MockUpstream, streamed: bool, connections: int) -> None:
    """A connection that fails before any byte is tried once more, and only once."""
    hasty.restart()  # no connection is left that could be used instead
    upstream.clear()
    upstream.reset_at_accept(connections)
    answer = ask(hasty, streamed)
    if connections == 1:
        assert answer.status_code == 200
        assert len(upstream.chats) == 1
    else:
        checked_failure(hasty, answer, 502, "upstream_unreachable", charged=False)
        assert not upstream.chats


def test_s7_a_kept_connection_that_has_died(hasty: GatewayProcess, upstream: MockUpstream) -> None:
    """The provider closed an idle connection: the client does not notice."""
    for _ in range(3):
        upstream.reply(raw=[whole(BODY), 0.02, End.CLOSE])
        assert ask(hasty, False).status_code == 200


SMUGGLED = whole(BODY.replace(b"one two", b"of somebody else"))
LEFT_OVER: dict[str, tuple[Step, ...]] = {
    "a second answer at once": (whole(BODY) + SMUGGLED, End.KEEP),
    "a second answer later": (whole(BODY), 0.05, SMUGGLED, End.KEEP),
    "more than the length said": (whole(BODY) + b"tail", End.KEEP),
    "more than the last chunk": (head(transfer_encoding="chunked"), piece(BODY), LAST + SMUGGLED, End.KEEP),
    "an answer that wants no other": (whole(BODY, connection="close"), End.KEEP),
}


@pytest.mark.parametrize("name", LEFT_OVER)
def test_s7_nothing_is_left_over_for_the_next(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What an upstream says unasked never becomes the answer to another request."""
    upstream.reply(raw=LEFT_OVER[name])
    answer = ask(hasty, False)
    assert answer.json()["choices"] == ANSWER["choices"]
    assert upstream.last.done.wait(PATIENCE), "all has been said"
    for number in range(3):
        upstream.reply(text=f"answer {number}")
        assert ask(hasty, False).json()["choices"][0]["message"]["content"] == f"answer {number}"


CUT: dict[str, tuple[tuple[Step, ...], str]] = {
    "a length that is not reached, a close": ((head(content_length="900"), BODY[:40], End.CLOSE), "interrupted"),
    "a length that is not reached, a reset": ((head(content_length="900"), BODY[:40], 0.05, End.RESET), "interrupted"),
    "chunked without its end": ((head(transfer_encoding="chunked"), piece(BODY), End.CLOSE), "interrupted"),
    "half a chunk": ((head(transfer_encoding="chunked"), piece(BODY)[:60], End.CLOSE), "interrupted"),
    "a chunk size that is none": ((head(transfer_encoding="chunked"), b"what?\r\n", End.HANG), "invalid_response"),
    "half a JSON and a close without any length": ((head(), BODY[:40], End.CLOSE), "invalid_response"),
    "a head and silence": ((head(content_length="900"), End.HANG), "timeout"),
    "half a JSON and silence": ((head(content_length="900"), BODY[:40], End.HANG), "timeout"),
    "compressed and cut": (
        (head(content_length="900", content_encoding="gzip"), gzip.compress(BODY)[:40], End.CLOSE), "interrupted"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_s7_an_answer_cut_off(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """An answer that has begun is not asked for again, and what it may have cost is on the bill."""
    steps, code = CUT[name]
    upstream.reply(raw=steps)
    status = 504 if code == "timeout" else 502
    checked_failure(hasty, ask(hasty, False), status, f"upstream_{code}", charged=True)
    assert len(upstream.chats) == 1


STREAMS_CUT: dict[str, tuple[tuple[Step, ...], str]] = {
    "a close after an event": ((BEGUN, End.CLOSE), "interrupted"),
    "a reset after an event": ((BEGUN, 0.05, End.RESET), "interrupted"),
    "half a chunk": ((BEGUN, event(said(" three"))[:30], End.CLOSE), "interrupted"),
    "a good end of the body, not of the answer": ((BEGUN, LAST, End.KEEP), "interrupted"),
    "half an event and a good end": ((BEGUN, piece(b'data: {"id": "up'), LAST, End.KEEP), "interrupted"),
    "a close where no length was given": (
        (head(kind="text/event-stream"), b"data: %b\n\n" % json.dumps(said("one two")).encode(), End.CLOSE),
        "interrupted",
    ),
    "silence": ((BEGUN, End.HANG), "timeout"),
    "half an event and silence": ((BEGUN, piece(b'data: {"id": "up'), End.HANG), "timeout"),
    "comments for ever": ((BEGUN, Forever(piece(b": ping\n\n"), 0.05)), "timeout"),
    "lines without data for ever": ((BEGUN, Forever(piece(b"event: ping\n\n"), 0.05)), "timeout"),
    "no JSON": ((BEGUN, event(b"{'one': two}"), FINISH, End.KEEP), "invalid_response"),
    "JSON that is no object": ((BEGUN, event([1]), FINISH, End.KEEP), "invalid_response"),
    "null": ((BEGUN, event(None), FINISH, End.KEEP), "invalid_response"),
    "invalid UTF-8": ((BEGUN, event(b'{"choices": [], "x": "\xff"}'), FINISH, End.KEEP), "invalid_response"),
    "no blank line between two events": (
        (BEGUN, piece(b"data: {}\ndata: {}\n\n"), FINISH, End.KEEP), "invalid_response"
    ),
    "choices that are none": ((BEGUN, event({"choices": "x"}), FINISH, End.KEEP), "invalid_response"),
    "HTML": ((BEGUN, event(b"<html>"), FINISH, End.KEEP), "invalid_response"),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS_CUT)
def test_s7_a_stream_that_does_not_end_well(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """An SSE error event and the end, without `[DONE]`; the turn is `partial` and billed by the gateway's count."""
    steps, code = STREAMS_CUT[name]
    upstream.reply(raw=steps)
    answer = ask(hasty, True)
    assert answer.status_code == 200
    events = [exact(each.removeprefix("data: ")) for each in answer.text.removesuffix("\n\n").split("\n\n")]
    text = "".join(each["choices"][0]["delta"]["content"] for each in events[:-1])
    assert text == "one two"
    assert error_of(answer)["code"] == f"upstream_{code}"
    bill = stored(hasty, events[0]["id"])
    assert bill["status"] == "partial"
    assert bill["choices"][0]["message"]["content"] == "one two"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["usage"]["completion_tokens"] == 2
    assert len(upstream.chats) == 1


NOTHING_YET: dict[str, tuple[tuple[Step, ...], int, str]] = {
    "a head and a close": ((SSE_HEAD, End.CLOSE), 502, "upstream_interrupted"),
    "a head and a reset": ((SSE_HEAD, 0.05, End.RESET), 502, "upstream_interrupted"),
    "a head and silence": ((SSE_HEAD, End.HANG), 504, "upstream_timeout"),
    "comments for ever": ((SSE_HEAD, Forever(piece(b": PROCESSING\n\n"), 0.05)), 504, "upstream_timeout"),
    "an empty stream": ((SSE_HEAD, LAST, End.KEEP), 502, "upstream_interrupted"),
    "a stream compressed in an unknown way": (
        (head(kind="text/event-stream", content_encoding="br"), STREAM, End.CLOSE),
        502,
        "upstream_invalid_response",
    ),
    "rubbish": ((SSE_HEAD, event(b"rubbish"), End.HANG), 502, "upstream_invalid_response"),
}


@pytest.mark.parametrize("name", NOTHING_YET)
def test_s7_a_stream_that_never_says_anything(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """Comments are no answer: the first event must come within `first_byte`. Never `[DONE]`, and it is not repeated."""
    steps, status, code = NOTHING_YET[name]
    upstream.reply(raw=steps)
    checked_failure(hasty, ask(hasty, True), status, code, charged=True)
    assert len(upstream.chats) == 1


ODD: dict[str, tuple[Step, ...]] = {
    "100 and 103 before it": (head(100, None), head(103, None, link="<x>; rel=preload"), whole(BODY), End.KEEP),
    "compressed although identity was asked": (whole(gzip.compress(BODY), content_encoding="gzip"), End.KEEP),
    "no content type": (whole(BODY, kind=None), End.KEEP),
    "a wrong content type": (whole(BODY, kind="text/html; charset=latin-1"), End.KEEP),
    "status 201": (whole(BODY, 201), End.KEEP),
    "no length": (head(), BODY, End.CLOSE),
    "byte by byte": (head(content_length=str(len(BODY))), *(BODY[i : i + 1] for i in range(len(BODY))), End.KEEP),
    "a byte order mark and white space": (whole(b"\xef\xbb\xbf \n" + BODY + b"\n\n"), End.KEEP),
    "HTTP/1.0": (head().replace(b"1.1", b"1.0"), BODY, End.CLOSE),
    "bytes beyond ASCII in headers": (whole(BODY, openai_note="gr\xf6\xdfer", x_ratelimit_y="\xff"), End.KEEP),
    "chunk extensions and trailers": (
        head(transfer_encoding="chunked"), b"5;x=y\r\n" + BODY[:5] + b"\r\n", piece(BODY[5:]),
        b"0\r\nx-trailer: 1\r\n\r\n", End.KEEP,
    ),
    "a reason beyond ASCII": (whole(BODY).replace(b"Raw", b"f\xfcr"), End.KEEP),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_s7_odd_but_an_answer(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What can be understood is understood."""
    upstream.reply(raw=ODD[name])
    answer = ask(hasty, False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == ANSWER["choices"]
    assert answer.json()["response_metadata"]["usage"] == USAGE


def flushed(raw: bytes, wbits: int = 31) -> bytes:
    """Compressed, all of it there to be read, and without an end."""
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(raw) + packer.flush(zlib.Z_SYNC_FLUSH)


def packed(wbits: int, encoding: str) -> bytes:
    """A whole stream, compressed as a web server before a local model does."""
    packer = zlib.compressobj(wbits=wbits)
    content = packer.compress(STREAM) + packer.flush()
    return whole(content, kind="text/event-stream", content_encoding=encoding)


ODD_STREAMS: dict[str, tuple[Step, ...]] = {
    "silence after [DONE]": (BEGUN, event(said("", "stop")), event(b"[DONE]"), End.HANG),
    "more and more after [DONE]": (BEGUN, event(said("", "stop")), event(b"[DONE]"), Forever(event(said("no!")))),
    "a close after [DONE]": (head(kind="text/event-stream"), STREAM, End.CLOSE),
    "a wrong content type": (whole(STREAM, kind="text/plain"), End.KEEP),
    "no content type": (whole(STREAM, kind=None), End.KEEP),
    "empty data as a sign of life": (BEGUN, piece(b"data:\n\n"), piece(b"data\n\n"), FINISH, End.KEEP),
    "comments for a while": (
        SSE_HEAD, piece(b": ping\n\n"), 0.1, piece(b": ping\n\n"), 0.1, BEGUN.removeprefix(SSE_HEAD), FINISH, End.KEEP
    ),
    "gzip": (packed(31, "gzip"), End.KEEP),
    "gzip byte by byte": (
        head(kind="text/event-stream", content_encoding="gzip"),
        *(b"%c" % byte for byte in gzip.compress(STREAM)),
        End.CLOSE,
    ),
    "gzip in two members": (
        head(kind="text/event-stream", content_encoding="x-gzip"),
        *(gzip.compress(part) for part in (STREAM[:150], STREAM[150:])),
        End.CLOSE,
    ),
    "gzip that is flushed, then silence": (
        head(kind="text/event-stream", content_encoding="gzip"), flushed(STREAM), End.HANG
    ),
    "deflate": (packed(15, "deflate"), End.KEEP),
    "deflate without a header": (packed(-15, "deflate"), End.KEEP),
    "unknown fields": (BEGUN, piece(b"what: ever\n: and ever\nid\nretry: x\n\n"), FINISH, End.KEEP),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_STREAMS)
def test_s7_odd_but_a_stream(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What can be understood is understood, and nothing that comes after `[DONE]` is waited for."""
    upstream.reply(raw=ODD_STREAMS[name])
    answer = ask(hasty, True)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n"), answer.text
    events = [exact(each.removeprefix("data: ")) for each in answer.text.split("\n\n")[:-2]]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in events) == "one two"


def desert() -> tuple[bytes, bytes]:
    """The beginning of gzip'ed zeros, and 16 MB of them that may be repeated for ever in 16 KB each."""
    packer = zlib.compressobj(wbits=31)
    return tuple(packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))  # type: ignore[return-value]


DESERT = desert()
FLOODS: dict[str, tuple[bool, tuple[Step, ...]]] = {
    "an event without end": (True, (BEGUN, piece(b'data: {"x": "'), Forever(piece(b"y" * 2**18)))),
    "a comment without end": (True, (BEGUN, piece(b": "), Forever(piece(b"y" * 2**18)))),
    "a first event without end": (True, (SSE_HEAD, piece(b"data: "), Forever(piece(b"y" * 2**18)))),
    "an event of many lines": (True, (BEGUN, Forever(piece(b"data: yyyyyyyy\n" * 2**14)))),
    "JSON without end": (False, (head(transfer_encoding="chunked"), piece(b'{"x": "'), Forever(piece(b"y" * 2**18)))),
    "a page without end": (True, (head(kind="text/html"), b"<html>", Forever(b"y" * 2**18))),
    "an error without end": (False, (head(500, "text/plain"), Forever(b"y" * 2**18))),
    "a compressed flood of a stream": (
        True, (head(kind="text/event-stream", content_encoding="gzip"), DESERT[0], Forever(DESERT[1]))
    ),
    "a compressed desert": (False, (head(content_encoding="gzip"), DESERT[0], Forever(DESERT[1]))),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_s7_a_flood(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """Giant or endless: an error, in bounded memory, and the upstream call is ended."""
    streamed, steps = FLOODS[name]
    upstream.reply(raw=steps)
    before = hasty.rss_mb()
    answer = ask(hasty, streamed)
    expected = {"upstream_500"} if "error" in name else {"upstream_invalid_response", "upstream_timeout"}
    assert error_of(answer)["code"] in expected
    assert upstream.last.disconnected.wait(PATIENCE)
    assert hasty.peak_mb() - before < 260, "memory is bounded"


def silent_port() -> tuple[socket.socket, list[socket.socket]]:
    """A port whose queue of connections is full: further ones are neither made nor refused."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
        waiting.append(one)
    return listener, waiting


@pytest.fixture(scope="module")
def module_lost(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Iterator[GatewayProcess]:
    listener, waiting = silent_port()
    port, plain = listener.getsockname()[1], module_upstream.url.rpartition(":")[2]
    bases = {
        "refused": f"http://127.0.0.1:{free_port()}/v1",
        "no such name": "http://no-such-host.invalid/v1",
        "TLS on a plain port": f"https://127.0.0.1:{plain}/v1",
        "no route": f"http://127.0.0.1:{port}/v1",
        "no address": "http://:0/v1",
        "another scheme": "ftp://127.0.0.1/v1",
    }
    key = {"api_key": "sk-upstream-secret"}
    models = [
        {"model_name": n, "litellm_params": {"model": "openai/gpt-4o", "api_base": b, **key}} for n, b in bases.items()
    ]
    yield module_start_gateway({"model_list": models, "upstream": {"connect": SHORT}})
    for each in (listener, *waiting):
        each.close()


@BOTH
@pytest.mark.parametrize(
    "model", ["refused", "no such name", "TLS on a plain port", "no route", "no address", "another scheme"]
)
def test_s7_unreachable(module_lost: GatewayProcess, upstream: MockUpstream, model: str, streamed: bool) -> None:
    """No connection: 502 `upstream_unreachable`; it cost nothing."""
    upstream.strict = False
    answer = ask(module_lost, streamed, model=model)
    checked_failure(module_lost, answer, 502, "upstream_unreachable", charged=False)
    upstream.violations.clear()


@pytest.mark.parametrize("streamed", [False, True])
def test_s3_an_answer_in_another_role_is_remembered_as_the_assistants(
    one_gateway: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """§3.1, I3: nothing that no provider would take back is put in front of the next question."""
    upstream.reply(message={"role": "tool", "content": "yes"})
    body = {"model": "gpt-4o", "messages": [user("is it so?")]}
    with http(one_gateway) as client:
        first = client.post("/chat/completions", json={**body, "stream": streamed})
        conversation = first.headers["x-conversation-id"]
        second = client.post("/chat/completions", json={**body, "conversation": conversation})
    assert second.status_code == 200, second.text
    assert upstream.last.body is not None
    assert upstream.last.body["messages"][1] == {"role": "assistant", "content": "yes"}
