"""`context.mode: off`: a plain proxy with a bill, whatever becomes of the answer (guarantee §1, §6, §7)."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import http, user, wait_for_bill
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import free_port, wait_until

OFF: Any = {"context": {"mode": "off"}}
MARK = "zebra-crossing-4711"


def on_disk(gateway: GatewayProcess) -> bytes:
    """Everything that the gateway's directory holds: database, journal, log, configuration."""
    return b"".join(path.read_bytes() for path in gateway.directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ends", ["well", "cut", "refused"])
def test_s1_nothing_is_stored_but_the_bill(
    one_gateway: GatewayProcess, upstream: MockUpstream, ends: str, streamed: bool
) -> None:
    """Neither what the user wrote nor what the model did, in no file; the ledger has its row."""
    how: dict[str, Any] = {"well": {}, "cut": {"cut_after": 3}, "refused": {"status": 400}}
    upstream.reply(text=f"{MARK} down and some more words", **how[ends])
    tools = [{"type": "function", "function": {"name": "f", "description": MARK}}]
    body = {"model": "gpt-4o", "messages": [user(f"{MARK} up")], "tools": tools, "stream": streamed, **OFF}
    with http(one_gateway) as client:
        answer = client.post("/chat/completions", json=body)
    assert MARK in upstream.last.raw.decode()
    bill = wait_for_bill(one_gateway, answer.headers["x-request-id"])
    assert bill["choices"] == []
    assert bill["status"] == ("complete" if ends == "well" else "partial" if ends == "cut" and streamed else "failed")
    assert MARK.encode() not in on_disk(one_gateway)


def test_s6_a_stream_that_the_client_leaves(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The upstream is cancelled within two seconds, and what came until then is billed as an estimate."""
    upstream.reply(text="one two three four five", stall_after=4)
    body = {"model": "small", "messages": [user("hi there")], "stream": True, **OFF}
    with http(one_gateway) as client, client.stream("POST", "/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        while "two" not in next(lines):
            pass
    assert upstream.last.disconnected.wait(2)
    bill = wait_for_bill(one_gateway, answer.headers["x-request-id"])
    assert bill["status"] == "partial"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["cost"]["total_cost"] > 0


def test_s2_what_needs_a_conversation(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Mode off does not continue one, but names one that does not exist; attachments have nowhere to stand."""
    with http(one_gateway) as client:
        ask = {"model": "gpt-4o", "messages": [user("hi")]}
        known = client.post("/chat/completions", json=ask).json()["conversation"]
        answer = client.post("/chat/completions", json={**ask, **OFF, "conversation": known})
        assert answer.status_code == 200
        assert upstream.last.body == ask
        answer = client.post("/chat/completions", json={**ask, **OFF, "conversation": "conv_none"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "conversation_not_found")
        answer = client.post("/chat/completions", json={**ask, **OFF, "attachments": [{"content": "x"}]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "attachments")


@pytest.fixture(scope="module")
def without_storage(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway whose storage has never been there."""
    storage = {"url": f"postgresql+asyncpg://u:p@127.0.0.1:{free_port()}/x", "timeout": 0.3}
    gateway = module_start_gateway({"storage": storage}, start=False)
    gateway.spawn_only()

    def lives() -> bool:
        try:
            return httpx.get(f"{gateway.url}/health/live", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(lives, 20, "the gateway without its storage")
    yield gateway
    gateway.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_s3_6_without_its_storage(without_storage: GatewayProcess, upstream: MockUpstream, streamed: bool) -> None:
    """A request that neither needs nor leaves stored content still works: a relayed call, and a chat in mode off."""
    upstream.routes["POST /v1/moderations"] = Reply(json={"results": []})
    with http(without_storage) as client:
        assert client.post("/moderations", json={"model": "gpt-4o"}).json() == {"results": []}
        body = {"model": "gpt-4o", "messages": [user("hi")], "stream": streamed}
        assert client.post("/chat/completions", json=body).json()["error"]["code"] == "storage_unavailable"
        answer = client.post("/chat/completions", json={**body, "store": False})
        assert answer.status_code == 200, answer.text
        answer = client.post("/chat/completions", json={**body, **OFF})
        assert answer.status_code == 200, answer.text
