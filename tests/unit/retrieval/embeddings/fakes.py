"""An embedder and a clock that tests move."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import numpy

from gateway.core.types.relevance import EmbeddingTariff, TextEmbeddings, packed
from gateway.core.types.upstreams import CallScope
from gateway.retrieval.embeddings.search import WantedVector, digest
from tests.support.hand_clock import HandClock


class Scripted:
    """Takes `takes` seconds of the clock for a call; fails or hangs if told to."""

    name = "scripted"
    at_once = 12

    def __init__(self, clock: HandClock, *, paid: bool = False, takes: float = 0.0) -> None:
        self.clock = clock
        self.paid = paid
        self.takes = takes
        self.fault: Exception | None = None
        self.hangs = False
        self.asked: list[list[str]] = []

    def tariff(self) -> EmbeddingTariff | None:
        return EmbeddingTariff("openai/e", {"input_cost_per_token": Decimal(1)}, len) if self.paid else None

    async def embed(self, texts: Sequence[str], scope: CallScope) -> TextEmbeddings:
        self.asked.append(list(texts))
        self.clock.seconds += self.takes
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        rows = numpy.array([[1.0, len(text)] for text in texts])
        return TextEmbeddings(packed(rows), {"prompt_tokens": 7, "total_tokens": 7} if self.takes else None)

    def close(self) -> None:
        return None


def texts(*found: str, held_by: str | None = None) -> list[WantedVector]:
    return [WantedVector(text, digest(text), held_by) for text in found]
