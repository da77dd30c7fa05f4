"""Where a request comes from: this machine, or another site's page (guarantee §10.12, §13.2)."""

import ipaddress
from urllib.parse import urlsplit

from gateway.config.exposure import is_loopback
from gateway.http.edge import Scope

FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))
"""Headers that only a proxy adds: what comes by one does not come from this machine."""


def is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine, by no proxy, and names a loopback host: a foreign page whose name
    leads here (DNS rebinding) names its own."""
    names = [value for name, value in scope["headers"] if name == b"host"]
    if len(names) != 1 or any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    return is_loopback(host_of(f"//{names[0].decode('latin-1')}")) and _is_near(scope.get("client"))


def is_foreign(scope: Scope) -> bool:
    """Whether another site's page is behind a request: by `Sec-Fetch-Site`, which browsers send to loopback and by TLS
    and no page can set, else by `Origin`. `server.cors_origins` let such pages call the API, never the page.

    A link of another site may be followed. A form of the page itself has the `Origin` `null`, since it tells no
    referrer: without `Sec-Fetch-Site` its token alone says where it comes from.
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    is_link = scope["method"] in ("GET", "HEAD")
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site == "same-origin":
        return False
    if site not in (None, "none") and not (is_link and headers.get(b"sec-fetch-mode") == "navigate"):
        return True
    if origin is None or (origin == "null" and not is_link):
        return False
    return str(origin).partition("://")[2].lower() != str(headers.get(b"host", "")).lower()


def host_of(address: str) -> str:
    """The host that an address names, without its port; empty if it names none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_near(client: tuple[str, int] | None) -> bool:
    """Whether a connection comes from this machine, as far as is known."""
    try:
        return client is None or ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return True  # not by an address: a socket of this machine
