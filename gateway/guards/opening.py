"""What the application wires: guards and masking where they are configured, else nothing at all."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.config.settings import Settings
from gateway.ports import Clock, Embedder, Upstream
from gateway.turn.hooks import Feature
from gateway.upstream.openai.passthrough import Passthrough

if TYPE_CHECKING:
    from gateway.guards.wiring import Guarding


class NoGuards:
    """Nothing is configured: every part by which a body goes to a model stays as it is."""

    def build(self) -> Feature:
        """Builds a feature that does nothing."""
        return Feature()

    def upstream(self, upstream: Upstream) -> Upstream:
        """The same."""
        return upstream

    def embedder(self, embedder: Embedder | None) -> Embedder | None:
        """The same."""
        return embedder

    def passthrough(self, upstream: Passthrough) -> Passthrough:
        """The same."""
        return upstream


def open_guards(settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: Clock) -> "NoGuards | Guarding":
    """Guards and masking as configured; loaded where they are.

    Raises:
        ConfigurationError: a guard or a rule cannot be used.
    """
    if not guards_are_on(settings):
        return NoGuards()
    from gateway.guards.wiring import Guarding

    return Guarding(settings, secret, clock)


def guards_are_on(settings: Settings) -> bool:
    """Whether anything looks at calls of models."""
    return bool(settings.guards) or settings.masking.enabled


def refuses_files(settings: Settings) -> bool:
    """Whether no file goes to a model, since nothing can be masked in it."""
    return settings.masking.enabled and settings.masking.on_unreadable == "refuse"
