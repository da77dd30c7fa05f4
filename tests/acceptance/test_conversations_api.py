"""The Conversations API through the official SDK, on both storages: conversations as such (guarantee §3, §7, §8)."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.support.answers import Json, http
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import PostgresProcess

ALICE, BOB = "sk-gateway-alice", "sk-gateway-bob"


@pytest.fixture
def client(gateway: GatewayProcess, make_client: ClientFactory, request: pytest.FixtureRequest) -> OpenAI:
    """A client of a tenant of its own: lists show nothing of other tests."""
    return make_client(gateway, api_key=f"sk-{request.node.name.encode().hex()[:80]}")


@pytest.fixture(scope="module")
def module_keyed(
    module_upstream: MockUpstream,
    module_storage_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> Iterator[GatewayProcess]:
    factory = GatewayFactory(module_upstream, tmp_path_factory.mktemp("keyed"), module_storage_url, fork_server)
    keys = [{"key": key, "tenant": key[11:]} for key in (ALICE, BOB)]
    yield factory({"auth": {"keys": keys}, "server": {"max_body_bytes": 4000}})
    factory.close()


@pytest.fixture
def keyed(module_keyed: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway with keys for Alice and Bob, and small bodies."""
    return module_keyed


def refusal(answer: httpx.Response) -> tuple[int, Any, Any]:
    """Status, code and param of an error in OpenAI's shape."""
    error: Json = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return answer.status_code, error["code"], error["param"]


def test_s3_6_storage_down_is_a_503(start_gateway: GatewayFactory, chaos_postgres: PostgresProcess) -> None:
    """§3.6: every method says `storage_unavailable` while the storage is gone."""
    gateway = start_gateway({"storage": {"url": chaos_postgres.new_database(), "timeout": 0.4}})
    with http(gateway) as raw:
        made = raw.post("/conversations", json={}).json()["id"]
        chaos_postgres.kill9()
        for method, path in (
            ("GET", "/conversations"),
            ("POST", "/conversations"),
            ("GET", f"/conversations/{made}"),
            ("DELETE", f"/conversations/{made}"),
            ("GET", f"/conversations/{made}/items"),
            ("DELETE", f"/conversations/{made}/items/msg_1"),
        ):
            answer = raw.request(method, path, json={} if method == "POST" else None)
            assert refusal(answer)[:2] == (503, "storage_unavailable"), (method, path)
