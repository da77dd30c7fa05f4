"""Wires the upstreams once: one pool of connections, an adapter for each protocol, and the router."""

import contextlib
from collections.abc import Callable

from gateway.core import ports
from gateway.core.config.settings import Settings
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.answers import HttpUpstream
from gateway.upstream.http.anthropic_adapter import AnthropicUpstream
from gateway.upstream.http.model_info import DiscoveredModels, WindowKeeper
from gateway.upstream.http.responses_adapter import ResponsesUpstream
from gateway.upstream.http_client import ConnectionPool, new_client
from gateway.upstream.litellm.provider import LitellmUpstream
from gateway.upstream.litellm.wire import LitellmLibrary
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import ConfiguredRouter, FreeformUpstream, ProtocolUpstream, modifies_params


class WiredUpstreams:
    """Holds what calls models: connections, adapters, the router. `Gateway` creates it; it opens no connection before a
    call."""

    def __init__(
        self,
        settings: Settings,
        clock: ports.Clock,
        *,
        windows: WindowKeeper,
        make_http: Callable[[ConnectionPool], HttpUpstream],
        wrap: Callable[[ports.Upstream], ports.Upstream],
        scripted: ports.Upstream | None,
    ) -> None:
        """`windows`: what upstreams reported of models' windows before; `make_http`: makes the adapter that the others
        use; `wrap`: puts guards and spans around each call; `scripted`: answers instead of every upstream."""
        self.pool = ConnectionPool(settings.upstream.max_connections)
        self.client = new_client(self.pool)
        self.catalogue = ModelCatalogue()
        self._discovered = DiscoveredModels(self.client, clock, windows)
        self.router = ConfiguredRouter(settings, self.catalogue, self._discovered if scripted is None else None, clock)
        self.over_http = make_http(self.pool)
        self._is_scripted = scripted is not None
        self.library = LitellmLibrary(modify_params=modifies_params(settings))
        adapters = ProtocolUpstream(
            openai=self.over_http,
            responses=ResponsesUpstream(self.over_http),
            anthropic=AnthropicUpstream(self.over_http, clock),
            litellm=LitellmUpstream(self.client, self.library),
        )
        self.adapter = wrap(scripted or FreeformUpstream(adapters))

    async def ready(self, deployment: ModelDeployment) -> None:
        """Loads what calls a deployment, which takes seconds the first time. A fault is that of the call itself."""
        if deployment.protocol == "litellm" and not self._is_scripted:
            with contextlib.suppress(Exception):
                await self.library.get()

    async def close(self) -> None:
        """Closes all connections."""
        await self._discovered.close()
        await self.client.aclose()
