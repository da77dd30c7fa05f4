"""Relayed calls flow in both directions as they come, and break where they break (guarantee §1, §7)."""

import contextlib
import json
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.metered_relay import audited, billed, post
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import PostgresProcess
from tests.support.process import free_port, wait_until
from tests.support.relayed import total
from tests.support.sockets import Connection, Listener, connect

HEAD = "Host: g\r\nAuthorization: Bearer sk-c\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(scope="module")
def module_listener() -> Iterator[Listener]:
    with Listener() as server:
        yield server


@pytest.fixture
def listener(module_listener: Listener) -> Iterator[Listener]:
    """The upstream; a test's connections end with it."""
    yield module_listener
    module_listener.hang_up()


@pytest.fixture(scope="module")
def gateway_before(module_start_gateway: GatewayFactory, module_listener: Listener) -> GatewayProcess:
    upstream = {"api_base": module_listener.base_url, "first_byte": 1.5, "idle": 0.7, "connect": 2}
    server = {"max_body_bytes": 1000, "receive_timeout": 1.2}
    return module_start_gateway({"model_list": [], "upstream": upstream, "server": server})


@pytest.fixture(scope="module")
def patient_gateway(module_start_gateway: GatewayFactory, module_listener: Listener) -> GatewayProcess:
    """Gives no upstream and no client up by itself within a test."""
    upstream = {"api_base": module_listener.base_url, "first_byte": 600, "idle": 600}
    server = {"max_body_bytes": 1000, "receive_timeout": 600}
    return module_start_gateway({"model_list": [], "upstream": upstream, "server": server})


@pytest.fixture
def client(gateway_before: GatewayProcess) -> Iterator[Connection]:
    connection = connect(gateway_before.port)
    yield connection
    connection.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reached(client: Connection, listener: Listener, line: str, head: str = "") -> Connection:
    """The upstream's end of a call whose head has come up."""
    client.send(f"{line} HTTP/1.1\r\n{HEAD}{head}\r\n".encode())
    server = listener.accept()
    server.read_until(b"\r\n\r\n")
    return server


def error_of(client: Connection) -> tuple[bytes, str]:
    """Status and code of the error that the client got."""
    head, _, body = client.read_until(b"}}").partition(b"\r\n\r\n")
    return head.split(b" ")[1], json.loads(body)["error"]["code"]


@pytest.mark.parametrize("chunked", [False, True])
def test_s1_an_upload_goes_up_while_it_arrives(client: Connection, listener: Listener, chunked: bool) -> None:
    """Each piece is sent on before the next one is there; the answer, too."""
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 10"
    frame = chunk if chunked else bytes
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Content-Type: audio/wav\r\n{framing}\r\n\r\n".encode())
    client.send(frame(b"first"))
    server = listener.accept()
    head = server.read_until(b"first")
    assert framing.lower().encode() in head.lower()
    client.send(frame(b"again"))
    if chunked:
        client.send(b"0\r\n\r\n")
    server.read_until(b"again")
    server.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"part one"))
    client.read_until(b"part one")
    server.send(chunk(b"part two") + b"0\r\n\r\n")
    client.read_until(b"0\r\n\r\n")


