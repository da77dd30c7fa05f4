"""What the provider of a model did not do."""

import re
from typing import Any

from gateway.core.errors.base import GatewayError
from gateway.core.errors.requests import overflow_text

OF_CHARACTERS = re.compile(r"string too long|characters", re.IGNORECASE)
"""The figures of such an error are no tokens."""
OPENAIS_OVERFLOW = re.compile(r"This model's maximum context length is \d+ tokens")


class UpstreamError(GatewayError):
    """The model's provider did not give an answer."""

    status = 502
    type = "upstream_error"
    code: str | None = "upstream_error"
    advice = "See the message, and the log."
    is_logged = True
    host: str | None = None
    """The upstream's host and port, if it was a fault of the connection."""


class UpstreamUnreachable(UpstreamError):
    """No connection, or one that broke before the first byte of an answer. The message names host and fault (guarantee
    §7)."""

    code = "upstream_unreachable"
    advice = "Run `gateway check`; check `api_base` of the entry."
    may_be_charged = False


class UpstreamTimeout(UpstreamError):
    """The upstream exceeded the configured connect, first-byte or idle timeout."""

    status = 504
    code = "upstream_timeout"
    advice = "Raise [`connect`, `first_byte` or `idle`](configuration.md#upstream)."


class UpstreamAuth(UpstreamError):
    """The operator's key was refused (401/403). The body is withheld: it may name the key."""

    code = "upstream_auth"
    advice = "Replace `api_key` of the entry."
    may_be_charged = False


class UpstreamInvalidResponse(UpstreamError):
    """The answer is not what an OpenAI-compatible server sends."""

    code = "upstream_invalid_response"
    advice = "Check `api_base`: it often lacks `/v1`."


class UpstreamAnswerTooLong(UpstreamInvalidResponse):
    """The answer has more bytes than are read."""


class UpstreamInterrupted(UpstreamError):
    """The answer broke off after it had begun."""

    code = "upstream_interrupted"
    advice = "Retry; check the provider's status."


class UpstreamRefused(UpstreamError):
    """Upstream answered with an error: its status, `Retry-After` and body are kept (guarantee §7)."""

    may_be_charged = False
    is_logged = False

    def __init__(self, status: int, original: Any, headers: dict[str, str], message: str | None = None) -> None:
        error = original.get("error") if isinstance(original, dict) else None
        super().__init__(message or f"The upstream answered with status {status}.")
        self.status = status
        self.original = original
        self.headers = headers
        if isinstance(error, dict):
            code = error.get("code")
            self.code = code if isinstance(code, str) else None

    def body(self) -> dict[str, Any]:
        """Upstream's body as it is if OpenAI-shaped, else wrapped with the original under `error.upstream`."""
        if isinstance(self.original, dict) and isinstance(self.original.get("error"), dict):
            return self.original
        code = f"upstream_{self.status}"
        error = {"message": self.message, "type": self.type, "param": None, "code": code}
        return {"error": {**error, "upstream": self.original}}


class UpstreamOverflow(UpstreamRefused):
    """The provider says that the prompt exceeds the model's window: one refit, then 400 (guarantee §4 I1)."""

    def __init__(
        self,
        original: Any,
        headers: dict[str, str],
        reported: int | None = None,
        limit: int | None = None,
        message: str | None = None,
    ) -> None:
        super().__init__(400, original, headers, message)
        self.reported = reported
        self.limit = limit
        self.window: int | None = None
        self.counted: int | None = None

    @property
    def told_window(self) -> int | None:
        """The tokens that the provider allows, if it says so."""
        return None if OF_CHARACTERS.search(self.message) else self.limit

    def explain(self, window: int | None, counted: int | None) -> None:
        """Adds what a provider may not say: the model's window, and how many tokens the messages take."""
        self.window, self.counted = window, counted

    def body(self) -> dict[str, Any]:
        """Every provider's wording becomes `context_length_exceeded`, with a message in OpenAI's (guarantee §7)."""
        error = self.original.get("error") if isinstance(self.original, dict) else None
        is_openais = OPENAIS_OVERFLOW.match(self.message)
        limit, reported = self.told_window, None if OF_CHARACTERS.search(self.message) else self.reported
        text = self.message if is_openais else overflow_text(limit or self.window, reported or self.counted)
        told = {"message": text, "type": "invalid_request_error", "param": self.param or "messages"}
        if is_openais and isinstance(error, dict) and error.get("code") == "context_length_exceeded":
            named = {"param": told["param"]} if error.get("param") == "messages" else {}
            return {**self.original, "error": {**told, **error, **named}}
        return {"error": {**told, "code": "context_length_exceeded", "upstream": self.original}}
