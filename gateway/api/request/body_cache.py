"""Recently answered requests, cached in the process as they were received: of a body that begins with the same bytes,
only the rest is parsed, checked and digested (ADR 20). Of requests with `store: false` only digests are cached.

A body that differs in any of those bytes is parsed whole, with the same result.
"""

import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from secrets import token_bytes, token_hex
from threading import Lock
from types import NoneType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from gateway.api.request.validation import RequestArrival, parse_chat_request, plain_messages, read_chat_body
from gateway.api.server.asgi import json_body
from gateway.core import jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.settings import Settings
from gateway.core.formats.responses.request_parser import ResponsesReading
from gateway.core.frozen_records import record
from gateway.core.types.chain import ChainDigest
from gateway.core.types.chat import ChatRequest, KnownMessages, PlainMessages, RequestCaller
from gateway.core.types.prompt_digests import PromptDigests
from gateway.storage import KEPT_SECONDS

MIN_CACHED_BODY = 8192
"""A smaller body is parsed in less time than it is recognised."""
MAX_CACHED_BODY = 2**23
"""A larger body is not cached: it would stay in memory for the minutes that an answer may take."""
MESSAGE_BYTES = 1000
"""Bytes of memory of a parsed message and its digests, without its texts."""
DIGEST_BYTES = 250
"""Bytes of memory of a message's digests."""
BODY_CACHE_GROWTH = 1.25
"""The factor between the lengths at which a few bytes of a body are sampled."""
SAMPLE = 48
"""Bytes of a sample."""
CANDIDATES = 16
"""Cached bodies that are compared for each such length, the latest first."""
COMPARED_BYTES = 2**16
MAX_ENDS_TRIED = 8
"""Ends of objects that are tried as the end of a message."""
SHARED_LISTS = {name: re.compile(rb'"%b"\s*:\s*\[\s*' % name.encode()) for name in ("messages", "input")}
"""Where the list of messages begins."""
AFTER_OBJECT = re.compile(rb',\s*\{\s*"|\]\s*(?:,\s*"|\}\s*\Z)')
"""What follows the last shared object of a list. In a text it occurs only at the end: quotes in texts are escaped."""
UNKEPT = nullcontext()


class ReadChat(Protocol):
    """Another API's body, read as a chat. `leading`: how many of the chat's messages come before those of the body's
    list; `known`: how many of the list's messages an earlier request had."""

    LIST: ClassVar[str]

    @property
    def chat(self) -> dict[str, Any]: ...

    @property
    def leading(self) -> int: ...

    @property
    def known(self) -> int: ...

    def external_field_name(self, path: str) -> str:
        """Returns that API's name for a field of a chat."""


R = TypeVar("R", bound=ReadChat)


class _ProvenPrefix(NamedTuple):
    """The first `messages` messages of a body's list are its bytes from `start` to `end`."""

    start: int
    end: int
    messages: int


NOTHING_PROVEN = _ProvenPrefix(0, 0, 0)


@dataclass(slots=True, eq=False)
class _CachedBody:
    """A body as received. `messages`: those of its list; `reading`: how they were read as a chat (None: they are a
    chat's); `digests`: chain digests after the chat's first `leading` messages, its instructions; `sent`: those of the
    prompt that it was, if it was forwarded as it came; `size`: memory of everything; `parts`: memory of parsed parts
    without texts. `proven` grows, and is replaced as a whole."""

    tenant: str
    raw: bytes
    messages: Sequence[Any]
    reading: ReadChat | None
    leading: int
    digests: Sequence[ChainDigest]
    sent: PromptDigests
    size: int
    parts: int
    proven: _ProvenPrefix = NOTHING_PROVEN


@record
class _CacheSource:
    """The cached body by which a request was recognised, and what was proven of it then."""

    kept: _CachedBody
    proven: _ProvenPrefix


@record
class _UnstoredSource:
    """Keyed digests of the messages of a request that is not stored: of those before the last answer, and of all."""

    before: bytes
    all: bytes


