"""A network that loses answers: it takes a request to the gateway, and the whole answer to nobody."""

import contextlib
import socket

from tests.support.forwarding_proxy import ForwardingProxy, hang_up

ENDS = (b"0\r\n\r\n", b"data: [DONE]\n\n")


class LossyProxy(ForwardingProxy):
    """Forwards connections to `port`; of the next `lose` requests the answers come in whole, and no further."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        self.lost: list[bytes] = []
        super().__init__(port)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        held = b""
        with contextlib.suppress(OSError):
            while piece := server.recv(65536):
                if not self.lose:
                    client.sendall(piece)
                    continue
                held += piece
                if _whole(held):
                    self.lose -= 1
                    self.lost.append(held)
                    break
        hang_up(client)
        hang_up(server)


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return answer.endswith(ENDS)
