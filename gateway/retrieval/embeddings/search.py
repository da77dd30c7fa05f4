"""Vectors of one request's texts: from the cache, or from the model until the deadline; and what is ranked by them."""

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.errors import GatewayError, UpstreamError
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import CacheBackend, Clock, Embedder
from gateway.core.types.bill import InternalCall
from gateway.core.types.relevance import (
    EmbeddingFault,
    EmbeddingTariff,
    RankedPassage,
    RelevanceQuery,
    SearchedSource,
    TextEmbeddings,
    Vector,
    similarities,
)
from gateway.core.types.upstream import CallScope

MAX_WANTED = 256
"""Vectors that one request asks of the model at most: each costs time or money."""
MAX_LATER = 2000
"""Further passages whose vectors are used if they are cached; missing ones may be made in the background."""
BEST = 64
"""Passages with the best lexical scores whose vectors are asked for first, with their neighbours."""
LONGEST, QUERY_CHARS = 2000, 1000
"""Characters of a passage and of a query that are embedded; models read 256 to 8,192 tokens."""
MARKS = re.compile(r"[{}\[\]\"<>|=;:_/\\\d\t]")
MAX_MARKS = 0.12
"""Fraction of signs and digits beyond which a text counts as records or code, where embeddings do not help."""


@dataclass(frozen=True, slots=True)
class WantedVector:
    """A text whose vector is needed: passage `number` of source `source`, or a query (-1). `held_by` is the digest of
    the artifact that it is a part of, of an excerpt that of the large document (None: it is part of the
    conversation)."""

    text: str
    digest: str
    held_by: str | None = None
    source: int = -1
    number: int = -1


def queries(query: RelevanceQuery) -> list[WantedVector]:
    """The question, then the further searches."""
    texts = [query.question[-QUERY_CHARS:], *(search[:QUERY_CHARS] for search in query.searches)]
    return [WantedVector(text, digest(text)) for text in texts if text.strip()]


def wanted(sources: Sequence[SearchedSource], found: Sequence[Sequence[RankedPassage]]) -> list[WantedVector]:
    """Passages of prose and chat: the lexically best with their neighbours, then the others, latest first."""
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
    for i in list(order)[: MAX_WANTED + MAX_LATER]:
        s, n = places[i]
        source, passage = sources[s], found[s][n]
        if source.kind == "artifact" and s not in held:
            held[s] = source.excerpt_of or digest(source.content)
        text = source.content[passage.start : passage.end].strip()[:LONGEST]
        made.append(WantedVector(text, digest(text), held.get(s), s, n))
    return made


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_prose(text: str) -> bool:
    """Whether a text is prose or chat, not records, code or figures."""
    return bool(text.strip()) and len(MARKS.findall(text)) <= max(3.0, MAX_MARKS * len(text))


def _prose(sources: Sequence[SearchedSource], found: Sequence[Sequence[RankedPassage]]) -> Iterator[tuple[int, int]]:
    for s, (source, passages) in enumerate(zip(sources, found, strict=True)):
        for n, passage in enumerate(passages):
            if is_prose(source.content[passage.start : passage.end][:LONGEST]):
                yield s, n


def _beside(places: list[tuple[int, int]], at: dict[tuple[int, int], int], i: int) -> list[int]:
    """The neighbours of a passage in its source, or in the conversation if its source is that one passage."""
    s, n = places[i]
    near = [at[s, n + step] for step in (-1, 1) if (s, n + step) in at]
    return near or [i + step for step in (-1, 1) if 0 <= i + step < len(places)]


K = 60.0
"""Constant of reciprocal rank fusion, as in the original paper (Cormack, Clarke and Büttcher, 2009)."""
MAX_BY_MEANING = 16
"""Passages that are relevant to a question that shares no word with any of them."""
NEAR = 0.5
"""Cosine from which on a question calls for a passage by its meaning; MiniLM gives unrelated texts some 0.1. Chosen by
hand."""
Ranked = list[list[RankedPassage]]


def fused(found: Ranked, places: Sequence[WantedVector], vectors: Sequence[Vector], asked: Sequence[Vector]) -> Ranked:
    """The passages, in which those with a vector have new scores (guarantee §5).

    They exchange their lexical scores among themselves, in the order of the ranks fused by reciprocal rank: so scores
    stay comparable with those of passages without a vector.

    Args:
        places, vectors: the passages that have a vector, and these.
        asked: the question's vector, then those of further searches, which together weigh no more than it.
    """
    if len(places) < 2 or not asked:
        return found
    scores = [found[place.source][place.number].score for place in places]
    total = [1.0 / (K + rank) for rank in ranks(scores)]
    share = 1.0 / max(1, len(asked) - 1)
    near: set[int] = set()
    for number, query in enumerate(asked):
        weight = 1.0 if number == 0 else share
        cosines = similarities(query, vectors)
        near.update(at for at, cosine in enumerate(cosines) if cosine >= NEAR)
        for at, rank in enumerate(ranks(cosines)):
            total[at] += weight / (K + rank)
    order = sorted(range(len(places)), key=lambda at: (-total[at], -scores[at], at))
    result = [list(passages) for passages in found]
    for at, score in zip(order, _worths(scores), strict=True):
        place = places[at]
        before = found[place.source][place.number]
        result[place.source][place.number] = replace(before, score=score, called=before.called or at in near)
    return result


