"""Reads the items that a client adds to a conversation as chat messages."""

from typing import Any

from gateway.base.ids import new_id
from gateway.http.fields import invalid, missing
from gateway.models.chain import message_digest
from gateway.models.conversation import ConversationMessage
from gateway.models.items import named_picture
from gateway.wire.responses.items import ItemReader, ReadMessage

MAX_ITEMS = 20
"""OpenAI's limit for one request."""


def parse_items(value: Any, *, keeps: bool = False) -> tuple[ConversationMessage, ...]:
    """The chat messages that `items` are, without ids.

    Args:
        keeps: their sender's files are kept here, so that pictures may be named by ids.

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
    for each in () if keeps else reader.messages:
        _check_pictures(each)
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


def _check_pictures(message: ReadMessage) -> None:
    """
    Raises:
        InvalidRequest: one is named by an id.
    """
    content, field = message.body.get("content"), "output" if message.body["role"] == "tool" else "content"
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if named_picture(part) is not None:
            text = "is not supported: chat completions take images by URL or as data URLs"
            raise invalid(f"{message.where}.{field}[{index}].file_id", text)
