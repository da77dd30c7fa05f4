"""Ways around a budget or a limit (guarantee §12.3, §12.4): by whom a request says it is of, by the name, API or form
in which it asks, by leaving, and by the clock. A budget that is used up is used up in all of them.
"""

import json

import pytest

from tests.support.answers import Json
from tests.support.attacked_budgets import ALONE, BUDGET, CHAT, DRY, LEAVING, NARROW, SPENT, ask, is_refused
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.sockets import RawClient, post


@pytest.fixture(scope="module")
def module_metered(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    served = {"api_base": module_upstream.base_url, "api_key": "sk-upstream"}

    def entry(name: str, model: str) -> Json:
        params = {"model": f"openai/{model}", **served}
        return {"model_name": name, "litellm_params": params, "model_info": dict(SMALL_MODEL_INFO)}

    models = [
        entry("small", "small"),
        entry("alias", "small"),
        entry("lone", "lone"),
        entry("gpt-4o-mini", "gpt-4o-mini"),
    ]
    keys: list[Json] = [
        {"key": SPENT, "tenant": "mallory", "budgets": BUDGET},
        {"key": LEAVING, "tenant": "mallory", "budgets": [{"usd": "0.00003", "period": "total"}]},
        {"key": DRY, "tenant": "mallory", "budgets": BUDGET},
        {"key": ALONE, "tenant": "mallory", "budgets": [{"usd": 0.1, "period": "total"}]},
        {"key": NARROW, "tenant": "mallory", "limits": {"tpm": 1000}},
    ]
    return module_start_gateway(
        {
            "model_list": models,
            "auth": {"keys": keys},
            "upstream": {"api_base": module_upstream.base_url, "api_key": "sk-upstream"},
            "routing": {"fallbacks": {"lone": ["small"]}},
        }
    )


@pytest.fixture
def metered(module_metered: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway whose keys have budgets of less than a request, each for a test of its own."""
    return module_metered


def test_s12_3_who_leaves_early_has_spent_all_the_same(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """A stream that is left after its first chunk, each time: it is on the bill, so that the next is refused."""
    upstream.reply(text="one two three four five six", chunk_delay=0.05)
    body = json.dumps({**CHAT, "stream": True}).encode()
    with RawClient(metered) as client:
        client.send(post(body, f"authorization: Bearer {LEAVING}"))
        client.read_until(b"data: ")
    wait_until(lambda: is_refused(ask(metered, LEAVING)), "the bill of what was left counts")
