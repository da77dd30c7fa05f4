"""What the application wires where guards or masking are configured; elsewhere this is not even loaded."""

from collections.abc import Awaitable, Callable

from gateway.config.settings import Settings
from gateway.guards.chain import open_chain
from gateway.guards.embedder import GuardedEmbedder
from gateway.guards.masking.masker import Masker
from gateway.guards.relayed import GuardedPassthrough
from gateway.guards.upstream import Checkpoint, GuardedUpstream
from gateway.ports import Clock, Embedder, Upstream
from gateway.upstream.openai.passthrough import Passthrough


class Guarding:
    """Puts the checkpoint around everything by which a body goes to a model.

    Raises, when it is made:
        ConfigurationError: a guard or a rule cannot be used.
    """

    def __init__(self, settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self.masker = Masker(settings.masking, secret) if settings.masking.enabled else None
        chain = open_chain(settings.guards, clock) if settings.guards else None
        self._checkpoint = Checkpoint(chain, self.masker)

    def upstream(self, upstream: Upstream) -> Upstream:
        """Calls of models, the internal ones too."""
        return GuardedUpstream(upstream, self._checkpoint)

    def embedder(self, embedder: Embedder) -> Embedder:
        """Calls of an embedder. What runs in this process, and costs nothing, sends nothing."""
        return embedder if embedder.tariff() is None else GuardedEmbedder(embedder, self._checkpoint)

    def passthrough(self, upstream: Passthrough) -> Passthrough:
        """Relayed calls."""
        return GuardedPassthrough(upstream, self._checkpoint)
