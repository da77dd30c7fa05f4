"""Schemas of windows as they are now, and of the classic API, which tells of them with each answer."""

from gateway.http.conversations.context import PARTS
from gateway.http.openapi.schemas import FLAG, NUMBER, TEXT, UNIX, WHOLE, Schema, many, obj, or_null, ref


def windows() -> dict[str, Schema]:
    """All of them by their names."""
    return _of_windows()


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
            "messages turns artifacts_reduced artifacts_excluded",
            messages=WHOLE,
            turns=or_null(WHOLE),
            artifacts_reduced=many(artifact),
            artifacts_excluded=many(artifact),
        ),
        "warnings": many(TEXT),
    }
    segment = obj("A summary of old turns.", "id messages text", id=TEXT, messages=many(WHOLE), text=TEXT)
    return {
        "WindowPart": part,
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
