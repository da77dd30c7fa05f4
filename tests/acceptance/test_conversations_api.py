"""The Conversations API through the official SDK, on both storages: conversations as such (guarantee §3, §7, §8)."""

from typing import Any

import httpx

from tests.support.answers import Json, http
from tests.support.factory import GatewayFactory
from tests.support.postgres import PostgresProcess


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
