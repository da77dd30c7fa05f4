"""The error tree. Each class has its HTTP status, OpenAI `type` and `code`; the docstring says when it is raised.

GatewayError
├── InvalidRequest 400                bad input, names the field in `param`
│   ├── ContextLengthExceeded 400     cannot be made to fit (guarantee §4 I1)
│   ├── RequestTooLarge 413
│   ├── HeadersTooLarge 431
│   ├── RequestTimeout 408
│   ├── UnsupportedMediaType 415
│   ├── InvalidHttp 400               not HTTP/1.1
│   ├── IdempotencyKeyInUse 409       its request is being answered
│   ├── IdempotencyKeyMismatch 422    it was used with another request
│   ├── AnswerNotKept 409             answered already, and the answer is gone
│   ├── ReplayRunning 409             it is under way
│   └── NotFound 404
│       ├── ConversationNotFound      unknown, deleted or another tenant's (guarantee §2)
│       ├── ItemNotFound
│       ├── TurnNotFound
│       ├── ReplayNotFound
│       ├── CompletionNotFound
│       ├── MemoryNotFound
│       ├── ModelNotFound
│       └── NotRelayed                not for this key (guarantee §1)
├── Unauthorized 401
├── Forbidden 403                     not with this key
├── StorageUnavailable 503
├── ShuttingDown 503                  no new requests after SIGTERM (guarantee §9)
├── Overloaded 503                    too many large requests at once
├── InternalError 500
└── UpstreamError 502
    ├── UpstreamUnreachable 502
    ├── UpstreamTimeout 504
    ├── UpstreamAuth 502              the operator's key was refused; body withheld (guarantee §7)
    ├── UpstreamInvalidResponse 502   not the JSON or SSE that was promised
    ├── UpstreamInterrupted 502       the answer broke off
    └── UpstreamRefused               upstream's own status, Retry-After and body
        └── UpstreamOverflow 400      the provider says that the window is exceeded
"""

import re
from typing import Any

OF_CHARACTERS = re.compile(r"string too long|characters", re.IGNORECASE)
"""The figures of such an error are no tokens."""
REQUIRED = "missing_required_parameter"
OPENAIS_OVERFLOW = re.compile(r"This model's maximum context length is \d+ tokens")


class GatewayError(Exception):
    """Any error that a client gets, in OpenAI's shape (guarantee §7)."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"
    may_be_charged = True
    """Whether a call of a model that ends with this error may cost something (guarantee §6)."""
    is_logged = False
    """Whether the log tells the message: it holds nothing of a client's or a provider's."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        """OpenAI's error object: `{"error": {"message", "type", "param", "code"}}`."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


class Overloaded(GatewayError):
    """Large requests that are worked on leave no room for another: `server.max_bytes_in_flight`."""

    status = 503
    code = "overloaded"
    may_be_charged = False

    def __init__(self) -> None:
        super().__init__("Too many large requests are being worked on; try again.")
        self.headers = {"retry-after": "5"}


class InternalError(GatewayError):
    """A fault of the gateway. The message reveals nothing of its insides."""


class InvalidRequest(GatewayError):
    """The request breaks a rule; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"
    may_be_charged = False


def invalid(param: str, rule: str) -> InvalidRequest:
    """A 400 that names the field and its rule."""
    return InvalidRequest(f"{param} {rule}.", param=param, code="invalid_value")


def missing(param: str) -> InvalidRequest:
    """A 400 that names the field that is not there."""
    return InvalidRequest(f"{param} is required.", param=param, code=REQUIRED)


class ContextLengthExceeded(InvalidRequest):
    """What must be forwarded cannot be made to fit the budget (guarantee §4 I1). The message is in OpenAI's words."""

    code = "context_length_exceeded"


def overflow_text(limit: int | None, tokens: int | None) -> str:
    """OpenAI's words for a prompt that is too long, which clients look for: the model's window and what the messages
    take, as far as they are known."""
    took = f"your messages resulted in {'more' if tokens is None else tokens} tokens."
    if limit is not None:
        return f"This model's maximum context length is {limit} tokens. However, {took}"
    return f"This model's maximum context length is exceeded: {took}"


class RequestTooLarge(InvalidRequest):
    """The body is larger than `server.max_body_bytes`."""

    status = 413
    code = "request_too_large"


class HeadersTooLarge(InvalidRequest):
    """The request line and headers are too long, or the headers too many."""

    status = 431
    code = "headers_too_large"


class RequestTimeout(InvalidRequest):
    """The request did not arrive within `server.receive_timeout`."""

    status = 408
    code = "request_timeout"


class UnsupportedMediaType(InvalidRequest):
    """The body is compressed, or says so."""

    status = 415
    code = "unsupported_media_type"


class InvalidHttp(InvalidRequest):
    """The bytes are not HTTP/1.1, or could be read in two ways."""

    code = "invalid_http"


class IdempotencyKeyInUse(InvalidRequest):
    """A request with this `Idempotency-Key` is being answered; ask again for its answer."""

    status = 409
    code = "idempotency_key_in_use"

    def __init__(self) -> None:
        super().__init__("A request with this Idempotency-Key is being answered.", param="Idempotency-Key")
        self.headers = {"retry-after": "1"}


