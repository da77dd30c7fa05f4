"""The certificates that HTTP clients of the tests trust, read once.

httpx reads them anew for every client, which takes 30 ms of processor time; tests make thousands of clients, all for
plain HTTP on this machine.
"""

import functools

from httpx._transports import default


def read_certificates_once() -> None:
    """From now on all clients of this process that name no context of their own share one; httpx has no setting."""
    assert hasattr(default, "create_ssl_context"), "httpx makes its contexts elsewhere"
    default.create_ssl_context = functools.cache(default.create_ssl_context)
