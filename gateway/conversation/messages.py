"""Messages: what makes two of them the same, and the reasoning that belongs to an assistant's."""

from typing import Any

from gateway.models.chain import message_digest, says_nothing
from gateway.models.conversation import ConversationMessage


def new_message(body: dict[str, Any], number: int | None = None) -> ConversationMessage:
    """A message as it arrived, not stored yet; `number` is its place in the conversation, where that is known."""
    return ConversationMessage(role=body["role"], body=body, sequence_number=number, digest=message_digest(body))


def is_unanswerable(message: ConversationMessage) -> bool:
    """A partial answer that left nothing: there is nothing of it to forward."""
    return says_nothing(message.body, message.status)
