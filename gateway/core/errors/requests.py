"""Requests that break a rule: each names the field."""

from gateway.core.errors.base import GatewayError

REQUIRED = "missing_required_parameter"
CODES = {
    "invalid_value": ("A field breaks a rule.", "`param` names the field."),
    REQUIRED: ("A required field is missing.", "`param` names the field."),
    "invalid_json": ("Not JSON in UTF-8, nested over 200 levels, or with `NaN`.", "Send JSON."),
    "invalid_form": (
        "An upload that is truncated or not `multipart/form-data`.",
        "Upload through an SDK, or send such a form.",
    ),
    "tool_call_unknown": ("A tool result without its call.", "Send both, or neither."),
    "tool_call_unanswered": ("A resent tool call without its result.", "Send both, or neither."),
    "unsupported_parameter": ("The provider has no such parameter.", "Remove it, or set `drop_params`."),
    "unsupported_url": ("This provider takes files only inside the request.", "Send a `data:` URL."),
    "previous_response_not_found": ("Unknown, deleted, or another tenant's.", "Check id and key."),
    "attachment_not_found": (
        "No such document in this conversation, or no such file for this key.",
        "`GET …/attachments` lists them; upload a file with the same key ([who stores it](files.md#who-keeps-them)).",
    ),
}
"""Codes that have no class of their own: when, and what to do. `attachment_not_found` is a 404, the others are 400."""


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
    """A 400 that names the field and its rule."""
    return InvalidRequest(f"{param} {rule}.", param=param, code="invalid_value")


def missing(param: str) -> InvalidRequest:
    """A 400 that names the field that is not there."""
    return InvalidRequest(f"{param} is required.", param=param, code=REQUIRED)


class ContextLengthExceeded(InvalidRequest):
    """What must be forwarded cannot be made to fit the budget (guarantee §4 I1). The message has OpenAI's wording."""

    code = "context_length_exceeded"
    advice = (
        "System messages, tools, [pins](memory.md#pins) and question exceed the budget: shorten or unpin, raise "
        "`max_input_tokens`, or ask for a shorter answer."
    )


def overflow_text(limit: int | None, tokens: int | None, reserved: int = 0) -> str:
    """OpenAI's words for a prompt that is too long, which clients look for: the limit that was broken and what was
    asked for, as far as they are known, always more than the limit (guarantee §7).
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
    # counted otherwise than by who says that it is too long
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
        super().__init__("A request with this Idempotency-Key is being answered.", param="Idempotency-Key")
        self.headers = {"retry-after": "1"}


class ReplayRunning(InvalidRequest):
    """Another request is running this replay."""

    status = 409
    code = "replay_running"
    advice = "Retry after `Retry-After`."

    def __init__(self) -> None:
        super().__init__("This replay is under way.", param="replay_id")
        self.headers = {"retry-after": "5"}


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
        super().__init__(text, param="Idempotency-Key")
        self.headers = {"x-should-retry": "false"}


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
        super().__init__(f"The file has {size} bytes, none of them in this range.", param="Range")
        self.headers = {"content-range": f"bytes */{size}"}


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
