"""Signs of life of a streamed answer: what upstreams send of them is passed on, and where nothing was sent for
`server.keepalive` seconds the gateway sends one itself (guarantee §1.8)."""

import asyncio
import re
from collections.abc import Callable

from gateway.api.server.fast_router import EVENT_STREAM, Message, Send, send_start

HELD = 20
"""Signs of an upstream that are kept before the answer begins; later ones take the place of none."""
RARELY = 1.0
"""Seconds within which an upstream's empty lines are one sign."""
SIGN_CHARS = 200
KEEPALIVE_UNPRINTABLE = re.compile(rb"[^ -~]")


def comment(said: bytes) -> bytes:
    """A comment of an event stream, which every client ignores."""
    return b":" + (KEEPALIVE_UNPRINTABLE.sub(b"", said)[:SIGN_CHARS] or b" keepalive") + b"\n\n"


class KeptAlive:
    """What is sent of a streamed answer (a `Send`). Once a sign of life has begun it, its status is 200, and a second
    beginning says nothing: headers that are known later are not sent.

    A sign waits for nobody: while something else is being sent, or a sign is, there is none.
    """

    def __init__(self, send: Send, seconds: float, worded: Callable[[bytes], bytes]) -> None:
        """`worded`: a sign in the words of the API, given what an upstream's comment says, or nothing."""
        self._send = send
        self._seconds = seconds
        self._worded = worded
        self._loop = asyncio.get_running_loop()
        self._is_sending = False
        self._held: list[bytes] = []
        self._over = False
        self._signing: asyncio.Task[None] | None = None
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look) if seconds else None
        self.begun = False

    async def __call__(self, message: Message) -> None:
        while self._signing is not None and not self._signing.done():
            await asyncio.wait({self._signing})
        self._is_sending = True
        try:
            await self._forward(message)
        finally:
            self._is_sending = False

    @property
    def is_under_way(self) -> bool:
        """Whether the answer has begun and its end was not sent."""
        return self.begun and not self._over

    def sent(self) -> None:
        """Something was written past this."""
        self._sent_at = self._loop.time()

    def heard(self, said: bytes) -> None:
        """An upstream gave a sign of life: a comment, a `ping`, an empty line (`said` is empty). Before the answer has
        begun it waits for that: a failure may still become a status."""
        if not self.begun:
            if said and len(self._held) < HELD:
                self._held.append(said)
        elif said or self._loop.time() - self._sent_at >= RARELY:
            self._sign(said)

    def close(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    async def _forward(self, message: Message) -> None:
        self.sent()
        if message["type"] != "http.response.start":
            self._over = self._over or not message.get("more_body", False)
            await self._send(message)
        elif not self.begun:
            self.begun = True
            await self._send(message)
            held, self._held = b"".join(map(self._worded, self._held)), []
            if held:
                await self._send({"type": "http.response.body", "body": held, "more_body": True})

    def _look(self) -> None:
        now = self._loop.time()
        due = self._sent_at + self._seconds
        if now >= due - 0.001:
            self._sign(b"")
            due = now + self._seconds
        self._timer = self._loop.call_at(due, self._look)

    def _sign(self, said: bytes) -> None:
        if self._over or self._is_sending or (self._signing is not None and not self._signing.done()):
            return
        self._signing = asyncio.ensure_future(self._signed(said))
        self._signing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the client has left

    async def _signed(self, said: bytes) -> None:
        if self._over:
            return
        if not self.begun:
            await send_start(self._forward, 200, EVENT_STREAM)
        await self._forward({"type": "http.response.body", "body": self._worded(said), "more_body": True})
