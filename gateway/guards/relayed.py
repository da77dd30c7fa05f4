"""Relayed calls, whose bodies pass the checkpoint where they are JSON (guarantee §12.9, §12.10)."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.errors import ContentRefused
from gateway.guards.masking.restoring import Restorer
from gateway.guards.masking.vault import Vault
from gateway.guards.upstream import Checkpoint
from gateway.models.exchange import Deployment, Headers
from gateway.models.upstream import RelayedCall, UpstreamRequest
from gateway.upstream.openai.passthrough import Passthrough, RawAnswer

ENCODINGS = (b"accept-encoding", b"content-encoding")
READABLE = re.compile(rb"^(?:application/(?:[\w.+-]*json|x-ndjson)|text/event-stream)\b", re.IGNORECASE)


class GuardedPassthrough(Passthrough):
    """Opens relayed calls as a `Passthrough` does."""

    def __init__(self, upstream: Passthrough, checkpoint: Checkpoint) -> None:
        self._upstream = upstream
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def open(self, deployment: Deployment, call: RelayedCall) -> AsyncIterator[RawAnswer]:
        """The answer once it has begun, with what was masked put back.

        Raises:
            ContentRefused, GuardUnavailable: nothing was sent.
            UpstreamError: as drawn in `errors`.
        """
        vault = None
        if call.body is not None:
            call, vault = await self._passed(deployment, call)
        async with self._upstream.open(deployment, call) as answer:
            yield RestoredAnswer(answer, vault) if vault is not None else answer

    async def _passed(self, deployment: Deployment, call: RelayedCall) -> tuple[RelayedCall, Vault | None]:
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

    def __init__(self, answer: RawAnswer, vault: Vault) -> None:
        self._answer = answer
        self._vault = vault
        self.status = answer.status
        kind = dict(answer.headers).get(b"content-type", b"")
        self._is_text = bool(READABLE.match(kind.strip()))
        lengthless = [pair for pair in answer.headers if pair[0] != b"content-length"]
        self.headers: Headers = lengthless if self._is_text else answer.headers

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See `RawAnswer.pieces`."""
        text = Restorer(self._vault, is_json=True)
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