class ReplayRunning(InvalidRequest):
    """Somebody is at work on this replay; ask again later."""

    status = 409
    code = "replay_running"

    def __init__(self) -> None:
        super().__init__("This replay is under way.", param="replay_id")
        self.headers = {"retry-after": "5"}


class IdempotencyKeyMismatch(InvalidRequest):
    """The `Idempotency-Key` was used with another body, or with other headers that change what is asked."""

    status = 422
    code = "idempotency_key_mismatch"

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was used with another request.", param="Idempotency-Key")


class AnswerNotKept(InvalidRequest):
    """The request with this `Idempotency-Key` was answered, and its answer is not kept: `store: false`, mode `off`,
    or the conversation has been deleted since."""

    status = 409
    code = "idempotency_answer_not_kept"

    def __init__(self) -> None:
        text = "The request with this Idempotency-Key was answered, and its answer has not been kept."
        super().__init__(text, param="Idempotency-Key")
        self.headers = {"x-should-retry": "false"}


class NotFound(InvalidRequest):
    """The thing named does not exist, or not for this tenant."""

    status = 404
    code = "not_found"


class ConversationNotFound(NotFound):
    """Unknown, deleted, or another tenant's: all behave alike (guarantee §8)."""

    code = "conversation_not_found"


class ItemNotFound(NotFound):
    """No such item in this conversation."""

    code = "item_not_found"


class TurnNotFound(NotFound):
    """The branch has no turn of that number."""

    code = "turn_not_found"


class ReplayNotFound(NotFound):
    """No such replay of this conversation."""

    code = "replay_not_found"


class CompletionNotFound(NotFound):
    """No such stored completion for this tenant."""

    code = "completion_not_found"


class MemoryNotFound(NotFound):
    """No such memory of a thing for this tenant, or in this conversation (guarantee §11.17)."""

    code = "memory_not_found"


class ModelNotFound(NotFound):
    """The model is not configured and no default upstream may serve it."""

    code = "model_not_found"


class NotRelayed(NotFound):
    """The gateway does not serve this path itself, and does not relay it with the key at hand (guarantee §1)."""

    code = "not_relayed"


class MethodNotAllowed(InvalidRequest):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class Unauthorized(GatewayError):
    """Keys are configured and the request carries none of them (guarantee §8)."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(GatewayError):
    """The key is known, and has no role that allows this (guarantee §13.2)."""

    status = 403
    type = "permission_error"
    code = "permission_denied"


class StorageUnavailable(GatewayError):
    """The storage cannot be reached or is not on the current schema (guarantee §3.6)."""

    status = 503
    code = "storage_unavailable"


class ShuttingDown(GatewayError):
    """The server has been told to stop: it takes no new requests, and the grace for running ones is over."""

    status = 503
    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The gateway is shutting down; try again.")
        self.headers = {"retry-after": "1", "connection": "close"}


class UpstreamError(GatewayError):
    """The model's provider did not give an answer."""

    status = 502
    type = "upstream_error"
    code: str | None = "upstream_error"
    is_logged = True
    host: str | None = None
    """The upstream's host and port, if it was a fault of the connection."""


class UpstreamUnreachable(UpstreamError):
    """No connection, or a connection that broke before the first byte of an answer. The message names host and kind of
    failure (guarantee §7)."""

    code = "upstream_unreachable"
    may_be_charged = False


class UpstreamTimeout(UpstreamError):
    """Upstream took longer than the configured connect, first-byte or idle time."""

    status = 504
    code = "upstream_timeout"


class UpstreamAuth(UpstreamError):
    """The operator's key was refused (401/403). The body is withheld: it may name the key."""

    code = "upstream_auth"
    may_be_charged = False


class UpstreamInvalidResponse(UpstreamError):
    """The answer is not what an OpenAI-compatible server sends."""

    code = "upstream_invalid_response"


class UpstreamInterrupted(UpstreamError):
    """The answer broke off after it had begun."""

    code = "upstream_interrupted"


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

    def explain(self, window: int | None, counted: int | None) -> None:
        """Adds what the gateway knows itself, for a provider that does not say it: the model's window, and how many
        tokens the messages take."""
        self.window, self.counted = window, counted

    def body(self) -> dict[str, Any]:
        """Every provider's wording becomes `context_length_exceeded`, with a message in OpenAI's (guarantee §7)."""
        error = self.original.get("error") if isinstance(self.original, dict) else None
        is_openais = OPENAIS_OVERFLOW.match(self.message)
        limit, reported = (None, None) if OF_CHARACTERS.search(self.message) else (self.limit, self.reported)
        text = self.message if is_openais else overflow_text(limit or self.window, reported or self.counted)
        told = {"message": text, "type": "invalid_request_error", "param": "messages"}
        if is_openais and isinstance(error, dict) and error.get("code") == "context_length_exceeded":
            return {**self.original, "error": {**told, **error}}
        return {"error": {**told, "code": "context_length_exceeded", "upstream": self.original}}
