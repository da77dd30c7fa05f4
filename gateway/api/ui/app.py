"""`/ui`: whether the web UI exists, and for whose browser (guarantee §13.2). Light: a server whose UI nobody opens
loads no more of it than this."""

import asyncio

from gateway.api.server.asgi import App, Receive, Scope, Send
from gateway.api.server.middleware import is_local
from gateway.api.ui.dependencies import PageParts
from gateway.core import errors
from gateway.core.config import exposure


class UiApp:
    """Without `auth.keys`, serves the web UI on loopback alone, to requests that name a loopback host: a foreign page
    whose name resolves to this machine (DNS rebinding) names its own. With keys, serves it and requires a login."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._site: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_here(scope):
            raise errors.NotFound("There is nothing at this path.")
        if self._site is None:
            self._site = await asyncio.to_thread(_load, self._parts)  # streams run meanwhile
        await self._site(scope, receive, send)

    def _is_here(self, scope: Scope) -> bool:
        settings = self._parts.settings
        if settings.auth.wants_keys or not exposure.has_page(settings):
            return exposure.has_page(settings)
        return is_local(scope)


def _load(parts: PageParts) -> App:
    from gateway.api.ui.router import UiRouter

    return UiRouter(parts)
