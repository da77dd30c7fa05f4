"""Streamed answers on their way back: values put back in them, and looked at by guards."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from gateway.core.errors import GatewayError
from gateway.core.types.chat import ChunkStream, StreamAround
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.guards.api import GuardedCall, Said
from gateway.pipeline.guards.guard_chain import GuardChain
from gateway.pipeline.guards.masking.placeholders import PlaceholderMap
from gateway.pipeline.guards.masking.restoring import ChoiceRestorer

Json = dict[str, Any]
Chunks = list[Json]
SHOWN_BEFORE = 4000
"""Characters of what the client got that a guard is shown."""


class PassingStream(StreamAround):
    """A stream whose chunks change on their way."""

    def __init__(self, opened: ChunkStream) -> None:
        super().__init__(opened)
        self._last: Json = {}

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """See `ChunkStream.batches`."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                found: Chunks = []
                refused = None
                self._came(batch)
                for chunk in batch:
                    self._last = chunk
                    try:
                        found += await self._passed(chunk)
                    except GatewayError as error:  # what may pass comes before it
                        refused = error
                        break
                if found:
                    yield found
                if refused is not None:
                    raise refused
        if rest := await self._end():
            yield rest

    def _came(self, batch: Chunks) -> None:
        """Takes notice of what has come."""

    async def _passed(self, chunk: Json) -> Chunks:
        """The chunks that one becomes."""
        raise NotImplementedError

    async def _end(self) -> Chunks:
        """What is left once the stream is over."""
        raise NotImplementedError

    def _made(self, choices: list[Json]) -> Json:
        """A chunk of our own beside upstream's."""
        kept = ("id", "object", "created", "model", "system_fingerprint")
        return {**{name: self._last[name] for name in kept if name in self._last}, "choices": choices}


class RestoredStream(PassingStream):
    """A stream with the values of its request in the place of their placeholders."""

    def __init__(self, opened: ChunkStream, vault: PlaceholderMap, *, is_json: bool) -> None:
        super().__init__(opened)
        self._is_json = is_json
        self._vault = vault
        self._choices: dict[int, ChoiceRestorer] = {}

    async def _passed(self, chunk: Json) -> Chunks:
        before: list[Json] = []
        choices: list[Any] = []
        for choice in chunk.get("choices") or ():
            if not isinstance(choice, dict) or not isinstance(choice.get("delta"), dict):
                choices.append(choice)
                continue
            index = choice.get("index", 0)
            known = self._choices.setdefault(index, ChoiceRestorer(self._vault, is_json=self._is_json))
            ends = bool(choice.get("finish_reason"))
            if rest := known.rest(choice["delta"]):
                before.append({"index": index, "delta": rest, "finish_reason": None})
            choices.append({**choice, "delta": known.delta(choice["delta"])})
            if ends and (rest := known.rest()):
                before.append({"index": index, "delta": choices[-1]["delta"], "finish_reason": None})
                before.append({"index": index, "delta": rest, "finish_reason": None})
                choices[-1] = {**choices[-1], "delta": {}}
        if not choices:
            return [chunk]
        return [*(self._made([each]) for each in before), {**chunk, "choices": choices}]

    async def _end(self) -> Chunks:
        rests = ((index, known.rest()) for index, known in self._choices.items())
        return [self._made([{"index": index, "delta": rest, "finish_reason": None}]) for index, rest in rests if rest]


class LookedAtStream(PassingStream):
    """A stream whose text guards see before the client does: as soon as as much as they want has come, when something
    else comes, and at its end."""

    def __init__(self, opened: ChunkStream, chain: GuardChain, call: GuardedCall, sent: UpstreamRequest) -> None:
        super().__init__(opened)
        self._chain = chain
        self._call = call
        self._scope = sent.scope
        self._unfinished = set(range(choices if type(choices := sent.body.get("n")) is int else 1))
        self._held: dict[int, str] = {}
        self._told: dict[int, str] = {}

    def _came(self, batch: Chunks) -> None:
        """A guard may look at a choice for so long that its client leaves: what the whole answer used is known."""
        for chunk in batch:
            ended = (choice for choice in chunk.get("choices") or () if isinstance(choice, dict))
            self._unfinished -= {choice.get("index", 0) for choice in ended if choice.get("finish_reason")}
            if not self._unfinished:
                self._scope.reports(chunk.get("usage"))

    async def _passed(self, chunk: Json) -> Chunks:
        before: list[Json] = []
        choices: list[Any] = []
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                choices.append(choice)
                continue
            index, said, ends = choice.get("index", 0), delta.get("content"), bool(choice.get("finish_reason"))
            text = said if isinstance(said, str) else ""
            held = self._held.get(index, "") + text
            others = any(delta.get(name) for name in delta if name not in ("content", "role"))
            self._held[index] = held
            if held and (ends or others or len(held) >= self._chain.hold):
                shown = await self._shown(index, is_last=ends)
                before.append({"index": index, "delta": {"content": shown}, "finish_reason": None})
            choices.append({**choice, "delta": {**delta, "content": ""}} if text else choice)
        if not choices:
            return [chunk]
        # The first chunk of a choice brings its role: it stays in front.
        now = {**chunk, "choices": choices}
        ends = any(choice.get("finish_reason") for choice in choices if isinstance(choice, dict))
        made = [self._made([each]) for each in before]
        return [*made, now] if ends or not _has_role(choices) else [now, *made]

    async def _shown(self, index: int, *, is_last: bool) -> str:
        held, self._held[index] = self._held.get(index, ""), ""
        told = self._told.get(index, "")
        text = await self._chain.after(self._call, Said(index, held, told, is_last), self._scope)
        self._told[index] = (told + text)[-SHOWN_BEFORE:]
        return text

    async def _end(self) -> Chunks:
        found = []
        for index, held in list(self._held.items()):
            if held:
                shown = await self._shown(index, is_last=True)
                found.append(self._made([{"index": index, "delta": {"content": shown}, "finish_reason": None}]))
        return found


def _has_role(choices: list[Any]) -> bool:
    return any(isinstance(choice, dict) and choice["delta"].get("role") for choice in choices if "delta" in choice)
