"""What a provider's connection can do: break, stall, go down, and notice that the peer is gone."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.process import PATIENCE, wait_until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "one two three"}], "stream": True}


@pytest.fixture
def mock() -> Iterator[MockUpstream]:
    with MockUpstream() as server:
        yield server


@pytest.fixture
def http(mock: MockUpstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mock.base_url, timeout=5) as client:
        yield client


@pytest.mark.parametrize("reset", [False, True])
def test_cuts(mock: MockUpstream, http: httpx.Client, reset: bool) -> None:
    got: list[str] = []

    def read() -> None:
        with http.stream("POST", "/chat/completions", json=CHAT) as response:
            got.extend(line for line in response.iter_lines() if line)

    mock.reply(cut_after=3, chunk_delay=0.01, reset=reset)
    with pytest.raises(httpx.ReadError if reset else httpx.RemoteProtocolError):
        read()
    assert len(got) == 3
    mock.reply(cut_after=-1, reset=reset)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        read()
    mock.reply(cut_after=10, reset=reset)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        http.post("/chat/completions", json=CHAT | {"stream": False})
    assert all(record.done.wait(PATIENCE) and not record.disconnected.is_set() for record in mock.chats)


def test_a_stall_lasts_until_the_peer_hangs_up(mock: MockUpstream, http: httpx.Client) -> None:
    mock.reply(stall_after=2)
    with http.stream("POST", "/chat/completions", json=CHAT) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        wait_until(lambda: mock.last.pieces_sent == 2, "two events")
        assert mock.in_flight == 1
        assert not mock.last.disconnected.is_set()
    assert mock.last.disconnected.wait(PATIENCE)
    assert mock.last.done.wait(PATIENCE)
    assert mock.last.pieces_sent == 2


def test_a_gate_opens_and_a_stall_is_released(mock: MockUpstream, http: httpx.Client) -> None:
    gate = threading.Event()
    mock.reply(gate=gate, stall_after=1)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, "/chat/completions", json=CHAT)
        mock.wait_for_chats(1)
        assert mock.last.pieces_sent == 0
        gate.set()
        wait_until(lambda: mock.last.pieces_sent == 1, "one event")
        assert not answer.done()
        mock.release()
        assert answer.result(5).text.endswith("data: [DONE]\n\n")


def test_a_peer_that_does_not_wait_is_noticed_before_the_answer(mock: MockUpstream, http: httpx.Client) -> None:
    for script in (Reply(delay_first=60), Reply(delay_body=60), Reply(gate=threading.Event())):
        mock.clear()
        mock.handler = lambda _, script=script: script
        with pytest.raises(httpx.ReadTimeout):
            http.post("/chat/completions", json=CHAT, timeout=0.05)
        assert mock.last.disconnected.wait(PATIENCE)


def test_it_can_go_down_and_come_back(mock: MockUpstream, http: httpx.Client) -> None:
    mock.stop()
    with pytest.raises(httpx.ConnectError):
        http.post("/chat/completions", json=CHAT)
    mock.start()
    assert http.post("/chat/completions", json=CHAT).status_code == 200


def test_a_stop_breaks_what_is_being_answered(mock: MockUpstream, http: httpx.Client) -> None:
    mock.reply(stall_after=1)
    with http.stream("POST", "/chat/completions", json=CHAT) as response:
        mock.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            response.read()
    assert not mock.last.disconnected.is_set()


def test_a_request_in_chunks(mock: MockUpstream, http: httpx.Client) -> None:
    raw = json.dumps(CHAT).encode()
    assert http.post("/chat/completions", content=iter([raw[:9], raw[9:]])).status_code == 200
    assert mock.last.headers["transfer-encoding"] == "chunked"
    assert mock.last.body == CHAT


def test_hundreds_of_streams_at_once(mock: MockUpstream) -> None:
    gate = threading.Event()

    def hold(_: Record) -> Reply:
        return Reply(gate=gate)

    mock.handler = hold
    body = json.dumps(CHAT).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    sockets = [socket.create_connection(("127.0.0.1", int(mock.url.rpartition(":")[2]))) for _ in range(400)]
    try:
        for connection in sockets:
            connection.sendall(head + body)
        mock.wait_for_chats(400)
        gate.set()
        for connection in sockets:
            connection.settimeout(10)
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                received += connection.recv(65536)
            assert b"data: [DONE]" in received
    finally:
        for connection in sockets:
            connection.close()
    assert mock.max_in_flight == 400
