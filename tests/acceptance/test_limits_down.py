"""A limiter that is down lets requests pass or not, as configured, and says so (guarantee §12.3, §12.4)."""

from typing import Any

import httpx
import openai
import pytest

from tests.support.answers import user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import PostgresProcess
from tests.support.process import free_port, wait_until

ASK: Any = [user("hello")]
KEY = "gw-limited-key"
LIMITED = {"keys": [{"key": KEY, "tenant": "t", "limits": {"rpm": 1, "tpm": 1000000, "concurrent": 1}}]}


def without_valkey(start: GatewayFactory, when_down: str) -> GatewayProcess:
    url = f"redis://127.0.0.1:{free_port()}/0"
    return start({"auth": LIMITED, "limits": {"when_down": when_down}, "cache": {"url": url}})


def test_s12_4_open_requests_pass_and_say_so(start_gateway: GatewayFactory, make_client: ClientFactory) -> None:
    gateway = without_valkey(start_gateway, "open")
    client = make_client(gateway, KEY)
    for _ in range(3):
        body: Any = client.chat.completions.create(model="gpt-4o", messages=ASK).model_dump()
        assert body["response_metadata"]["context_utilization"]["warnings"] == ["limits_unavailable"]
    assert gateway.log_text().count('"limits_unavailable"') == 1
    counts = httpx.get(f"{gateway.url}/metrics").text
    assert "gateway_limits_unavailable_total 0.0" not in counts


def test_s12_4_closed_requests_do_not_pass(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    client = make_client(without_valkey(start_gateway, "closed"), KEY, max_retries=0)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert (caught.value.status_code, caught.value.code) == (503, "limits_unavailable")
    assert not upstream.chats


def test_s12_3_what_was_spent_while_the_storage_was_away_is_not_lost(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, make_client: ClientFactory
) -> None:
    """Its bill waits in memory, and counts as soon as it is written."""
    keys = [{"key": KEY, "tenant": "t", "budgets": [{"usd": "0.00005", "period": "day"}]}]
    storage = {"url": chaos_postgres.new_database(), "timeout": 0.4}
    gateway = start_gateway({"auth": {"keys": keys}, "storage": storage})
    client = make_client(gateway, KEY, max_retries=0)
    client.chat.completions.create(model="gpt-4o", messages=ASK, max_tokens=2)  # 0.0000225 USD
    chaos_postgres.kill9()
    body: Any = client.chat.completions.create(model="gpt-4o", messages=ASK, store=False, max_tokens=2).model_dump()
    assert "limits_unavailable" in body["response_metadata"]["context_utilization"]["warnings"]
    chaos_postgres.start()
    with httpx.Client() as other:
        wait_until(lambda: other.get(f"{gateway.url}/health/ready").status_code == 200, "the storage")

    def is_refused() -> bool:
        try:
            client.chat.completions.create(model="gpt-4o", messages=ASK, store=False, max_tokens=1)
        except openai.RateLimitError:
            return True
        return False

    assert is_refused()
