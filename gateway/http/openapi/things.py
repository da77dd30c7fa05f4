"""Schemas of the memory of things: what its API takes and gives (guarantee §11.17)."""

from gateway.http.openapi.schemas import TEXT, UNIX, WHOLE, Schema, deleted, many, obj, or_null, page, ref


def thing_schemas() -> dict[str, Schema]:
    """What is listed, and what may be remembered."""
    thing = obj(
        "A thing that is remembered; `id` is that of the memory, `thing_id` its own.",
        "id object type thing_id name aliases action times scope conversation_id created_at mentioned_at expires_at",
        object={"const": "memory.thing"},
        aliases=many(TEXT),
        action={**TEXT, "description": "What was done with it last."},
        times={**WHOLE, "description": "How often it was noted; 0: it was only shown."},
        scope={"enum": ["conversation", "user"]},
        conversation_id=or_null(TEXT),
        created_at=UNIX,
        mentioned_at=UNIX,
        expires_at=or_null(UNIX),
    )
    conversation = obj(
        "A conversation that is about a thing.",
        "id object memory_id action times mentioned_at",
        object={"const": "memory.conversation"},
        times=WHOLE,
        mentioned_at=UNIX,
    )
    return {
        "MemoryThing": thing,
        "MemoryThings": page("MemoryThing"),
        "NewThings": {"anyOf": [ref("ThingToRemember"), ref("ThingsToRemember")]},
        "DeletedMemoryThing": deleted("memory.thing.deleted"),
        "ThingConversation": conversation,
        "ThingConversations": page("ThingConversation"),
    }
