"""What a request says of being a repeat: its `Idempotency-Key`, and the headers that SDKs send with each try."""

import asyncio
import hmac
from dataclasses import dataclass

from gateway.errors import InvalidRequest, StorageUnavailable
from gateway.http.auth import UNKNOWN
from gateway.http.edge import Scope
from gateway.models.claim import RequestIdentity
from gateway.ports import ConversationStore

KEY = b"idempotency-key"
RETRIES = b"x-stainless-retry-count"
MEANING = (
    b"x-conversation-id",
    b"x-context-session",
    b"x-context-mode",
    b"x-context-planning",
    b"x-context-max-input-tokens",
    b"openai-organization",
    b"openai-project",
    b"openai-beta",
)
"""Headers that say what is asked, as the body does."""
CLIENT = (b"user-agent", b"x-forwarded-for")
"""Headers that tell one client from another, beside the SDK's own."""
LONGEST_KEY = 255
LARGE_BODY = 2**20


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that wants to be answered once. `retries` is None where no SDK counts them."""

    key: str | None
    retries: int | None
    meaning: bytes
    client: bytes


def repeatable(scope: Scope) -> Repeatable | None:
    """What the headers say; None where they say nothing of it.

    Raises:
        InvalidRequest: the key is none.
    """
    key: bytes | None = None
    retries: bytes | None = None
    for name, value in scope["headers"]:
        if name == KEY:
            key = value
        elif name == RETRIES:
            retries = value
    if key is None and (retries is None or not retries.isdigit()):
        return None
    count = int(retries[:4]) if retries is not None and retries.isdigit() else None
    headers = sorted((name, value) for name, value in scope["headers"] if name != RETRIES)
    meaning = [name + b":" + value for name, value in headers if name in MEANING and value]
    client = [name + b":" + _same(name, value) for name, value in headers if _tells_clients_apart(name)]
    return Repeatable(None if key is None else _checked(key), count, b"\n".join(meaning), b"\n".join(client))


async def identify(said: Repeatable, tenant: str, body: bytes, store: ConversationStore) -> RequestIdentity | None:
    """Which request it is; None where that cannot be known and nothing was promised.

    Raises:
        StorageUnavailable: it has a key, and whether that was used is not to be had.
    """
    try:
        secret = await store.secret()
    except StorageUnavailable:
        if said.key is None:
            return None
        raise
    if tenant == UNKNOWN:  # the storage was not there a moment ago: whose request it is cannot be known any more
        if said.key is None:
            return None
        raise StorageUnavailable("The storage cannot be reached.")
    if len(body) < LARGE_BODY:
        return _identity(said, tenant, body, secret)
    return await asyncio.to_thread(_identity, said, tenant, body, secret)


def _identity(said: Repeatable, tenant: str, body: bytes, secret: bytes) -> RequestIdentity:
    asked = _digest(secret, b"asked", said.meaning, body)
    if said.key is not None:
        return RequestIdentity(tenant, _digest(secret, b"key", said.key.encode()), asked, named=True)
    return RequestIdentity(tenant, _digest(secret, b"sent", said.client, asked), asked, False, bool(said.retries))


def _digest(secret: bytes, purpose: bytes, head: bytes, body: bytes = b"") -> bytes:
    made = hmac.new(secret, b"%s %d\n%s" % (purpose, len(head), head), "sha256")
    made.update(body)
    return made.digest()


def _checked(value: bytes) -> str:
    try:
        key = value.decode()
    except UnicodeDecodeError:
        key = value.decode("latin-1")
    if not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
        rule = f"must be 1 to {LONGEST_KEY} printable characters"
        raise InvalidRequest(f"Idempotency-Key {rule}.", param="Idempotency-Key", code="invalid_value")
    return key


def _tells_clients_apart(name: bytes) -> bool:
    return name in CLIENT or name.startswith(b"x-stainless-")


def _same(name: bytes, value: bytes) -> bytes:
    """The client's address is the first of those that proxies have added; the others differ from try to try."""
    return value.partition(b",")[0].strip() if name == b"x-forwarded-for" else value
