"""Recently answered requests, cached in the process as they were received: of a body that begins with the same bytes,
only the rest is parsed, checked and digested (ADR 20).

A body that differs in any of those bytes is parsed whole, with the same result.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from secrets import token_hex
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from gateway.api.request.validation import RequestArrival, parse_chat_request, plain_messages, read_chat_body
from gateway.core import jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.settings import Settings
from gateway.core.formats.responses.request_parser import ResponsesReading
from gateway.core.types.chain import ChainDigest
from gateway.core.types.chat import ChatRequest, KnownMessages, PlainMessages, RequestCaller
from gateway.storage import KEPT_SECONDS

MIN_BYTES = 8192
"""A smaller body is parsed in less time than it is recognised."""
MAX_BYTES = 2**23
"""A larger body is not cached: it would stay in memory for the minutes that an answer may take."""
MESSAGE_BYTES = 1000
"""Bytes of memory of a parsed message and its digests, without its texts."""
BODY_CACHE_GROWTH = 1.25
"""The factor between the lengths at which a few bytes of a body are sampled."""
SAMPLE = 48
"""Bytes of a sample."""
CANDIDATES = 16
"""Cached bodies that are compared for each such length, the latest first."""
BLOCK = 2**16
TRIES = 3
"""Ends of objects that are tried as the end of a message."""
MESSAGES = re.compile(rb'"messages"\s*:\s*\[\s*')
UNKEPT = nullcontext()


class _ProvenPrefix(NamedTuple):
    """The first `messages` messages of a body are its bytes from `start` to `end`."""

    start: int
    end: int
    messages: int


NOTHING = _ProvenPrefix(0, 0, 0)


@dataclass(slots=True, eq=False)
class _CachedBody:
    """A body as received, the messages in it, and their chain digests. `size` is the memory of all, `parts` that of
    what was parsed, apart from the texts. `proven` grows, and is replaced as a whole."""

    tenant: str
    raw: bytes
    messages: tuple[dict[str, Any], ...]
    digests: Sequence[ChainDigest]
    size: int
    parts: int
    proven: _ProvenPrefix = NOTHING


@dataclass(frozen=True, slots=True)
class _CacheSource:
    """The cached body by which a request was recognised, and what was proven of it then."""

    kept: _CachedBody
    proven: _ProvenPrefix


@dataclass(frozen=True, slots=True)
class RecognizedBody:
    """A body of which only the rest was parsed. `known`: the messages that were already known."""

    body: dict[str, Any]
    plain: PlainMessages | None
    known: KnownMessages


class BodyCache:
    """A thread-safe LRU cache of bodies by tenant, without requests with `store: false`. `recognised` counts the
    requests that began like a cached one.
    `max_bytes`: of all bodies together, with what was parsed of them; `ttl`: seconds that an unused body is cached."""

    def __init__(self, max_bytes: int, clock: ports.Clock, ttl: float = KEPT_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._kept: BoundedCache[int, _CachedBody] = BoundedCache(
            max_weight=max_bytes, now=clock.monotonic, ttl=ttl, on_evict=self._forget_samples
        )
        self._by_sample: dict[int, list[_CachedBody]] = {}
        self._held = 0
        self._moment = 0
        """A counter of deletions: a body may be cached if it arrived after the last one."""
        self._lock = Lock()
        self.recognised = 0

    @property
    def size(self) -> int:
        return self._kept.weight

    def __len__(self) -> int:
        return len(self._kept)

    def parse(self, tenant: str, raw: bytes) -> RecognizedBody | None:
        """Parses a body that begins like a cached one of the tenant; returns None where it has to be parsed whole."""
        if len(raw) < MIN_BYTES:
            return None
        for kept in self._candidates(tenant, raw):
            found = _parsed(kept, raw)
            if found is not None:
                with self._lock:
                    self.recognised += 1
                    self._kept.get(id(kept))
                return found
        return None

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[None]:
        """Caches the body if its request is answered in this block. Bodies of running requests take at most as much
        memory as cached ones may; of any others only the texts are held, since an answer may take minutes."""
        held = len(raw) if request.keeps_content and not request.options.dry_run else 0
        if not MIN_BYTES <= held <= MAX_BYTES or self._held + held > self._max_bytes // 2:
            return UNKEPT
        return self._holding(raw, request, held)

    @contextmanager
    def _holding(self, raw: bytes, request: ChatRequest, held: int) -> Iterator[None]:
        since = self._moment
        self._held += held
        try:
            yield
        finally:
            self._held -= held
        self._keep(raw, request, since)

    def _keep(self, raw: bytes, request: ChatRequest, since: int) -> None:
        """Replaces the body by which the request was recognised. `since`: the moment before it was answered."""
        source = request.known.source
        parts = _part_bytes(raw, source) if isinstance(source, _CacheSource) else jsons.part_bytes(raw)
        size = len(raw) + jsons.text_bytes(raw) + parts + MESSAGE_BYTES * len(request.messages)
        if size > self._max_bytes // 2:
            return
        new = _CachedBody(request.caller.tenant, raw, request.messages, request.known.digests, size, parts)
        if isinstance(source, _CacheSource):
            new.proven = source.proven
        with self._lock:
            if since != self._moment:
                return
            if isinstance(source, _CacheSource):
                self._drop(source.kept)
            for sample in _samples(new.tenant, raw):
                there = self._by_sample.setdefault(sample, [])
                there.insert(0, new)
                del there[CANDIDATES:]
            self._kept.put(id(new), new, weight=size)

    def expire(self) -> None:
        """Drops the bodies that no request has continued in time."""
        with self._lock:
            self._kept.expire()

    def forget_tenant(self, tenant: str) -> None:
        with self._lock:
            for kept in self._kept.values():
                if kept.tenant == tenant:
                    self._drop(kept)

    def forget(self) -> None:
        """Drops everything, since something was deleted, whose text must not stay here."""
        with self._lock:
            self._moment += 1
            self._kept.clear()
            self._by_sample.clear()

    def _candidates(self, tenant: str, raw: bytes) -> list[_CachedBody]:
        """Returns cached bodies that may begin like this one, the longest match first."""
        samples = list(_samples(tenant, raw))
        with self._lock:
            for sample in reversed(samples):
                alike = self._by_sample.get(sample, ())
                there = [each for each in alike if each.tenant == tenant and self._kept.peek(id(each))]
                if there:
                    return there
        return []

    def _drop(self, kept: _CachedBody) -> None:
        if self._kept.pop(id(kept)) is not None:
            self._forget_samples(id(kept), kept)

    def _forget_samples(self, _: int, kept: _CachedBody) -> None:
        for sample in _samples(kept.tenant, kept.raw):
            there = self._by_sample.get(sample)
            if there is not None and kept in there:
                there.remove(kept)
                if not there:
                    del self._by_sample[sample]


def read_chat_request(
    resends: BodyCache,
    raw: bytes,
    headers: Mapping[str, str],
    caller: RequestCaller,
    settings: Settings,
    arrival: RequestArrival,
    read: Callable[[ResponsesReading], object] = lambda _: None,
) -> ChatRequest:
    """Parses the chat request of a body, of which only what is new is parsed; see `read_chat_body`."""
    found = resends.parse(caller.tenant, raw)
    if found is not None:
        return parse_chat_request(found.body, headers, caller, settings, arrival, found.plain, found.known)
    return read_chat_body(raw, headers, caller, settings, arrival, read)


class ReadChat(Protocol):
    """A body in the form of another API, read as a chat."""

    @property
    def chat(self) -> dict[str, Any]: ...

    def own_name(self, path: str) -> str:
        """Returns that API's name for a field of a chat."""
        ...


