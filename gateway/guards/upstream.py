"""What stands between the gateway and every call of a model: guards, then masking (guarantee §12.9, §12.10)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.guards.api import GuardedCall, Said
from gateway.guards.chain import GuardChain
from gateway.guards.masking.masker import Masker
from gateway.guards.masking.restoring import restored
from gateway.guards.masking.vault import Vault
from gateway.guards.streams import LookedAtStream, RestoredStream
from gateway.models.exchange import ChunkStream, Deployment, JsonAnswer, StreamOpener
from gateway.models.guarding import SCOPE
from gateway.ports import Upstream

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
            choices = [_restored(choice, vault) for choice in choices]
        if self._checkpoint.chain is not None and self._checkpoint.chain.hold and isinstance(choices, list):
            choices = [await self._looked_at(self._checkpoint.chain, call, choice) for choice in choices]
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
                opened = RestoredStream(opened, vault)
            if self._checkpoint.chain is not None and self._checkpoint.chain.hold:
                opened = LookedAtStream(opened, self._checkpoint.chain, call)
            yield opened

    async def _looked_at(self, chain: GuardChain, call: GuardedCall, choice: Json) -> Json:
        message = choice.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return choice
        text = await chain.after(call, Said(choice.get("index", 0), message["content"]))
        return choice if text == message["content"] else {**choice, "message": {**message, "content": text}}


def _restored(choice: Any, vault: Vault) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    return {**choice, "message": restored(choice["message"], vault)}
