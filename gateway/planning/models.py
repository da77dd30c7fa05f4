"""Which models a request uses: its own, and the two internal ones (contract §5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from gateway.models.exchange import ChatRequest
from gateway.settings import ContextSettings

DEFAULT_INTERNAL = "gpt-4o-mini"
INPUT_PRICE = "input_cost_per_token"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`primary` answers; `context_planner` and `summarizer` are internal, by the names that they are asked for by.

    `chosen` are the internal ones that somebody named: the request, or the operator. The others are defaults, which
    count only where they are known to be served.
    """

    primary: str
    context_planner: str = DEFAULT_INTERNAL
    summarizer: str = DEFAULT_INTERNAL
    chosen: frozenset[str] = frozenset()

    @classmethod
    def from_request(cls, request: ChatRequest, settings: ContextSettings) -> Self:
        """The request's `context.models`, else the settings (`CONTEXT_PLANNER_MODEL`, `SUMMARIZER_MODEL`), else
        `gpt-4o-mini`."""
        named = request.options.models
        planner = named.get("context_planner") or settings.planner_model
        summarizer = named.get("summarizer") or settings.summarizer_model
        return cls(
            request.model,
            planner or DEFAULT_INTERNAL,
            summarizer or DEFAULT_INTERNAL,
            frozenset(name for name in (planner, summarizer) if name),
        )

    def is_expensive_primary(self, prices: Mapping[str, Decimal], threshold: Decimal) -> bool:
        """Whether the primary model's input price (USD per token) is above the threshold; an unknown one is cheap
        (contract §5).

        Args:
            prices: the primary model's, by LiteLLM's names.
        """
        price = prices.get(INPUT_PRICE)
        return price is not None and price > threshold
