"""`Idempotency-Key`: which request it is, and its stored answer again, as JSON or as a stream (guarantee §6, ADR 9)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.accounting.cost import total_cost
from gateway.accounting.metadata import begun
from gateway.accounting.stream import CHUNK_FIELDS, ON_EVERY_CHUNK, ChunkRelay
from gateway.base.tasks import offload_if
from gateway.errors import StorageUnavailable
from gateway.http.auth import FORWARDED_HEADERS, UNKNOWN
from gateway.http.conversations.completions import answered
from gateway.http.edge import Scope
from gateway.http.fields import invalid
from gateway.http.receive import LARGE_BODY
from gateway.models.turn import RequestIdentity, StoredCompletion
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
        b"x-claude-code-session-id",
        b"anthropic-beta",
        *FORWARDED_HEADERS,
    )
)
"""Headers that change what is asked, as the body does."""
REPLAYED = {"idempotent-replayed": "true"}
GATEWAY_FIELDS = ("response_metadata", "conversation")
"""Fields that the gateway adds to an answer, and to the first and the last chunk of a stream."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with an `Idempotency-Key`. `meaning` holds the headers that change what is asked, as bytes."""

    key: str
    meaning: bytes


def keyed(scope: Scope) -> Keyed | None:
    """What the headers say of an `Idempotency-Key`; None without one.

    Raises:
        InvalidRequest: there are several keys that differ, or the key breaks its rule.
    """
    keys = {value for name, value in scope["headers"] if name == KEY}
    if not keys:
        return None
    if len(keys) > 1:
        raise invalid("Idempotency-Key", "must be sent once; there are several that differ")
    meaning = [name + b":" + value for name, value in scope["headers"] if name in MEANING and value]
    return Keyed(_checked(keys.pop()), b"\n".join(sorted(meaning)))


async def identify(request: Keyed, tenant: str, body: bytes, store: ConversationStore) -> RequestIdentity:
    """The keyed digests by which the request is known.

    Raises:
        StorageUnavailable: the storage, and with it the secret of the digests, cannot be reached.
    """
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


def stored_answer(stored: StoredCompletion) -> tuple[dict[str, Any], str | None, Decimal | None]:
    """What is stored of the first answer: the completion, its conversation, and what it cost in USD."""
    cost = total_cost(stored.ledger.calls)[0].total_cost
    return answered(stored), stored.ledger.conversation_id, cost


def replayed_chunks(body: dict[str, Any], choices: int, *, include_usage: bool) -> list[dict[str, Any]]:
    """A whole answer in chunks, by the same rules as one that comes from upstream."""
    relay = ChunkRelay(body["id"], choices, include_usage)
    bill: dict[str, Any] = {name: body[name] for name in GATEWAY_FIELDS if name in body}
    known = {name: value for name, value in body["response_metadata"].items() if name not in ("usage", "cost")}
    sent = relay.push(list(_as_chunks(body)), lambda: {**bill, "response_metadata": begun(known)})
    relay.conclude()
    return sent + relay.final(bill, body["usage"])


def _as_chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of an upstream that sends each choice in one piece, and its own fields with the first chunk."""
    envelope = {name: value for name, value in body.items() if name not in (*CHUNK_FIELDS, *GATEWAY_FIELDS)}
    shared: dict[str, Any] = {"object": "chat.completion.chunk"}
    shared |= {name: body[name] for name in ON_EVERY_CHUNK if name in body}
    for choice in body["choices"]:
        begins = {"index": choice["index"], "delta": {"role": "assistant"}, "finish_reason": None}
        yield {**envelope, **shared, "choices": [begins]}
        envelope = {}
        content = {**begins, "delta": _delta(choice["message"]), "logprobs": choice.get("logprobs")}
        yield {**shared, "choices": [content]}
    for choice in body["choices"]:
        rest = {name: value for name, value in choice.items() if name not in ("message", "logprobs")}
        yield {**shared, "choices": [{**rest, "delta": {}}]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    delta = {name: value for name, value in message.items() if name != "role"}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    return delta
