"""What the window cannot hold of a long conversation is read, too, for a question that may need it (contract §4 I6)."""

from dataclasses import replace

from gateway.conversation.pairing import regrouped
from gateway.models.conversation import History
from gateway.ports import ConversationStore


async def with_earlier(history: History, store: ConversationStore, tenant: str, max_bytes: int) -> History:
    """The conversation with the latest of the messages that are older than what was read of it, no more than
    `max_bytes` of them; as it is where everything was read.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if not lacks_earlier(history) or history.read_from is None:
        return history
    earlier = await store.read_earlier(tenant, history.read_from, max_bytes=max_bytes)
    return replace(history, earlier=replace(earlier, messages=tuple(regrouped(earlier.messages))))


def asks_anew(history: History) -> bool:
    """Whether the request begins a turn: its question comes with it, so that a block can stand before it."""
    return any(message.role == "user" for message in history.new_messages)


def lacks_earlier(history: History) -> bool:
    """Whether there are older messages than what was read, of which none were read yet."""
    return history.read_from is not None and history.earlier is None
