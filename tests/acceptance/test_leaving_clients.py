"""A client that leaves cancels the upstream within two seconds, whenever and however it leaves (guarantee §3.6, §7)."""

import json
import re
import socket
import struct
import time
from typing import Any

import pytest

from tests.acceptance.answers import Json, http, stored, user
from tests.chaos.audit import rows
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.raw import SSE_HEAD, End, Step, event, head

SECONDS = 2.0
NAMED = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}


def said(text: str, finish: str | None = None) -> bytes:
    return event({**NAMED, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


# phase: streamed, what upstream has sent by then, the tokens that the client has seen by then
PHASES: dict[str, tuple[bool, tuple[Step, ...], list[bytes]]] = {
    "plain, before the head": (False, (End.HANG,), []),
    "plain, before the body": (False, (head(content_length="900"), End.HANG), []),
    "plain, within the body": (False, (head(content_length="900"), b'{"id": ', End.HANG), []),
    "streamed, before the head": (True, (End.HANG,), []),
    "streamed, before the first chunk": (True, (SSE_HEAD, End.HANG), []),
    "streamed, in the middle": (True, (SSE_HEAD, said("one"), said(" two"), End.HANG), [b"one", b" two"]),
    "streamed, waiting for usage": (True, (SSE_HEAD, said("one"), said("", "stop"), End.HANG), [b"one"]),
}


class Leaver:
    """A client on a bare socket."""

    def __init__(self, gateway: GatewayProcess, streamed: bool) -> None:
        body = json.dumps({"model": "small", "messages": [user("hello")], "stream": streamed}).encode()
        self._socket = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "authorization: Bearer sk-test"]
        lines += ["content-type: application/json", f"content-length: {len(body)}", "", ""]
        self._socket.sendall("\r\n".join(lines).encode() + body)
        self.received = b""

    def read_until(self, text: bytes) -> None:
        """Reads until this has come."""
        while text not in self.received:
            piece = self._socket.recv(65536)
            assert piece, self.received
            self.received += piece

    def leave(self, reset: bool) -> None:
        """With a FIN, or with a reset."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def request_id(self) -> str | None:
        """What the head of the answer named, if it came."""
        found = re.search(rb"x-request-id: (\S+)", self.received)
        return found.group(1).decode() if found else None


def bills(gateway: GatewayProcess) -> list[Json]:
    """The ledger's rows, newest last."""
    config: Any = gateway.config
    return rows(config["storage"]["url"], "SELECT * FROM ledger ORDER BY created_at, request_id")


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("number", [1, 50])
@pytest.mark.parametrize("phase", PHASES)
def test_s7_a_client_that_leaves_cancels_the_upstream(
    one_gateway: GatewayProcess, upstream: MockUpstream, phase: str, number: int, reset: bool
) -> None:
    """In every phase, alone and with fifty at once; what it may have cost is recorded."""
    streamed, steps, seen = PHASES[phase]
    status = "partial" if seen else "failed"
    before = len(bills(one_gateway))
    for _ in range(number):
        upstream.reply(raw=steps)
    leavers = [Leaver(one_gateway, streamed) for _ in range(number)]
    upstream.wait_for_chats(number)
    for leaver in leavers:
        for text in seen:
            leaver.read_until(text)
    left = time.monotonic()
    for leaver in leavers:
        leaver.leave(reset)
    for chat in upstream.chats:
        assert chat.disconnected.wait(max(0.0, left + SECONDS - time.monotonic())), "the upstream call goes on"
    wait_until(lambda: len(bills(one_gateway)) == before + number, 5, "the bills")
    for bill in bills(one_gateway)[before:]:
        assert (bill["status"], bool(bill["estimated"]), bill["error_code"]) == (status, True, "client_disconnected")
        assert bill["prompt_tokens"] > 0
        assert bill["completion_tokens"] == len(seen)
        assert bill["total_cost_picousd"] > 0
    if number == 1 and leavers[0].request_id:
        assert stored(one_gateway, leavers[0].request_id)["status"] == status
    with http(one_gateway) as client:
        answer = client.post("/chat/completions", json={"model": "small", "messages": [user("next")]})
    assert answer.status_code == 200
