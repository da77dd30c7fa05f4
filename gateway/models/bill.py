"""The bill: references and figures only, never content (guarantee §6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a plan saves and costs, in USD over the `expected_requests` that will forward it; None: a price is unknown.

    `saved_tokens` are saved in each of these requests. `invalidated_tokens` of the frozen prefix leave the provider's
    prompt cache; `invalidation_cost` is what they cost more for that.
    """

    saved_tokens: int
    expected_requests: int
    saving: Decimal | None
    planning_cost: Decimal | None
    invalidated_tokens: int = 0
    invalidation_cost: Decimal | None = None

    @property
    def pays(self) -> bool | None:
        """Whether the saving is larger than the cost; None if one of them is unknown."""
        if self.saving is None or self.planning_cost is None:
            return None
        return self.saving > self.planning_cost + (self.invalidation_cost or Decimal(0))

    def told(self, *, applied: bool) -> dict[str, Any]:
        """`economics` of the bill; `applied`: the plan was followed."""
        return {
            "saved_tokens": self.saved_tokens,
            "expected_requests": self.expected_requests,
            "saving": self.saving,
            "planning_cost": self.planning_cost,
            "invalidated_tokens": self.invalidated_tokens,
            "invalidation_cost": self.invalidation_cost,
            "pays": self.pays,
            "applied": applied,
        }


Purpose = Literal["planner", "summarizer", "embedder"]


@dataclass(frozen=True, slots=True)
class InternalCall:
    """One call of an internal model, before it is priced. `route` is its `Deployment.route`; `usage` is in OpenAI's
    names, `prices` in LiteLLM's. `estimated`: the gateway counted, as the model reported nothing or was cut off."""

    purpose: Purpose
    route: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    estimated: bool = False


PICO = Decimal("0.000000000001")
"""Each call's prompt and completion cost is rounded to this (guarantee §6)."""


@dataclass(frozen=True, slots=True)
class ArtifactUsageRecord:
    """How one artifact was used; `processed_size_chars` counts the characters of it that were forwarded. `guarded`: a
    plan excludes it, and it is shown all the same (guarantee §5); left out of the bill where false."""

    artifact_id: str
    source: str
    artifact_type: str
    strategy: str
    original_size_chars: int
    processed_size_chars: int
    cache_hit: bool = False
    guarded: bool = False


def nameless(source: str) -> str:
    """An artifact's source without the name that somebody gave it: `attachment:0:title` -> `attachment:0`,
    `history:msg_3:tool` -> `history:msg_3`, `step_2:tool` -> `step_2`."""
    kind, _, rest = source.partition(":")
    return kind if kind.startswith("step_") else f"{kind}:{rest.partition(':')[0]}"


@dataclass(frozen=True, slots=True)
class UsageMetadata:
    """Tokens of the primary model as upstream reported them, or as counted by the gateway."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallCost:
    """One priced call of a model: costs in USD with 12 decimals, None where the model has no known price."""

    purpose: str
    model: str
    usage: dict[str, Any]
    prompt_cost: Decimal | None
    completion_cost: Decimal | None
    estimated: bool = False
    rates: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Decimal | None:
        if self.prompt_cost is None or self.completion_cost is None:
            return None
        return self.prompt_cost + self.completion_cost


@dataclass(frozen=True, slots=True)
class CostMetadata:
    """The sum over all calls of a request; null, never 0, when a model that was called has no known price."""

    prompt_cost: Decimal | None = None
    completion_cost: Decimal | None = None
    planning_cost: Decimal | None = Decimal(0)
    total_cost: Decimal | None = None
    currency: str = "USD"
    priced: bool = False
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ContextPlanningUsage:
    """Tokens and calls of the internal models. `embedder` is left out of the bill where none was called."""

    planner: dict[str, int] = field(default_factory=dict)
    summarizer: dict[str, int] = field(default_factory=dict)
    embedder: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContextPlanningCost:
    """Cost of the internal models in USD; None: no known price. `embedder_cost` is left out where none was called."""

    planner_cost: Decimal | None = Decimal(0)
    summarizer_cost: Decimal | None = Decimal(0)
    total_cost: Decimal | None = Decimal(0)
    embedder_cost: Decimal | None = None


@dataclass(slots=True)
class ContextUtilizationMetadata:
    """How the window was used. Tokens throughout; `context_window` and `budget_tokens` are None if unknown."""

    model_name: str
    strategy: str = "passthrough"
    goal: str = "synthesis"
    context_window: int | None = None
    budget_tokens: int | None = None
    tokens_used: int = 0
    utilization: float | None = None
    breakdown: dict[str, int] = field(
        default_factory=lambda: {"system": 0, "tools": 0, "history": 0, "artifacts": 0, "current": 0}
    )
    messages_included: int = 0
    messages_excluded: int = 0
    llm_planning_used: bool = False
    planning_reason: str | None = None
    fallback_reason: str | None = None
    artifacts_processed: list[ArtifactUsageRecord] = field(default_factory=list)
    planning_usage: ContextPlanningUsage = field(default_factory=ContextPlanningUsage)
    planning_cost: ContextPlanningCost = field(default_factory=ContextPlanningCost)
    economics: dict[str, Any] | None = None
    """`Comparison.told`; left out of the bill where no plan was made."""
    cache_stats: dict[str, int] = field(default_factory=lambda: {"hits": 0, "misses": 0})
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ResponseMetadata:
    """`response_metadata` of an answer; `usage` and `cost` are None while they are not known yet."""

    request_id: str
    conversation_id: str | None
    upstream_id: str | None
    model: str
    routing_path: list[str]
    usage: UsageMetadata | None
    cost: CostMetadata | None
    context_utilization: ContextUtilizationMetadata | None
    timings_ms: dict[str, float] = field(default_factory=dict)
