"""Where a request comes from: this machine, or another site's page (guarantee §10.12, §13.2)."""

import ipaddress
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from urllib.parse import urlsplit

from gateway.api.server.fast_router import App, Receive, Scope, Send
from gateway.core import errors
from gateway.core.config import exposure
from gateway.core.types.chat import Headers

FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))
"""Headers that only a proxy adds: what comes by one does not come from this machine."""

PRIVATE = (".localhost", ".internal", ".local", ".lan", ".home.arpa")
"""Endings of names that nobody on the internet can let lead to this machine."""
ANY_ORIGIN = "*"
ORIGIN_SAFE_METHODS = ("GET", "HEAD")
"""Methods with which browsers send no `Origin` to the page's own host."""
STRICTER = ("/ui", "/mcp", "/health/")
"""Paths that look themselves where a request comes from, or spend nothing and tell nobody anything."""
MAX_HOSTS = 100
"""Values of `Host` that are remembered."""


class OriginCheck:
    """Keeps other sites' pages out, as `check_near` says. Nearly all requests have no `Origin` and name
    a host that was looked at before."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_ORIGIN not in self._origins and not scope["path"].startswith(STRICTER):
            self._check(scope["headers"], scope["method"])
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, method: str) -> None:
        named = dict(headers)
        host = named.get(b"host")
        if b"origin" not in named and host in self._known:
            return
        check_near(headers, self._origins, method)
        is_plain = not any(name == b"origin" or name in FORWARDED for name, _ in headers)
        if host is not None and is_plain and len(self._known) < MAX_HOSTS:
            self._known.add(host)


def check_near(headers: Headers, origins: AbstractSet[str], method: str) -> None:
    """Keeps other sites' pages out where anybody on this machine may spend an operator's key (guarantee §10.16).

    A page is known by its `Origin`, which browsers send with all that is not merely read, and no page can leave out;
    one whose name was made to lead here (DNS rebinding) by the `Host` that it names. What came by a proxy may name any,
    but not where it only reads: such a page sends no `Origin` with that, and may set the headers of proxies itself.
    `origins`: those whose pages may ask.
    Raises Forbidden: another site's page is behind the request."""
    named = {name: value.decode("latin-1") for name, value in headers}
    origin, host = named.get(b"origin"), named.get(b"host", "")
    if origin is not None and origin not in origins and not exposure.is_loopback(host_of(origin)):
        text = f"A page of {origin[:100]} may not ask: server.cors_origins does not name it."
        raise errors.Forbidden(text, param="origin")
    is_configured = any(each.partition("://")[2] == host for each in origins)
    by_proxy = method not in ORIGIN_SAFE_METHODS and not FORWARDED.isdisjoint(named)
    if not (is_configured or by_proxy or _is_private(host_of(f"//{host}"))):
        ways = "set auth.keys, or name its origin in server.cors_origins"
        text = f"The host {host[:100]} is not this machine's: ask by a loopback address, {ways}."
        raise errors.Forbidden(text, param="host")


def _is_private(host: str) -> bool:
    """Whether a host is an address, or a name that no foreign page can have."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").lower().endswith(PRIVATE)
    return True


def is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine, by no proxy, and names a loopback host: a foreign page whose name
    leads here (DNS rebinding) names its own."""
    names = [value for name, value in scope["headers"] if name == b"host"]
    if len(names) != 1 or any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    return exposure.is_loopback(host_of(f"//{names[0].decode('latin-1')}")) and _is_near(scope.get("client"))


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
