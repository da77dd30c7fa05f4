"""What the application wires: guards and masking where they are configured, else nothing at all."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from gateway.config.settings import Settings
from gateway.ports import Clock, Embedder, Upstream
from gateway.upstream.openai.passthrough import Passthrough

if TYPE_CHECKING:
    from gateway.guards.masking.masker import Masker


class Guards(Protocol):
    """Puts itself around the parts of the application by which a body goes to a model."""

    masker: "Masker | None"
    is_on: bool

    def upstream(self, upstream: Upstream) -> Upstream:
        """Calls of models, the internal ones too."""
        ...

    def embedder(self, embedder: Embedder | None) -> Embedder | None:
        """Calls of an embedder."""
        ...

    def passthrough(self, upstream: Passthrough) -> Passthrough:
        """Relayed calls."""
        ...


class NoGuards:
    """Nothing is configured (a `Guards`): every part stays as it is."""

    masker: "Masker | None" = None
    is_on = False

    def upstream(self, upstream: Upstream) -> Upstream:
        """The same."""
        return upstream

    def embedder(self, embedder: Embedder | None) -> Embedder | None:
        """The same."""
        return embedder

    def passthrough(self, upstream: Passthrough) -> Passthrough:
        """The same."""
        return upstream


def open_guards(settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: Clock) -> Guards:
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
