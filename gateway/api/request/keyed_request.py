"""`Idempotency-Key`: which request it is (guarantee §6, ADR 9)."""

import hashlib
from dataclasses import dataclass

from gateway.api.auth import FORWARDED_HEADERS, UNKNOWN
from gateway.api.fields import invalid
from gateway.api.server.fast_router import Scope
from gateway.api.server.receiving import LARGE_BODY
from gateway.core.errors import StorageUnavailable
from gateway.core.tasks import offload_if
from gateway.core.types.turn import RequestIdentity
from gateway.storage.store import ConversationStore

KEY = b"idempotency-key"
MAX_KEY_CHARS = 255
MEANING = frozenset(
    (
        b"x-conversation-id",
        b"x-context-session",
        b"x-context-mode",
        b"x-context-planning",
        b"x-context-max-input-tokens",
        b"x-gateway-fallbacks",
        b"x-claude-code-session-id",
        b"anthropic-beta",
        *FORWARDED_HEADERS,
    )
)
"""Headers that change what is asked, as the body does."""
REPLAYED = {"idempotent-replayed": "true"}


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an `Idempotency-Key`. `meaning` holds the headers that change what is asked, as bytes."""

    key: str
    meaning: bytes


def keyed(scope: Scope) -> KeyedRequest | None:
    """What the headers say of an `Idempotency-Key`; None without one.
    Raises InvalidRequest: there are several keys that differ, or the key breaks its rule."""
    keys = {value for name, value in scope["headers"] if name == KEY}
    if not keys:
        return None
    if len(keys) > 1:
        raise invalid("Idempotency-Key", "must be sent once; there are several that differ")
    meaning = [name + b":" + value for name, value in scope["headers"] if name in MEANING and value]
    return KeyedRequest(_checked(keys.pop()), b"\n".join(sorted(meaning)))


async def identify(request: KeyedRequest, tenant: str, body: bytes, store: ConversationStore) -> RequestIdentity:
    """The keyed digests by which the request is known.
    Raises StorageUnavailable: the storage, and with it the secret of the digests, cannot be reached."""
    secret = await store.secret()
    if tenant == UNKNOWN:  # the storage was down a moment ago, so the request's tenant is not known
        raise StorageUnavailable("The storage cannot be reached.")

    def digests() -> RequestIdentity:
        return RequestIdentity(
            tenant, key_digest(secret, request.key), _digest(secret, b"asked", request.meaning, body)
        )

    return await offload_if(len(body) >= LARGE_BODY, digests)


def key_digest(secret: bytes, key: str) -> bytes:
    """The keyed digest, 32 bytes, by which an `Idempotency-Key` is known."""
    return _digest(secret, b"key", key.encode())


def _digest(secret: bytes, purpose: bytes, head: bytes, body: bytes = b"") -> bytes:
    made = hashlib.blake2b(b"%d\n%s" % (len(head), head), digest_size=32, key=secret[:64], person=purpose)
    made.update(body)
    return made.digest()


def _checked(value: bytes) -> str:
    try:
        key = value.decode()
    except UnicodeDecodeError:
        key = value.decode("latin-1")
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isprintable()):
        raise invalid("Idempotency-Key", f"must be 1 to {MAX_KEY_CHARS} printable characters")
    return key
