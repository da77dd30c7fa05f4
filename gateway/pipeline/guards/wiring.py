"""What guards and masks around everything by which a body goes to a model."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.errors import ContentRefused
from gateway.core.ports import Clock, Embedder, TokenCounter, Upstream
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.core.types.upstreams import RelayedCall, UpstreamRequest
from gateway.pipeline.guards.guard_chain import open_chain
from gateway.pipeline.guards.guarded_calls import GuardCheckpoint, GuardedEmbedder, GuardedUpstream
from gateway.pipeline.guards.masking.masker import TenantMasker
from gateway.pipeline.guards.masking.placeholders import PlaceholderMap
from gateway.pipeline.guards.masking.restoring import TextRestorer
from gateway.pipeline.guards.masking.rules import rules_of
from gateway.pipeline.hooks import RequestFeature
from gateway.pipeline.stages import PreparedRequest
from gateway.upstream.openai.passthrough import PassthroughClient, RawAnswer

# Relayed calls, whose bodies pass the checkpoint where they are JSON (guarantee §12.9, §12.10).

ENCODINGS = (b"accept-encoding", b"content-encoding")
READABLE = re.compile(rb"^(?:application/(?:[\w.+-]*json|x-ndjson)|text/event-stream)\b", re.IGNORECASE)


class GuardedPassthrough(PassthroughClient):
    """Opens relayed calls as a `PassthroughClient` does."""

    def __init__(self, upstream: PassthroughClient, checkpoint: GuardCheckpoint) -> None:
        self._upstream = upstream
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: RelayedCall) -> AsyncIterator[RawAnswer]:
        """The answer once it has begun, with what was masked put back.
        Raises ContentRefused, GuardUnavailable: nothing was sent; UpstreamError: as drawn in `errors`."""
        vault = None
        if call.body is not None:
            call, vault = await self._passed(deployment, call)
        async with self._upstream.open(deployment, call) as answer:
            yield RestoredAnswer(answer, vault) if vault is not None else answer

    async def _passed(
        self, deployment: ModelDeployment, call: RelayedCall
    ) -> tuple[RelayedCall, PlaceholderMap | None]:
        named = dict(call.headers)
        packed = named.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity")
        form = named.get(b"content-type", b"").lower().startswith((b"multipart/", b"application/octet"))
        body: Any = None
        raw = b""
        if not packed and not form:
            raw = call.body if isinstance(call.body, bytes) else await _whole(call.body)
            call = replace(call, body=raw)
            try:
                body = jsons.loads_answer(raw)
            except jsons.JSONDecodeError:
                body = None
        if not isinstance(body, dict):
            masker = self._checkpoint.masker
            if masker is not None and masker.refuses and (raw or packed or form):
                raise ContentRefused("Nothing can be masked in this body, and such bodies are refused here.")
            return call, None
        request = UpstreamRequest(body, scope=call.scope)
        passed, _, vault = await self._checkpoint.passed(request, str(body.get("model") or deployment.provider_model))
        sent = passed.body
        if sent == body:
            return call, None
        headers = [pair for pair in call.headers if pair[0] not in (*ENCODINGS, b"content-length")]
        return replace(call, body=jsons.dumps(sent), headers=[*headers, (b"accept-encoding", b"identity")]), vault


class RestoredAnswer(RawAnswer):
    """An answer as it came, with the values of its request in the place of their placeholders. What a stream cuts into
    several events stays masked."""

    def __init__(self, answer: RawAnswer, vault: PlaceholderMap) -> None:
        self._answer = answer
        self._vault = vault
        self.status = answer.status
        kind = dict(answer.headers).get(b"content-type", b"")
        self._is_text = bool(READABLE.match(kind.strip()))
        lengthless = [pair for pair in answer.headers if pair[0] != b"content-length"]
        self.headers: Headers = lengthless if self._is_text else answer.headers

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See `RawAnswer.pieces`."""
        text = TextRestorer(self._vault, is_json=True)
        async for piece in self._answer.pieces():
            if not self._is_text:
                yield piece
            elif told := text.push(piece.decode("latin-1")):  # placeholders are ASCII: all other bytes stay as they are
                yield _bytes(told)
        if rest := text.rest():
            yield _bytes(rest)

    async def aclose(self) -> None:
        """See `RawAnswer.aclose`."""
        await self._answer.aclose()


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


async def _whole(body: Any) -> bytes:
    return b"".join([piece async for piece in body])


class GuardWiring:
    """Puts the checkpoint around all of that (in the place of `pipeline.guards.factory.NoGuards`).

    Raises, when it is made:
        ConfigurationError: a guard or a rule cannot be used.
    """

    def __init__(self, settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._masker = TenantMasker(settings.masking, secret) if settings.masking.enabled else None
        chain = open_chain(settings.guards, clock) if settings.guards else None
        self._checkpoint = GuardCheckpoint(chain, self._masker)

    def build(self) -> RequestFeature:
        """Builds the feature: what is masked in a prompt is counted."""
        masker = self._masker
        if masker is None:
            return RequestFeature()

        async def surplus(prepared: PreparedRequest, counter: TokenCounter) -> int:
            return await masker.surplus(prepared.messages, prepared.request.caller.tenant, counter)

        return RequestFeature(on_payload=surplus)

    def upstream(self, upstream: Upstream) -> Upstream:
        """Calls of models, the internal ones too."""
        return GuardedUpstream(upstream, self._checkpoint)

    def embedder(self, embedder: Embedder | None) -> Embedder | None:
        """Calls of an embedder. What runs in this process, and costs nothing, sends nothing."""
        if embedder is None or embedder.tariff() is None:
            return embedder
        return GuardedEmbedder(embedder, self._checkpoint)

    def passthrough(self, upstream: PassthroughClient) -> PassthroughClient:
        """Relayed calls."""
        return GuardedPassthrough(upstream, self._checkpoint)


def what_guards(settings: Settings) -> str:
    """What is configured, in words; for `gateway check`.
    Raises ConfigurationError: a guard or a rule cannot be used."""
    open_chain(settings.guards, SystemClock())
    rules: list[str] = []
    if settings.masking.enabled:
        rules_of(settings.masking)
        rules = [*settings.masking.rules, *(each.name for each in settings.masking.custom)]
    found = [entry.name for entry in settings.guards]
    return ", ".join([*found, *([f"masking by {', '.join(rules)}"] if rules else [])])