@record
class RecognizedBody:
    """A body of which only the rest was parsed, and the source of what it begins with."""

    body: dict[str, Any]
    source: _CacheSource

    @property
    def count(self) -> int:
        """The number of messages in its list that were already known."""
        return self.source.proven.messages

    @property
    def reading(self) -> ReadChat | None:
        """How the earlier body was read."""
        return self.source.kept.reading

    def known(self, messages: int, before: int) -> KnownMessages:
        """Returns what is known of its chat: the first `messages`, equal to the first `before` of the earlier chat."""
        kept = self.source.kept
        sent = kept.sent if kept.sent.count <= before == messages else PromptDigests()
        return KnownMessages(messages, kept.digests[: max(0, before - kept.leading)], sent, self.source)


class BodyCache:
    """A thread-safe LRU cache of bodies by tenant; of requests with `store: false` it holds digests alone. `recognised`
    counts the requests that began like a cached one.
    `max_bytes`: of all bodies together, parsed parts included; `ttl`: seconds that an unused body is cached."""

    def __init__(self, max_bytes: int, clock: ports.Clock, ttl: float = KEPT_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._secret = token_bytes(32)
        self._kept: BoundedCache[int | bytes, _CachedBody | KnownMessages] = BoundedCache(
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

    def parse(self, tenant: str, raw: bytes, kind: type[Any] = NoneType) -> RecognizedBody | None:
        """Parses a body that begins like a cached one of the tenant; returns None where it has to be parsed whole.
        `kind`: of the cached one's reading."""
        if len(raw) < MIN_CACHED_BODY:
            return None
        for kept in self._candidates(tenant, raw, kind):
            found = _parsed(kept, raw)
            if found is not None:
                with self._lock:
                    self.recognised += 1
                    self._kept.get(id(kept))
                return found
        return None

    def unstored(self, tenant: str, messages: list[Any], size: int) -> KnownMessages:
        """Returns what is known of the messages before the last answer of a chat that is not stored, from the request
        that had only these. `messages`: whether this request's own are valid need not be known yet;
        `size`: bytes of its body."""
        if size < MIN_CACHED_BODY:
            return KnownMessages()
        last = next((at for at in reversed(range(len(messages))) if _is_answer(messages[at])), 0)
        running = hmac.new(self._secret + tenant.encode(), jsons.dumps(messages[:last])[:-1], "sha256")
        before = running.digest()
        with self._lock:
            found = self._kept.get(before)
            self.recognised += found is not None
        running.update(b"," * bool(last) + jsons.dumps(messages[last:])[1:-1])
        source = _UnstoredSource(before, running.digest())
        if isinstance(found, KnownMessages):
            return KnownMessages(last, found.digests, found.sent, source)
        return KnownMessages(source=source)

    def holding(
        self, raw: bytes, request: ChatRequest, messages: Sequence[Any] = (), reading: ReadChat | None = None
    ) -> AbstractContextManager[None]:
        """Caches the body if its request is answered in this block. Bodies of running requests take at most as much
        memory as cached ones may; of any others only the texts are held, since an answer may take minutes.
        `messages`: of its list, if they were read as a chat's (`reading`)."""
        if isinstance(request.known.source, _UnstoredSource):
            return self._noting(request, request.known.source)
        held = len(raw) if request.keeps_content and not request.options.dry_run else 0
        if not MIN_CACHED_BODY <= held <= MAX_CACHED_BODY or self._held + held > self._max_bytes // 2:
            return UNKEPT
        return self._holding(raw, request, held, messages, reading)

    @contextmanager
    def _noting(self, request: ChatRequest, source: _UnstoredSource) -> Iterator[None]:
        """Caches what is known of the messages if their request is answered, in place of those before."""
        yield
        count, known = len(request.messages), request.known
        with self._lock:
            self._kept.pop(source.before)
            self._kept.put(source.all, KnownMessages(count, known.digests, known.sent), weight=DIGEST_BYTES * count)

    @contextmanager
    def _holding(
        self, raw: bytes, request: ChatRequest, held: int, messages: Sequence[Any], reading: ReadChat | None
    ) -> Iterator[None]:
        since = self._moment
        self._held += held
        try:
            yield
        finally:
            self._held -= held
        self._keep(raw, request, messages, reading, since)

    def _keep(
        self, raw: bytes, request: ChatRequest, messages: Sequence[Any], reading: ReadChat | None, since: int
    ) -> None:
        """Replaces the body by which the request was recognised. `since`: the moment before it was answered."""
        source = request.known.source
        parts = _part_bytes(raw, source) if isinstance(source, _CacheSource) else jsons.part_bytes(raw)
        texts = jsons.text_bytes(raw) if reading is None else 2 * jsons.text_bytes(raw)  # some are written anew
        size = len(raw) + texts + parts + MESSAGE_BYTES * len(request.messages)
        if size > self._max_bytes // 2:
            return
        known, own = request.known, messages if reading is not None else request.messages
        leading = len(request.messages) - len(known.digests)
        new = _CachedBody(request.caller.tenant, raw, own, reading, leading, known.digests, known.sent, size, parts)
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
                if isinstance(kept, _CachedBody) and kept.tenant == tenant:
                    self._drop(kept)

    def forget(self) -> None:
        """Drops everything: something was deleted, and its text must not stay here."""
        with self._lock:
            self._moment += 1
            self._kept.clear()
            self._by_sample.clear()

    def _candidates(self, tenant: str, raw: bytes, kind: type[Any]) -> list[_CachedBody]:
        """Returns cached bodies that may begin like this one, the longest match first."""
        samples = list(_samples(tenant, raw))
        with self._lock:
            for sample in reversed(samples):
                alike = self._by_sample.get(sample, ())
                own = [each for each in alike if each.tenant == tenant and type(each.reading) is kind]
                if there := [each for each in own if self._kept.peek(id(each))]:
                    return there
        return []

    def _drop(self, kept: _CachedBody) -> None:
        if self._kept.pop(id(kept)) is not None:
            self._forget_samples(id(kept), kept)

    def _forget_samples(self, _: int | bytes, kept: _CachedBody | KnownMessages) -> None:
        for sample in _samples(kept.tenant, kept.raw) if isinstance(kept, _CachedBody) else ():
            there = self._by_sample.get(sample)
            if there is not None and kept in there:
                there.remove(kept)
                if not there:
                    del self._by_sample[sample]


def _is_answer(message: Any) -> bool:
    return type(message) is dict and message.get("role") == "assistant"


def read_chat_request(
    resends: BodyCache,
    raw: bytes,
    headers: Mapping[str, str],
    caller: RequestCaller,
    settings: Settings,
    arrival: RequestArrival,
    read: Callable[[ResponsesReading], object] = lambda _: None,
) -> ChatRequest:
    """Parses a body to a chat request; of a resend only what is new. See `read_chat_body`."""
    found = resends.parse(caller.tenant, raw)
    if found is not None:
        plain, known = plain_messages(found.body["messages"]), found.known(found.count, found.count)
        return parse_chat_request(found.body, headers, caller, settings, arrival, plain, known)
    return read_chat_body(raw, headers, caller, settings, arrival, read, resends.unstored)


class ReadAsChat(Generic[R]):
    """What the adapters of other APIs share: reads a body as a chat, and recognises it in the next request. If reading
    changes the messages, the chat's bytes take the place of the body's."""

    def __init__(self, settings: Settings, resends: BodyCache) -> None:
        self._settings = settings
        self._resends = resends
        self._body: dict[str, Any] = {}
        self._found: RecognizedBody | None = None
        self._chat = b""
        self._reading: R | None = None

    def _parse(self, raw: bytes, caller: RequestCaller, kind: type[R]) -> dict[str, Any]:
        """Parses the body; only the rest, if it begins like an earlier one of this `kind`."""
        self._found = self._resends.parse(caller.tenant, raw, kind)
        self._body = self._found.body if self._found is not None else json_body(raw)
        return self._body

    def _before(self, body: dict[str, Any], kind: type[R]) -> tuple[R | None, int]:
        """Returns how the earlier body was read, and how many messages of this one's list are the same.
        `body`: this one, as it is read."""
        found = self._found
        if found is None or not isinstance(found.reading, kind) or not self._is_as_sent(body, kind):
            return None, 0
        return found.reading, found.count

    def _is_as_sent(self, body: dict[str, Any], kind: type[R]) -> bool:
        """Returns whether the list of the body that is read is the one that came."""
        return body.get(kind.LIST) is self._body.get(kind.LIST)

    def _is_kept(self, body: dict[str, Any]) -> bool:
        """Returns whether later requests may be recognised by this one, so far as its body tells."""
        return bool(self._settings.conversation.store if body.get("store") is None else body["store"])

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Caches what was read, for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        if chat:
            return self._resends.holding(chat, request)
        reading = self._reading
        messages = self._body.get(reading.LIST) if reading is not None else None
        if type(messages) is not list or request.left_out:  # in another mode nothing is
            return nullcontext()
        return self._resends.holding(raw, request, messages, reading)

    def external_field_name(self, path: str) -> str:
        """Returns the client's name for a field of a chat; the chat's own name before the request has been read."""
        return path if self._reading is None else self._reading.external_field_name(path)

    def _request(
        self,
        reading: R,
        body: dict[str, Any],
        headers: Mapping[str, str],
        caller: RequestCaller,
        arrival: RequestArrival,
        plain: PlainMessages | None = None,
    ) -> ChatRequest:
        """Builds the request; serialises the chat only to recognise a resend by its bytes.
        `body`: as it was read; `plain`: its messages, if known to be plain."""
        self._reading, chat = reading, reading.chat
        is_as_sent = self._is_as_sent(body, type(reading))
        if plain is None and arrival.size >= MIN_CACHED_BODY and not is_as_sent and self._is_kept(body):
            self._chat = jsons.dumps({"messages": chat["messages"], **chat})
            return read_chat_request(self._resends, self._chat, headers, caller, self._settings, arrival)
        known = None
        if self._found is not None and (before := self._found.reading) is not None and is_as_sent:
            known = self._found.known(reading.leading + reading.known, before.leading + reading.known)
        plain = plain or plain_messages(chat["messages"])
        unstored = self._resends.unstored
        return parse_chat_request(chat, headers, caller, self._settings, arrival, plain, known, unstored)


def _part_bytes(raw: bytes, source: _CacheSource) -> int:
    """Counts the bytes of the parsed parts of a body that begins like a cached one; only the rest is examined."""
    kept, end = source.kept, source.proven.end
    return kept.parts - jsons.part_bytes(kept.raw[end:]) + jsons.part_bytes(raw[end:])


def _samples(tenant: str, raw: bytes) -> Iterator[int]:
    """Yields a digest of a few bytes at each of some lengths, and of those before; the shortest first."""
    digest, length = hash(tenant), float(MIN_CACHED_BODY // 2)
    while length <= len(raw):
        at = int(length)
        digest = hash((digest, raw[at - SAMPLE : at]))
        yield digest
        length *= BODY_CACHE_GROWTH


def _parsed(kept: _CachedBody, raw: bytes) -> RecognizedBody | None:
    """Parses the body after the messages that it shares with a cached one; None if it shares none that are proven.

    The proof: with one value in place of the shared messages the body is JSON, and that value is the first of its
    list; and the bytes that it replaces are proven to be whole messages.
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
    name = _list_of(kept)
    new = body.get(name)
    if type(new) is not list or not new or new[0] != mark:
        return None
    body[name] = [*kept.messages[: proven.messages], *new[1:]]
    return RecognizedBody(body, _CacheSource(kept, proven))


def _list_of(kept: _CachedBody) -> str:
    return "messages" if kept.reading is None else kept.reading.LIST


def _proven(kept: _CachedBody, before: _ProvenPrefix, raw: bytes, shared: int) -> _ProvenPrefix:
    """Extends the proven part of the cached body to what it shares with another one."""
    start, end, count = before
    if not count:
        found = SHARED_LISTS[_list_of(kept)].search(kept.raw, 0, shared)
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
    end, tries = shared - 1, 0
    while tries < MAX_ENDS_TRIED and (end := one.rfind(b"}", first, end)) >= 0:
        if AFTER_OBJECT.match(one, end + 1):
            yield end + 1
            tries += 1


def _shared(one: bytes, other: bytes, known: int) -> int:
    """Counts the bytes with which both bodies begin; less than `known` if they differ before."""
    if known and one[:known] != other[:known]:
        return 0
    at, most = known, min(len(one), len(other))
    size = COMPARED_BYTES
    while size:
        while at + size <= most and one[at : at + size] == other[at : at + size]:
            at += size
        size //= 2
    return at
