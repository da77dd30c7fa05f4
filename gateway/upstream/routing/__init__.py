"""Routes requests: the configured models, their deployments, the health of these, and what each can do.

Read first: `router.py` (`ConfiguredRouter`: which deployment serves a request) and `health.py` (which deployments are
left out for a while). Never sends a request itself.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.upstream.routing import catalogue, health, protocols, router
    from gateway.upstream.routing.catalogue import ModelCatalogue
    from gateway.upstream.routing.protocols import KnownProtocols
    from gateway.upstream.routing.router import ConfiguredRouter, RoutingCandidates
else:
    __getattr__ = lazy_face(__name__)
