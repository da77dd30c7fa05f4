"""Vectors of one request's texts: out of the cache, else from the model until the deadline."""

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.errors import GatewayError, UpstreamError
from gateway.models.bill import InternalCall
from gateway.models.exchange import Caller
from gateway.models.relevance import EmbeddingFault, Embeddings, Passage, Query, Source, Tariff, Vector, similarities
from gateway.ports import CacheBackend, Clock, Embedder
from gateway.telemetry.logs import get_logger

# Which passages are worth a place in a model's space, and in which order they get it. Pure.


MOST_WANTED = 256
"""Passages that one request has vectors made of: each costs time or money."""
MOST_LATER = 2000
"""Further ones, which are used if they are kept already, and may be made afterwards."""
BEST = 64
"""So many of the best by their words come first, with what stands beside them."""
LONGEST = 2000
QUESTION_CHARS = 1000
MARKS = re.compile(r"[{}\[\]\"<>|=;:_/\\\d\t]")
MOST_MARKS = 0.12
"""Share of signs beyond which a text is records or code, in which words say more than meaning does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that is to get a vector: passage `number` of source `source`, or a query (-1). `digest` names the text,
    `held_by` the digest of the content that it is a part of (None: a part of the conversation)."""

    text: str
    digest: str
    held_by: str | None = None
    source: int = -1
    number: int = -1


def queries(query: Query) -> list[Wanted]:
    """The question first, then what else is sought."""
    texts = [query.question[-QUESTION_CHARS:], *(search[:QUESTION_CHARS] for search in query.searches)]
    return [Wanted(text, digest(text)) for text in texts if text.strip()]


def wanted(sources: Sequence[Source], found: Sequence[Sequence[Passage]]) -> list[Wanted]:
    """Passages of prose and chat: the best by their words with those beside them, then the others, latest first."""
    places = list(_prose(sources, found))
    at = {(s, n): i for i, (s, n) in enumerate(places)}
    best = sorted(range(len(places)), key=lambda i: (-found[places[i][0]][places[i][1]].score, i))[:BEST]
    order: dict[int, None] = {}
    for i in best:
        if found[places[i][0]][places[i][1]].score > 0:
            order[i] = None
            order |= dict.fromkeys(_beside(places, at, i))
    order |= dict.fromkeys(sorted(range(len(places)), key=lambda i: (-sources[places[i][0]].number, i)))
    held: dict[int, str] = {}
    made = []
    for i in list(order)[: MOST_WANTED + MOST_LATER]:
        s, n = places[i]
        source, passage = sources[s], found[s][n]
        if source.kind == "artifact" and s not in held:
            held[s] = digest(source.content)
        text = source.content[passage.start : passage.end].strip()[:LONGEST]
        made.append(Wanted(text, digest(text), held.get(s), s, n))
    return made


def digest(text: str) -> str:
    """Names a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_prose(text: str) -> bool:
    """Whether it is made of words, in sentences or lines of talk; not of records, code or figures."""
    return bool(text.strip()) and len(MARKS.findall(text)) <= max(3.0, MOST_MARKS * len(text))


def _prose(sources: Sequence[Source], found: Sequence[Sequence[Passage]]) -> Iterator[tuple[int, int]]:
    for s, (source, passages) in enumerate(zip(sources, found, strict=True)):
        for n, passage in enumerate(passages):
            if is_prose(source.content[passage.start : passage.end][:LONGEST]):
                yield s, n


def _beside(places: list[tuple[int, int]], at: dict[tuple[int, int], int], i: int) -> list[int]:
    """What stands next to a passage: in its source, or where its source is one passage, in the conversation."""
    s, n = places[i]
    near = [at[s, n + step] for step in (-1, 1) if (s, n + step) in at]
    return near or [i + step for step in (-1, 1) if 0 <= i + step < len(places)]


# Ranks by words and by meaning, fused by reciprocal rank (guarantee §5). Pure.


K = 60.0
"""Reciprocal rank fusion's usual constant: how little the very first ranks differ."""
MOST_BY_MEANING = 16
"""How many passages bear on a question that shares no word with any of them."""
Ranked = list[list[Passage]]


def fused(found: Ranked, places: Sequence[Wanted], vectors: Sequence[Vector], sought: Sequence[Vector]) -> Ranked:
    """The passages with new scores for those that have a vector.

    These share out among themselves the scores that their words earned them, in the order of the fused ranks: so they
    stay comparable with all passages that have none. One whose words earn nothing may so come before one with few.

    Args:
        places, vectors: the passages that have a vector, and it.
        sought: the question's, then those of further searches, which together weigh no more than it.
    """
    if len(places) < 2 or not sought:
        return found
    scores = [found[place.source][place.number].score for place in places]
    total = [1.0 / (K + rank) for rank in ranks(scores)]
    share = 1.0 / max(1, len(sought) - 1)
    for number, query in enumerate(sought):
        weight = 1.0 if number == 0 else share
        for at, rank in enumerate(ranks(similarities(query, vectors))):
            total[at] += weight / (K + rank)
    order = sorted(range(len(places)), key=lambda at: (-total[at], -scores[at], at))
    result = [list(passages) for passages in found]
    for at, score in zip(order, _worths(scores), strict=True):
        place = places[at]
        result[place.source][place.number] = replace(found[place.source][place.number], score=score)
    return result


def _worths(scores: Sequence[float]) -> list[float]:
    """The scores, best first. Where no passage's words earned anything, nearness of meaning earns a little."""
    if any(scores):
        return sorted(scores, reverse=True)
    return [1.0 / (K + place) if place < MOST_BY_MEANING else 0.0 for place in range(len(scores))]


def ranks(scores: Sequence[float]) -> list[int]:
    """The place of each score among all, best first; equal ones share the last of their places, so that those whose
    words say nothing are all last."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    found = [0] * len(scores)
    last = len(order)
    for position in range(len(order) - 1, -1, -1):
        at = order[position]
        if position + 1 < len(order) and scores[at] != scores[order[position + 1]]:
            last = position + 1
        found[at] = last
    return found


log = get_logger("gateway.embeddings")
MOST_AT_ONCE = 128
"""Texts of one call."""
MOST_TOKENS = 10**9
"""More than that is no figure."""
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
                await self._charge(tariff, texts if error.may_be_charged else [])
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