R = TypeVar("R", bound=ReadChat)


class ReadAsChat(Generic[R]):
    """What the adapters of other APIs share: a body is read as a chat, by which the next request is recognised."""

    def __init__(self, settings: Settings, resends: BodyCache) -> None:
        self._settings = settings
        self._resends = resends
        self._body: dict[str, Any] = {}
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._reading: R | None = None

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Caches the chat that was read, for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        return self._resends.holding(chat, request) if chat else nullcontext()

    def own_name(self, path: str) -> str:
        """Returns the client's name for a field of a chat; the chat's own name before the request has been read."""
        return path if self._reading is None else self._reading.own_name(path)

    def _request(
        self,
        reading: R,
        size: int,
        headers: Mapping[str, str],
        caller: RequestCaller,
        arrival: RequestArrival,
        plain: PlainMessages | None = None,
    ) -> ChatRequest:
        """The request that was read so, of a body of that size; bytes are made of it only where they are cached.
        `plain`: its messages, where they are known to be."""
        self._reading, chat = reading, reading.chat
        is_kept = self._settings.conversation.store if chat.get("store") is None else chat["store"]
        if plain is not None or size < MIN_BYTES or not is_kept:
            plain = plain or plain_messages(chat["messages"])
            return parse_chat_request(chat, headers, caller, self._settings, arrival, plain)
        self._chat = jsons.dumps({"messages": chat["messages"], **chat})
        return read_chat_request(self._resends, self._chat, headers, caller, self._settings, arrival)


