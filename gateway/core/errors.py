"""The error tree, with GatewayError at its root. Each class has its HTTP status, OpenAI `type` and `code`; the
docstring says when it is raised, and `advice` what to do."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from gateway.core import jsons

REQUIRED = "missing_required_parameter"
CODES = {
    "invalid_value": ("A field breaks a rule.", "`param` names the field."),
    REQUIRED: ("A required field is missing.", "`param` names the field."),
    "invalid_json": ("Not JSON in UTF-8, nested over 200 levels, or with `NaN`.", "Send JSON."),
    "invalid_form": (
        "An upload that is truncated or not `multipart/form-data`.",
        "Upload through an SDK, or send such a form.",
    ),
    "tool_call_unknown": (
        "A tool result without its call, or results of two turns.",
        "Send both, or neither; each turn's results apart.",
    ),
    "tool_call_unanswered": ("A resent tool call without its result.", "Send both, or neither."),
    "unsupported_parameter": ("The provider has no such parameter.", "Remove it, or set `drop_params`."),
    "unsupported_url": ("This provider takes files only inside the request.", "Send a `data:` URL."),
    "previous_response_not_found": ("Unknown, deleted, or another tenant's.", "Check id and key."),
    "attachment_not_found": (
        "No such document in this conversation, or no such file for this key.",
        "`GET …/attachments` lists them; upload a file with the same key ([who stores it](files.md#who-keeps-them)).",
    ),
}
"""Codes without a class of their own: when, and what to do. `attachment_not_found` is a 404, the others are 400."""
OF_CHARACTERS = re.compile(r"string too long|characters", re.IGNORECASE)
"""The figures of such an error are not tokens."""
OPENAIS_OVERFLOW = re.compile(r"This model's maximum context length is \d+ tokens")


class GatewayError(Exception):
    """Any error that a client gets, in OpenAI's shape (guarantee §7)."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"
    advice = "Report it with the log."
    """What the recipient can do, in Markdown: docs/troubleshooting.md is made of it, and of the docstring."""
    may_be_charged = True
    """Whether a call of a model that ends with this error may cost something (guarantee §6)."""
    has_bill = False
    """Whether the failed request had called a model, so that the ledger has its bill."""
    usage: dict[str, Any] | None = None
    """Usage of an answer that arrived and is not returned to the client."""
    is_logged = False
    """Whether the message may be logged: it quotes neither client nor provider."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """Returns OpenAI's error object: `{"error": {"message", "type", "param", "code"}}`."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


class Overloaded(GatewayError):
    """The large requests being processed leave no room for another: `server.max_bytes_in_flight`."""

    status = 503
    code = "overloaded"
    advice = "Retry after `Retry-After`, or raise the setting."
    may_be_charged = False

    def __init__(self) -> None:
        super().__init__("Too many large requests are being worked on; try again.", headers={"retry-after": "5"})


class InternalError(GatewayError):
    """A fault of the gateway. The message reveals no internals."""

    code = "internal_error"


class StorageUnavailable(GatewayError):
    """The storage cannot be reached. Readiness says it, too, where this version may not run on the schema (guarantee
    §3.6)."""

    status = 503
    code = "storage_unavailable"
    advice = "Run `gateway check`; check the database and its [encryption keys](operations.md#encryption). Bills wait."


class StorageReadOnly(StorageUnavailable):
    """The storage can be read but not written: its disk is full, or it only reads (guarantee §3.6)."""

    def __init__(self) -> None:
        super().__init__("The storage cannot be written right now.")


class ContentUnreadable(StorageUnavailable):
    """Stored content is under an encryption key that is not configured, or does not decrypt (guarantee §12.11)."""

    is_logged = True


class ShuttingDown(GatewayError):
    """The server is stopping: it takes no new requests, and the grace period for running ones is over."""

    status = 503
    code = "shutting_down"
    advice = "Retry, or ask another replica."

    def __init__(self) -> None:
        headers = {"retry-after": "1", "connection": "close"}
        super().__init__("The gateway is shutting down; try again.", headers=headers)


def cause_of(error: BaseException) -> str:
    """Returns what caused an error, in its own words, on one line: of a database without the statement; "" if nothing
    did."""
    cause = error.__cause__
    told = getattr(cause, "orig", None) or cause
    told = getattr(told, "__cause__", None) or told  # the driver's own error has no name of a class before its text
    if told is None:
        return ""
    return next(iter(str(told).splitlines()), type(told).__name__)


