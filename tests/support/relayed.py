"""Answers of other APIs than chats as providers send them, and the bills that they leave."""

import json
from decimal import Decimal
from typing import Any

from tests.support.answers import Json, exact, http
from tests.support.gateway_process import GatewayProcess
from tests.support.process import wait_until

RESPONSE_USAGE: Json = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 600},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 1050,
}
SCHEMA = {"type": "object", "properties": {"usage": {"input_tokens": 1, "output_tokens": 1}}}
"""What a client may say of its tools, and gets back: no usage."""


def response(**fields: Any) -> Json:
    """A response as the Responses API gives it, with its fields in that API's order."""
    said = {"type": "output_text", "text": 'say "usage": {"input_tokens": 9}', "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    found = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "priced-2026",
        "output": [message],
        "parallel_tool_calls": True,
        "service_tier": "default",
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
        "usage": RESPONSE_USAGE,
        "user": None,
        "metadata": {"usage": "x"},
    }
    return {**found, **fields}


def events(*data: Json) -> bytes:
    """Named events, as the Responses API streams them."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in data)


def response_events(text: str = "some words", **fields: Any) -> bytes:
    """A stream of the Responses API; each event of the response has it whole."""
    begun = response(status="in_progress", output=[], usage=None)
    deltas = [{"type": "response.output_text.delta", "delta": f"{word} "} for word in text.split()]
    done = {"type": "response.completed", "response": response(**fields)}
    return events({"type": "response.created", "response": begun}, *deltas, done)


def bill(gateway: GatewayProcess, request_id: str, token: str = "sk-test") -> Json:
    """What is stored of a relayed call, with numbers as they are written, once it is there."""
    found: list[Json] = []

    def is_there() -> bool:
        with http(gateway, token) as client:
            answer = client.get(f"/chat/completions/{request_id}")
        found.append(exact(answer.content))
        return answer.status_code == 200

    wait_until(is_there, f"the bill of {request_id}")
    return found[-1]


def total(found: Json) -> Decimal | None:
    """What a bill adds up to."""
    value = found["response_metadata"]["cost"]["total_cost"]
    return None if value is None else Decimal(value)
