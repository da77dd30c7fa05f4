"""Rebuilds the conversation of a request: `build_llm_messages()` (contract §3)."""

import asyncio
from dataclasses import replace
from typing import Any

from gateway.conversation.matching import Continuation, continue_path
from gateway.conversation.messages import new_message
from gateway.conversation.pairing import check_pairs, forwardable, regrouped, without_open_calls
from gateway.errors import ConversationNotFound
from gateway.ids import new_id
from gateway.models.conversation import (
    INLINE_MESSAGES,
    INSTRUCTION_ROLES,
    ConversationMessage,
    History,
    StoredConversation,
)
from gateway.models.exchange import ChatRequest
from gateway.ports import ConversationStore

INLINE_BYTES = 2**20
BYTES_PER_TOKEN = 8
"""No more stored bytes are read than this times the budget: text with longer tokens than that is none."""


async def build_llm_messages(
    request: ChatRequest, store: ConversationStore, *, remembers: bool, budget_tokens: int | None
) -> History:
    """The messages of the conversation, each with its reasoning steps, and where the new ones hang.

    Args:
        remembers: whether this request leaves stored content (`store`, and a mode other than `off`).
        budget_tokens: the prompt's budget; only as much of the path is read as could fit into it (None: all).

    Raises:
        ConversationNotFound: the id is unknown, deleted or another tenant's.
        InvalidRequest: results and calls do not pair; names `messages[i]`.
        StorageUnavailable: it was needed and cannot be reached.
    """
    ref = request.conversation
    stored = None
    if ref.conversation_id or ref.session:
        resend = any(message["role"] == "assistant" for message in request.messages)
        limit = None if resend or budget_tokens is None else BYTES_PER_TOKEN * budget_tokens
        stored = await store.find_conversation(request.caller.tenant, ref, max_bytes=limit)
        if stored is None and ref.conversation_id:
            raise ConversationNotFound("No such conversation.", param="conversation")
    if _is_little(request, stored):
        return _rebuilt(request, stored, remembers)
    return await asyncio.to_thread(_rebuilt, request, stored, remembers)


def _is_little(request: ChatRequest, stored: StoredConversation | None) -> bool:
    """Whether comparing and pairing is done in the twinkling of an eye; streams of others must not wait for it."""
    count = len(request.messages)
    if stored is not None:
        count += len(stored.path) + sum(map(len, stored.branches))
    return count < INLINE_MESSAGES and request.size < INLINE_BYTES


def _rebuilt(request: ChatRequest, stored: StoredConversation | None, remembers: bool) -> History:
    return _new_conversation(request, remembers) if stored is None else _continued(request, stored, remembers)


def _split(request: ChatRequest) -> tuple[tuple[dict[str, object], ...], list[ConversationMessage]]:
    """Leading system and developer messages, and the rest."""
    messages = request.messages
    count = 0
    while count < len(messages) and messages[count]["role"] in INSTRUCTION_ROLES:
        count += 1
    return messages[:count], [new_message(body, i) for i, body in enumerate(messages[count:])]


def _new_conversation(request: ChatRequest, remembers: bool) -> History:
    instructions, sent = _split(request)
    check_pairs(sent, 0, len(instructions))
    return History(
        conversation_id=new_id("conv_") if remembers else None,
        created=True,
        instructions=instructions,
        messages=tuple(sent),
        session=request.conversation.session if remembers else None,
    )


def _continued(request: ChatRequest, stored: StoredConversation, remembers: bool) -> History:
    sent_instructions, sent = _split(request)
    head = regrouped(stored.path)
    path, place = _best_branch(head, stored, sent)
    kept, new = path[: place.kept], sent[place.first_new :]
    parent = kept[-1].message_id if kept else None
    base = forwardable(kept)
    if not (new and new[0].role == "tool"):
        base = without_open_calls(base)
    if sent_instructions and not place.first_new:
        base = [message for message in base if message.role not in INSTRUCTION_ROLES]
    first = (kept[-1].sequence_number or 0) + 1 if kept else 0
    messages = [*base, *(replace(m, sequence_number=first + i) for i, m in enumerate(new))]
    check_pairs(messages, len(base), len(sent_instructions) + place.first_new)
    return History(
        conversation_id=stored.conversation_id if remembers else None,
        created=False,
        instructions=sent_instructions or _in_force(stored, kept),
        messages=tuple(messages),
        stored=len(base),
        parent_id=parent,
        at_head=path is head and place.kept == len(path),
        attachments=stored.attachments,
        unread=stored.unread if kept else 0,
        restored=len(base) - place.first_new + place.restored if base else 0,
    )


def _best_branch(
    head: list[ConversationMessage], stored: StoredConversation, sent: list[ConversationMessage]
) -> tuple[list[ConversationMessage], Continuation]:
    """The branch that shares most with what was sent; the head's unless another shares more."""
    best, place = head, continue_path(head, sent)
    for branch in stored.branches:
        other = continue_path(branch, sent)
        if other.first_new > place.first_new:
            best, place = list(branch), other
    return best, place


def _in_force(stored: StoredConversation, kept: list[ConversationMessage]) -> tuple[dict[str, Any], ...]:
    """The system messages that stood at the point where the request continues."""
    digest = kept[-1].instructions_digest if kept else None
    return stored.instructions.get(digest or "", ())
