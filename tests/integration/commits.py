"""Makes what a store is given: whole turns with their bills."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.core.ids import new_id
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.bill import CallCost
from gateway.core.types.chain import CHAIN_START, chain_digests, extended, message_digest
from gateway.core.types.conversation import ConversationMessage, ConversationRef, StoredConversation
from gateway.core.types.turn import (
    CompletionQuery,
    LedgerEntry,
    NewAnswer,
    RequestFailure,
    StoredCompletion,
    StoredTurn,
    TryFailure,
    TurnCommit,
    TurnStatus,
)
from gateway.storage.store import ConversationStore
from tests.support.answers import there

NOW = datetime(2026, 11, 21, 12, 30, 15, 250_000, tzinfo=UTC)
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def quoted(words: str) -> dict[str, Any]:
    """Of a bill: two tries failed, and what was said of it quotes these words."""
    tried = TryFailure("openai/gpt-4o", 0, 5, 400, "invalid_value", f"cannot read {words!r}")
    return {"failure": RequestFailure(400, f"cannot use {words!r}", (tried, tried)), "error_code": "invalid_value"}


def message(role: str, content: Any, **more: Any) -> ConversationMessage:
    """A message as `turns.stored_turn` gives it to the store."""
    body = {"role": role, "content": content, **more}
    return ConversationMessage(role, body, message_id=new_id("msg_"), digest=message_digest(body), created_at=NOW)


def bill(tenant: str, conversation_id: str | None, status: TurnStatus = "complete", **more: Any) -> LedgerEntry:
    """A priced ledger row."""
    call = CallCost("primary", "openai/gpt-4o", USAGE, Decimal("0.000017500001"), Decimal("0.00003"), False, {"a": "1"})
    metadata = {"usage": USAGE, "cost": {"total_cost": call.total}, "request": "figures"}
    fields: dict[str, Any] = {
        "request_id": new_id("req_"),
        "tenant": tenant,
        "conversation_id": conversation_id,
        "completion_id": new_id("chatcmpl-"),
        "model": "gpt-4o",
        "status": status,
        "stream": False,
        "created_at": NOW,
        "metadata": metadata,
        "calls": (call,),
    }
    return LedgerEntry(**{**fields, **more})


def turn(
    tenant: str, conversation_id: str, question: Any = "question", answers: Sequence[Any] = ("answer",), **more: Any
) -> TurnCommit:
    """A question and its answers (siblings), with their bill; `more` goes to the stored turn."""
    status: TurnStatus = more.pop("status", "complete")
    asked = more.get("new_messages", (message("user", question),))
    marks = tuple(chain_digests([each.body for each in asked], more.get("base", CHAIN_START)))
    end = marks[-1] if marks else more.get("base", CHAIN_START)
    replies = [message("assistant", text) for text in answers]
    choices = [NewAnswer(m, n, digest=extended(end, m.body)) for n, m in enumerate(replies)]
    entry = bill(tenant, conversation_id, status, **more.pop("entry", {}))
    bodies = [{"index": a.choice, "message": a.message.body, "finish_reason": "stop"} for a in choices]
    completion = {"id": entry.completion_id, "object": "chat.completion", "choices": bodies} if choices else None
    fields: dict[str, Any] = {
        "conversation_id": conversation_id,
        "created": False,
        "parent_id": None,
        "at_head": True,
        "instructions": (),
        "new_messages": asked,
        "digests": marks,
        "answers": tuple(choices),
        "completion": completion,
    }
    return TurnCommit(entry, StoredTurn(**{**fields, **more}))


def document(content: str, title: str = "paper") -> Artifact:
    """An attachment as the conversation keeps it."""
    metadata = {"attachment_type": "document", "label": "https://example.org/p"}
    source = f"attachment:0:{title}"
    return Artifact("art_0123456789abcdef", ArtifactType.DOCUMENT, content, len(content), source, NOW, title, False,
                    metadata=metadata)  # fmt: skip


async def rebuilt(
    store: ConversationStore,
    tenant: str,
    place: str | ConversationRef,
    max_bytes: int | None = None,
    **more: Any,
) -> StoredConversation:
    """A conversation that is there, by its id or otherwise."""
    ref = ConversationRef(place) if isinstance(place, str) else place
    return there(await store.find_conversation(tenant, ref, max_bytes=max_bytes, **more))


def contents(found: StoredConversation) -> list[Any]:
    """What the messages of a path say."""
    return [each.content for each in found.path]


def in_force(found: StoredConversation) -> tuple[dict[str, Any], ...]:
    """The system messages that the latest message of a path names."""
    return found.instructions


async def listed(store: ConversationStore, tenant: str, conversation_id: str) -> list[StoredCompletion]:
    """A conversation's stored completions, oldest first."""
    page = there(await store.list_completions(tenant, CompletionQuery(conversation_id, limit=100)))
    assert not page.has_more
    return list(page.found)
