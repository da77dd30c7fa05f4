"""Schemas of windows as they are now, and of the classic API, which tells of them with each answer."""

from gateway.api.conversations.context import PARTS
from gateway.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    METADATA,
    NUMBER,
    TEXT,
    UNIX,
    WHOLE,
    Schema,
    many,
    obj,
    or_null,
    ref,
)


def windows() -> dict[str, Schema]:
    """All of them by their names."""
    return {**_of_windows(), **_of_the_classic_api()}


def _of_windows() -> dict[str, Schema]:
    share = or_null(NUMBER)
    measured = {"tokens": WHOLE, "share_of_window": share, "share_of_budget": share}
    part = obj("Tokens of a part of the window.", " ".join(measured), **measured)
    names = ("artifact_id", "source", "artifact_type", "strategy")
    sizes = {"original_size_chars": WHOLE, "processed_size_chars": WHOLE}
    artifact = obj("Which artifact, and how much of it is left.", "", **dict.fromkeys(names, TEXT), **sizes)
    window: dict[str, Schema] = {
        "strategy": or_null(TEXT),
        "profile": or_null(TEXT),
        "context_window": or_null(WHOLE),
        "budget_tokens": or_null(WHOLE),
        **measured,
        "tokens_estimated": FLAG,
        "parts": obj("What fills it.", "", **{name: ref("WindowPart") for name in PARTS}),
        "messages_included": WHOLE,
        "left": obj(
            "What is not in it, or not as a whole.",
            "messages:whole turns:whole? artifacts_reduced artifacts_excluded",
            artifacts_reduced=many(artifact),
            artifacts_excluded=many(artifact),
        ),
        "warnings": many(TEXT),
    }
    passage = obj("What was sent of it.", "start end text", start=or_null(WHOLE), end=or_null(WHOLE), text=TEXT)
    citation = obj(
        "What an answer rests on, as it says itself.",
        "artifact_id source title? place? passages",
        passages=many(passage),
        choice=WHOLE,
    )
    segment = obj("A summary of old turns.", "id messages text", id=TEXT, messages=many(WHOLE), text=TEXT)
    return {
        "WindowPart": part,
        "Citation": citation,
        "Window": obj("How full a window is, and of what.", " ".join(window), **window),
        "ConversationContext": obj(
            "The window as the latest answered request left it; zeros and nulls with a `reason` where none did.",
            f"object conversation_id request_id created_at model segments memory reason {' '.join(window)}",
            object={"const": "conversation.context"},
            conversation_id=TEXT,
            request_id=or_null(TEXT),
            created_at=or_null(UNIX),
            model=or_null(TEXT),
            **window,
            segments=many(segment),
            memory=obj("What is remembered.", "things", things=WHOLE),
            reason=or_null(TEXT),
        ),
    }


def _of_the_classic_api() -> dict[str, Schema]:
    time: Schema = {"type": "string", "format": "date-time"}
    listed = {"conversation_id": TEXT, "id": TEXT, "created_at": time, "last_updated": time, "metadata": METADATA}
    turn = obj(
        "A message of the user, and what came of it.",
        "user_message agent_response timestamp mcp_tools_used",
        timestamp=or_null(time),
        mcp_tools_used=many(TEXT),
    )
    mentioned = {"mentioned_at": time, "action": TEXT}
    workflow = obj(
        "A workflow, with what was done with it last.",
        "spec_id name mentioned_at action aliases",
        aliases=many(TEXT),
        **mentioned,
    )
    mention = obj("A conversation.", "conversation_id mentioned_at action", conversation_id=or_null(TEXT), **mentioned)
    named = {**TEXT, "maxLength": 256, "description": "An id of the gateway's, or a name of the client's own."}
    return {
        "ClassicMessage": {
            **obj(
                "A message; further fields are those of `ChatRequest`.",
                "message",
                conversation_id=or_null(named),
                workflow_id=or_null({**TEXT, "maxLength": 128}),
                workflow_spec=or_null({**ANY_OBJECT, "description": "The workflow, shown to the model as a document."}),
                model=or_null({**TEXT, "description": "The first of `model_list` without it."}),
            ),
            "additionalProperties": True,
        },
        "ClassicAnswer": obj(
            "The answer, and how full the window was.",
            "response conversation_id? tools_used context response_metadata",
            tools_used=many(TEXT),
            tool_calls=many(ANY_OBJECT),
            context=ref("Window"),
            response_metadata=ref("ResponseMetadata"),
        ),
        "ClassicEvent": {
            "anyOf": [obj("A piece of the text.", "delta", delta=TEXT), ref("ClassicAnswer"), ref("Error")]
        },
        "ClassicConversation": obj("A conversation without its turns.", " ".join(listed), **listed),
        "ClassicConversations": obj(
            "A page.", "conversations has_more", conversations=many(ref("ClassicConversation")), has_more=FLAG
        ),
        "ClassicHistory": obj(
            "A conversation with its turns, the oldest first.",
            f"{' '.join(listed)} turn_count turns",
            **listed,
            turn_count=WHOLE,
            turns=many(turn),
        ),
        "ClassicWorkflows": obj(
            "The workflows that a conversation is about, the latest first.",
            "conversation_id workflows has_more:flag",
            workflows=many(workflow),
        ),
        "ClassicMentions": obj(
            "The conversations that are about a workflow, the latest first.",
            "spec_id conversations has_more:flag",
            conversations=many(mention),
        ),
        "ClassicCleared": obj("Done.", "conversation_id", conversation_id=TEXT, cleared=FLAG, deleted=FLAG),
        "ClassicHealth": obj("Whether it serves.", "status", status=TEXT, reason=TEXT, context=ref("Statistics")),
        "PromptInfo": obj(
            "The prompt profile that a message calls for.",
            "model mode? context",
            "source reason tokens:whole saved_tokens:whole monolith_tokens:whole",
            modes={"type": "object", "additionalProperties": WHOLE},
            context=or_null({**ANY_OBJECT, "description": "As `ConversationContext`."}),
        ),
    }
