"""What guards and masks around everything by which a body goes to a model."""

from collections.abc import Awaitable, Callable

from gateway.base.clock import SystemClock
from gateway.config.settings import Settings
from gateway.guards.chain import open_chain
from gateway.guards.masking.masker import Masker
from gateway.guards.masking.rules import rules_of
from gateway.guards.relayed import GuardedPassthrough
from gateway.guards.upstream import Checkpoint, GuardedEmbedder, GuardedUpstream
from gateway.ports import Clock, Embedder, TokenCounter, Upstream
from gateway.turn.hooks import Feature
from gateway.turn.stages import Prepared
from gateway.upstream.openai.passthrough import Passthrough


class Guarding:
    """Puts the checkpoint around all of that (in the place of `guards.opening.NoGuards`).

    Raises, when it is made:
        ConfigurationError: a guard or a rule cannot be used.
    """

    def __init__(self, settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._masker = Masker(settings.masking, secret) if settings.masking.enabled else None
        chain = open_chain(settings.guards, clock) if settings.guards else None
        self._checkpoint = Checkpoint(chain, self._masker)

    def build(self) -> Feature:
        """Builds the feature: what is masked in a prompt is counted."""
        masker = self._masker
        if masker is None:
            return Feature()

        async def surplus(prepared: Prepared, counter: TokenCounter) -> int:
            return await masker.surplus(prepared.messages, prepared.request.caller.tenant, counter)

        return Feature(on_payload=surplus)

    def upstream(self, upstream: Upstream) -> Upstream:
        """Calls of models, the internal ones too."""
        return GuardedUpstream(upstream, self._checkpoint)

    def embedder(self, embedder: Embedder | None) -> Embedder | None:
        """Calls of an embedder. What runs in this process, and costs nothing, sends nothing."""
        if embedder is None or embedder.tariff() is None:
            return embedder
        return GuardedEmbedder(embedder, self._checkpoint)

    def passthrough(self, upstream: Passthrough) -> Passthrough:
        """Relayed calls."""
        return GuardedPassthrough(upstream, self._checkpoint)


def what_guards(settings: Settings) -> str:
    """What is configured, in words; for `gateway check`.

    Raises:
        ConfigurationError: a guard or a rule cannot be used.
    """
    open_chain(settings.guards, SystemClock())
    rules: list[str] = []
    if settings.masking.enabled:
        rules_of(settings.masking)
        rules = [*settings.masking.rules, *(each.name for each in settings.masking.custom)]
    found = [entry.name for entry in settings.guards]
    return ", ".join([*found, *([f"masking by {', '.join(rules)}"] if rules else [])])
