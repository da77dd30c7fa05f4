"""Requests found again: how they failed, one list of all, its filters, its search and its CSV (guarantee §13.15)."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.core.config.settings import StorageSettings
from gateway.core.types.turn import LedgerEntry
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.engine import open_transactions
from tests.support.answers import Json, http, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

WORDS = "The server had an error with 'heliotrope'."
ERROR: Json = {"error": {"message": WORDS, "type": "server_error", "param": None, "code": "server_error"}}
QUOTED = json.dumps(ERROR).encode()


@pytest.fixture
def gateway(start_gateway: GatewayFactory, storage_url: str) -> GatewayProcess:
    return start_gateway({"storage": {"url": storage_url}, "routing": {"retries": 1}})


async def stored(url: str) -> list[LedgerEntry]:
    """The bills, in the order in which their requests came."""
    transactions = open_transactions(StorageSettings(url=url))
    try:
        query = sa.select(schema.ledger).order_by(schema.ledger.c.created_at)
        found = await transactions.run(lambda connection: connection.execute(query).all())
        return [rows.entry_of(row) for row in found]
    finally:
        await transactions.close()


def ask(gateway: GatewayProcess, text: str, key: str | None = "sk-test", **more: Any) -> Any:
    with http(gateway, key) as client:
        return client.post("/chat/completions", json={"model": "small", "messages": [user(text)], **more})


async def test_s13_15_a_failure_is_kept_with_each_try_and_the_upstreams_own_words(
    gateway: GatewayProcess, storage_url: str, upstream: MockUpstream
) -> None:
    """Also of a request that was answered by a later try. Words of an upstream may quote what was said: they are not
    kept where nothing is stored, and go with the conversation."""
    for status in (500, 503, 500):
        upstream.reply(status=status, body=QUOTED)
    failed = ask(gateway, "The lamp.")
    answered = ask(gateway, "The ferry.")
    for _ in range(2):
        upstream.reply(status=500, body=QUOTED)
    ask(gateway, "The harbour.", store=False)
    assert (failed.status_code, answered.status_code) == (503, 200)
    first, second, unstored = [each.failure for each in await stored(storage_url)]
    assert first is not None
    assert second is not None
    assert unstored is not None
    assert (first.status, first.message) == (503, WORDS)
    assert [(each.status, each.message) for each in first.tries] == [(500, WORDS), (503, WORDS)]
    assert all(each.route == "openai/small" for each in first.tries)
    times = [each.at_ms for each in first.tries]
    assert None not in times
    assert times == sorted(times, key=int)  # type: ignore[arg-type]
    assert (second.status, second.message, len(second.tries)) == (None, None, 1)
    assert (unstored.status, unstored.message, [each.message for each in unstored.tries]) == (500, None, [None, None])
    told = [line for line in gateway.log_lines() if line.get("tries")]
    assert len(told) == 3
    assert [each["status"] for each in told[0]["tries"]] == [500, 503]
    assert "heliotrope" not in gateway.log_text()
    with http(gateway) as client:
        conversation = failed.headers["x-conversation-id"]
        assert client.delete(f"/conversations/{conversation}").status_code == 200
    assert (await stored(storage_url))[0].failure is None
