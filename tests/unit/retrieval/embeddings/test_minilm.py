"""The local model, really run: near is what means the same (the tests' environment has the extra `embeddings`)."""

import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.core.config.loading import ConfigurationError
from gateway.core.config.settings import ContextSettings, Settings
from gateway.core.types.chat import RequestCaller
from gateway.core.types.upstreams import CallScope
from gateway.pipeline.wiring import open_embedder
from gateway.retrieval.embeddings.minilm import MiniLM
from gateway.retrieval.embeddings.search import similarities

SCOPE = CallScope(RequestCaller("t"))


@pytest.fixture
async def model() -> AsyncIterator[MiniLM]:
    made = MiniLM()
    yield made
    made.close()


@pytest.mark.long
async def test_what_means_the_same_is_near_without_a_word_in_common(model: MiniLM) -> None:
    texts = ["How do I reset my password?", "Recovering lost login credentials", "It rains a lot in Bergen."]
    found = await model.embed(texts, SCOPE)
    same, meant, other = similarities(found.vectors[0], found.vectors)
    assert same == pytest.approx(1, abs=0.01)
    assert meant > 0.5 > 0.2 > other
    assert found.usage is None


@pytest.mark.long
async def test_a_vector_does_not_depend_on_what_is_asked_with_it(model: MiniLM) -> None:
    texts = ["yes", "", "no", "a longer text that says more than the others " * 90, "größe ✓ 好"]
    together = (await model.embed(texts, SCOPE)).vectors
    alone = [(await model.embed([text], SCOPE)).vectors[0] for text in texts]
    assert {len(vector) for vector in together} == {2 * 384}
    for one, other in zip(together, alone, strict=True):
        assert similarities(one, [other])[0] == pytest.approx(1, abs=0.002)
    assert (await model.embed([], SCOPE)).vectors == []


def test_without_its_packages_the_configuration_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "onnxruntime" else real(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    settings = Settings(context=ContextSettings(embedding_model="local"))
    unused: Any = None
    with pytest.raises(
        ConfigurationError, match=r"onnxruntime is not installed; install context-gateway\[embeddings\]"
    ):
        open_embedder(settings, unused, unused, unused)
    assert open_embedder(Settings(), unused, unused, unused) is None