class Unauthorized(GatewayError):
    """Keys are required, and the request carries no valid one (guarantee §8)."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    is_logged = True
    advice = (
        "The key is unknown, revoked or expired; for a [signed token](identity.md#programs-at-the-api) see the message."
    )


CLIENT_LEFT = "client_disconnected"
CANCELLED_WITH = {each.code: each.status for each in (ShuttingDown, Unauthorized)}
"""Why a request is cancelled although its client is there, and the status that the client then gets."""


def cancellation_code(error: BaseException) -> str:
    """Returns why a request was cancelled: the code that whoever did so gave as message; else its client has left."""
    reason = next(iter(error.args), None)
    return reason if reason in CANCELLED_WITH else CLIENT_LEFT


class Forbidden(GatewayError):
    """The key is valid, but none of its roles allows this (guarantee §13.2)."""

    status = 403
    type = "permission_error"
    code = "permission_denied"
    is_logged = True
    advice = (
        "Check `roles` in [`auth.keys`](configuration.md#authkeys); a token must name tenant, role or models "
        "([claims](identity.md#settings-of-both)). If a form on the page has expired, reload it."
    )
    subject: str | None = None
    """The id of who was refused a login, where that is known."""


class IdentityProviderUnavailable(GatewayError):
    """The identity provider or token issuer cannot be reached; keys still work (guarantee §12.17)."""

    status = 503
    code = "identity_provider_unavailable"
    advice = (
        "It is down, or its name differs: `issuer` in [`auth.jwt`, "
        "`auth.oidc`](identity.md#settings-of-both) must match exactly."
    )
    may_be_charged = False


class ModelNotAllowed(Forbidden):
    """The key may ask only certain models, and this is not one of them (guarantee §12.1)."""

    code = "model_not_allowed"
    advice = "Check `models` of the [key](keys.md)."


class RateLimitExceeded(GatewayError):
    """A key, user, model or project exceeds its requests or tokens a minute, or its concurrent requests (guarantee
    §12.4). `Retry-After` says when to retry."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"
    advice = "Wait as `Retry-After` says, or raise [`limits`](configuration.md#limits)."
    may_be_charged = False


class BudgetExceeded(GatewayError):
    """A key, user, model or project has spent its budget (guarantee §12.3). `Retry-After` says when the period ends."""

    status = 429
    type = "insufficient_quota"
    code = "budget_exceeded"
    advice = (
        "Wait as `Retry-After` says, or raise the [budget](keys.md#budgets-and-limits); running requests "
        "reserve a part of it."
    )
    may_be_charged = False


class GuardUnavailable(GatewayError):
    """A guard failed, timed out or rests, and its `on_failure` is `closed` (guarantee §12.9)."""

    status = 503
    code = "guard_unavailable"
    advice = "See the log and the guard's [settings](guards.md#guards)."
    may_be_charged = False


class LimitsUnavailable(GatewayError):
    """Budgets or limits cannot be checked, and `limits.when_down` is `closed`."""

    status = 503
    code = "limits_unavailable"
    advice = "Restore Valkey or the database."
    may_be_charged = False


class InvalidRequest(GatewayError):
    """The request breaks a rule; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"
    advice = "Read the message."
    may_be_charged = False
    is_as_sent = False
    """`param` is the client's own name of the field, whatever its API: it needs no translation."""


def invalid(param: str, rule: str) -> InvalidRequest:
    """Makes a 400 that names the field and the rule it breaks."""
    return InvalidRequest(f"{param} {rule}.", param=param, code="invalid_value")


def missing(param: str) -> InvalidRequest:
    """Makes a 400 that names the missing field."""
    return InvalidRequest(f"{param} is required.", param=param, code=REQUIRED)


def unknown_call(where: str) -> InvalidRequest:
    """Makes a 400 for a tool result, at the path `where`, that no call precedes."""
    text = f"{where} answers a tool call that no assistant message before it makes."
    return InvalidRequest(text, param=where, code="tool_call_unknown")


class ContextLengthExceeded(InvalidRequest):
    """What must be forwarded cannot be made to fit the budget (guarantee §4 I1). The message has OpenAI's wording."""

    code = "context_length_exceeded"
    advice = (
        "System messages, tools, [pins](memory.md#pins) and question exceed the budget: shorten or unpin, raise "
        "`max_input_tokens`, or ask for a shorter answer."
    )


def overflow_text(limit: int | None, tokens: int | None, reserved: int = 0) -> str:
    """Renders OpenAI's message for a prompt that is too long, which clients look for: the limit and the tokens
    requested, as far as they are known, always more than the limit (guarantee §7).
    `limit`: of messages and answer together; `tokens`: of the messages; `reserved`: tokens of the limit that the answer
    may take."""
    if limit is None:
        found = "more" if tokens is None else tokens
        return f"This model's maximum context length is exceeded: your messages resulted in {found} tokens."
    text = f"This model's maximum context length is {limit} tokens. However, "
    if tokens is not None and tokens > limit:
        return f"{text}your messages resulted in {tokens} tokens."
    if tokens is not None and tokens + reserved > limit:
        parts = f"{tokens} in the messages, {reserved} in the completion"
        return f"{text}you requested {tokens + reserved} tokens ({parts})."
    # our count differs from that of the provider, which finds the prompt too long
    if reserved:
        return f"{text}you requested more tokens ({reserved} in the completion)."
    return f"{text}your messages resulted in more tokens."


