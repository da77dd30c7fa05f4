"""The summary cache (guarantee §5), with stampede protection: requests at once for one summary or plan pay once."""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from gateway.core.ids import new_id
from gateway.core.ports import ClaimingCache, Clock
from gateway.core.scheduler import repeating
from gateway.core.tasks import BackgroundTasks
from gateway.core.types.artifacts import cache_group
from gateway.core.types.internal import OverBudget

MAC_BYTES = 16
"""Of the signature before each value: 128 bits, as usual."""
POLL_SECONDS = (0.02, 0.05, 0.1, 0.2)
"""Waits between looks for a summary that another process makes; the last is repeated."""
CLAIM_SECONDS = 5.0
"""How long a claim lasts unless renewed: where its process ends, another takes over after this time."""
PLAN_SECONDS = 5.0
"""How long a plan is there for those who waited for it in other processes: many looks."""
RENEWALS = 3
"""So often a claim is renewed within its time, so that one renewal may fail."""


@dataclass(frozen=True, slots=True)
class SummaryKey:
    """What a summary is of: tenant, content (hexadecimal SHA-256), focus, model and version of the prompt. A plan is of
    several contents, so of none, and its focus is the digest of its prompt."""

    tenant: str
    content_digest: str
    focus: str
    model: str
    prompt_version: int
    kind: str = "summary"

    @property
    def group(self) -> str | None:
        """The group by which the cache forgets it with its content."""
        return cache_group(self.tenant, self.content_digest) if self.content_digest else None

    def name(self, secret: bytes) -> str:
        """The key in the cache, hashed with the secret, so that readers of keys cannot test contents against them."""
        parts = (self.tenant, self.content_digest, self.focus, self.model, str(self.prompt_version))
        framed = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
        return f"{self.kind}:" + hmac.new(secret, framed, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class CachedSummary:
    """A summary, and whether this request got it without paying."""

    text: str
    hit: bool


class PayerLeft(Exception):
    """The request that was making a summary was cancelled, or is over its budget; nothing is wrong with the model."""


Make = Callable[[], Awaitable[str]]


class SummaryCache:
    """Keeps summaries, or plans, in any cache that can claim. A cache that is down, slow or holds rubbish costs a miss,
    never an error.

    Of requests at once for one summary the first pays. In this process the others wait for it; across processes it
    holds a claim in the cache that runs out by itself. If the model fails the first, the others fail with it: each
    would pay for the same failure again. If the first left or is over its own budget, the next one pays.
    """

    def __init__(self, cache: ClaimingCache, clock: Clock, ttl_seconds: float, longest_wait: float) -> None:
        self._cache = cache
        self._clock = clock
        self._ttl = ttl_seconds
        self._longest_wait = longest_wait
        self._running: dict[str, asyncio.Future[str]] = {}
        self._tasks = BackgroundTasks()

    async def get_or_make(self, key: SummaryKey, make: Make, secret: bytes, *, read: bool, keep: bool) -> CachedSummary:
        """The summary: kept, being made by somebody else, or made now.

        Args:
            make: makes and pays for it; may raise what it likes, which is passed on.
            secret: the storage's, for the key and the signature of the value.
            read: whether one that is kept may be used, and whether it may be asked for (not with `store: false`).
            keep: whether it may be kept (neither with `store: false` nor of a dry run). Without `read` that is for
                those who ask while it is being made, in other processes, too.
        """
        name = key.name(secret)
        run = f"{name} {read} {keep}"
        while (running := self._running.get(run)) is not None:
            try:
                return CachedSummary(await asyncio.shield(running), hit=True)
            except PayerLeft:
                continue  # the next one pays
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running[run] = future
        try:
            if keep:
                found = await self._kept_or_made(key, name, make, secret, read=read)
            else:
                found = await self._only_read_or_made(name, make, secret, read)
        except BaseException as error:
            if not future.done():
                failed = isinstance(error, Exception) and not isinstance(error, OverBudget)
                future.set_exception(error if failed else PayerLeft())
                future.exception()  # nobody may be waiting
            raise
        finally:
            del self._running[run]
        future.set_result(found.text)
        return found

    async def evict(self, tenant: str, digests: Sequence[str]) -> None:
        """Deletes what is kept of these contents, of no conversation that could be deleted later."""
        await self.close()
        await self._cache.evict(*(cache_group(tenant, digest) for digest in digests))

    async def close(self) -> None:
        """Waits for writes and releases under way."""
        await self._tasks.finish()

    async def _only_read_or_made(self, name: str, make: Make, secret: bytes, read: bool) -> CachedSummary:
        text = _opened(await self._cache.get(name), name, secret) if read else None
        return CachedSummary(text, hit=True) if text is not None else CachedSummary(await make(), hit=False)

    async def _kept_or_made(
        self, key: SummaryKey, name: str, make: Make, secret: bytes, *, read: bool
    ) -> CachedSummary:
        owner, claim = new_id(""), f"{name}:claim"
        text = made = None
        try:
            if read or not await self._cache.claim(claim, owner, CLAIM_SECONDS):
                text = await self._kept_or_claimed(name, claim, owner, secret)
            if text is not None:
                return CachedSummary(text, hit=True)
            async with self._renewed(claim, owner):
                made = await make()
            return CachedSummary(made, hit=False)
        finally:
            if text is None:
                value = None if made is None else _signed(made, name, secret)
                settled = self._settled(name, value, key.group, owner)
                await asyncio.shield(self._tasks.start(settled))  # it ends also where the request is cancelled here

    async def _kept_or_claimed(self, name: str, claim: str, owner: str, secret: bytes) -> str | None:
        """The summary; None once this request holds the claim, or after the longest wait."""
        until = self._clock.monotonic() + self._longest_wait
        tries = 0
        while True:
            value, mine = await self._cache.get_or_claim(name, claim, owner, CLAIM_SECONDS)
            text = _opened(value, name, secret)
            if text is not None:
                return text
            if value is not None:  # rubbish: it is made anew, by one of those that found it
                mine = await self._cache.claim(claim, owner, CLAIM_SECONDS)
            if mine or self._clock.monotonic() >= until:
                return None
            await asyncio.sleep(POLL_SECONDS[min(tries, len(POLL_SECONDS) - 1)])
            tries += 1

    def _renewed(self, claim: str, owner: str) -> AbstractAsyncContextManager[None]:
        async def renew() -> None:
            await self._cache.claim(claim, owner, CLAIM_SECONDS)

        return repeating(CLAIM_SECONDS / RENEWALS, renew, name="summary_claim")

    async def _settled(self, name: str, value: bytes | None, group: str | None, owner: str) -> None:
        if value is not None:
            await self._cache.set(name, value, self._ttl, group=group)
        await self._cache.release(f"{name}:claim", owner)


def _opened(value: bytes | None, name: str, secret: bytes) -> str | None:
    """The text of a kept value; None if its signature is not of this name and secret."""
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
