"""Schemas of the trail: what administrators made, changed, saw and deleted (guarantee §12.12)."""

from gateway.api.openapi.schemas import FLAG, TEXT, WHOLE, Schema, many, obj, or_null, ref

NUMBER_OF_EVENT = or_null(WHOLE)
DIGEST: Schema = {**TEXT, "pattern": "^[0-9a-f]{64}$"}


def trail_schemas() -> dict[str, Schema]:
    """An event, and a page of them."""
    event = obj(
        "What somebody did; `digest` is keyed, over the event and `previous_digest`, that of the event before.",
        "number at actor actor_name tenant action object_id ok details previous_digest digest",
        number={**WHOLE, "minimum": 1},
        at={**TEXT, "format": "date-time", "description": "UTC, to the microsecond."},
        actor=or_null({**TEXT, "description": "The id of the key; null: a command."}),
        actor_name=or_null({**TEXT, "description": "Of the key, or of the system's user who ran the command."}),
        tenant=or_null({**TEXT, "description": "Whose data it is about."}),
        object_id=or_null({**TEXT, "description": "What it was done to."}),
        ok={**FLAG, "description": "False for what was refused."},
        details={"type": "object", "additionalProperties": True},
        previous_digest=DIGEST,
        digest=DIGEST,
    )
    events = obj(
        "Events in the order of their numbers; the next page is `after=` its `last_id`.",
        "object data first_id last_id has_more:flag",
        object={"const": "list"},
        data=many(ref("TrailEvent")),
        first_id=NUMBER_OF_EVENT,
        last_id=NUMBER_OF_EVENT,
    )
    return {"TrailEvent": event, "TrailEvents": events}
