"""Schemas of past turns, and of replays."""

from gateway.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    TEXT,
    UNIX,
    USD,
    WHOLE,
    Schema,
    many,
    obj,
    or_null,
    page,
    ref,
    spent_fields,
)
from gateway.inspection.rebuilt_turns import REASONS


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
        "completion_id? model created_at:unix",
        agent=or_null(obj("Who answered.", id=TEXT, type=TEXT)),
        status={"enum": ["complete", "partial", "failed"]},
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
        **_of_replays(spent),
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


def _of_replays(spent: dict[str, Schema]) -> dict[str, Schema]:
    conversation = obj("Whose turns they are.", "id", id=TEXT)
    estimate = obj("The least and the most.", "min max", min=USD, max=USD)
    agent = obj("What is to be other of one agent.", "", "type? instruction? instruction_file_text? window:whole?")
    result = obj("A result that the client brings.", "tool_call_id content", tool_call_id=TEXT, content=TEXT)
    number = or_null({**WHOLE, "minimum": 1})
    asked = {"model": or_null(TEXT), "from_turn": number, "to_turn": number, "dry_run": or_null(FLAG)}
    agents = or_null({"type": "object", "additionalProperties": agent})
    parameters = {**or_null(ANY_OBJECT), "description": "Further fields of each request, such as `tools`."}
    estimated = many(obj("One request.", "model estimated_cost", model=TEXT, estimated_cost=estimate))
    turn = obj("One turn.", "turn requests estimated_cost", turn=WHOLE, requests=estimated, estimated_cost=estimate)
    return {
        "ReplayRequest": obj(
            "What is to be other than it was; or a replay to go on with.",
            **asked,
            agents=agents,
            parameters=parameters,
            context=or_null(ref("Context")),
            move_head={**or_null(FLAG), "description": "The branch becomes the current one when all is done."},
            replay_id=or_null(TEXT),
            tool_results=or_null(many(result)),
        ),
        "ReplayEstimate": obj(
            "What the turns would cost.",
            "object conversation turns estimated_cost",
            object={"const": "conversation.replay.dry_run"},
            conversation=conversation,
            turns=many(turn),
            estimated_cost=estimate,
        ),
        "ReplayEvent": {
            "description": "The replay begins or ends; a piece of an answer; what became of a turn.",
            "anyOf": [
                obj(
                    "Begin or end; with the figures of its branch at the end.",
                    "object replay_id conversation from_turn:whole to_turn:whole status",
                    "turns:whole last_message_id?",
                    object={"const": "conversation.replay"},
                    conversation=conversation,
                    status={"enum": ["running", "complete", "needs_tool"]},
                    head={"enum": ["stays", "moved"]},
                    **spent,
                ),
                obj(
                    "A piece of an answer.", "object turn:whole content", object={"const": "conversation.replay.delta"}
                ),
                obj(
                    "What became of a turn, and what the requests of this run cost.",
                    "object turn:whole status request_id? request_ids usage cost",
                    object={"const": "conversation.replay.turn"},
                    status={"enum": ["complete", "needs_tool", "failed"]},
                    request_ids=many(TEXT),
                    model=or_null(TEXT),
                    agent=or_null(obj("Who answered.", id=TEXT, type=TEXT)),
                    message=or_null(ANY_OBJECT),
                    calls=many(ANY_OBJECT),
                    **spent,
                ),
            ],
        },
    }
