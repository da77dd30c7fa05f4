"""Answers of other APIs than chats as providers send them, and the bills that they leave."""

import json
from decimal import Decimal
from typing import Any

from tests.support.answers import Json, exact
from tests.support.gateway_process import GatewayProcess
from tests.support.process import wait_until

COMPLETION_USAGE: Json = {
    "prompt_tokens": 1000,
    "prompt_tokens_details": {"cached_tokens": 600},
    "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 1050,
}
SCHEMA = {"type": "object", "properties": {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}}
"""What a client may say of its output, and gets back: no usage."""


def completion(**fields: Any) -> Json:
    """A legacy completion, with further fields before and behind its usage, as servers of open models add them."""
    found = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "priced-2026",
        "choices": [text_choice('say "usage": {"prompt_tokens": 9}', "stop")],
        "service_tier": None,
        "guided_json": SCHEMA,
        "usage": COMPLETION_USAGE,
        "user": None,
        "metadata": {"usage": "x"},
    }
    return {**found, **fields}


def text_choice(text: str, finish_reason: str | None = None) -> Json:
    """A choice of a legacy completion, or of a chunk of one."""
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}


def events(*data: Json) -> bytes:
    """Named events, as pictures and transcriptions are streamed."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in data)


def completion_events(text: str = "some words", **fields: Any) -> bytes:
    """A stream of legacy completions: a chunk for each word, and a last one with the usage, which `fields` change."""
    said = [completion(choices=[text_choice(f"{word} ")], usage=None) for word in text.split()]
    chunks = [*said, completion(**{"choices": [], **fields})]
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


def before_usage(stream: bytes) -> int:
    """Where the last chunk of `completion_events` begins."""
    return stream.rindex(b"data: {")


def bill(gateway: GatewayProcess, request_id: str, token: str = "sk-test") -> Json:
    """What is stored of a relayed call, with numbers as they are written, once it is there."""
    found: list[Json] = []

    def is_there() -> bool:
        answer = gateway.get(f"/chat/completions/{request_id}", key=token)
        found.append(exact(answer.content))
        return answer.status_code == 200

    wait_until(is_there, f"the bill of {request_id}")
    return found[-1]


def total(found: Json) -> Decimal | None:
    """What a bill adds up to."""
    value = found["response_metadata"]["cost"]["total_cost"]
    return None if value is None else Decimal(value)
