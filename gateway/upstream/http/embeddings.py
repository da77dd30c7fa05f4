"""A model of `model_list` behind `POST …/embeddings`."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from gateway.core import errors, jsons, ports
from gateway.core.types import upstreams
from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.core.types.relevance import EmbeddingFault, EmbeddingTariff, TextEmbeddings, packed
from gateway.upstream.http.answers import HttpUpstream
from gateway.upstream.routing import health
from gateway.upstream.routing.router import NO_CALLER, ConfiguredRouter

CHARS_AT_ONCE = 200_000
"""Characters of one request: well below what providers take."""
MAX_BYTES_PER_TEXT = 2**17
"""Bytes of the answer per text: enough for a vector of 4,096 numbers, each written with all its digits."""
MAX_BYTES_BESIDE = 2**16
"""Bytes of the answer beside its vectors."""
RETRIED = (*health.FAILING, health.RATE_LIMITED)
"""Statuses after which another deployment is asked."""


class UpstreamEmbedder:
    """An `Embedder` that calls an upstream. It requests no encoding, as some servers refuse what others require
    (`litellm_params` may name one): it reads numbers and base64."""

    at_once = CHARS_AT_ONCE

    def __init__(
        self,
        http: HttpUpstream,
        router: ConfiguredRouter,
        counter: Callable[[ModelFacts], ports.TokenCounter],
        model: str,
    ) -> None:
        """Finds the deployments of `model`; calls nothing.
        Raises ModelNotFound, Unauthorized: no deployment can serve it; EmbeddingFault: one does not serve it in
        OpenAI's protocol."""
        self._http = http
        self._router = router
        self._counter = counter
        self._model = model
        deployments = router.all_of(model, NO_CALLER)
        for each in deployments:
            if each.protocol != "openai":
                raise EmbeddingFault(f"{each.route} does not speak OpenAI's protocol")
        self._route = deployments[0].route
        self.name = " | ".join(map(_name, deployments))

    def tariff(self) -> EmbeddingTariff:
        """Returns the model's name and prices: `model_info` over LiteLLM's map."""
        facts = self._router.facts(self._model)
        counter = self._counter(facts)
        return EmbeddingTariff(self._route, facts.prices, lambda texts: sum(map(counter.text, texts)))

    async def embed(self, texts: Sequence[str], scope: upstreams.CallScope) -> TextEmbeddings:
        candidates = self._router.candidates(self._model, scope.caller)
        deployment = candidates.first
        while True:
            attempt = candidates.began(deployment)
            try:
                found = await self._asked(deployment, texts)
            except errors.UpstreamError as error:
                attempt.ended(error)
                other = candidates.next(deployment, error)
                if other is None or health.helps(error, RETRIED) == "nowhere":
                    raise
                deployment = other
            except BaseException as error:
                attempt.ended(error)
                raise
            else:
                attempt.ended()
                return found

    async def _asked(self, deployment: ModelDeployment, texts: Sequence[str]) -> TextEmbeddings:
        body = {**deployment.parameters, "model": deployment.provider_model, "input": list(texts)}
        max_bytes = MAX_BYTES_BESIDE + MAX_BYTES_PER_TEXT * len(texts)
        raw = await self._http.post(deployment, "embeddings", body, max_bytes)
        return await asyncio.to_thread(_read, raw, len(texts))

    def close(self) -> None:
        """Releases nothing: the connections are the pool's."""


def _name(deployment: ModelDeployment) -> str:
    parameters = jsons.dumps_text(deployment.parameters) if deployment.parameters else ""
    return f"{deployment.route} {deployment.api_base} {parameters}"


def _read(raw: bytes, count: int) -> TextEmbeddings:
    """Parses the `count` vectors of an answer.
    Raises UpstreamInvalidResponse: there is not one usable vector for each text, all of one length."""
    import numpy

    try:
        answer = jsons.loads(raw)
        rows: list[Any] = [None] * count
        for position, item in enumerate(answer["data"]):
            index = item.get("index", position)
            if type(index) is not int or not 0 <= index < count or rows[index] is not None:
                raise errors.UpstreamInvalidResponse("The upstream's vectors are not one for each text.")
            found = _numbers(item["embedding"])
            rows[index] = numpy.frombuffer(found, "<f4") if isinstance(found, bytes) else numpy.array(found, "<f4")
        if any(row is None for row in rows) or len({row.size for row in rows}) != 1 or not rows[0].size:
            raise errors.UpstreamInvalidResponse("The upstream's vectors are not one for each text, of one length.")
        vectors = packed(numpy.stack(rows))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, EmbeddingFault) as error:
        raise errors.UpstreamInvalidResponse("The upstream's answer holds no vectors.") from error
    usage = answer.get("usage")
    return TextEmbeddings(vectors, usage if isinstance(usage, dict) else None)


def _numbers(embedding: Any) -> list[float] | bytes:
    """Returns a vector as a list of numbers, or as little-endian float32 decoded from base64."""
    if isinstance(embedding, str):
        return base64.b64decode(embedding, validate=True)
    if not isinstance(embedding, list) or any(type(number) not in (int, float) for number in embedding):
        raise TypeError("a vector is a list of numbers")
    return embedding