def test_s1_expect_100_continue(client: Connection, listener: Listener) -> None:
    """The client is told to go on; `Expect` is between it and the gateway."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode())
    client.read_until(b"HTTP/1.1 100 Continue\r\n\r\n")
    client.send(b"body")
    server = listener.accept()
    assert b"expect:" not in server.read_until(b"body").lower()
    server.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
    answer = client.read_until(b"\r\n\r\nok")
    assert b"HTTP/1.1 201 " in answer
    assert b"HTTP/1.1 103" not in answer


@pytest.mark.parametrize("answer", [EVENTS + chunk(b"data: 1\n\n"), SIZED + b"12345"])
def test_s7_an_answer_cut_in_the_middle_is_cut_for_the_client(
    client: Connection, gateway_before: GatewayProcess, listener: Listener, answer: bytes
) -> None:
    """A dead stream never ends cleanly: the connection breaks, without the end that framing promises."""
    server = reached(client, listener, "POST /v1/completions", "Content-Length: 0\r\n")
    server.send(answer)
    client.read_until(answer[-9:].removesuffix(b"\r\n"))
    server.close()
    assert not client.read_all().endswith(b"\n0\r\n\r\n")
    assert b"Traceback" not in gateway_before.log_text().encode()


@pytest.mark.parametrize("answer", [EVENTS, EVENTS + chunk(b"data: 1\n\n"), SIZED + b"1", SIZED])
def test_s7_an_answer_that_falls_silent(client: Connection, listener: Listener, answer: bytes) -> None:
    """`first_byte` until the first piece, then `idle` between two: the call is given up on both sides."""
    server = reached(client, listener, "POST /v1/completions", "Content-Length: 0\r\n")
    server.send(answer)
    server.wait_for_end()
    assert not client.read_all().endswith(b"\n0\r\n\r\n")


def test_s7_no_answer_in_time(client: Connection, listener: Listener) -> None:
    """504 `upstream_timeout` after `upstream.first_byte`, counted from the end of the upload."""
    client.send(f"POST /v1/embeddings HTTP/1.1\r\n{HEAD}Content-Length: 2\r\n\r\n{{".encode())
    server = listener.accept()
    server.read_until(b"{")
    client.send(b"}")
    assert error_of(client) == (b"504", "upstream_timeout")
    server.wait_for_end()


def test_s7_unreachable(start_gateway: GatewayFactory) -> None:
    """502 `upstream_unreachable`, with an upload and without."""
    gateway = start_gateway({"model_list": [], "upstream": {"api_base": f"http://127.0.0.1:{free_port()}/v1"}})
    with gateway.http() as plain:
        for answer in (plain.get("/files"), plain.post("/files", content=iter([b"a", b"b"]))):
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_s7_a_connection_that_fails_before_any_byte_is_tried_once_more(
    client: Connection, listener: Listener, method: str
) -> None:
    """Once, where nothing of a body would be lost."""
    client.send(f"{method} /v1/things HTTP/1.1\r\n{HEAD}\r\n".encode())
    for _ in range(2):
        server = listener.accept()
        server.read_until(b"\r\n\r\n")
        server.close()
    assert error_of(client) == (b"502", "upstream_unreachable")


@pytest.mark.parametrize("begun", [False, True])
def test_s7_a_client_that_leaves_cancels_the_upstream(
    patient_gateway: GatewayProcess, listener: Listener, begun: bool
) -> None:
    """At once, before and after the answer has begun: no timeout of the gateway is awaited."""
    client = connect(patient_gateway.port)
    server = reached(client, listener, "POST /v1/completions", "Content-Length: 0\r\n")
    if begun:
        server.send(EVENTS + chunk(b"data: 1\n\n"))
        client.read_until(b"data: 1")
    client.close()
    server.wait_for_end()


def test_s7_a_client_that_leaves_while_it_sends(client: Connection, listener: Listener) -> None:
    """The upstream never takes a part for the whole."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk(b"part"))
    server = listener.accept()
    server.read_until(b"part")
    client.close()
    server.wait_for_end()
    assert not server.received.endswith(b"0\r\n\r\n")


def test_s7_a_slow_upload(client: Connection, listener: Listener) -> None:
    """408 after `server.receive_timeout`, however steadily it drips."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Content-Length: 900\r\n\r\n".encode())
    server = listener.accept()
    for _ in range(8):
        client.send(b"x")
        time.sleep(0.2)
    assert error_of(client) == (b"408", "request_timeout")
    server.wait_for_end()


def test_s7_an_upload_that_is_too_large(client: Connection, listener: Listener) -> None:
    """413 by the declared length before anything goes up, else as soon as it is too long."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Content-Length: 1001\r\n\r\n".encode())
    assert error_of(client) == (b"413", "request_too_large")


