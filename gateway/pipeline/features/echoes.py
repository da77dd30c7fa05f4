"""Removes prompt echoes from answers: agents of the type `google-gemini` send their question back, as messages of the
role `user` (guarantee §11.2)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from gateway.core.types.chat import ChunkStream, JsonAnswer, StreamAround
from gateway.pipeline.stages import PreparedRequest, RequestFeature

Chunks = list[dict[str, Any]]


def build() -> RequestFeature:
    return RequestFeature(needs="agent", on_answer=_of_answer, on_stream=_of_stream)


def _of_answer(prepared: PreparedRequest, answer: JsonAnswer) -> JsonAnswer:
    return without_echoes(answer) if _is_echoed(prepared) else answer


def _of_stream(prepared: PreparedRequest, opened: ChunkStream) -> ChunkStream:
    return StreamWithoutEchoes(opened) if _is_echoed(prepared) else opened


def _is_echoed(prepared: PreparedRequest) -> bool:
    agent = prepared.request.agent
    return agent is not None and agent.echoes


def without_echoes(answer: JsonAnswer) -> JsonAnswer:
    """Drops the choices whose role is `user`; an answer without other choices stays as it is."""
    choices = answer.body.get("choices") or ()
    kept = [choice for choice in choices if (choice.get("message") or {}).get("role") != "user"]
    return JsonAnswer({**answer.body, "choices": kept}, answer.headers) if kept and len(kept) < len(choices) else answer


class StreamWithoutEchoes(StreamAround):
    """A stream without deltas of the role `user`. Usage and everything else stays."""

    def __init__(self, opened: ChunkStream) -> None:
        super().__init__(opened)
        self._of_user: set[int] = set()

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """Yields batches without echoes; see `ChunkStream.batches`."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                if kept := self._kept(batch):
                    yield kept

    async def push(self, take: Callable[[Chunks], bool]) -> None:
        """Pushes chunks without echoes; see `ChunkStream.push`."""

        def arrived(batch: Chunks) -> bool:
            kept = self._kept(batch)
            return take(kept) if kept else True

        await self._opened.push(arrived)

    def _kept(self, batch: Chunks) -> Chunks:
        found: Chunks = []
        for chunk in batch:
            choices = chunk.get("choices") or ()
            kept = [choice for choice in choices if not self._is_echo(choice)]
            if len(kept) == len(choices):
                found.append(chunk)
            elif kept or chunk.get("usage"):
                found.append({**chunk, "choices": kept})
        return found

    def _is_echo(self, choice: dict[str, Any]) -> bool:
        index = choice.get("index", 0)
        role = (choice.get("delta") or {}).get("role")
        if role == "user":
            self._of_user.add(index)
        elif role:
            self._of_user.discard(index)
        return index in self._of_user
