"""Clients that leave, whenever and however: the upstream is cancelled, nothing is left behind (guarantee §3.6, §7)."""

from typing import Any

import pytest

from tests.chaos.audit import rows
from tests.support.answers import Json, raw_request, stored, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.leaving import check_that_cancelled_streams_leave_no_trace, check_that_leaving_clients_leave_no_trace
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.raw import SSE_HEAD, End, Step, event, head
from tests.support.sockets import Connection, connect, request_id_in

PATIENCE = 10.0
"""Seconds; the upstream would hang for longer, and no timeout of the gateway ends its calls sooner."""
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


def ask(gateway: GatewayProcess, streamed: bool) -> Connection:
    body = {"model": "small", "messages": [user("hello")], "stream": streamed}
    client = connect(gateway.port)
    client.send(raw_request(body))
    return client


def bills(gateway: GatewayProcess) -> list[Json]:
    """The ledger's rows, newest last."""
    config: Any = gateway.config
    return rows(config["storage"]["url"], "SELECT * FROM ledger ORDER BY created_at, request_id")


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("number", [1, 20])
@pytest.mark.parametrize("phase", PHASES)
def test_s7_a_client_that_leaves_cancels_the_upstream(
    one_gateway: GatewayProcess, upstream: MockUpstream, phase: str, number: int, reset: bool
) -> None:
    """In every phase, alone and with twenty at once; what it may have cost is recorded."""
    streamed, steps, seen = PHASES[phase]
    status = "partial" if seen else "failed"
    before = len(bills(one_gateway))
    for _ in range(number):
        upstream.reply(raw=steps)
    leavers = [ask(one_gateway, streamed) for _ in range(number)]
    upstream.wait_for_chats(number)
    for leaver in leavers:
        for text in seen:
            leaver.read_until(text)
    for leaver in leavers:
        leaver.reset() if reset else leaver.close()
    for chat in upstream.chats:
        assert chat.disconnected.wait(PATIENCE), "the upstream call goes on"
    wait_until(lambda: len(bills(one_gateway)) == before + number, "the bills")
    for bill in bills(one_gateway)[before:]:
        assert (bill["status"], bool(bill["estimated"]), bill["error_code"]) == (status, True, "client_disconnected")
        assert bill["prompt_tokens"] > 0
        assert bill["completion_tokens"] == len(seen)
        assert bill["total_cost_picousd"] > 0
    request_id = request_id_in(leavers[0].received)
    if number == 1 and request_id:
        assert stored(one_gateway, request_id)["status"] == status
    answer = one_gateway.post("/chat/completions", json={"model": "small", "messages": [user("next")]})
    assert answer.status_code == 200


@pytest.mark.parametrize("number", [100, pytest.param(1000, marks=pytest.mark.chaos)])
@pytest.mark.chaos
def test_s3_7_clients_that_leave_at_random_leave_no_trace(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, number: int
) -> None:
    """§3.7: over a pool of two; no transaction stays open, no memory is held, every call has its bill."""
    little = {"conversation_bytes": 2**20}  # what is kept of requests is full before memory is looked at
    gateway = start_gateway({"storage": {"url": storage_url, "pool_size": 2}, "cache": little})
    check_that_leaving_clients_leave_no_trace(gateway, upstream, storage_url, number)


@pytest.mark.parametrize(("number", "connections"), [(100, 30), pytest.param(3000, 100, marks=pytest.mark.chaos)])
def test_s3_6_cancelled_streams_leave_no_trace(
    start_gateway: GatewayFactory, upstream: MockUpstream, number: int, connections: int
) -> None:
    """All connections can still be used, and no descriptor and no upstream call is left over."""
    gateway = start_gateway({"upstream": {"max_connections": connections}})
    check_that_cancelled_streams_leave_no_trace(gateway, upstream, number, connections)
