"""What a request says of being a repeat: its `Idempotency-Key`, and the headers that SDKs send with each try."""

import asyncio
import hashlib
from dataclasses import dataclass

from gateway.errors import InvalidRequest, StorageUnavailable
from gateway.http.auth import UNKNOWN
from gateway.http.edge import Scope
from gateway.models.claim import RequestIdentity
from gateway.ports import ConversationStore

KEY = b"idempotency-key"
RETRIES = b"x-stainless-retry-count"
SAID = (KEY, RETRIES)
MEANING = frozenset(
    (
        b"x-conversation-id",
        b"x-context-session",
        b"x-context-mode",
        b"x-context-planning",
        b"x-context-max-input-tokens",
        b"openai-organization",
        b"openai-project",
        b"openai-beta",
    )
)
"""Headers that say what is asked, as the body does."""
CLIENT = (b"user-agent", b"x-forwarded-for")
"""Headers that tell one client from another, beside the SDK's own."""
LONGEST_KEY = 255
LARGE_BODY = 2**20


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that wants to be answered once; `retries` by its SDK's count."""

    key: str | None
    retries: int
    meaning: bytes
    client: bytes


def repeatable(scope: Scope) -> Repeatable | None:
    """What the headers say; None where they say nothing of it.

    Raises:
        InvalidRequest: the key is none.
    """
    found = [pair for pair in scope["headers"] if pair[0] in SAID]
    if not found:
        return None
    if len({value for name, value in found if name == KEY}) > 1:
        text = "Idempotency-Key must be sent once; there are several that differ."
        raise InvalidRequest(text, param="Idempotency-Key", code="invalid_value")
    said = dict(reversed(found))
    key, retries = said.get(KEY), said.get(RETRIES, b"")
    if key is None and not retries.isdigit():
        return None
    meaning = [name + b":" + value for name, value in scope["headers"] if name in MEANING and value]
    client = [name + b":" + _same(name, value) for name, value in scope["headers"] if _tells_clients_apart(name)]
    count = int(retries[:4]) if retries.isdigit() else 0
    return Repeatable(
        None if key is None else _checked(key), count, b"\n".join(sorted(meaning)), b"\n".join(sorted(client))
    )


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
    made = hashlib.blake2b(b"%d\n%s" % (len(head), head), digest_size=32, key=secret[:64], person=purpose)
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
    return (name in CLIENT or name[:12] == b"x-stainless-") and name != RETRIES


def _same(name: bytes, value: bytes) -> bytes:
    """The client's address is the first of those that proxies have added; the others differ from try to try."""
    return value.partition(b",")[0].strip() if name == b"x-forwarded-for" else value
