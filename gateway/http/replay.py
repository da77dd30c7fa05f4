"""The answer that a request was given before, once more: as JSON or as a stream (contract §6)."""

from collections.abc import Iterator
from typing import Any

from gateway.accounting.cost import total_cost
from gateway.accounting.stream import OWN, ChunkRelay
from gateway.http.completions import answered
from gateway.http.edge import Send, costing, named, send_json
from gateway.http.sse import EVENT_STREAM, event
from gateway.models.exchange import ChatRequest
from gateway.models.turn import StoredCompletion

REPLAYED = {"idempotent-replayed": "true"}
BILL = ("response_metadata", "conversation")
END = b"data: [DONE]\n\n"
ON_EVERY_CHUNK = ("created", "model", "service_tier", "system_fingerprint")
"""SDKs that put a stream together take these from the last chunk."""


async def replay(send: Send, request: ChatRequest, stored: StoredCompletion) -> None:
    """Sends what is stored of the first answer in the form that the request asks for."""
    body = answered(stored)
    headers = {**REPLAYED, **named(stored.ledger.conversation_id)}
    if not request.stream:
        headers |= costing(total_cost(stored.ledger.calls)[0].total_cost)
        await send_json(send, 200, body, headers)
        return
    encoded = [(name.encode(), value.encode()) for name, value in {**EVENT_STREAM, **headers}.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    chunks = replayed_chunks(body, request.choices, include_usage=request.include_usage)
    await send({"type": "http.response.body", "body": b"".join([event(chunk) for chunk in chunks]) + END})


def replayed_chunks(body: dict[str, Any], choices: int, *, include_usage: bool) -> list[dict[str, Any]]:
    """A whole answer in chunks, by the same rules as one that comes from upstream."""
    relay = ChunkRelay(body["id"], choices, include_usage)
    bill: dict[str, Any] = {name: body[name] for name in BILL if name in body}
    begun = {name: value for name, value in body["response_metadata"].items() if name not in ("usage", "cost")}
    sent = relay.push(list(_as_sent(body)), lambda: {**bill, "response_metadata": begun})
    relay.conclude()
    return sent + relay.final(bill, body["usage"])


def _as_sent(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of an upstream that says each choice in one piece, and its own fields at once."""
    envelope = {name: value for name, value in body.items() if name not in (*OWN, *BILL)}
    shared: dict[str, Any] = {"object": "chat.completion.chunk"}
    shared |= {name: body[name] for name in ON_EVERY_CHUNK if name in body}
    for choice in body["choices"]:
        begins = {"index": choice["index"], "delta": {"role": "assistant"}, "finish_reason": None}
        yield {**envelope, **shared, "choices": [begins]}
        envelope = {}
        said = {**begins, "delta": _delta(choice["message"]), "logprobs": choice.get("logprobs")}
        yield {**shared, "choices": [said]}
    for choice in body["choices"]:
        rest = {name: value for name, value in choice.items() if name not in ("message", "logprobs")}
        yield {**shared, "choices": [{**rest, "delta": {}}]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    delta = {name: value for name, value in message.items() if name != "role"}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    return delta
