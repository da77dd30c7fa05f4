"""Summaries that were paid for once (contract §5): kept by content, focus, model and wording; one payer at a time."""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gateway.ids import new_id
from gateway.models.artifacts import cache_group
from gateway.models.internal import OverCeiling
from gateway.ports import ClaimingCache, Clock

MAC_BYTES = 16
POLL_SECONDS = (0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class SummaryKey:
    """What a summary is of. Digests are hexadecimal SHA-256; another tenant's is another summary."""

    tenant: str
    content_digest: str
    focus: str
    model: str
    prompt_version: int

    def name(self, secret: bytes) -> str:
        """The key in the cache: keyed, so that nobody who reads the cache's keys can test contents against them."""
        parts = (self.tenant, self.content_digest, self.focus, self.model, str(self.prompt_version))
        framed = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
        return "summary:" + hmac.new(secret, framed, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """A summary, and whether this request got it without paying."""

    text: str
    hit: bool


class PayerLeft(Exception):
    """Whoever was making a summary was cancelled, or may not use more; nothing is wrong with the summary."""


Make = Callable[[], Awaitable[str]]


class SummaryCache:
    """Over any `CacheBackend` that can claim. A cache that is down, slow or holds rubbish costs a miss, never an error.

    Requests at once for one summary pay once: in this process by waiting for the first of them, across processes by a
    claim in the cache that runs out by itself. Where the model fails the first, those that wait fail with it: each
    would pay for the same failure again. Where the first left or met a ceiling of its own, the next one pays.
    """

    def __init__(self, cache: ClaimingCache, clock: Clock, ttl_seconds: float, claim_seconds: float) -> None:
        self._cache = cache
        self._clock = clock
        self._ttl = ttl_seconds
        self._claim_seconds = claim_seconds
        self._running: dict[str, asyncio.Future[str]] = {}

    async def get_or_make(self, key: SummaryKey, make: Make, secret: bytes, *, keep: bool) -> Found:
        """The summary: kept, being made by somebody else, or made now.

        Args:
            make: makes and pays for it; may raise what it likes, which is passed on.
            secret: the storage's, for the key and against values that nobody of us wrote.
            keep: whether it may be kept (not with `store: false`).
        """
        name = key.name(secret)
        while (running := self._running.get(name)) is not None:
            try:
                return Found(await asyncio.shield(running), hit=True)
            except PayerLeft:
                continue  # whoever waits pays in the place of one that left
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running[name] = future
        try:
            found = await self._kept_or_made(key, name, make, secret, keep)
        except BaseException as error:
            if not future.done():
                failed = isinstance(error, Exception) and not isinstance(error, OverCeiling)
                future.set_exception(error if failed else PayerLeft())
                future.exception()  # nobody may be waiting
            raise
        finally:
            del self._running[name]
        future.set_result(found.text)
        return found

    async def forget(self, tenant: str, digests: Sequence[str]) -> None:
        """Deletes what is kept of these contents, of no conversation that could be deleted later."""
        await self._cache.forget(*(cache_group(tenant, digest) for digest in digests))

    async def _kept_or_made(self, key: SummaryKey, name: str, make: Make, secret: bytes, keep: bool) -> Found:
        text = await self._read(name, secret)
        if text is not None:
            return Found(text, hit=True)
        if not keep:
            return Found(await make(), hit=False)
        owner, claim = new_id(""), f"{name}:claim"
        until = self._clock.monotonic() + self._claim_seconds
        tries = 0
        while not await self._cache.claim(claim, owner, self._claim_seconds):
            await asyncio.sleep(POLL_SECONDS[min(tries, len(POLL_SECONDS) - 1)])
            tries += 1
            text = await self._read(name, secret)
            if text is not None:
                return Found(text, hit=True)
            if self._clock.monotonic() >= until:
                break
        try:
            if tries and (text := await self._read(name, secret)) is not None:
                return Found(text, hit=True)
            text = await make()
            group = cache_group(key.tenant, key.content_digest)
            await self._cache.set(name, _signed(text, name, secret), self._ttl, group=group)
            return Found(text, hit=False)
        finally:
            await self._cache.release(claim, owner)

    async def _read(self, name: str, secret: bytes) -> str | None:
        value = await self._cache.get(name)
        if value is None or len(value) <= MAC_BYTES:
            return None
        if not hmac.compare_digest(value[:MAC_BYTES], _mac(value[MAC_BYTES:], name, secret)):
            return None
        try:
            return value[MAC_BYTES:].decode()
        except UnicodeDecodeError:
            return None


def _signed(text: str, name: str, secret: bytes) -> bytes:
    body = text.encode()
    return _mac(body, name, secret) + body


def _mac(body: bytes, name: str, secret: bytes) -> bytes:
    return hmac.new(secret, name.encode() + b"\0" + body, hashlib.sha256).digest()[:MAC_BYTES]
