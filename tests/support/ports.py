"""Free TCP ports for servers that must be told their port before they start."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of `host` that nobody listens on now.

    The kernel hands ephemeral ports out in turn, so another process is unlikely to get the same one
    between this call and the caller's own bind; servers of ours bind port 0 themselves instead.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
