"""What the items of a request refer to: stored items that it names (`item_reference`)."""

from typing import Any

from gateway.core.errors import ItemNotFound
from gateway.core.formats.responses.request_parser import STANDING
from gateway.core.formats.responses.response_completion import referred
from gateway.core.types.items import message_id_of
from gateway.storage.store import ConversationStore

Json = dict[str, Any]


def refers(body: Json) -> bool:
    """Whether an item stands for something else, a stored one or all before it, or such an item is asked for."""
    if body.get("context_management") is not None:
        return True
    given = body.get("input")
    if not isinstance(given, list):
        return False
    return any(isinstance(item, dict) and (item.get("type") in STANDING or is_reference(item)) for item in given)


def is_reference(item: Any) -> bool:
    """Whether an item names a stored one and is nothing else."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    return item.get("type") == "item_reference" or (item.get("type") is None and "role" not in item)


async def with_referred(body: Json, tenant: str, store: ConversationStore) -> Json:
    """The body with stored items in the place of references to them.
    Raises ItemNotFound: the tenant has no such item; names `input[i].id`; StorageUnavailable: the storage cannot be
    reached."""
    given = body.get("input")
    if not isinstance(given, list):
        return body
    named = {index: str(item["id"]) for index, item in enumerate(given) if is_reference(item)}
    if not named:
        return body
    places = {index: message_id_of(item_id) for index, item_id in named.items()}
    stored = await store.said_anywhere(tenant, list({each for each in places.values() if each is not None}))
    found = list(given)
    for index, item_id in named.items():
        message = stored.get(places[index] or "")
        item = referred(message, item_id) if message is not None else None
        if item is None:
            text = f"Item with id '{item_id}' not found. Items are not kept where `store` is false."
            raise ItemNotFound(text, param=f"input[{index}].id")
        found[index] = item
    return {**body, "input": found}
