"""Reads the items that a client adds to a conversation as chat messages."""

from typing import Any

from gateway.base.ids import new_id
from gateway.http.fields import invalid, missing
from gateway.models.chain import message_digest
from gateway.models.conversation import ConversationMessage
from gateway.wire.responses.items import ItemReader

MAX_ITEMS = 20
"""OpenAI's limit for one request."""


def parse_items(value: Any) -> tuple[ConversationMessage, ...]:
    """The chat messages that `items` are, without ids.

    Raises:
        InvalidRequest: an item breaks a rule; names `items[i]…`.
    """
    if value is None:
        raise missing("items")
    if not isinstance(value, list):
        raise invalid("items", "must be a list")
    if len(value) > MAX_ITEMS:
        raise invalid("items", f"may hold {MAX_ITEMS} items at once")
    reader = ItemReader()
    for index, item in enumerate(value):
        reader.read(item, f"items[{index}]")
    reader.end()
    return tuple(
        ConversationMessage(
            each.body["role"],
            each.body,
            message_id=new_id("msg_"),
            status=each.status,
            digest=message_digest(each.body),
            pinned=each.pinned,
        )
        for each in reader.messages
    )
