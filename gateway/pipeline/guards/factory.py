"""What the application wires: guards and masking if they are configured, else nothing at all."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from gateway.core import ports
from gateway.core.config.settings import Settings
from gateway.pipeline.stages import RequestFeature
from gateway.upstream import PassthroughClient

if TYPE_CHECKING:
    from gateway.pipeline.guards.checkpoint import ActiveGuards


class NoGuards:
    """Nothing is configured: every path of a body to a model is unchanged."""

    def build(self) -> RequestFeature:
        """Builds a feature that does nothing."""
        return RequestFeature()

    def upstream(self, upstream: ports.Upstream) -> ports.Upstream:
        return upstream

    def embedder(self, embedder: ports.Embedder | None) -> ports.Embedder | None:
        return embedder

    def passthrough(self, upstream: PassthroughClient) -> PassthroughClient:
        return upstream


Guards: TypeAlias = "NoGuards | ActiveGuards"


def open_guards(settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: ports.Clock) -> Guards:
    """Loads guards and masking if any is configured.
    Raises ConfigurationError: a guard or a rule cannot be used."""
    if not guards_are_on(settings):
        return NoGuards()
    from gateway.pipeline.guards.checkpoint import ActiveGuards

    return ActiveGuards(settings, secret, clock)


def guards_are_on(settings: Settings) -> bool:
    """Returns whether any guard or masking is configured."""
    return bool(settings.guards) or settings.masking.enabled


def refuses_files(settings: Settings) -> bool:
    """Returns whether files are refused for models, since nothing in them can be masked."""
    return settings.masking.enabled and settings.masking.on_unreadable == "refuse"
