"""An embedder behind an upstream whose texts pass the checkpoint (guarantee §12.9, §12.10)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.errors import ContentRefused, GuardUnavailable, StorageUnavailable
from gateway.guards.upstream import Checkpoint
from gateway.models.exchange import Caller
from gateway.models.guarding import NOBODY, SCOPE, GuardScope
from gateway.models.relevance import EmbeddingFault, Embeddings, Tariff
from gateway.ports import Embedder


class GuardedEmbedder:
    """An `Embedder`. What a guard costs here is on the bill of the request that asks, if there is one."""

    def __init__(self, embedder: Embedder, checkpoint: Checkpoint) -> None:
        self._embedder = embedder
        self._checkpoint = checkpoint
        # Vectors of masked texts are others than those of the texts.
        self.name = f"{embedder.name} masked" if checkpoint.masker is not None else embedder.name

    @property
    def at_once(self) -> int:
        """See `Embedder`."""
        return self._embedder.at_once

    def tariff(self) -> Tariff | None:
        """See `Embedder`."""
        return self._embedder.tariff()

    async def embed(self, texts: Sequence[str], caller: Caller) -> Embeddings:
        """See `Embedder`; what may not be sent has no vectors."""
        scope = SCOPE.get()
        mine = GuardScope(caller.tenant) if scope is NOBODY else replace(scope, tenant=caller.tenant)
        token = SCOPE.set(replace(mine, purpose="embedder"))
        try:
            sent, _, _ = await self._checkpoint.passed({"input": list(texts)}, self._embedder.name)
        except (ContentRefused, GuardUnavailable, StorageUnavailable) as error:
            raise EmbeddingFault(error.message) from error
        finally:
            SCOPE.reset(token)
        return await self._embedder.embed(_texts(sent.get("input"), len(texts)), caller)

    def close(self) -> None:
        """See `Embedder`."""
        self._embedder.close()


def _texts(given: Any, count: int) -> list[str]:
    """
    Raises:
        EmbeddingFault: a guard left something else than one text for each.
    """
    if not isinstance(given, list) or len(given) != count or not all(isinstance(text, str) for text in given):
        raise EmbeddingFault("a guard left no text for each")
    return given
