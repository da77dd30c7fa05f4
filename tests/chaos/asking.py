"""A client that may lose its server at any byte, and knows afterwards whether its turn was acknowledged."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Asking:
    """One chat request in a thread of its own, read byte by byte until it ends or breaks."""

    url: str
    body: dict[str, Any]
    received: bytearray = field(default_factory=bytearray)
    status: int | None = None
    conversation_id: str | None = None
    whole: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Asking":
        """Sends the request."""
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        try:
            with (
                httpx.Client(trust_env=False, timeout=30) as client,
                client.stream("POST", f"{self.url}/v1/chat/completions", json=self.body) as answer,
            ):
                self.status = answer.status_code
                self.conversation_id = answer.headers.get("x-conversation-id")
                for piece in answer.iter_bytes():
                    self.received += piece
                    self.begun.set()
                self.whole = True
        except httpx.TransportError:
            pass  # the server is gone: what has been received so far says what was acknowledged
        finally:
            self.ended.set()

    @property
    def acknowledged(self) -> bool:
        """Guarantee §3.6: the whole JSON body, or `data: [DONE]`."""
        if self.status != 200:
            return False
        if self.body.get("stream"):
            return b"data: [DONE]\n\n" in self.received
        return self.whole

    @property
    def completion_id(self) -> str:
        """The id of an acknowledged answer."""
        text = bytes(self.received)
        first = text.partition(b"\n\n")[0].removeprefix(b"data: ") if self.body.get("stream") else text
        value: str = json.loads(first)["id"]
        return value
