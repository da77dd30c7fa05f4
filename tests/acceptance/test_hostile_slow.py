"""Clients that are slow, idle, deaf or many: each costs little and ends; the others are served (guarantee §7)."""

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from httpx import TransportError

from tests.support.answers import user
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until
from tests.support.sockets import RawClient, get, post

CHAT = json.dumps({"model": "gpt-4o", "messages": [user("hello")]}).encode()
CHUNKED = "transfer-encoding: chunked"
DEADLINE = 1.0


def settings_of_impatient(_: MockUpstream) -> dict[str, Any]:
    server = {"receive_timeout": DEADLINE, "send_timeout": DEADLINE}
    return {"server": server, "files": {"serve": "on"}}


impatient = shared_gateway(settings_of_impatient)
"""A gateway that waits one second for a request, and for a reader."""


def drip(client: RawClient, data: bytes, every: float = 0.1) -> None:
    """Sends byte by byte, until the server has answered or `data` ends."""
    client.socket.settimeout(every)
    for byte in data:
        client.send(bytes([byte]))
        try:
            client._read()
        except TimeoutError:
            continue
        return


FORM = (
    b'--X\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nvision\r\n'
    b'--X\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
)
UPLOAD = (
    b"POST /v1/files HTTP/1.1\r\nhost: gateway\r\ncontent-type: multipart/form-data; boundary=X\r\n"
    b"content-length: 1000000\r\n\r\n"
)
SLOW = {
    "the request line": b"",
    "the headers": b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n",
    "the body": post(b"", "content-length: 1000", length=False),
    "a file": UPLOAD + FORM[:-20],
    "a chunk": post(b"", CHUNKED, length=False) + b"3e8\r\n",
    "a chunk size": post(b"", CHUNKED, length=False),
    "a chunk extension": post(b"", CHUNKED, length=False) + b"1;",
    "a trailer": post(b"", CHUNKED, length=False) + b"0\r\n",
}
DRIPS = {"the request line": b"POST /" + b"x" * 100, "a chunk size": b"0" * 100}


def test_s7_slow_senders_get_a_408(impatient: GatewayProcess, upstream: MockUpstream) -> None:
    """§7: whatever is dripped, the request's time is up after `server.receive_timeout`, and it ends."""

    def check(name: str) -> None:
        with RawClient(impatient) as client:
            client.send(SLOW[name])
            drip(client, DRIPS.get(name, b"x" * 100))
            client.socket.settimeout(PATIENCE)
            answer = client.answer()
            assert (answer.status, answer.error["code"]) == (408, "request_timeout"), name
            assert answer.headers["connection"] == "close", name
            assert answer.headers["x-request-id"].startswith("req_")
            client.wait_for_end()

    with ThreadPoolExecutor(len(SLOW)) as pool:
        assert len([*pool.map(check, SLOW)]) == len(SLOW)
    assert not upstream.chats


@pytest.mark.chaos
def test_s14_5_a_file_may_take_longer_while_it_comes(impatient: GatewayProcess) -> None:
    """§14.5: an upload that goes on is kept, however long it takes; what has stopped ends (see `a file` above)."""
    end = b"\r\n--X--\r\n"
    with RawClient(impatient) as client:
        client.send(UPLOAD + FORM)
        left = 1_000_000 - len(FORM) - len(end)
        for _ in range(10):
            time.sleep(0.3 * DEADLINE)
            client.send(b"x" * 20_000)
        client.send(b"x" * (left - 200_000) + end)
        answer = client.answer()
        assert answer.status == 200, answer.body
        assert json.loads(answer.body)["bytes"] == left


@pytest.mark.chaos
def test_s7_the_time_of_a_request_begins_with_it(impatient: GatewayProcess, upstream: MockUpstream) -> None:
    """§7: a connection may wait before its request, between two, and for a slow model; none is cut for the other."""
    upstream.reply(text="slow", delay_first=2 * DEADLINE)
    with RawClient(impatient) as client:
        time.sleep(0.7 * DEADLINE)
        client.send(post(CHAT)[:40])
        time.sleep(0.7 * DEADLINE)
        assert client.ask(post(CHAT)[40:]).status == 200
        time.sleep(1.5 * DEADLINE)  # kept alive
        assert client.ask(post(CHAT)).status == 200


