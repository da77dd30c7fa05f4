"""Errors in Anthropic's shape: `{"type": "error", "error": {"type", "message"}, "request_id"}` (guarantee §7)."""

import re
from typing import Any

from gateway.core.errors import ContextLengthExceeded, GatewayError, UpstreamOverflow, UpstreamRefused

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""By status; of others a 4xx is an `invalid_request_error`, and all else an `api_error`."""
OPENAIS = re.compile(
    r"maximum context length is (\d+) tokens(?:\. However, (?:your messages resulted in|you requested) (\d+) tokens)?"
)


def error_body(error: GatewayError, request_id: str) -> dict[str, Any]:
    """The error as a client of this API reads it. One that came from Anthropic is as it came; one of another upstream's
    stands under `upstream`."""
    if isinstance(error, UpstreamRefused) and _is_anthropics(error.original):
        return {"request_id": request_id, **error.original}
    said = error.body()["error"]
    text, status = str(said.get("message") or error.message), error.status
    if isinstance(error, ContextLengthExceeded | UpstreamOverflow):
        text = overflow_text(text)
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    found = {"type": kind, "message": text}
    found |= {name: said[name] for name in ("param", "code") if said.get(name) is not None}
    if isinstance(error, UpstreamRefused):
        found["upstream"] = error.original
    return {"type": "error", "error": found, "request_id": request_id}


def overflow_text(text: str) -> str:
    """Anthropic's words for a prompt that is too long, which clients look for."""
    told = OPENAIS.search(text)
    if told is None:
        return text if text.startswith("prompt is too long") else f"prompt is too long: {text}"
    limit, tokens = told.groups()
    if tokens is None:
        return f"prompt is too long: more than {limit} tokens"
    return f"prompt is too long: {tokens} tokens > {limit} maximum"


def _is_anthropics(original: Any) -> bool:
    if not isinstance(original, dict) or original.get("type") != "error":
        return False
    error = original.get("error")
    return isinstance(error, dict) and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)
