"""Vectors of one request's texts: out of the cache, else from the model until the deadline."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.embeddings.wanted import MOST_WANTED, Wanted
from gateway.errors import GatewayError, UpstreamAuth, UpstreamError, UpstreamRefused, UpstreamUnreachable
from gateway.logs import get_logger
from gateway.models.embedding import EmbeddingFault, Embeddings, Tariff, Vector
from gateway.models.exchange import Caller
from gateway.models.spending import InternalCall
from gateway.ports import CacheBackend, Clock, Embedder

log = get_logger("gateway.embeddings")
MOST_AT_ONCE = 128
"""Texts of one call."""
MOST_TOKENS = 10**9
"""More than that is no figure."""
UNCHARGED = (UpstreamRefused, UpstreamAuth, UpstreamUnreachable)
FAULT = "embedder_failed"
LATE = "embedder_late"
Known = dict[str, Vector]
"""Vectors by the digests of their texts."""


def key_of(tenant: str, embedder: str, text_digest: str) -> str:
    """By which a vector is kept."""
    return f"vector:{tenant}:{embedder}:{text_digest}"


def portions(texts: Sequence[Wanted], chars: int) -> Iterator[list[Wanted]]:
    """Texts by what one call takes: at least one."""
    portion: list[Wanted] = []
    size = 0
    for each in texts:
        if portion and (size + len(each.text) > chars or len(portion) >= MOST_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(each.text)
    if portion:
        yield portion


@dataclass(slots=True)
class Search:
    """What one request knows of its texts by now. `until` is the deadline (of `Clock.monotonic`), one for all that it
    asks for; `made` are vectors that no cache has, `warnings` what went wrong."""

    embedder: Embedder
    cache: CacheBackend
    clock: Clock
    seconds: float
    caller: Caller
    spent: list[InternalCall]
    until: float | None = None
    known: Known = field(default_factory=dict)
    made: dict[str, Wanted] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    async def find(self, texts: Sequence[Wanted]) -> Known:
        """Vectors of these texts: all that are kept, and of the others those that the model gives in time, the first
        first, `MOST_WANTED` at most. A fault leaves the rest without."""
        if self.until is None:
            self.until = self.clock.monotonic() + self.seconds
        await self._recall(texts)
        missing = list({each.digest: each for each in texts if each.digest not in self.known}.values())
        for portion in portions(missing[:MOST_WANTED], self.embedder.at_once):
            if self.warnings or not await self._embed(portion):
                break
        return self.known

    async def _recall(self, texts: Sequence[Wanted]) -> None:
        sought = list({each.digest for each in texts} - self.known.keys())
        keys = [key_of(self.caller.tenant, self.embedder.name, digest) for digest in sought]
        for digest, vector in zip(sought, await self.cache.get_many(keys), strict=True):
            if vector is not None and vector and not len(vector) % 2:  # anyone may have written to that cache
                self.known[digest] = vector

    async def _embed(self, portion: list[Wanted]) -> bool:
        """Whether the model gave vectors in time."""
        left = (self.until or 0.0) - self.clock.monotonic()
        if left <= 0:
            self.warnings.append(LATE)
            return False
        texts = [each.text for each in portion]
        tariff = self.embedder.tariff()
        try:
            async with asyncio.timeout(left):
                found = await self.embedder.embed(texts, self.caller)
        except TimeoutError:
            await self._charge(tariff, texts)
            self.warnings.append(LATE)
            return False
        except asyncio.CancelledError:  # its request is given up; what was asked for is paid for all the same
            if tariff is not None:
                self.spent.append(_call(tariff, {"prompt_tokens": _roughly(texts), "completion_tokens": 0}, True))
            raise
        except (GatewayError, EmbeddingFault) as error:
            if isinstance(error, UpstreamError):  # any other was raised before a call
                await self._charge(tariff, [] if isinstance(error, UNCHARGED) else texts)
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - whatever a model's library raises costs quality, not the answer
            return self._failed(error)
        await self._charge(tariff, texts, found)
        for each, vector in zip(portion, found.vectors, strict=True):
            self.known[each.digest] = vector
            self.made[each.digest] = each
        return True

    def _failed(self, error: Exception) -> bool:
        log.warning("embedder_failed", reason=type(error).__name__, text=str(error)[:200])
        self.warnings.append(FAULT)
        return False

    async def _charge(self, tariff: Tariff | None, texts: list[str], found: Embeddings | None = None) -> None:
        if tariff is None:
            return
        usage = found.usage if found else None
        prompt = usage.get("prompt_tokens") if usage else None
        if usage is not None and type(prompt) is int and 0 <= prompt <= MOST_TOKENS:
            self.spent.append(_call(tariff, {**usage, "completion_tokens": 0}, False))
            return
        counted = await asyncio.to_thread(tariff.count, texts) if texts else 0
        self.spent.append(_call(tariff, {"prompt_tokens": counted, "completion_tokens": 0}, bool(texts)))


def _call(tariff: Tariff, usage: dict[str, Any], estimated: bool) -> InternalCall:
    total = usage.get("prompt_tokens", 0)
    return InternalCall("embedder", tariff.route, {**usage, "total_tokens": total}, tariff.prices, estimated)


def _roughly(texts: list[str]) -> int:
    """Tokens, where there is no time left to count them."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) // 4
