"""`GET /v1/conversations/{id}/context`: the window as the latest request left it (guarantee §11.8)."""

from collections.abc import Mapping
from typing import Any, Literal

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.pagination import check_named
from gateway.api.shapes import Json, Unix, many, shape, unix
from gateway.core import names
from gateway.core.types import records
from gateway.core.types.artifacts import ProcessingStrategy
from gateway.storage.conversations import ConversationRecords

EXCLUDED_STRATEGY = ProcessingStrategy.EXCLUDE.value
FULL = ProcessingStrategy.INCLUDE_FULL.value
UNANSWERED, UNCOUNTED = "no_answered_request", "not_counted"
"""Reasons why there are no figures: nothing was answered yet, or in mode `off`, which counts nothing."""


PARTS = ("system", "tools", "history", "artifacts", "current")
MEASURED = {"tokens": int, "share_of_window share_of_budget": float | None}
Part = shape("WindowPart", "Tokens of a part of the window.", MEASURED)
Parts = shape("WindowParts", "What fills it.", {f"{name}?": Part for name in PARTS})
Reference = shape(
    "ArtifactReference",
    "Which artifact, and how much of it is left.",
    {"artifact_id? source? artifact_type? strategy?": str, "original_size_chars? processed_size_chars?": int},
)
Rest = shape(
    "WindowRest",
    "What is not in it, or not as a whole.",
    {"messages": int, "turns": int | None, "artifacts_reduced artifacts_excluded": many(Reference)},
)
WINDOW = {
    "strategy profile": str | None,
    "context_window budget_tokens": int | None,
    **MEASURED,
    "tokens_estimated": bool,
    "parts": Parts,
    "messages_included": int,
    "left": Rest,
    "warnings": list[str],
}
WindowObject = shape("Window", "How full a window is, and of what.", WINDOW)
Summary = shape("TurnSummary", "A summary of old turns.", {"id text": str, "messages": list[int]})
ContextObject = shape(
    "ConversationContext",
    "The window as the latest answered request left it; zeros and nulls with a `reason` where none did.",
    {"object": Literal["conversation.context"], "conversation_id": str, "created_at": Unix | None, **WINDOW}
    | {"request_id model reason": str | None, "segments": many(Summary)}
    | {"memory": shape("RememberedCount", "What is remembered.", {"things": int})},
)


class ConversationContext:
    """The endpoint `one`."""

    def __init__(self, records: ConversationRecords, auth: KeyAuthenticator) -> None:
        self._records = records
        self.one = MethodEndpoint(auth, 0, {"GET": self._find})

    async def _find(self, call: ApiCall) -> Json:
        check_named(call.query, "model")
        conversation_id = call.conversation_id
        model = call.query.get("model")
        if names.has_nul(model):
            model = ""  # which no request named either
        found = await self._records.window(call.tenant, conversation_id, model)
        return {"object": "conversation.context", "conversation_id": conversation_id, **as_context(found)}


def as_context(found: records.WindowRecord) -> Json:
    """Returns the window as JSON, with the request, model and time that it belongs to, summaries and memory."""
    latest = found.latest
    used = latest.metadata.get("context_utilization") if latest is not None else None
    segments = [
        {"id": each.segment_id, "messages": [each.first, each.last], "text": each.text} for each in found.segments
    ]
    return {
        "request_id": latest.request_id if latest is not None else None,
        "created_at": unix(latest.created_at) if latest is not None else None,
        "model": latest.model if latest is not None else None,
        **as_window(used if isinstance(used, dict) else {}, found.turns_excluded),
        "segments": segments,
        "memory": {"things": found.things},
        "reason": UNANSWERED if latest is None else None if used and used.get("breakdown") else UNCOUNTED,
    }


def as_window(used: Mapping[str, Any], turns_excluded: int | None = None) -> Json:
    """Returns as JSON how full a window is, of what, and what was left out of it. Zeros and nulls where nothing was
    counted.
    `used`: `context_utilization` of a bill."""
    window, budget = used.get("context_window"), used.get("budget_tokens")
    tokens, breakdown = used.get("tokens_used") or 0, used.get("breakdown") or {}

    def measured(count: int) -> Json:
        return {"tokens": count, "share_of_window": _share(count, window), "share_of_budget": _share(count, budget)}

    records = [each for each in used.get("artifacts_processed") or () if each.get("strategy") != FULL]
    return {
        "strategy": used.get("strategy"),
        "profile": (used.get("profile") or {}).get("mode"),
        "context_window": window,
        "budget_tokens": budget,
        **measured(tokens),
        "tokens_estimated": bool(used.get("tokens_estimated")),
        "parts": {name: measured(breakdown.get(name, 0)) for name in PARTS},
        "messages_included": used.get("messages_included", 0),
        "left": {
            "messages": used.get("messages_excluded", 0),
            "turns": turns_excluded,
            "artifacts_reduced": [_reference(each) for each in records if each["strategy"] != EXCLUDED_STRATEGY],
            "artifacts_excluded": [_reference(each) for each in records if each["strategy"] == EXCLUDED_STRATEGY],
        },
        "warnings": list(used.get("warnings") or ()),
    }


def _reference(record: Mapping[str, Any]) -> Json:
    return {name: record.get(name) for name in Reference.__annotations__}


def _share(tokens: int, of: int | None) -> float | None:
    return round(tokens / of, 4) if of else None
