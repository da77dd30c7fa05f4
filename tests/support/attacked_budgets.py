"""Budgets under attack: their keys, and what is asked."""

from typing import Any

import httpx

from tests.support.answers import Json, user
from tests.support.factory import SMALL_MODEL_INFO, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

SAID = {"messages": [user("hi")], "max_tokens": 9}

CHAT: Json = {"model": "small", **SAID}

SPENT, NARROW, LEAVING, DRY = "gw-key-spent", "gw-key-narrow", "gw-key-leaving", "gw-key-dry"

ALONE, TIGHT = "gw-key-alone", "gw-key-tight"

BUDGET = [{"usd": "0.0001", "period": "total"}]


def ask(
    gateway: GatewayProcess, key: str, path: str = "chat/completions", body: Json = CHAT, **headers: str
) -> httpx.Response:
    return gateway.post(f"/{path}", json=body, headers=headers, key=key)


def is_refused(answer: httpx.Response, code: str = "budget_exceeded") -> bool:
    return (answer.status_code, answer.json()["error"].get("code")) == (429, code)


def settings_of_metered(upstream: MockUpstream) -> dict[str, Any]:
    served = {"api_base": upstream.base_url, "api_key": "sk-upstream"}

    def entry(name: str, model: str, **prices: float) -> Json:
        params = {"model": f"openai/{model}", **served}
        return {"model_name": name, "litellm_params": params, "model_info": {**SMALL_MODEL_INFO, **prices}}

    models = [
        entry("small", "small"),
        entry("alias", "small"),
        entry("lone", "lone"),
        entry("gpt-4o-mini", "gpt-4o-mini"),
        entry("spoken", "spoken", output_cost_per_audio_token=2e-4),
    ]
    keys: list[Json] = [
        {"key": SPENT, "tenant": "mallory", "budgets": BUDGET},
        {"key": LEAVING, "tenant": "mallory", "budgets": [{"usd": "0.00003", "period": "total"}]},
        {"key": DRY, "tenant": "mallory", "budgets": [{"usd": 0.019, "period": "total"}]},
        {"key": ALONE, "tenant": "mallory", "budgets": [{"usd": 0.1, "period": "total"}]},
        {"key": NARROW, "tenant": "mallory", "limits": {"tpm": 1000}},
        {"key": TIGHT, "tenant": "mallory", "budgets": [{"usd": 0.0045, "period": "total"}]},
    ]
    return {
        "model_list": models,
        "auth": {"keys": keys},
        "upstream": {"api_base": upstream.base_url, "api_key": "sk-upstream"},
        "routing": {"fallbacks": {"lone": ["small"]}},
    }


metered = shared_gateway(settings_of_metered)
"""A gateway whose keys have budgets of less than a request, each for a test of its own."""
