"""Schemas of the memory of things: what its API takes and gives (guarantee §11.17)."""

from gateway.api.openapi.schemas import TEXT, WHOLE, Schema, deleted, many, obj, page, ref


def thing_schemas() -> dict[str, Schema]:
    """What is listed, and what may be remembered."""
    thing = obj(
        "A thing that is remembered; `id` is that of the memory, `thing_id` its own.",
        "id object type thing_id name aliases action times scope conversation_id? created_at:unix mentioned_at:unix "
        "expires_at:unix?",
        object={"const": "memory.thing"},
        aliases=many(TEXT),
        action={**TEXT, "description": "What was done with it last."},
        times={**WHOLE, "description": "How often it was noted; 0: it was only shown."},
        scope={"enum": ["conversation", "user"]},
    )
    conversation = obj(
        "A conversation that is about a thing.",
        "id object memory_id action times:whole mentioned_at:unix",
        object={"const": "memory.conversation"},
    )
    return {
        "MemoryThing": thing,
        "MemoryThings": page("MemoryThing"),
        "NewThings": {"anyOf": [ref("ThingToRemember"), ref("ThingsToRemember")]},
        "DeletedMemoryThing": deleted("memory.thing.deleted"),
        "ThingConversation": conversation,
        "ThingConversations": page("ThingConversation"),
    }
