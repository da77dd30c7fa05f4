"""Two processes on one PostgreSQL, one key, one hard budget (guarantee §12.3)."""

import asyncio
import time
from decimal import Decimal
from typing import Any

import openai
import pytest

from tests.support.answers import user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres

ASK: Any = [user("one two three")]
BUDGET, LONGEST = Decimal("0.5"), 6
PRICE = Decimal("0.001")
ONE = PRICE * 3 + PRICE * LONGEST
"""What a request may cost: its prompt, as the upstream counts it, and the longest answer."""
AT_ONCE = 12


@pytest.fixture
def two(
    start_gateway: GatewayFactory, postgres: Postgres, upstream: MockUpstream, module_upstream: MockUpstream
) -> list[GatewayProcess]:
    served = {"model": "openai/m", "api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    info = {"input_cost_per_token": str(PRICE), "output_cost_per_token": str(PRICE), "max_input_tokens": 8000}
    keys = [
        {"key": "gw-hammered-key", "tenant": "t", "budgets": [{"usd": str(BUDGET), "period": "day"}]},
        {"key": "gw-admin-key", "tenant": "a", "roles": ["admin"]},
    ]
    config = {
        "model_list": [{"model_name": "m", "litellm_params": served, "model_info": info}],
        "auth": {"keys": keys},
        "storage": {"url": postgres.new_database()},
    }
    return [start_gateway(config) for _ in range(2)]


async def test_s12_3_two_processes_exceed_a_budget_by_one_request_at_most(two: list[GatewayProcess]) -> None:
    """Spent by the ledger is at most the budget and one request, whatever the two do at once; and nearly all of it can
    be spent."""
    clients = [openai.AsyncOpenAI(base_url=each.base_url, api_key="gw-hammered-key", max_retries=0) for each in two]
    ends = time.monotonic() + 60
    answered = 0

    async def hammer(client: openai.AsyncOpenAI, number: int) -> None:
        nonlocal answered
        while time.monotonic() < ends:
            try:
                made = client.chat.completions.create(
                    model="m", messages=ASK, max_tokens=LONGEST, stream=number % 2 == 0
                )
                answer: Any = await made
                if number % 2 == 0:
                    async for _ in answer:
                        if number == 4:
                            await answer.close()  # a client that leaves
                            break
                answered += 1
            except openai.RateLimitError as error:
                if error.response.headers.get("x-should-retry") == "false":
                    return
                await asyncio.sleep(0.02)

    await asyncio.gather(*(hammer(client, number) for client in clients for number in range(AT_ONCE)))
    for client in clients:
        await client.close()
    await asyncio.sleep(0.5)  # bills of clients that left are written behind
    cost = spent(two[0])
    assert cost <= BUDGET + ONE
    assert cost >= BUDGET - 3 * ONE
    assert answered


def spent(gateway: GatewayProcess) -> Decimal:
    """By the ledger."""
    found = gateway.get(
        "/organization/costs", params={"start_time": int(time.time()) - 86400, "limit": 3}, key="gw-admin-key"
    ).json()
    total = Decimal(0)
    for bucket in found["data"]:
        for result in bucket["results"]:
            total += Decimal(str(result["amount"]["value"]))
    return total
