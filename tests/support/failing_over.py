"""Models that answer for others, and what tests of them ask and read."""

import json
from typing import Any

import httpx

from tests.support.answers import Json, exact, user
from tests.support.command import gateway_command
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.mock_upstream import Record as Asked
from tests.support.process import wait_until
from tests.support.reply import Reply

APIS = ("chat/completions", "responses", "messages")

HELLO = "hello there"

PRICES = {"twin-a": ("3e-06", "5e-06"), "twin-b": ("7e-06", "11e-06"), "other": ("13e-06", "17e-06")}

RESTING: Json = {"allowed_fails": 1000, "cooldown": 0.001, "cooldown_max": 0.001}
"""Nothing rests: each test has its deployments as new."""


def entry(name: str, served: str, base: str, **params: Any) -> Json:
    price = PRICES.get(served, ("1e-06", "2e-06"))
    info = {"tokenizer": "o200k_base", "input_cost_per_token": price[0], "output_cost_per_token": price[1]}
    named = {"model": f"openai/{served}", "api_base": base, "api_key": "sk-upstream", **params}
    return {"model_name": name, "litellm_params": named, "model_info": {"max_input_tokens": 100_000, **info}}


def ask(
    gateway: GatewayProcess, model: str, api: str = APIS[0], text: Any = HELLO, *, headers: Any = None, **body: Any
) -> httpx.Response:
    said = {"input": text} if api == "responses" else {"messages": text if isinstance(text, list) else [user(text)]}
    more = {"max_tokens": 50} if api == "messages" else {}
    sent = {"model": model, **said, **more, **body}
    return gateway.post(f"/{api}", json=sent, headers=headers, key=None)


def bill_of(gateway: GatewayProcess, answer: httpx.Response) -> Json:
    """The stored bill, with exact numbers."""
    request_id = answer.headers["x-request-id"]
    found: Json = {}

    def stored() -> bool:
        response = gateway.get(f"/chat/completions/{request_id}", key=None)
        found.update(exact(response.text) if response.status_code == 200 else {})
        return response.status_code == 200

    wait_until(stored, "the bill")
    metadata: Json = found["response_metadata"]
    return metadata


def show(gateway: GatewayProcess, answer: httpx.Response) -> list[str]:
    """What `gateway show` says of a request, line by line."""
    request_id, where = answer.headers["x-request-id"], ("--config", str(gateway.config_path))
    return gateway_command("show", request_id, *where, directory=gateway.directory).stdout.splitlines()


def failing(upstream: MockUpstream, *models: str, **script: Any) -> None:
    """What these models answer: all others echo."""

    def handler(asked: Asked) -> Reply | None:
        return Reply(**script) if (asked.body or {})["model"] in models else None

    upstream.handler = handler


def is_whole(answer: httpx.Response) -> bool:
    """Whether the mock's echo came, whole or in pieces."""
    if not answer.text.startswith(("data:", "event:")):
        return "echo: hello" in answer.text
    said = ""
    for line in answer.text.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: {") else {}
        for choice in event.get("choices") or ():
            said += (choice.get("delta") or {}).get("content") or ""
        if event.get("type") == "response.output_text.delta":
            said += event["delta"]
        if event.get("type") == "content_block_delta":
            said += event["delta"].get("text", "")
    return "echo: hello" in said