class ContentRefused(InvalidRequest):
    """A guard refuses what was to be sent to a model, or what it answered (guarantee §12.9); or the content cannot be
    masked, and `masking.on_unreadable` is `refuse` (§12.10)."""

    code = "content_refused"
    advice = "Ask the [guard's](guards.md) operator; for files see [`masking.on_unreadable`](configuration.md#masking)."


class RequestTooLarge(InvalidRequest):
    """The body is larger than `server.max_body_bytes`."""

    status = 413
    code = "request_too_large"
    advice = "Upload large content as a file, or raise the setting."


class HeadersTooLarge(InvalidRequest):
    """The request line and headers are too long, or there are too many headers."""

    status = 431
    code = "headers_too_large"
    advice = "Send less than 64 KiB and fewer than 256 headers."


class RequestTimeout(InvalidRequest):
    """The request did not arrive within `server.receive_timeout`."""

    status = 408
    code = "request_timeout"
    advice = "Check the network, or raise the setting."


class UnsupportedMediaType(InvalidRequest):
    """The body is compressed or, with a `model_list`, neither JSON nor a multipart form."""

    status = 415
    code = "unsupported_media_type"
    advice = "Send plain JSON, or a multipart form."


class InvalidHttp(InvalidRequest):
    """The request is not HTTP/1.1, or is ambiguous."""

    code = "invalid_http"
    advice = "Look for a proxy that rewrites message lengths."


class IdempotencyKeyInUse(InvalidRequest):
    """A request with this `Idempotency-Key` is still being answered."""

    status = 409
    code = "idempotency_key_in_use"
    advice = "Retry after `Retry-After` to get its answer."

    def __init__(self) -> None:
        text = "A request with this Idempotency-Key is being answered."
        super().__init__(text, param="Idempotency-Key", headers={"retry-after": "1"})


class ReplayRunning(InvalidRequest):
    """Another request is running this replay."""

    status = 409
    code = "replay_running"
    advice = "Retry after `Retry-After`."

    def __init__(self) -> None:
        super().__init__("This replay is under way.", param="replay_id", headers={"retry-after": "5"})


class IdempotencyKeyMismatch(InvalidRequest):
    """The `Idempotency-Key` was used with a different body, or with different headers that change the request."""

    status = 422
    code = "idempotency_key_mismatch"
    advice = "Use a new key."

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was used with another request.", param="Idempotency-Key")


class AnswerNotKept(InvalidRequest):
    """The request with this `Idempotency-Key` was answered, but its answer is not stored: `store: false`, mode `off`,
    or the conversation has been deleted since."""

    status = 409
    code = "idempotency_answer_not_kept"
    advice = "Use a new key; the request is then paid for again."

    def __init__(self) -> None:
        text = "The request with this Idempotency-Key was answered, and its answer has not been kept."
        super().__init__(text, param="Idempotency-Key", headers={"x-should-retry": "false"})


class NotFound(InvalidRequest):
    """What the request names does not exist for this tenant."""

    status = 404
    code = "not_found"
    advice = "Check the base URL: it ends in `/v1`."


class FileNotFound(NotFound):
    """Unknown, deleted, expired, or another tenant's file: all behave alike (guarantee §14.5)."""

    code = "file_not_found"
    advice = "Check id and key."


class FilesQuotaExceeded(InvalidRequest):
    """The tenant or the key has used its quota of file bytes: `files.quota_bytes`, `file_bytes`."""

    status = 413
    code = "files_quota_exceeded"
    advice = "Delete files."


class RangeNotSatisfiable(InvalidRequest):
    """The header `Range` asks for bytes beyond the end of the content."""

    status = 416
    code = "range_not_satisfiable"
    advice = "Ask for a range within its size."

    def __init__(self, size: int) -> None:
        text = f"The file has {size} bytes, none of them in this range."
        super().__init__(text, param="Range", headers={"content-range": f"bytes */{size}"})


class ConversationNotFound(NotFound):
    """Unknown, deleted, or another tenant's: all behave alike (guarantee §8)."""

    code = "conversation_not_found"
    advice = "Check id and key."


class ItemNotFound(NotFound):
    """No such item in this conversation."""

    code = "item_not_found"
    advice = "Check id and conversation."


class TurnNotFound(NotFound):
    """The branch has no turn of that number."""

    code = "turn_not_found"
    advice = "`GET …/turns` lists the turns."


class ReplayNotFound(NotFound):
    """No such replay of this conversation."""

    code = "replay_not_found"
    advice = "Check `replay_id`."


