"""What a client was told of one chat request, whose server may be gone at any byte of it."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.sse import DONE, chunks_of, messages_of

Json = dict[str, Any]


@dataclass
class Told:
    """A request and what came back of its answer."""

    body: Json
    received: bytearray = field(default_factory=bytearray)
    status: int | None = None
    request_id: str | None = None
    conversation_id: str | None = None
    whole: bool = False

    @property
    def acknowledged(self) -> bool:
        """Guarantee §3.6: the whole JSON body, or `data: [DONE]`."""
        return self.status == 200 and (DONE in self.received if self.body.get("stream") else self.whole)

    @property
    def refused(self) -> str | None:
        """The error, if that is what the whole answer was."""
        if self.status in (None, 200):
            failed = self.status == 200 and self.whole and not self.acknowledged
            return self.received.decode("utf-8", "replace") if failed else None
        return f"{self.status}: {self.received.decode('utf-8', 'replace')}" if self.whole else None

    def answers(self) -> list[Json]:
        """The messages of an acknowledged answer, by choice."""
        if not self.body.get("stream"):
            return [_plain(choice["message"]) for choice in json.loads(self.received)["choices"]]
        return [_plain(message) for message in messages_of(self._chunks())]

    def bill(self) -> Json:
        """`response_metadata` of an acknowledged answer: the complete one."""
        bodies = self._chunks() if self.body.get("stream") else [json.loads(self.received)]
        found: Json = [body["response_metadata"] for body in bodies if "response_metadata" in body][-1]
        return found

    def _chunks(self) -> list[Json]:
        return chunks_of(bytes(self.received))


async def ask(client: httpx.AsyncClient, url: str, body: Json) -> Told:
    """Sends the request and reads until the answer ends or breaks."""
    told = Told(body)
    try:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            _begin(told, answer)
            async for piece in answer.aiter_bytes():
                told.received += piece
            told.whole = True
    except httpx.TransportError:
        pass  # the server is gone: what has been received so far says what was acknowledged
    return told


def _begin(told: Told, answer: httpx.Response) -> None:
    told.status = answer.status_code
    told.request_id = answer.headers.get("x-request-id")
    told.conversation_id = answer.headers.get("x-conversation-id")


def _plain(message: Json) -> Json:
    """As a client sends it again."""
    calls = message.get("tool_calls")
    return {"role": "assistant", "content": message["content"] or None, **({"tool_calls": calls} if calls else {})}
