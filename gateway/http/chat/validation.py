"""Validates a chat request at the edge and takes the gateway's own fields out of it (guarantee §2).

Only what the gateway needs to understand is checked; unknown fields go up untouched.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gateway.config.settings import Settings
from gateway.errors import InvalidRequest
from gateway.http.chat.messages import check_messages, invalid
from gateway.models.artifacts import ContextGoal, RequestAttachment
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest, ContextOptions, PlainMessages

CONVERSATION_ID = re.compile(r"conv_[\w-]{1,58}\Z")
CONTEXT_FIELDS = {"mode", "planning", "goal", "max_input_tokens", "models", "session", "dry_run"}
CHOICES = {
    "mode": ("auto", "simple", "off"),
    "planning": ("auto", "always", "never"),
    "goal": tuple(goal.value for goal in ContextGoal),
}
CONTEXT_HEADERS = {"mode": "x-context-mode", "planning": "x-context-planning"}
OPTION_HEADERS = (*CONTEXT_HEADERS.values(), "x-context-max-input-tokens")
OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens")
MAX_CHOICES = 128


def parse_chat_request(
    body: dict[str, Any],
    headers: Mapping[str, str],
    caller: Caller,
    settings: Settings,
    request_id: str,
    arrived: tuple[datetime, float],
    size: int,
    plain: PlainMessages | None = None,
) -> ChatRequest:
    """A request as the pipeline takes it.

    Args:
        size: bytes of the body as it came.
        plain: its messages, where they have been found to be plain.

    Raises:
        InvalidRequest: a field breaks a rule; `param` names it.
    """
    forward = dict(body)
    model = _text(forward, "model", required=True)
    messages = forward.pop("messages", None)
    if plain is None:
        check_messages(messages)
    context = forward.pop("context", None)
    if context is not None and not isinstance(context, dict):
        raise invalid("context", "must be an object")
    context = context or {}
    stream = _flag(forward, "stream") or False
    stream_options = forward.get("stream_options")
    if stream_options is not None and not isinstance(stream_options, dict):
        raise invalid("stream_options", "must be an object")
    choices = _whole(forward, "n", 1, MAX_CHOICES) or 1
    for name in OUTPUT_LIMITS:
        _whole(forward, name, 1, 2**31)
    for name in ("tools", "functions"):
        if forward.get(name) is not None and not isinstance(forward[name], list):
            raise invalid(name, "must be a list")
        for index, tool in enumerate(forward.get(name) or ()):
            if not isinstance(tool, dict):
                raise invalid(f"{name}[{index}]", "must be an object")
            if not isinstance(tool.get("function", {}), dict):
                raise invalid(f"{name}[{index}].function", "must be an object")
    metadata = _metadata(forward, settings)
    conversation = _conversation(forward, context, metadata, headers)
    store = _store(forward, settings)
    return ChatRequest(
        request_id=request_id,
        caller=caller,
        model=model,
        messages=tuple(messages),
        forward=forward,
        conversation=conversation,
        attachments=_attachments(forward.pop("attachments", None)),
        options=_options(context, headers, settings, has_tools=bool(forward.get("tools") or forward.get("functions"))),
        store=store,
        stream=stream,
        include_usage=bool(stream and (stream_options or {}).get("include_usage")),
        choices=choices,
        metadata=metadata,
        arrived_at=arrived[0],
        started=arrived[1],
        size=size,
        plain=plain,
    )


def _options(
    context: dict[str, Any], headers: Mapping[str, str], settings: Settings, *, has_tools: bool
) -> ContextOptions:
    goal = ContextGoal.REASONING if has_tools else ContextGoal.SYNTHESIS
    if not context and not any(name in headers for name in OPTION_HEADERS):
        return ContextOptions(settings.context.mode, settings.context.planning, goal)
    for name in context:
        if name not in CONTEXT_FIELDS:
            raise invalid(f"context.{name}", f"is not known; known are {', '.join(sorted(CONTEXT_FIELDS))}")
    defaults = {
        "mode": settings.context.mode,
        "planning": settings.context.planning,
        "goal": goal.value,
    }
    chosen: dict[str, str] = {}
    for name, allowed in CHOICES.items():
        where = f"context.{name}"
        value = context.get(name)
        if value is None and name in CONTEXT_HEADERS and headers.get(CONTEXT_HEADERS[name]):
            where, value = CONTEXT_HEADERS[name], headers[CONTEXT_HEADERS[name]].lower()
        if value is None:
            value = defaults[name]
        if value not in allowed:
            raise invalid(where, f"must be one of {', '.join(allowed)}")
        chosen[name] = value
    limit = _whole(context, "max_input_tokens", 1, 2**31, "context.")
    text = headers.get("x-context-max-input-tokens")
    if limit is None and text:
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) <= 2**31):
            raise invalid("x-context-max-input-tokens", "must be a whole number above 0")
        limit = int(text)
    dry_run = context.get("dry_run")
    if dry_run is not None and not isinstance(dry_run, bool):
        raise invalid("context.dry_run", "must be true or false")
    models = _models(context.get("models"), settings)
    goal = ContextGoal(chosen["goal"])
    return ContextOptions(chosen["mode"], chosen["planning"], goal, limit, bool(dry_run), models)


def _models(models: Any, settings: Settings) -> dict[str, str]:
    """The internal models that the request names, out of `model_list`."""
    if models is None:
        return {}
    if not isinstance(models, dict):
        raise invalid("context.models", "must be an object")
    for role, name in models.items():
        if role not in ("context_planner", "summarizer"):
            raise invalid(f"context.models.{role}", "is not known; known are context_planner, summarizer")
        if name is not None and not (isinstance(name, str) and settings.lists(name)):
            raise invalid(f"context.models.{role}", "must be a model of model_list")
    return {role: name for role, name in models.items() if name is not None}


def _conversation(
    forward: dict[str, Any],
    context: dict[str, Any],
    metadata: dict[str, str] | None,
    headers: Mapping[str, str],
) -> ConversationRef:
    """The first that is present counts; an id outranks a session."""
    field, value = "conversation", forward.pop("conversation", None)
    if isinstance(value, dict):
        field, value = "conversation.id", value.get("id")
        if value is None:
            raise invalid(field, "is required")
    if value is not None and not isinstance(value, str):
        raise invalid(field, "must be a string")
    if value is None:
        value = headers.get("x-conversation-id") or None
    if value is None and metadata and CONVERSATION_ID.match(metadata.get("conversation_id", "")):
        value = metadata["conversation_id"]
    if value is not None:
        return ConversationRef(conversation_id=value if CONVERSATION_ID.match(value) else "conv_")
    field, session = "context.session", context.get("session")
    if session is None:
        field, session = "x-context-session", headers.get("x-context-session") or None
    if session is None:
        return ConversationRef()
    if not is_session_name(session):
        raise invalid(field, "must be 1 to 256 printable characters")
    return ConversationRef(session=session)


def _attachments(value: Any) -> tuple[RequestAttachment, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid("attachments", "must be a list")
    found = []
    for index, item in enumerate(value):
        where = f"attachments[{index}]"
        try:
            attachment = RequestAttachment.model_validate(item)
        except ValidationError as error:
            first = error.errors()[0]
            path = "".join(f".{part}" for part in first["loc"])
            raise invalid(where + path, first["msg"][:1].lower() + first["msg"][1:]) from None
        if (attachment.attachment_id is None) == (attachment.content is None):
            raise invalid(where, "needs either attachment_id or content")
        found.append(attachment)
    return tuple(found)


def _store(forward: dict[str, Any], settings: Settings) -> bool:
    """`store` and `metadata` go up together or not at all."""
    store = _flag(forward, "store")
    if not settings.upstream.forward_store:
        forward.pop("store", None)
    return settings.conversation.store if store is None else store


def keeps_metadata_rules(value: Any) -> bool:
    """Whether it is metadata as OpenAI takes it: up to 16 strings of up to 512 characters, keys of up to 64."""
    if not isinstance(value, dict) or len(value) > 16:
        return False
    return all(isinstance(v, str) and len(k) <= 64 and len(v) <= 512 for k, v in value.items())


def is_session_name(value: Any) -> bool:
    """Whether a session can have that name."""
    return isinstance(value, str) and 0 < len(value) <= 256 and value.isprintable()


def _metadata(forward: dict[str, Any], settings: Settings) -> dict[str, str] | None:
    """Metadata that keeps OpenAI's rules is stored; any other goes up untouched and is not."""
    value = forward.get("metadata")
    if not isinstance(value, dict) or not keeps_metadata_rules(value):
        return None
    if not settings.upstream.forward_store:
        del forward["metadata"]
    return dict(value)


def _text(values: dict[str, Any], name: str, *, required: bool) -> str:
    value = values.get(name)
    if value is None and required:
        raise InvalidRequest(f"{name} is required.", param=name, code="missing_required_parameter")
    if not isinstance(value, str) or not value.strip() or len(value) > 512 or not value.isprintable():
        raise invalid(name, "must be a string of 1 to 512 printable characters")
    return value


def _flag(values: dict[str, Any], name: str) -> bool | None:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return value


def _whole(values: dict[str, Any], name: str, least: int, most: int, prefix: str = "") -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(prefix + name, f"must be a whole number from {least} to {most}")
    return value
