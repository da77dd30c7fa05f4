"""Requests are answered once over several processes on one PostgreSQL, also when one of them is killed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres, PostgresProcess
from tests.support.process import wait_until


@dataclass
class Pair:
    """Two gateways on one database."""

    one: GatewayProcess
    two: GatewayProcess


@pytest.fixture(scope="module")
def module_pair(postgres: Postgres, module_start_gateway: GatewayFactory) -> Pair:
    storage = {"storage": {"url": postgres.new_database()}}
    return Pair(module_start_gateway(storage), module_start_gateway(storage))


@pytest.fixture
def pair(module_pair: Pair, upstream: MockUpstream) -> Pair:
    """Both running."""
    for gateway in (module_pair.one, module_pair.two):
        if not gateway.alive:
            gateway.start()
    return module_pair


def asking(text: str, **more: Any) -> Json:
    return {"model": "small", "messages": [user(text)], **more}


def send(gateway: GatewayProcess, body: Json, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.post("/chat/completions", json=body, headers=named)


def key(name: str) -> dict[str, str]:
    return {"idempotency_key": name}


def test_s3_a_killed_process_holds_nothing(pair: Pair, upstream: MockUpstream) -> None:
    """kill -9 of the one that answers: another on its machine sees that at once, and takes its claim. Elsewhere the
    claim is held until heartbeats are missed (`test_claims`)."""
    body = asking("killed")
    upstream.reply(text="Noon.", gate=threading.Event())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, pair.one, body, **key("killed"))
        upstream.wait_for_chats(1)
        pair.one.kill9()
        with pytest.raises(httpx.HTTPError):
            first.result()
    answer = send(pair.two, body, **key("killed"))
    assert answer.status_code == 200
    assert "idempotent-replayed" not in answer.headers
    assert send(pair.two, body, **key("killed")).json() == answer.json()
    assert len(upstream.chats) == 2


def test_s3_6_without_storage(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, upstream: MockUpstream
) -> None:
    """A key is a promise, so without storage it is a 503, with `store: false` too; without a key what needs no storage
    runs. A key that could not be released while the storage was away is released later."""
    gateway = start_gateway({"storage": {"url": chaos_postgres.new_database(), "timeout": 0.4}})
    gate = threading.Event()
    upstream.reply(status=500, gate=gate)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, gateway, asking("lost"), **key("lost"))
        upstream.wait_for_chats(1)
        chaos_postgres.kill9()
        gate.set()
        assert first.result().status_code == 500
    refused = send(gateway, asking("away", store=False), **key("away"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable")
    assert send(gateway, asking("away", store=False)).status_code == 200
    chaos_postgres.start()
    wait_until(lambda: send(gateway, asking("lost"), **key("lost")).status_code == 200, "the key", interval=0.1)
