"""The part of an exchange that is remembered: new messages, answers with their reasoning, attachments."""

from dataclasses import replace
from typing import Any

from gateway.conversation.messages import content_text, message_digest
from gateway.exchange import Exchange, Outcome
from gateway.ids import new_id
from gateway.models.conversation import ConversationMessage
from gateway.models.reasoning import reasoning_events
from gateway.models.turn import NewAnswer, StoredTurn


def stored_turn(exchange: Exchange, outcome: Outcome) -> StoredTurn:
    """What the conversation gains. A failed turn keeps its messages for the audit and has no answer.

    A trailing assistant message is a prefill: stored is prefill plus completion (contract §3.4).
    """
    request, history, built = exchange.request, exchange.history, exchange.built
    if built is None or exchange.conversation_id is None:
        raise ValueError("an exchange in mode off or with store: false leaves no turn")
    new = [m.stored_as(new_id("msg_"), request.arrived_at) for m in history.new_messages]
    current = built.material.current - history.stored
    if built.fitted.forwarded.rendered is not None and 0 <= current < len(new):
        block = built.fitted.forwarded
        new[current] = replace(new[current], rendered=block.rendered, standing=block.standing)
    prefill = new.pop() if new and new[-1].role == "assistant" and outcome.status != "failed" else None
    messages = [*history.messages[: history.stored], *new]
    events = reasoning_events(messages, request.arrived_at, [m.message_id for m in messages])
    choices = (outcome.completion or {}).get("choices", ()) if outcome.status != "failed" else ()
    answers = [
        NewAnswer(
            replace(_answer(choice, outcome, prefill), origin=exchange.deployment.origin),
            choice.get("index", number),
            events,
        )
        for number, choice in enumerate(choices)
        if isinstance(choice.get("message"), dict)
    ]
    answers.sort(key=lambda answer: answer.choice)
    completion = None
    if outcome.completion is not None and outcome.status != "failed":
        own = ("response_metadata", "conversation")
        completion = {k: v for k, v in outcome.completion.items() if k not in own}
        completion["id"] = exchange.completion_id
        if outcome.usage is not None:
            completion["usage"] = outcome.usage
    return StoredTurn(
        conversation_id=exchange.conversation_id,
        created=history.created and history.session is None,  # a session's conversation is there when it is claimed
        parent_id=history.parent_id,
        at_head=history.at_head,
        instructions=history.instructions,
        new_messages=tuple(new),
        answers=tuple(answers),
        attachments=built.new_attachments,
        completion=completion,
        completion_metadata=request.metadata,
        prefilled=prefill is not None,
        cached=built.cached,
    )


def _answer(choice: dict[str, Any], outcome: Outcome, prefill: ConversationMessage | None) -> ConversationMessage:
    """As it will be sent again: without the fields that say nothing, which not every provider takes back."""
    message = {k: v for k, v in choice["message"].items() if v or k == "content"}
    message["role"] = "assistant"  # some local servers say "tool" or "model", which nobody would take back
    before = content_text(prefill.content) if prefill is not None else None
    if before and isinstance(message.get("content"), str):
        message["content"] = before + message["content"]
    status = "partial" if outcome.status == "partial" else "complete"
    if status == "partial":
        message.pop("tool_calls", None)  # nobody will answer them (contract §3.6)
    return ConversationMessage(
        "assistant", message, message_id=new_id("msg_"), status=status, digest=message_digest(message)
    )
