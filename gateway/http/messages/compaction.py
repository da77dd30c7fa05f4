"""Compaction blocks of `/v1/messages`: what one stands for, and an answer that is one and nothing else."""

from dataclasses import dataclass, field, replace
from typing import Any

from gateway.base.ids import new_id
from gateway.http.edge import EVENT_STREAM, Send, named_event, send_json, send_start
from gateway.models.conversation import ConversationRef
from gateway.storage.store import ConversationStore
from gateway.turn.stages import Paused
from gateway.wire.anthropic.compacting import as_block, block_events, expanded, find_block
from gateway.wire.compaction import Sealer, opened

Json = dict[str, Any]
MARKS = (b"compact_20260112", b'"compaction"')
"""One of these stands in every body that has a block, or asks for one."""
UNUSED: Json = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0)
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """A body with what its block stands for, where in a stored conversation it goes on, and the key of blocks."""

    body: Json
    secret: bytes = field(repr=False)
    ref: ConversationRef = field(default_factory=ConversationRef)


async def resolved(body: Json, tenant: str, store: ConversationStore) -> Resolved:
    """The body with what its last compaction block stands for in the place of that and of all before it. A block that
    this gateway did not make for this tenant is left as it is; so is one of a conversation that was deleted.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    secret = await store.secret()
    found = find_block(body)
    compacted = opened(found.sealed, tenant, secret) if found is not None else None
    if found is None or compacted is None:
        return Resolved(body, secret)
    at = compacted.at
    if at is not None and not await store.said_anywhere(tenant, [at]):
        at = None
        content = body["messages"][found.message]["content"][found.block].get("content")
        if compacted.extract is None and isinstance(content, str):
            compacted = replace(compacted, extract=content)
    ref = ConversationRef(at=at, before=compacted.before) if at is not None else ConversationRef()
    return Resolved(expanded(body, found, compacted), secret, ref)


async def send_paused(paused: Paused, sealer: Sealer, send: Send) -> None:
    """An answer that is a compaction block: no model was asked, nothing is billed or stored."""
    request = paused.request
    sealer = replace(sealer, messages=request.messages, at=paused.at)
    block = as_block(sealer, sealer.made_for(""))
    usage = {**UNUSED, "iterations": [{"type": "compaction", **UNUSED}]}
    message: Json = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": request.model}
    ended = {"stop_reason": "compaction", "stop_sequence": None}
    edits: Json = {"context_management": {"applied_edits": []}}
    if not request.stream:
        await send_json(send, 200, {**message, "content": [block], **ended, "usage": usage, **edits})
        return
    begins = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": UNUSED}
    events = [
        {"type": "message_start", "message": begins},
        *block_events(block, 0),
        {"type": "message_delta", "delta": ended, "usage": usage, **edits},
        {"type": "message_stop"},
    ]
    await send_start(send, 200, EVENT_STREAM)
    await send({"type": "http.response.body", "body": b"".join(map(named_event, events))})
