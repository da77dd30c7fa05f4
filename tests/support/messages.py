"""Anthropic's SDK at a gateway, and its own models as judges of what comes back."""

import json
from typing import Any

import httpx
from anthropic import Anthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.support.gateway_process import GatewayProcess

Json = dict[str, Any]
MESSAGE, EVENT = TypeAdapter(Message), TypeAdapter[Any](RawMessageStreamEvent)
HEADERS = {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
TOOL: Json = {
    "name": "weather",
    "description": "The weather somewhere.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def sdk(gateway: GatewayProcess, **more: Any) -> Anthropic:
    """A client with nothing changed but the base URL."""
    options: Json = {"api_key": "sk-test", "max_retries": 0, "timeout": 30.0} | more
    return Anthropic(base_url=gateway.base_url.removesuffix("/v1"), **options)


def asked(text: str = "hello there", **more: Any) -> Json:
    """A request in its plainest form."""
    return {"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def post(gateway: GatewayProcess, body: Json, path: str = "messages", **headers: str) -> httpx.Response:
    """The answer as it is on the wire."""
    named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.post(f"/{path}", json=body, headers=named, key=None)


def whole(gateway: GatewayProcess, body: Json, **headers: str) -> Json:
    """A message, which Anthropic's own model takes in strict mode."""
    response = post(gateway, body, **headers)
    assert response.status_code == 200, response.text
    MESSAGE.validate_json(response.content, strict=True)
    return dict(response.json())


def streamed(gateway: GatewayProcess, body: Json, **headers: str) -> list[Json]:
    """The events of a stream, each of which Anthropic's own models take in strict mode, `ping` apart."""
    response = post(gateway, {**body, "stream": True}, **headers)
    assert response.status_code == 200, response.text
    events = events_of(response.text)
    for each in events:
        if each["type"] not in ("ping", "error"):
            EVENT.validate_json(json.dumps(each), strict=True)
    return events


def ask(gateway: GatewayProcess, body: Json, *, stream: bool, **headers: str) -> Json:
    """A message, whole or put together from its stream."""
    return put_together(streamed(gateway, body, **headers)) if stream else whole(gateway, body, **headers)


def events_of(text: str) -> list[Json]:
    """The events of a stream; each has its name."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def put_together(events: list[Json]) -> Json:
    """The message that a stream's events are, by the rules of Anthropic's protocol, which they have to keep."""
    kinds = [each["type"] for each in events if each["type"] != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    message: Json = dict(next(each["message"] for each in events if each["type"] == "message_start"))
    blocks: list[Json] = []
    is_open = False
    for each in events:
        if each["type"] == "content_block_start":
            assert not is_open
            assert each["index"] == len(blocks)
            blocks.append({**each["content_block"]})
            is_open = True
        elif each["type"] == "content_block_delta":
            assert is_open
            assert each["index"] == len(blocks) - 1
            _add(blocks[-1], each["delta"])
        elif each["type"] == "content_block_stop":
            assert is_open
            assert each["index"] == len(blocks) - 1
            is_open = False
        elif each["type"] == "message_delta":
            assert not is_open
            message |= {k: v for k, v in each.items() if k not in ("type", "delta")} | each["delta"]
    for block in blocks:
        if "partial" in block:
            block["input"] = json.loads(block.pop("partial") or "{}")
    return {**message, "content": blocks}


def _add(block: Json, delta: Json) -> None:
    kind = delta["type"]
    if kind == "text_delta":
        block["text"] += delta["text"]
    elif kind == "thinking_delta":
        block["thinking"] += delta["thinking"]
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        assert kind == "input_json_delta"
        block["partial"] = block.get("partial", "") + delta["partial_json"]
