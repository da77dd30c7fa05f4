"""The body of a call of an internal model, and the text of its answer, in the formats that providers know."""

from typing import Any

from gateway.errors import UpstreamRefused
from gateway.models.exchange import Deployment
from gateway.models.internal import InternalRequest
from gateway.models.upstream import OUTPUT_LIMITS

FORMAT_REFUSALS = (400, 404, 415, 422, 501)
"""Statuses with which servers refuse a `response_format`."""
COMPLETION_LIMITED = ("o1", "o3", "o4", "gpt-5")
"""OpenAI's reasoning models know `max_completion_tokens` only, and no temperature but their own."""
THINKING_TOKENS = 3000
"""What these may think, which is part of what they may answer: several times a plan or a summary."""
CUT_OFF = ("length", "content_filter")
"""Values of `finish_reason` of an answer that was not ended by the model."""


def body_of(deployment: Deployment, ask: InternalRequest, response_format: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a call, with the parameters that the operator configured for the model."""
    body: dict[str, Any] = {"model": deployment.provider_model, "messages": ask.messages}
    if _thinks(deployment):
        body["max_completion_tokens"] = max_answer_tokens(deployment, ask)
    else:
        body |= {"max_tokens": max_answer_tokens(deployment, ask), "temperature": 0}
    if response_format is not None:
        body["response_format"] = response_format
    configured = {k: v for k, v in deployment.parameters.items() if k not in OUTPUT_LIMITS}
    return {**configured, **body}


def max_answer_tokens(deployment: Deployment, ask: InternalRequest) -> int:
    """The longest answer, with what the model may think for it."""
    return ask.max_tokens + (THINKING_TOKENS if _thinks(deployment) else 0)


def _thinks(deployment: Deployment) -> bool:
    return deployment.provider_model.rpartition("/")[2].startswith(COMPLETION_LIMITED)


def formats_of(schema: dict[str, Any] | None) -> list[dict[str, Any] | None]:
    """The values of `response_format` to try, in this order: the strict schema, any JSON, text."""
    if schema is None:
        return [None]
    return [{"type": "json_schema", "json_schema": schema}, {"type": "json_object"}, None]


def refuses_format(refusal: UpstreamRefused) -> bool:
    """Whether it is the format that was refused, so that a simpler one may do."""
    if refusal.status not in FORMAT_REFUSALS:
        return False
    said = str(refusal.original).lower()
    return any(word in said for word in ("response_format", "json_schema", "json_object", "schema"))


def text_of(body: dict[str, Any] | None) -> str:
    """The first choice's text, of all its text parts; empty if there is none. Half of a surrogate pair, with which no
    text can be kept or sent, becomes a question mark."""
    message = _first_choice(body).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
        content = "".join(text for text in texts if isinstance(text, str))
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""


def is_cut(body: dict[str, Any] | None) -> bool:
    """Whether the answer broke off before its end."""
    return _first_choice(body).get("finish_reason") in CUT_OFF


def _first_choice(body: dict[str, Any] | None) -> dict[str, Any]:
    choices = (body or {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}
