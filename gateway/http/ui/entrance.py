"""`/ui`: where the page exists at all, and for whose browser (guarantee §13.2). Light: a server whose page nobody opens
loads no more of it than this."""

import asyncio

from gateway.config.exposure import has_page
from gateway.errors import NotFound
from gateway.http.edge import App, Receive, Scope, Send
from gateway.http.near import is_local
from gateway.http.ui.parts import PageParts


class Entrance:
    """Without `auth.keys` the page is there on loopback alone, for requests that name a loopback host: a foreign page
    whose name leads here (DNS rebinding) names its own. With keys it is there, and wants a login."""

    def __init__(self, parts: PageParts) -> None:
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
        if settings.auth.wants_keys or not has_page(settings):
            return has_page(settings)
        return is_local(scope)


def _load(parts: PageParts) -> App:
    from gateway.http.ui.site import Site

    return Site(parts)