def test_s7_an_upload_that_becomes_too_large(client: Connection, listener: Listener) -> None:
    """The upstream sees it broken off, never whole."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk(b"x" * 900))
    server = listener.accept()
    server.read_until(b"x" * 900)
    client.send(chunk(b"y" * 101))
    assert error_of(client) == (b"413", "request_too_large")
    server.wait_for_end()
    assert b"0\r\n\r\n" not in server.received


def test_s7_an_answer_before_the_upload_is_done(client: Connection, listener: Listener) -> None:
    """An early refusal comes down, and the upload is given up."""
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Content-Length: 900\r\n\r\nbegin".encode())
    server = listener.accept()
    server.read_until(b"begin")
    error = b'{"error": {"message": "too large", "type": "x", "param": null, "code": "early"}}'
    server.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: %d\r\n\r\n%b" % (len(error), error))
    assert error_of(client) == (b"413", "early")


def test_s1_an_answer_that_begins_before_the_upload_is_done(client: Connection, listener: Listener) -> None:
    """Both flow at once, and the upload goes on to its end."""
    client.send(f"POST /v1/echo HTTP/1.1\r\n{HEAD}Content-Length: 10\r\n\r\n".encode() + b"begin")
    server = listener.accept()
    server.read_until(b"begin")
    server.send(EVENTS + chunk(b"first"))
    client.read_until(b"first")
    client.send(b"fin")
    server.read_until(b"beginfin")
    server.send(chunk(b"second"))
    client.read_until(b"second")
    client.send(b"al")
    server.read_until(b"beginfinal")
    server.send(b"0\r\n\r\n")
    assert client.read_until(b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_s1_the_head_of_an_answer_does_not_wait_for_its_body(client: Connection, listener: Listener) -> None:
    """Many clients show that something has begun, and only then read on."""
    server = reached(client, listener, "GET /v1/files")
    server.send(EVENTS)
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    server.send(chunk(b"first") + b"0\r\n\r\n")
    assert client.read_until(b"0\r\n\r\n").endswith(chunk(b"first") + b"0\r\n\r\n")


def test_s7_an_upload_that_breaks_after_the_answer_has_begun(
    patient_gateway: GatewayProcess, listener: Listener
) -> None:
    """Too late for a status: the connection breaks on both sides, and no timeout is awaited."""
    client = connect(patient_gateway.port)
    client.send(f"POST /v1/echo HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk(b"begin"))
    server = listener.accept()
    server.read_until(b"begin")
    server.send(EVENTS + chunk(b"first"))
    client.read_until(b"first")
    client.send(chunk(b"x" * 1000))
    server.wait_for_end()
    assert not client.read_all().endswith(b"\n0\r\n\r\n")
    client.close()


def test_s1_an_answer_without_a_length(client: Connection, listener: Listener) -> None:
    """An HTTP/1.0 upstream ends its body with the connection: that is a whole answer."""
    server = reached(client, listener, "GET /v1/files")
    server.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")
    client.read_until(b"all of it")
    server.close()
    assert client.read_until(b"0\r\n\r\n").lower().count(b"transfer-encoding: chunked") == 1


def test_s7_an_upstream_that_stops_taking_the_upload(module_start_gateway: GatewayFactory, listener: Listener) -> None:
    """`idle` is the longest that upstream may leave a piece lying; what waits here is bounded."""
    upstream = {"api_base": listener.base_url, "idle": 0.7}
    gateway = module_start_gateway({"model_list": [], "upstream": upstream})
    client, before = connect(gateway.port), gateway.rss_mb()
    client.send(f"POST /v1/files HTTP/1.1\r\n{HEAD}Content-Length: 60000000\r\n\r\n".encode())
    with contextlib.suppress(TimeoutError, ConnectionError):
        client.socket.settimeout(3)
        client.socket.sendall(b"x" * 60_000_000)
    listener.accept()
    assert error_of(client) == (b"504", "upstream_timeout")
    client.close()
    assert gateway.rss_mb() - before < 30


def test_s7_what_is_not_http(client: Connection, listener: Listener) -> None:
    """An answer that is none: 502."""
    server = reached(client, listener, "GET /v1/files")
    server.send(b"HTTP/9.9 abc\r\n\r\n")
    assert error_of(client)[0] == b"502"


def test_s1_an_endless_answer_costs_no_memory(gateway_before: GatewayProcess, listener: Listener) -> None:
    """A body that nobody reads is not read from upstream either: what is held is bounded."""
    before = gateway_before.rss_mb()
    client = connect(gateway_before.port)
    server = reached(client, listener, "GET /v1/files/f/content")
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    server.socket.settimeout(0.4)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 200_000_000:
            sent += server.socket.send(b"x" * 1_000_000)
    client.close()
    assert sent < 100_000_000
    assert gateway_before.rss_mb() - before < 30


# What relayed calls cost stands on the ledger (guarantee §13.8).


def test_s13_8_a_request_that_never_came_whole_has_no_bill(
    own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """No model was asked: the client left while it sent."""
    before = len(audited(own_key_gateway))
    opened = upstream.connections_opened
    head = "POST /v1/embeddings HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer sk-test\r\nContent-Length: 100\r\n\r\n"
    client = connect(own_key_gateway.port)
    client.send(head.encode() + b'{"model": "m", ')
    wait_until(lambda: upstream.connections_opened > opened, "what is passed on")
    client.close()
    wait_until(lambda: "client_disconnected" in own_key_gateway.log_text(), "the end of the call")
    answer = post(own_key_gateway, "/embeddings", {"model": "text-embedding-3-small", "input": "x"})
    billed(own_key_gateway, answer)
    assert len(audited(own_key_gateway)) == before + 1


@pytest.mark.chaos
def test_s13_8_storage_that_is_away_costs_a_call_nothing(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, upstream: MockUpstream
) -> None:
    """The answer comes; the bill waits in memory until it can be written."""
    config = {"storage": {"url": chaos_postgres.new_database(), "timeout": 0.4}, "model_list": []}
    served = {"api_base": upstream.base_url, "api_key": "sk-operator"}
    gateway = start_gateway({**config, "upstream": served})
    asked = {"model": "text-embedding-3-small", "input": "one two"}
    billed(gateway, post(gateway, "/embeddings", asked))
    chaos_postgres.kill9()
    answer = post(gateway, "/embeddings", asked)
    assert answer.json()["usage"]["prompt_tokens"] == 2
    wait_until(lambda: "bill_not_recorded_yet" in gateway.log_text(), "the waiting bill")
    chaos_postgres.start()
    assert total(billed(gateway, answer)) == 2 * Decimal("2e-08")
