"""Where requests go: the configured models, their deployments, which of these are healthy, and what each can do.

Read first: `router.py` (`ConfiguredRouter`: which deployment serves a request) and `health.py` (which are left out for
a while). Never sends anything itself.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.upstream.routing import catalogue, health, protocols, router
    from gateway.upstream.routing.catalogue import ModelCatalogue
    from gateway.upstream.routing.protocols import KnownProtocols
    from gateway.upstream.routing.router import ConfiguredRouter
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "catalogue": "ModelCatalogue",
            "protocols": "KnownProtocols",
            "router": "ConfiguredRouter",
        },
    )

__all__ = [
    "ConfiguredRouter",
    "KnownProtocols",
    "ModelCatalogue",
    "catalogue",
    "health",
    "protocols",
    "router",
]
