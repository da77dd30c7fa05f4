"""What stands between the gateway and every call of a model: guards, then masking (guarantee §12.9, §12.10)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.core.errors import ContentRefused, GatewayError, GuardUnavailable, StorageUnavailable
from gateway.core.ports import Embedder, Upstream
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment
from gateway.core.types.relevance import EmbeddingFault, EmbeddingTariff, TextEmbeddings
from gateway.core.types.upstreams import CallScope, UpstreamRequest
from gateway.pipeline.guards.api import GuardedCall, Said
from gateway.pipeline.guards.guard_chain import GuardChain
from gateway.pipeline.guards.masking.masker import TenantMasker
from gateway.pipeline.guards.masking.placeholders import PlaceholderMap
from gateway.pipeline.guards.masking.restoring import answers_json, restored
from gateway.pipeline.guards.streams import LookedAtStream, RestoredStream
from gateway.upstream.wrapper import UpstreamPassage, UpstreamWrapper

Json = dict[str, Any]
NATIVE = "untranslated"
"""Where guards are shown what a client said in the words of its own API alone."""


class GuardCheckpoint:
    """What every body passes before it goes up. Either part may be missing."""

    def __init__(self, chain: GuardChain | None, masker: TenantMasker | None) -> None:
        self.chain = chain
        self.masker = masker

    async def passed(
        self, request: UpstreamRequest, model: str
    ) -> tuple[UpstreamRequest, GuardedCall, PlaceholderMap | None]:
        """The request as it goes up, the call as guards know it, and what was masked in it.
        Raises ContentRefused, GuardUnavailable, StorageUnavailable: it does not go up."""
        scope, native = request.scope, request.native
        shown = request.body if native is None else {**request.body, NATIVE: native}
        call = GuardedCall(scope.purpose, model, scope.caller.tenant, scope.request_id, shown)
        if self.chain is not None:
            sent = dict(await self.chain.before(call, scope))
            own = sent.pop(NATIVE, None) if native is not None else None
            request = replace(request, body=sent, native=own if isinstance(own, dict) else None)
        if self.masker is None:
            return request, call, None
        masked, vault = await self.masker.masked(request)
        return masked, call, vault if vault.values else None


class GuardedUpstream(UpstreamWrapper):
    """An `Upstream` whose calls pass a checkpoint, and whose answers come back by it.
    Raises ContentRefused, GuardUnavailable: nothing was sent; or the answer is not for the client, and is charged."""

    def __init__(self, inner: Upstream, checkpoint: GuardCheckpoint) -> None:
        super().__init__(inner)
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def passing(self, deployment: ModelDeployment, request: UpstreamRequest) -> AsyncIterator[UpstreamPassage]:
        """See `UpstreamWrapper`."""
        sent, call, vault = await self._checkpoint.passed(request, deployment.provider_model)
        yield UpstreamPassage(
            deployment,
            sent,
            lambda answer: self._answered(answer, sent, call, vault),
            lambda stream: self._opened(stream, sent, call, vault),
        )

    async def _answered(
        self, answer: JsonAnswer, sent: UpstreamRequest, call: GuardedCall, vault: PlaceholderMap | None
    ) -> JsonAnswer:
        choices, chain = answer.body.get("choices"), self._checkpoint.chain
        if not isinstance(choices, list):
            return answer
        if vault is not None:
            is_json = answers_json(sent.body)
            choices = [_restored(choice, vault, is_json=is_json) for choice in choices]
        if chain is not None and chain.hold:
            sent.scope.reports(answer.body.get("usage"))
            try:
                choices = [await _looked_at(chain, call, sent.scope, choice) for choice in choices]
            except GatewayError as error:
                usage = answer.body.get("usage")
                error.usage = usage if isinstance(usage, dict) else None
                raise
        if choices is answer.body["choices"]:
            return answer
        return JsonAnswer({**answer.body, "choices": choices}, answer.headers)

    def _opened(
        self, stream: ChunkStream, sent: UpstreamRequest, call: GuardedCall, vault: PlaceholderMap | None
    ) -> ChunkStream:
        chain = self._checkpoint.chain
        if vault is not None:
            stream = RestoredStream(stream, vault, is_json=answers_json(sent.body))
        return LookedAtStream(stream, chain, call, sent) if chain is not None and chain.hold else stream


async def _looked_at(chain: GuardChain, call: GuardedCall, scope: CallScope, choice: Json) -> Json:
    message = choice.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        return choice
    text = await chain.after(call, Said(choice.get("index", 0), message["content"]), scope)
    return choice if text == message["content"] else {**choice, "message": {**message, "content": text}}


def _restored(choice: Any, vault: PlaceholderMap, *, is_json: bool) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    return {**choice, "message": restored(choice["message"], vault, is_json=is_json)}


class GuardedEmbedder:
    """An `Embedder` whose texts pass a checkpoint. What a guard costs here is on the bill of the request that asks, if
    there is one."""

    def __init__(self, embedder: Embedder, checkpoint: GuardCheckpoint) -> None:
        self._embedder = embedder
        self._checkpoint = checkpoint
        # Vectors of masked texts are others than those of the texts.
        self.name = f"{embedder.name} masked" if checkpoint.masker is not None else embedder.name

    @property
    def at_once(self) -> int:
        """See `Embedder`."""
        return self._embedder.at_once

    def tariff(self) -> EmbeddingTariff | None:
        """See `Embedder`."""
        return self._embedder.tariff()

    async def embed(self, texts: Sequence[str], scope: CallScope) -> TextEmbeddings:
        """See `Embedder`; what may not be sent has no vectors."""
        request = UpstreamRequest({"input": list(texts)}, scope=scope.made_for("embedder"))
        try:
            sent, _, _ = await self._checkpoint.passed(request, self._embedder.name)
        except (ContentRefused, GuardUnavailable, StorageUnavailable) as error:
            raise EmbeddingFault(error.message) from error
        return await self._embedder.embed(_texts(sent.body.get("input"), len(texts)), scope)

    def close(self) -> None:
        """See `Embedder`."""
        self._embedder.close()


def _texts(given: Any, count: int) -> list[str]:
    """Raises EmbeddingFault: a guard left something else than one text for each."""
    if not isinstance(given, list) or len(given) != count or not all(isinstance(text, str) for text in given):
        raise EmbeddingFault("a guard left no text for each")
    return given
