"""The root of the error tree, and the faults of the gateway itself."""

from typing import Any


class GatewayError(Exception):
    """Any error that a client gets, in OpenAI's shape (guarantee §7)."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"
    advice = "Report it with the log."
    """What whoever gets it does, in Markdown: docs/troubleshooting.md is made of it, and of the docstring."""
    may_be_charged = True
    """Whether a call of a model that ends with this error may cost something (guarantee §6)."""
    has_bill = False
    """Whether the request that ended with it asked a model: it is in the ledger."""
    usage: dict[str, Any] | None = None
    """What an answer used that came, and that its client does not get."""
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
    """The large requests being processed leave no room for another: `server.max_bytes_in_flight`."""

    status = 503
    code = "overloaded"
    advice = "Retry after `Retry-After`, or raise the setting."
    may_be_charged = False

    def __init__(self) -> None:
        super().__init__("Too many large requests are being worked on; try again.")
        self.headers = {"retry-after": "5"}


class InternalError(GatewayError):
    """A fault of the gateway. The message reveals no internals."""

    code = "internal_error"


class StorageUnavailable(GatewayError):
    """The storage cannot be reached or is not on the current schema (guarantee §3.6)."""

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
        super().__init__("The gateway is shutting down; try again.")
        self.headers = {"retry-after": "1", "connection": "close"}
