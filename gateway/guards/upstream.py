"""What stands between the gateway and every call of a model: guards, then masking (guarantee §12.9, §12.10)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.errors import ContentRefused, GatewayError, GuardUnavailable, StorageUnavailable
from gateway.guards.api import GuardedCall, Said
from gateway.guards.chain import GuardChain
from gateway.guards.masking.masker import Masker
from gateway.guards.masking.restoring import answers_json, restored
from gateway.guards.masking.vault import Vault
from gateway.guards.streams import LookedAtStream, RestoredStream
from gateway.models.exchange import Caller, ChunkStream, Deployment, JsonAnswer, StreamOpener
from gateway.models.guarding import NOBODY, SCOPE, GuardScope
from gateway.models.relevance import EmbeddingFault, Embeddings, Tariff
from gateway.ports import Embedder, Upstream

Json = dict[str, Any]


class Checkpoint:
    """What every body passes before it goes up. Either part may be missing."""

    def __init__(self, chain: GuardChain | None, masker: Masker | None) -> None:
        self.chain = chain
        self.masker = masker

    async def passed(self, body: Json, model: str) -> tuple[Json, GuardedCall, Vault | None]:
        """The body as it goes up, the call as guards know it, and what was masked in it.

        Raises:
            ContentRefused, GuardUnavailable, StorageUnavailable: it does not go up.
        """
        scope = SCOPE.get()
        call = GuardedCall(scope.purpose, model, scope.tenant, scope.request_id, body)
        sent = body
        if self.chain is not None:
            sent = dict(await self.chain.before(call))
        if self.masker is None:
            return sent, call, None
        masked, vault = await self.masker.masked(sent, scope.tenant)
        return masked, call, vault if vault.values else None


class GuardedUpstream:
    """An `Upstream` whose calls pass a checkpoint, and whose answers come back by it."""

    def __init__(self, upstream: Upstream, checkpoint: Checkpoint) -> None:
        self._upstream = upstream
        self._checkpoint = checkpoint

    async def complete(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> JsonAnswer:
        """One whole answer.

        Raises:
            ContentRefused, GuardUnavailable: nothing was sent; or the answer is not for the client, and is charged.
        """
        sent, call, vault = await self._checkpoint.passed(body, deployment.provider_model)
        answer = await self._upstream.complete(deployment, sent, headers)
        choices = answer.body.get("choices")
        if vault is not None and isinstance(choices, list):
            is_json = answers_json(sent)
            choices = [_restored(choice, vault, is_json=is_json) for choice in choices]
        if self._checkpoint.chain is not None and self._checkpoint.chain.hold and isinstance(choices, list):
            try:
                choices = [await self._looked_at(self._checkpoint.chain, call, choice) for choice in choices]
            except GatewayError as error:
                usage = answer.body.get("usage")
                error.usage = usage if isinstance(usage, dict) else None
                raise
        if choices is answer.body.get("choices"):
            return answer
        return JsonAnswer({**answer.body, "choices": choices}, answer.headers)

    def stream(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> StreamOpener:
        """An answer in chunks."""
        return self._stream(deployment, body, headers)

    @asynccontextmanager
    async def _stream(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> AsyncIterator[ChunkStream]:
        sent, call, vault = await self._checkpoint.passed(body, deployment.provider_model)
        async with self._upstream.stream(deployment, sent, headers) as opened:
            if vault is not None:
                opened = RestoredStream(opened, vault, is_json=answers_json(sent))
            if self._checkpoint.chain is not None and self._checkpoint.chain.hold:
                opened = LookedAtStream(opened, self._checkpoint.chain, call)
            yield opened

    async def _looked_at(self, chain: GuardChain, call: GuardedCall, choice: Json) -> Json:
        message = choice.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return choice
        text = await chain.after(call, Said(choice.get("index", 0), message["content"]))
        return choice if text == message["content"] else {**choice, "message": {**message, "content": text}}


def _restored(choice: Any, vault: Vault, *, is_json: bool) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    return {**choice, "message": restored(choice["message"], vault, is_json=is_json)}


class GuardedEmbedder:
    """An `Embedder` whose texts pass a checkpoint. What a guard costs here is on the bill of the request that asks, if
    there is one."""

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
