"""Makes a stored answer again: the completion as its client got it, as a lookup returns it, or in chunks."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from gateway.billing import cost, ledger_verification, metadata
from gateway.core.formats import stream_record
from gateway.core.formats.stream_record import ChunkRelay
from gateway.core.types import bill, turn

GATEWAY_FIELDS = ("response_metadata", "conversation")
"""Fields that the gateway adds to an answer, and to the first and the last chunk of a stream."""


def as_completion(stored: turn.StoredCompletion) -> dict[str, Any]:
    """Returns the completion with its bill; without content where none was stored (`store: false`, failed turns)."""
    entry = stored.ledger
    bare: dict[str, Any] = {
        "id": entry.completion_id or entry.request_id,
        "object": "chat.completion",
        "created": int(entry.created_at.timestamp()),
        "model": entry.model,
        "choices": [],
    }
    body = {**bare, **answered(stored), "status": entry.status}
    body["response_metadata"] = metadata.with_citations(metadata.with_plan(entry.metadata, stored.plan), stored.cited)
    if stored.completion_metadata is not None:
        body["metadata"] = stored.completion_metadata
    return body


def answered(stored: turn.StoredCompletion) -> dict[str, Any]:
    """Returns the completion as its client got it."""
    entry = stored.ledger
    response_metadata = metadata.with_citations(metadata.in_answer(entry.metadata), stored.cited)
    body = {**(stored.completion or {}), "response_metadata": response_metadata}
    used = cost.primary_usage(entry.calls)
    if used:
        calls = tuple(
            ledger_verification.repriced(call) for call in entry.calls
        )  # exact where a cost is more than its column holds
        reported = body["usage"] if isinstance(body.get("usage"), dict) else {}
        billed = {name: used[name] for name in bill.USAGE_FIGURES if name in used}
        body["usage"] = metadata.extended_usage({**reported, **billed}, calls)
    if entry.conversation_id:
        body["conversation"] = {"id": entry.conversation_id}
    if isinstance(named := entry.metadata.get("agent"), dict):
        body["agent"] = named
    return body


def stored_answer(stored: turn.StoredCompletion) -> tuple[dict[str, Any], str | None, Decimal | None]:
    """Returns the stored parts of the first answer: the completion, its conversation, and its cost in USD."""
    usd = cost.total_cost(stored.ledger.calls)[0].total_cost
    return answered(stored), stored.ledger.conversation_id, usd


def replayed_chunks(body: dict[str, Any], choices: int, *, include_usage: bool) -> list[dict[str, Any]]:
    """Splits a whole answer into chunks, by the same rules as an answer from upstream."""
    relay = ChunkRelay(body["id"], choices, include_usage)
    bill: dict[str, Any] = {name: body[name] for name in GATEWAY_FIELDS if name in body}
    late = ("usage", "cost", *turn.CITED_FIELDS)
    known = {name: value for name, value in body["response_metadata"].items() if name not in late}
    sent = relay.push(list(_as_chunks(body)), lambda: {**bill, "response_metadata": metadata.begun(known)})
    relay.conclude()
    return sent + relay.final(bill, body["usage"])


def _as_chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the chunks of an upstream that sends each choice in one piece, and its own fields with the first chunk."""
    envelope = {
        name: value for name, value in body.items() if name not in (*stream_record.CHUNK_FIELDS, *GATEWAY_FIELDS)
    }
    shared: dict[str, Any] = {"object": "chat.completion.chunk"}
    shared |= {name: body[name] for name in stream_record.ON_EVERY_CHUNK if name in body}
    for choice in body["choices"]:
        begins = {"index": choice["index"], "delta": {"role": "assistant"}, "finish_reason": None}
        yield {**envelope, **shared, "choices": [begins]}
        envelope = {}
        content = {**begins, "delta": _delta(choice["message"]), "logprobs": choice.get("logprobs")}
        yield {**shared, "choices": [content]}
    for choice in body["choices"]:
        rest = {name: value for name, value in choice.items() if name not in ("message", "logprobs")}
        yield {**shared, "choices": [{**rest, "delta": {}}]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    delta = {name: value for name, value in message.items() if name != "role"}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    return delta