class CompletionNotFound(NotFound):
    """No such stored completion for this tenant."""

    code = "completion_not_found"
    advice = "Check id and key."


class MemoryNotFound(NotFound):
    """No such memory of a thing for this tenant, or in this conversation (guarantee §11.17)."""

    code = "memory_not_found"
    advice = "Check id and key."


class KeyNotFound(NotFound):
    """No such key, or the caller's key may not see it (guarantee §12.1)."""

    code = "key_not_found"
    advice = "Check id and key."


class KeyNotChangeable(InvalidRequest):
    """The key is in the configuration, or was revoked (guarantee §12.1)."""

    status = 409
    code = "key_not_changeable"
    advice = "Change it in `auth.keys`, or make a new one."


class KeyChanged(KeyNotChangeable):
    """Somebody else changed the key meanwhile."""


class ModelNotFound(NotFound):
    """The model is not configured and no default upstream may serve it."""

    code = "model_not_found"
    advice = (
        "Use the suggested name; `gateway check` says why an entry is not served; see "
        "[`upstream.unlisted`](configuration.md#upstream)."
    )


class NotRelayed(NotFound):
    """The gateway does not serve this path itself, and does not relay it with the key in use (guarantee §1)."""

    code = "not_relayed"
    advice = (
        "Set [`server.relay`](configuration.md#serverrelay); for `/v1/files` set [`files.serve: "
        "on`](files.md#who-keeps-them), or use a gateway key."
    )


class FilesNotKept(NotFound):
    """The upstream stores no files; the gateway stores them from now on, so the upload has to be repeated."""

    code = "files_not_kept"
    advice = "Upload again, as OpenAI's SDKs do automatically ([who stores files](files.md#who-keeps-them))."

    def __init__(self) -> None:
        super().__init__("The upstream keeps no files. They are kept here from now on (`files.serve`): send it again.")
        self.headers = {"x-should-retry": "true"}


class MethodNotAllowed(InvalidRequest):
    """The path exists, but not with this method."""

    status = 405
    code = "method_not_allowed"
    advice = "Check method and path."

    def __init__(self, allowed: Iterable[str]) -> None:
        """`allowed`: the methods that the path has."""
        super().__init__("This method is not allowed here.", headers={"allow": ", ".join(sorted(allowed))})


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
        super().__init__(message or f"The upstream answered with status {status}.", headers=headers)
        self.status = status
        self.original = original
        if isinstance(error, dict):
            code = error.get("code")
            self.code = code if isinstance(code, str) else None

    def body(self) -> dict[str, Any]:
        """Returns the upstream's body unchanged if OpenAI-shaped, else wraps the original as `error.upstream`."""
        if isinstance(self.original, dict):
            error = self.original.get("error")
            if isinstance(error, dict) and isinstance(error.get("message"), str):
                return self.original
        told = {"message": self.message, "type": self.type, "param": None, "code": f"upstream_{self.status}"}
        return {"error": {**told, "upstream": self.original}}


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
        """The tokens that the provider allows, if its error names them."""
        return None if OF_CHARACTERS.search(self.message) else self.limit

    def explain(self, window: int | None, counted: int | None) -> None:
        """Adds what a provider may not report: the model's window, and how many tokens the messages take."""
        self.window, self.counted = window, counted

    def body(self) -> dict[str, Any]:
        """Converts any provider's error to `context_length_exceeded` with OpenAI's message (guarantee §7)."""
        error = self.original.get("error") if isinstance(self.original, dict) else None
        is_openais = OPENAIS_OVERFLOW.match(self.message)
        limit, reported = self.told_window, None if OF_CHARACTERS.search(self.message) else self.reported
        text = self.message if is_openais else overflow_text(limit or self.window, reported or self.counted)
        told = {"message": text, "type": "invalid_request_error", "param": self.param or "messages"}
        if is_openais and isinstance(error, dict) and error.get("code") == "context_length_exceeded":
            named = {"param": told["param"]} if error.get("param") == "messages" else {}
            return {**self.original, "error": {**told, **error, **named}}
        return {"error": {**told, "code": "context_length_exceeded", "upstream": self.original}}


def error_object(original: Any) -> dict[str, Any]:
    """Finds the object that holds code and message, wherever the provider puts it: under `error`, at the top level
    (Mistral, Cerebras), in a list of one (Gemini), or as JSON in a string (Ollama)."""
    if isinstance(original, list) and len(original) == 1:
        return error_object(original[0])
    if not isinstance(original, dict):
        return {"message": jsons.dumps_text(original)[:4000]}
    error = original.get("error", original)
    found: dict[str, Any] = error if isinstance(error, dict) else {**original, "message": error}
    inner = found.get("message")
    if isinstance(inner, str) and inner.startswith("{"):
        with suppress(jsons.JSONDecodeError):
            return {**found, **error_object(jsons.loads(inner))}
    return found
