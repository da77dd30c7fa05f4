"""Requests whose calls of models pass guards and masking: room for placeholders (guarantee §12.10).

Tokens are counted of what the client said. A placeholder may take more than what it stands for: where all of them
together do not fit the budget any more, the context is made again for a smaller one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.context.report import BuiltContext
from gateway.errors import ContextLengthExceeded
from gateway.history.rebuild import completed_history
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange
from gateway.window.budget import Budget

if TYPE_CHECKING:
    from gateway.guards.masking.masker import Masker

TRIES = 3
"""How often a context is made again. What is left of it has fewer placeholders each time."""
Build = Callable[[Exchange, Budget], Awaitable[BuiltContext]]


class GuardedTurns:
    """What the pipeline does more where guards or masking are configured. `masker` is None where nothing is masked."""

    def __init__(self, masker: "Masker | None", counters: CounterRegistry) -> None:
        self._masker = masker
        self._counters = counters

    async def make_room(self, exchange: Exchange, build: Build) -> None:
        """Makes the context again until it fits with its placeholders.

        Raises:
            ContextLengthExceeded: it cannot be made to.
        """
        most = exchange.budget.tokens
        if self._masker is None or exchange.built is None:
            return
        tenant, counter = exchange.request.caller.tenant, self._counters.counter(exchange.facts)
        room = most
        for _ in range(TRIES + 1):
            built = exchange.built
            exchange.surplus = surplus = await self._masker.surplus(exchange.messages, tenant, counter)
            if most is None or room is None or not surplus or built.fitted.tokens + surplus <= most:
                return
            if built.is_as_sent and exchange.history is not None:
                exchange.history = completed_history(exchange.request, exchange.history)
            room = min(room - 1, most - surplus)
            if room <= 0:
                break
            exchange.built = await build(exchange, replace(exchange.budget, tokens=room))
        tokens = exchange.built.fitted.tokens + exchange.surplus
        raise ContextLengthExceeded(exchange.budget.overflow(tokens), param="messages")