def _worths(scores: Sequence[float]) -> list[float]:
    """The scores, best first; if all are 0, a small score for the first `MAX_BY_MEANING`."""
    if any(scores):
        return sorted(scores, reverse=True)
    return [1.0 / (K + place) if place < MAX_BY_MEANING else 0.0 for place in range(len(scores))]


def ranks(scores: Sequence[float]) -> list[int]:
    """The rank of each score, the best being 1. Equal ones share the last of their ranks: all zeros are last."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    found = [0] * len(scores)
    last = len(order)
    for position in range(len(order) - 1, -1, -1):
        at = order[position]
        if position + 1 < len(order) and scores[at] != scores[order[position + 1]]:
            last = position + 1
        found[at] = last
    return found


log = get_logger("gateway.retrieval.embeddings")
MAX_AT_ONCE = 128
"""Texts in one call of the model."""
MAX_TOKENS = 10**9
"""Tokens above which a reported usage is taken for an error."""
FAULT = "embedder_failed"
LATE = "embedder_late"
Known = dict[str, Vector]
"""Vectors by the digests of their texts."""


def key_of(tenant: str, embedder: str, text_digest: str) -> str:
    """The cache key of a vector."""
    return f"vector:{tenant}:{embedder}:{text_digest}"


def portions(texts: Sequence[WantedVector], chars: int) -> Iterator[list[WantedVector]]:
    """Texts in groups for one call each, of at most so many characters, but at least one text."""
    portion: list[WantedVector] = []
    size = 0
    for each in texts:
        if portion and (size + len(each.text) > chars or len(portion) >= MAX_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(each.text)
    if portion:
        yield portion


@dataclass(slots=True)
class VectorSearch:
    """The vectors that one request knows so far. `until` is its deadline (of `Clock.monotonic`); `made` are the texts
    whose vectors are new, `warnings` say what went wrong."""

    embedder: Embedder
    cache: CacheBackend
    clock: Clock
    seconds: float
    scope: CallScope
    until: float | None = None
    known: Known = field(default_factory=dict)
    made: dict[str, WantedVector] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    async def find(self, texts: Sequence[WantedVector]) -> Known:
        """Vectors of these texts: all that are cached, and of the others, in order, those that the model gives in time,
        `MAX_WANTED` at most. After a fault the rest stays without."""
        if self.until is None:
            self.until = self.clock.monotonic() + self.seconds
        await self._recall(texts)
        missing = list({each.digest: each for each in texts if each.digest not in self.known}.values())
        for portion in portions(missing[:MAX_WANTED], self.embedder.at_once):
            if self.warnings or not await self._embed(portion):
                break
        return self.known

    async def _recall(self, texts: Sequence[WantedVector]) -> None:
        unknown = list({each.digest for each in texts} - self.known.keys())
        keys = [key_of(self.scope.caller.tenant, self.embedder.name, digest) for digest in unknown]
        for digest, vector in zip(unknown, await self.cache.get_many(keys), strict=True):
            if vector is not None and vector and not len(vector) % 2:  # the cache is shared: check what comes out of it
                self.known[digest] = vector

    async def _embed(self, portion: list[WantedVector]) -> bool:
        """Asks the model; whether it gave vectors in time."""
        left = (self.until or 0.0) - self.clock.monotonic()
        if left <= 0:
            self.warnings.append(LATE)
            return False
        texts = [each.text for each in portion]
        tariff = self.embedder.tariff()
        try:
            async with asyncio.timeout(left):
                found = await self.embedder.embed(texts, self.scope)
        except TimeoutError:
            await self._charge(tariff, texts)
            self.warnings.append(LATE)
            return False
        except asyncio.CancelledError:  # the client left; the call is paid for all the same
            if tariff is not None:
                self.scope.calls.append(_call(tariff, {"prompt_tokens": _roughly(texts), "completion_tokens": 0}, True))
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

    async def _charge(
        self, tariff: EmbeddingTariff | None, texts: list[str], found: TextEmbeddings | None = None
    ) -> None:
        if tariff is None:
            return
        usage = found.usage if found else None
        prompt = usage.get("prompt_tokens") if usage else None
        if usage is not None and type(prompt) is int and 0 <= prompt <= MAX_TOKENS:
            self.scope.calls.append(_call(tariff, {**usage, "completion_tokens": 0}, False))
            return
        counted = await asyncio.to_thread(tariff.count, texts) if texts else 0
        self.scope.calls.append(_call(tariff, {"prompt_tokens": counted, "completion_tokens": 0}, bool(texts)))


def _call(tariff: EmbeddingTariff, usage: dict[str, Any], estimated: bool) -> InternalCall:
    total = usage.get("prompt_tokens", 0)
    return InternalCall("embedder", tariff.route, {**usage, "total_tokens": total}, tariff.prices, estimated)


def _roughly(texts: list[str]) -> int:
    """Tokens at four bytes each, where there is no time to count them."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) // 4
