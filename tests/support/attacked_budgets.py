"""Budgets under attack: their keys, and what is asked."""

import httpx

from tests.support.answers import Json, http, user
from tests.support.gateway_process import GatewayProcess

SAID = {"messages": [user("hi")], "max_tokens": 9}

CHAT: Json = {"model": "small", **SAID}

SPENT, NARROW, LEAVING, DRY = "gw-key-spent", "gw-key-narrow", "gw-key-leaving", "gw-key-dry"

ALONE = "gw-key-alone"

BUDGET = [{"usd": "0.0001", "period": "total"}]


def ask(
    gateway: GatewayProcess, key: str, path: str = "chat/completions", body: Json = CHAT, **headers: str
) -> httpx.Response:
    with http(gateway, key) as client:
        return client.post(f"/{path}", json=body, headers=headers)


def is_refused(answer: httpx.Response, code: str = "budget_exceeded") -> bool:
    return (answer.status_code, answer.json()["error"].get("code")) == (429, code)
