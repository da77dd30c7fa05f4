"""`context.mode: off`: a plain proxy with a bill, whatever becomes of the answer (guarantee §1, §6, §7)."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import http, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import free_port, wait_until

OFF: Any = {"context": {"mode": "off"}}


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

    wait_until(lives, "the gateway without its storage")
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
