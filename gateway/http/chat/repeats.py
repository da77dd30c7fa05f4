"""What a request says of being a repeat: its `Idempotency-Key`, and the headers that SDKs send with each try."""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from gateway.accounting.cost import total_cost
from gateway.accounting.stream import OWN, ChunkRelay
from gateway.errors import InvalidRequest, StorageUnavailable
from gateway.http.auth import UNKNOWN
from gateway.http.conversations.completions import answered
from gateway.http.edge import ClientDisconnected, Receive, Scope, Send, costing, named, send_json
from gateway.http.receive import EVENT_STREAM, event, until_disconnect
from gateway.models.exchange import ChatRequest
from gateway.models.turn import RequestIdentity, StoredCompletion
from gateway.storage.store import ConversationStore
from gateway.turn.idempotency import Permit

# The answer that a request was given before, once more: as JSON or as a stream (guarantee §6).


REPLAYED = {"idempotent-replayed": "true"}
BILL = ("response_metadata", "conversation")
END = b"data: [DONE]\n\n"
ON_EVERY_CHUNK = ("created", "model", "service_tier", "system_fingerprint")
"""SDKs that put a stream together take these from the last chunk."""


async def replay(send: Send, request: ChatRequest, stored: StoredCompletion) -> None:
    """Sends what is stored of the first answer in the form that the request asks for."""
    body = answered(stored)
    headers = {**REPLAYED, **named(stored.ledger.conversation_id)}
    if not request.stream:
        headers |= costing(total_cost(stored.ledger.calls)[0].total_cost)
        await send_json(send, 200, body, headers)
        return
    encoded = [(name.encode(), value.encode()) for name, value in {**EVENT_STREAM, **headers}.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    chunks = replayed_chunks(body, request.choices, include_usage=request.include_usage)
    await send({"type": "http.response.body", "body": b"".join([event(chunk) for chunk in chunks]) + END})


def replayed_chunks(body: dict[str, Any], choices: int, *, include_usage: bool) -> list[dict[str, Any]]:
    """A whole answer in chunks, by the same rules as one that comes from upstream."""
    relay = ChunkRelay(body["id"], choices, include_usage)
    bill: dict[str, Any] = {name: body[name] for name in BILL if name in body}
    begun = {name: value for name, value in body["response_metadata"].items() if name not in ("usage", "cost")}
    sent = relay.push(list(_as_sent(body)), lambda: {**bill, "response_metadata": begun})
    relay.conclude()
    return sent + relay.final(bill, body["usage"])


def _as_sent(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of an upstream that says each choice in one piece, and its own fields at once."""
    envelope = {name: value for name, value in body.items() if name not in (*OWN, *BILL)}
    shared: dict[str, Any] = {"object": "chat.completion.chunk"}
    shared |= {name: body[name] for name in ON_EVERY_CHUNK if name in body}
    for choice in body["choices"]:
        begins = {"index": choice["index"], "delta": {"role": "assistant"}, "finish_reason": None}
        yield {**envelope, **shared, "choices": [begins]}
        envelope = {}
        said = {**begins, "delta": _delta(choice["message"]), "logprobs": choice.get("logprobs")}
        yield {**shared, "choices": [said]}
    for choice in body["choices"]:
        rest = {name: value for name, value in choice.items() if name not in ("message", "logprobs")}
        yield {**shared, "choices": [{**rest, "delta": {}}]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    delta = {name: value for name, value in message.items() if name != "role"}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    return delta


# Answers whose client has left, and may ask for them again: an SDK that lost patience sends its request once more.


T = TypeVar("T")
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 8.0
"""How long an SDK waits before it tries again: twice as long each time, within these bounds."""
ON_ITS_WAY_SECONDS = 0.5


def patience(retries: int) -> float:
    """Seconds after which the next try of a client that has tried `retries` times again must have come."""
    return min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(retries, 10)) + ON_ITS_WAY_SECONDS


class Unattended:
    """Work that goes on without its client, so that what is asked again is charged and stored once."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def result(self, receive: Receive, permit: Permit, retries: int, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on for a moment if the client leaves, and as long as one waits for it who
        asks again.

        Args:
            retries: how often the client has tried again before.

        Raises:
            ClientDisconnected: the client left first.
        """
        task = asyncio.ensure_future(_within(permit, work))
        try:
            return await until_disconnect(receive, _of(task))
        except ClientDisconnected:
            for kept in (task, asyncio.ensure_future(_watch(task, permit, patience(retries)))):
                self._tasks.add(kept)
                kept.add_done_callback(self._tasks.discard)
            raise
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def close(self) -> None:
        """Cuts what is still being worked on, at shutdown."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _within(permit: Permit, work: Coroutine[Any, Any, T]) -> T:
    with permit:
        return await work


async def _of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)


async def _watch(task: asyncio.Task[Any], permit: Permit, seconds: float) -> None:
    """Lets it go on while it is wanted. How it ends is in the ledger, and told to whoever waits."""
    try:
        while not (await asyncio.wait({task}, timeout=seconds))[0]:
            if not permit.wanted:
                return
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody else looks at it


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
