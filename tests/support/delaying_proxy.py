"""A network that takes its time: each piece of an answer arrives `seconds` after it was sent."""

import contextlib
import socket
import time

from tests.support.forwarding_proxy import ForwardingProxy, hang_up


class DelayingProxy(ForwardingProxy):
    """Forwards connections to `port`; `seconds` may change at any time."""

    def __init__(self, port: int, seconds: float = 0.0) -> None:
        self.seconds = seconds
        super().__init__(port)

    @property
    def url(self) -> str:
        """What a Redis client takes."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := server.recv(65536):
                if self.seconds:
                    time.sleep(self.seconds)
                client.sendall(piece)
        hang_up(client)
        hang_up(server)
