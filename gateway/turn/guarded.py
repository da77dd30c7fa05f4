"""Requests whose calls of models pass guards and masking: who asks, and room for placeholders (guarantee §12.10).

Tokens are counted of what the client said. A placeholder may take more than what it stands for: where all of them
together do not fit the budget any more, the context is made again for a smaller one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from gateway.base.tasks import offload_if
from gateway.context.report import BuiltContext
from gateway.errors import ContextLengthExceeded, overflow_text
from gateway.guards.masking.bodies import BodyMasker
from gateway.guards.masking.masker import Masker
from gateway.history.rebuild import completed_history
from gateway.models.guarding import SCOPE, GuardScope
from gateway.ports import TokenCounter
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange
from gateway.window.budget import Budget

TRIES = 3
"""How often a context is made again. What is left of it has fewer placeholders each time."""
MANY = 32
Build = Callable[[Exchange, Budget], Awaitable[BuiltContext]]


class GuardedTurns:
    """What the pipeline does more where guards or masking are configured. `masker` is None where nothing is masked."""

    def __init__(self, masker: Masker | None, counters: CounterRegistry) -> None:
        self._masker = masker
        self._counters = counters

    def enter(self, exchange: Exchange) -> None:
        """From here on calls of models are made for this request, and what guards cost is on its bill."""
        request = exchange.request
        found = GuardScope(
            request.caller.tenant, request.request_id, calls=exchange.internal, warnings=exchange.warnings
        )
        SCOPE.set(found)

    async def make_room(self, exchange: Exchange, build: Build) -> None:
        """Makes the context again until it fits with its placeholders.

        Raises:
            ContextLengthExceeded: it cannot be made to.
        """
        most = exchange.budget.tokens
        if self._masker is None or exchange.built is None:
            return
        room = most
        for _ in range(TRIES + 1):
            built = exchange.built
            exchange.surplus = surplus = await self._surplus(exchange, self._masker)
            if most is None or room is None or not surplus or built.fitted.tokens + surplus <= most:
                return
            if built.is_as_sent and exchange.history is not None:
                exchange.history = completed_history(exchange.request, exchange.history)
            room = min(room - 1, most - surplus)
            if room <= 0:
                break
            exchange.built = await build(exchange, replace(exchange.budget, tokens=room))
        tokens = exchange.built.fitted.tokens + exchange.surplus
        raise ContextLengthExceeded(overflow_text(most, tokens), param="messages")

    async def _surplus(self, exchange: Exchange, masker: Masker) -> int:
        """Tokens that the placeholders of a context take more than what they stand for."""
        vault = await masker.vault(exchange.request.caller.tenant)
        counter, messages = self._counters.counter(exchange.facts), exchange.messages
        return await offload_if(len(messages) > MANY, _surplus, messages, BodyMasker(vault, refuse=False), counter)


def _surplus(messages: list[dict[str, Any]], masker: BodyMasker, counter: TokenCounter) -> int:
    masked = masker.masked({"messages": messages})["messages"]
    more = (
        counter.message(new) - counter.message(old) for old, new in zip(messages, masked, strict=True) if new != old
    )
    return max(0, sum(more))