def _part_bytes(raw: bytes, source: _CacheSource) -> int:
    """Counts the bytes of the parsed parts of a body that begins like a cached one; only the rest is examined."""
    kept, end = source.kept, source.proven.end
    return kept.parts - jsons.part_bytes(kept.raw[end:]) + jsons.part_bytes(raw[end:])


def _samples(tenant: str, raw: bytes) -> Iterator[int]:
    """Yields a digest of a few bytes at each of some lengths, and of those before; the shortest first."""
    digest, length = hash(tenant), float(MIN_BYTES // 2)
    while length <= len(raw):
        at = int(length)
        digest = hash((digest, raw[at - SAMPLE : at]))
        yield digest
        length *= BODY_CACHE_GROWTH


def _parsed(kept: _CachedBody, raw: bytes) -> RecognizedBody | None:
    """Parses the body after the messages that it shares with a cached one; None if it shares none that are proven.

    The proof: with one value in place of the shared messages the body is JSON, and that value is the first of its
    `messages`; and the bytes that it replaces are proven to be whole messages.
    """
    before = kept.proven
    shared = _shared(kept.raw, raw, before.end)
    if shared < before.end:
        return None
    proven = kept.proven = _proven(kept, before, raw, shared)
    if not proven.messages:
        return None
    mark = token_hex(16)
    rest = b'%b"%b"%b' % (raw[: proven.start], mark.encode(), raw[proven.end :])
    try:
        body = jsons.loads(rest)
        if type(body) is not dict or jsons.checked(rest, body) is not body:
            return None
    except jsons.JSONDecodeError:
        return None
    new = body.get("messages")
    if type(new) is not list or not new or new[0] != mark:
        return None
    messages = [*kept.messages[: proven.messages], *new[1:]]
    body["messages"] = messages
    instructions = len(kept.messages) - len(kept.digests)
    digests = kept.digests[: max(0, proven.messages - instructions)]
    known = KnownMessages(proven.messages, digests, _CacheSource(kept, proven))
    return RecognizedBody(body, plain_messages(messages), known)


def _proven(kept: _CachedBody, before: _ProvenPrefix, raw: bytes, shared: int) -> _ProvenPrefix:
    """Extends what is proven of the cached body to what it shares with another one."""
    start, end, count = before
    if not count:
        found = MESSAGES.search(kept.raw, 0, shared)
        if found is None:
            return before
        start = end = found.end()
    for new_end in _ends(kept.raw, raw, end, shared):
        first = b"[0" if count else b"["
        try:
            values = jsons.loads(b"%b%b]" % (first, kept.raw[end:new_end]))
        except jsons.JSONDecodeError:
            continue
        values = values[1:] if count else values
        more = count + len(values)
        if values and jsons.dumps(kept.messages[count:more]) == jsons.dumps(values):  # `==` takes 1 for true
            return _ProvenPrefix(start, new_end, more)
        break
    return before


def _ends(one: bytes, other: bytes, first: int, shared: int) -> Iterator[int]:
    """Yields where the last shared message may end, the latest first."""
    if one[shared : shared + 1] == b"]" and other[shared : shared + 1] == b",":  # the client appended to it
        yield shared
    end = shared
    for _ in range(TRIES):
        end = one.rfind(b"}", first, end)
        if end < 0:
            return
        if one[end + 1 : end + 2] in (b",", b"]") and end + 1 < shared:
            yield end + 1


def _shared(one: bytes, other: bytes, known: int) -> int:
    """Counts the bytes with which both bodies begin; less than `known` if they differ before."""
    if known and one[:known] != other[:known]:
        return 0
    at, most = known, min(len(one), len(other))
    size = BLOCK
    while size:
        while at + size <= most and one[at : at + size] == other[at : at + size]:
            at += size
        size //= 2
    return at
