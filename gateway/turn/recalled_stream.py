"""A streamed answer with rounds of the tool `recall` in it: its client gets one stream, of the last round.

A round is held until it is clear that it calls nothing that is answered here: at its end, at a call of the client's
own tools, or once its text is longer than what stands before a call (`SHOWN_CHARS`). Then it is passed on as it comes.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from gateway.accounting.stream import StreamRecord
from gateway.models.exchange import ChunkStream, StreamAround
from gateway.models.recall import finish_of, is_recall
from gateway.turn.exchange import Exchange
from gateway.turn.recaller import PARTED, SHOWN_CHARS, Recaller
from gateway.turn.streaming import Chunks, next_batch


class StreamWithRecall(StreamAround):
    """The stream of all rounds (a `ChunkStream`). `again` ends the call that is open, and asks the model anew."""

    def __init__(
        self,
        opened: ChunkStream,
        exchange: Exchange,
        recaller: Recaller,
        again: Callable[[], Awaitable[ChunkStream]],
    ) -> None:
        super().__init__(opened)
        self._exchange = exchange
        self._recaller = recaller
        self._again = again

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """See `ChunkStream.batches`."""
        begun = False
        while True:
            part = _Round(continues=begun)
            self._exchange.heard = part.record
            async with aclosing(self._opened.batches()) as batches:
                while (batch := await next_batch(batches, part.record)) is not None:
                    if passed := part.push(batch):
                        begun = True
                        yield passed
            whole = part.record.asked_are_finished or self._opened.done
            completion = {**part.record.completion(), "usage": part.record.usage}
            if not (whole and await self._recaller.run(self._exchange, completion)):
                if rest := part.rest():
                    yield rest
                return
            self._exchange.heard = None
            if part.is_shown:
                yield part.rest(goes_on=True)
            self._opened = await self._again()


class _Round:
    """The chunks of one call of the model. `continues`: something of an earlier one has been passed on."""

    def __init__(self, *, continues: bool) -> None:
        self.record = StreamRecord(1)
        self.is_shown = False
        self._continues = continues
        self._held: Chunks = []
        self._chars = 0
        self._calls: dict[int, tuple[Any, int | None]] = {}
        """By upstream's index: the id of the call, and the index that its client is told; None of one of the tool."""
        self._own = 0

    def push(self, batch: Chunks) -> Chunks:
        """Takes chunks in; returns those to pass on now."""
        passed: Chunks = []
        for chunk in batch:
            self.record.add(chunk)
            self._held.append(chunk)
            if not self.is_shown:
                self.is_shown = self._is_answer(chunk)
            if self.is_shown and not self.record.asked_are_finished:
                passed += [self._passed(each, usage=False) for each in self._held]
                self._held = []
        return passed

    def rest(self, *, goes_on: bool = False) -> Chunks:
        """What is held at the end. `goes_on`: another round follows, so that this is no finish."""
        held = [self._passed(each, usage=not goes_on) for each in self._held]
        if not goes_on:
            if self.is_shown and held and self.record.usage is not None:
                held.append({"choices": [], "usage": self.record.usage})
            return held
        for chunk in held:
            chunk["choices"] = [{**choice, "finish_reason": None} for choice in chunk.get("choices") or ()]
        bare = {k: v for k, v in (held[-1] if held else {"object": "chat.completion.chunk"}).items() if k != "choices"}
        return [*held, {**bare, "choices": [{"index": 0, "delta": {"content": PARTED}, "finish_reason": None}]}]

    def _is_answer(self, chunk: dict[str, Any]) -> bool:
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content")
            self._chars += len(text) if isinstance(text, str) else 0
            if any(_names(fragment) and not is_recall(fragment) for fragment in delta.get("tool_calls") or ()):
                return True
        return self._chars > SHOWN_CHARS

    def _passed(self, chunk: dict[str, Any], *, usage: bool) -> dict[str, Any]:
        """The chunk as its client gets it: without calls of the tool."""
        choices = [self._choice(choice) for choice in chunk.get("choices") or ()]
        return {k: v for k, v in chunk.items() if usage or k != "usage"} | {"choices": choices}

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta = dict(choice.get("delta") or {})
        if self._continues:
            delta.pop("role", None)
        fragments = delta.pop("tool_calls", None)
        kept = [own for place, each in enumerate(fragments or ()) if (own := self._fragment(each, place)) is not None]
        if kept:
            delta["tool_calls"] = kept
        found = {**choice, "delta": delta}
        if choice.get("finish_reason"):
            found["finish_reason"] = finish_of(choice["finish_reason"], range(self._own))
        return found

    def _fragment(self, fragment: dict[str, Any], place: int) -> dict[str, Any] | None:
        """A piece of a call under the index that its client knows; None for one of the tool. A new id begins a call,
        also where its index is not new."""
        index = fragment.get("index")
        index = index if isinstance(index, int) else place
        known = self._calls.get(index)
        if known is None or (fragment.get("id") and known[0] and fragment["id"] != known[0]):
            own = None if is_recall(fragment) else self._own
            self._own += own is not None
            known = self._calls[index] = (fragment.get("id"), own)
        return None if known[1] is None else {**fragment, "index": known[1]}


def _names(fragment: Any) -> bool:
    """Whether a piece of a call has the tool's name."""
    function = fragment.get("function") if isinstance(fragment, dict) else None
    return bool(isinstance(function, dict) and function.get("name"))
