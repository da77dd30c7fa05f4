"""Schemas of past turns."""

from gateway.history.past_turns import REASONS
from gateway.http.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    TEXT,
    UNIX,
    WHOLE,
    Schema,
    many,
    obj,
    or_null,
    page,
    ref,
    spent_fields,
)


def turn_schemas() -> dict[str, Schema]:
    """All of them by their names."""
    spent = spent_fields()
    turn: dict[str, Schema] = {
        "id": TEXT,
        "object": {"const": "conversation.turn"},
        "number": WHOLE,
        "status": {"enum": ["complete", "partial", "unanswered"]},
        "created_at": or_null(UNIX),
        "request_ids": many(TEXT),
        "models": many(TEXT),
        "agents": many(TEXT),
        **spent,
    }
    request = obj(
        "One request of a turn: what it forwarded, why, and its bill.",
        "request_id sent sent_is_exact reason why usage cost",
        request_id=TEXT,
        completion_id=or_null(TEXT),
        model=TEXT,
        agent=or_null(obj("Who answered.", id=TEXT, type=TEXT)),
        status={"enum": ["complete", "partial", "failed"]},
        created_at=UNIX,
        sent={**or_null(many(ANY_OBJECT)), "description": "The forwarded messages, rebuilt; null: not stored."},
        sent_is_exact={**FLAG, "description": "It is what was forwarded, equal as JSON."},
        reason={"description": "Why it is not.", "enum": [*REASONS, None]},
        why=or_null({**ANY_OBJECT, "description": "Strategy, reasons, window, and what was decided for artifacts."}),
        usage=or_null(spent["usage"]),
        cost=or_null(spent["cost"]),
        calls=many(ANY_OBJECT),
    )
    required = "id object number status created_at request_ids models agents usage cost"
    conversation = obj("Whose turn it is.", "id", id=TEXT)
    return {
        "Turn": obj("A turn of the current branch, and what it cost.", required, **turn),
        "Turns": page("Turn"),
        "TurnDetails": obj(
            "A turn with its messages and requests.",
            f"{required} conversation messages requests",
            **turn,
            conversation=conversation,
            messages=many(ref("StoreMessage")),
            requests=many(request),
        ),
    }
