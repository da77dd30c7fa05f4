"""`/ui`: where the page exists at all, and for whose browser (guarantee §13.2). Light: a server whose page nobody opens
loads no more of it than this."""

import asyncio
import ipaddress
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from gateway.config.exposure import has_page, is_loopback
from gateway.config.settings import Settings
from gateway.errors import NotFound
from gateway.http.auth import Authenticator
from gateway.http.chat.endpoint import ChatCompletions
from gateway.http.edge import App, Receive, Scope, Send
from gateway.http.operations import Ready
from gateway.http.statistics import Statistics
from gateway.ports import CacheBackend, Clock
from gateway.storage.conversations.path import PastTurns
from gateway.storage.database.engine import Transactions
from gateway.storage.store import ConversationStore
from gateway.telemetry.metrics import Metrics
from gateway.turn.pipeline import Pipeline
from gateway.upstream.routing.router import ConfiguredRouter

PATH = "/ui"
FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))
"""Headers that only a proxy adds: what comes by one does not come from this machine."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What pages are made of; wired in `app.py`."""

    settings: Settings
    clock: Clock
    auth: Authenticator
    transactions: Transactions
    store: ConversationStore
    past: PastTurns
    metrics: Metrics
    ready: Ready
    statistics: Statistics
    chat: ChatCompletions
    pipeline: Pipeline
    router: ConfiguredRouter
    cache: CacheBackend
    started: datetime
    """When the process began."""


class Entrance:
    """Without `auth.keys` the page is there on loopback alone, for requests that name a loopback host: a foreign page
    whose name leads here (DNS rebinding) names its own. With keys it is there, and wants a login."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._site: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_here(scope):
            raise NotFound("There is nothing at this path.")
        if self._site is None:
            self._site = await asyncio.to_thread(_load, self._parts)  # streams run meanwhile
        await self._site(scope, receive, send)

    def _is_here(self, scope: Scope) -> bool:
        settings = self._parts.settings
        if settings.auth.keys or not has_page(settings):
            return has_page(settings)
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


def _load(parts: Parts) -> App:
    from gateway.http.ui.site import Site

    return Site(parts)