def test_s7_idle_connections_end(impatient: GatewayProcess) -> None:
    """§7: nothing sent, or only empty lines: closed without an answer, which nobody asked for."""
    with RawClient(impatient) as silent, RawClient(impatient) as blank, RawClient(impatient) as asked:
        blank.send(b"\r\n")
        assert asked.ask(get("/health/live")).status == 200
        asked.send(b"\r\n")
        assert silent.read_all() == blank.read_all() == b""
        asked.wait_for_end()


def test_s7_slow_senders_do_not_starve_others(impatient: GatewayProcess, one_gateway: GatewayProcess) -> None:
    """§7: 300 of them at once, and a chat does not wait for their end; each of them gets its 408."""
    for gateway in (one_gateway, impatient):
        with ExitStack() as stack:
            slow = [stack.enter_context(RawClient(gateway)) for _ in range(300)]
            for number, client in enumerate(slow):
                client.send(SLOW["the body"] if number % 2 else SLOW["the headers"])
            assert gateway.post("/chat/completions", content=CHAT).status_code == 200
            if gateway is impatient:
                assert {client.answer().status for client in slow} == {408}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.chaos
def test_s7_who_never_reads_is_cut_off(impatient: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """§7, §3.6: neither memory nor the upstream call is held for a client that takes nothing of its answer."""
    piece = {"index": 0, "delta": {"content": "x" * 10_000}}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [piece]}
    upstream.reply(chunks=[chunk] * 6_000) if stream else upstream.reply(text="x" * 20_000_000)
    body = json.dumps({"model": "gpt-4o", "stream": stream, "messages": [user("much")]}).encode()
    before = impatient.rss_mb()
    with RawClient(impatient, timeout=10) as client:
        client.send(post(body))
        wait_until(lambda: "client_stalled" in impatient.log_text(), "the end of the connection")
        if stream:
            assert upstream.wait_for_chats(1)[0].disconnected.wait(PATIENCE), "the upstream call goes on"
    assert impatient.rss_mb() - before < (100 if stream else 250)
    impatient.log.write_text("")


@pytest.mark.chaos
def test_s7_a_slow_reader_is_not_cut_off(impatient: GatewayProcess, upstream: MockUpstream) -> None:
    """§7: who takes something now and then gets all of it, however long it takes."""
    text = "x" * 12_000_000
    upstream.reply(text=text)
    with RawClient(impatient) as client:
        client.send(post(CHAT))
        received = b""
        for _ in range(10):
            time.sleep(0.3 * DEADLINE)
            received += client.socket.recv(1_000_000)
        client._rest = received
        assert json.loads(client.answer().body)["choices"][0]["message"]["content"] == text


def test_s7_two_thousand_idle_connections(one_gateway: GatewayProcess) -> None:
    """§7: they cost a few kilobytes each, and requests are answered beside them."""
    before = one_gateway.rss_mb()
    with ExitStack() as stack:
        for _ in range(2_000):
            stack.enter_context(RawClient(one_gateway))
        assert one_gateway.post("/chat/completions", content=CHAT).status_code == 200
        assert one_gateway.rss_mb() - before < 60


def serves(gateway: GatewayProcess) -> bool:
    """Whether a new client gets an answer now."""
    try:
        return gateway.post("/chat/completions", content=CHAT).status_code == 200
    except TransportError:
        return False


def test_s7_more_connections_than_files(start_gateway: GatewayFactory) -> None:
    """§7: the superfluous are closed, who is connected is served, and once the flood is over everybody is."""
    gateway = start_gateway(start=False)
    gateway.spawn_only()
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (200, 200))  # long before it looks
    wait_until(lambda: serves(gateway), "the gateway")
    with ExitStack() as stack:
        first = stack.enter_context(RawClient(gateway))
        assert first.ask(get("/health/live")).status == 200
        flood = [stack.enter_context(RawClient(gateway)) for _ in range(400)]
        flood[-1].wait_for_end()
        assert first.ask(post(CHAT)).status == 200
    wait_until(lambda: serves(gateway), "the gateway's return")
    assert gateway.alive
