"""The bill: references and figures only, never content (guarantee §6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from gateway.core.types.usage import figure


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """What a plan saves beside what it costs, in USD; None where a price is unknown (ADR 16)."""

    saved_tokens: int
    """Fewer than without the plan, in each request."""
    expected_requests: int
    """That will forward what was decided."""
    saving: Decimal | None
    planning_cost: Decimal | None
    invalidated_tokens: int = 0
    """Of the frozen prefix: a provider's prompt cache has to take them in anew."""
    invalidation_cost: Decimal | None = None
    """What these cost more for that."""

    @property
    def pays(self) -> bool | None:
        """Whether the saving is larger than the cost; None if one of them is unknown."""
        if self.saving is None or self.planning_cost is None:
            return None
        return self.saving > self.planning_cost + (self.invalidation_cost or Decimal(0))

    def as_economics(self, *, applied: bool) -> dict[str, Any]:
        """The bill's `economics`, an estimate (`pending`); `applied`: the plan was followed."""
        return {
            "saved_tokens": self.saved_tokens,
            "expected_requests": self.expected_requests,
            "saving": self.saving,
            "planning_cost": self.planning_cost,
            "invalidated_tokens": self.invalidated_tokens,
            "invalidation_cost": self.invalidation_cost,
            "pays": self.pays,
            "applied": applied,
            "pending": True,
        }


@dataclass(frozen=True, slots=True)
class LeftOutTokens:
    """Tokens that a request would have had more with everything included (guarantee §5)."""

    tokens: int
    """Below 0 where labels and excerpts take more than was left out."""
    fresh: int
    """Of these, what this request would have sent for the first time."""
    unchanged: int = 0
    """Of the prompt, what begins as an earlier request began."""


Purpose = Literal["planner", "summarizer", "embedder", "guard"]


@dataclass(frozen=True, slots=True)
class InternalCall:
    """One call of an internal model, not priced yet: `route` names where it went (`ModelDeployment.route`), `usage` is
    in OpenAI's names, `prices` in LiteLLM's. `estimated`: the gateway counted, as the model reported nothing or was cut
    off. A call that was not charged has a usage of zero."""

    purpose: Purpose
    route: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    estimated: bool = False


FAILED_TRY = "failed_try"
"""The purpose of a call of the model, or of one instead of it, that failed before another answered."""
OF_MODELS = ("primary", FAILED_TRY)
"""Purposes of calls that were to answer the request; all others are an internal model's."""
PICO = Decimal("0.000000000001")
"""Each call's prompt and completion cost is rounded to this (guarantee §6)."""


@dataclass(slots=True)  # frozen it would be four times as dear to make, for each message
class ArtifactUsageRecord:
    """How one artifact was used; `processed_size_chars` counts the characters of it that were forwarded. `guarded`: a
    plan excludes it, and it is shown all the same (guarantee §5). `reason` is `recalled` where this question brought
    back what had been left out, `same_document` where the same document stands elsewhere in the window. `standing`:
    nothing was decided or changed, it stands as an earlier request left it. These are on the bill only where they say
    something."""

    artifact_id: str
    source: str
    artifact_type: str
    strategy: str
    original_size_chars: int
    processed_size_chars: int
    cache_hit: bool = False
    guarded: bool = False
    reason: str | None = None
    standing: bool = False
    attachment_type: str | None = None
    """As its client named it, if that is more than `document`."""
    attachment_source: str | None = None
    """Where its client says that it is from."""
    untouched: bool = False
    """It is in its message as it came."""
    message: int | None = None
    """Of a tool's result in a message that can be forwarded, that message's index."""


NOT_ON_THE_BILL = ("untouched", "message")
"""Fields of a record that are for the gateway alone."""
CLIENTS_WORDS = ("attachment_type", "attachment_source")
"""Fields of a record that are a client's own words."""


def anonymous(record: ArtifactUsageRecord) -> ArtifactUsageRecord:
    """The record without what somebody wrote."""
    return replace(record, source=nameless(record.source), attachment_type=None, attachment_source=None)


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


def usage_of(usage: Mapping[str, Any]) -> UsageMetadata:
    """The three figures of a usage object; a missing total is the sum of the others."""
    prompt, completion = figure(usage, "prompt_tokens"), figure(usage, "completion_tokens")
    return UsageMetadata(prompt, completion, figure(usage, "total_tokens") or prompt + completion)


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A product of a bill's arithmetic, in USD, not rounded. `kind`: `input`, `cached_input`, `cache_write`,
    `cache_write_1h`, `audio_input`, `image_input`, `cached_image_input`; `output`, `reasoning`, `audio_output`,
    `image_output`; or `seconds`, `characters`, `images` in place of tokens."""

    kind: str
    tokens: int | Decimal
    rate: Decimal
    cost: Decimal


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call of a model cost, in USD with 12 decimals. Priced: both costs; unpriced, as the model has no known
    price: both are None, and so is every total; not charged: a usage of zero."""

    purpose: str
    model: str
    usage: dict[str, Any]
    prompt_cost: Decimal | None
    completion_cost: Decimal | None
    estimated: bool = False
    rates: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Decimal | None:
        """Prompt and completion together; None if unpriced."""
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
    """Tokens and calls of the internal models. `embedder` is on the bill only where it was called, `guard` only where
    one cost something."""

    planner: dict[str, int] = field(default_factory=dict)
    summarizer: dict[str, int] = field(default_factory=dict)
    embedder: dict[str, int] = field(default_factory=dict)
    guard: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContextPlanningCost:
    """Cost of the internal models in USD; None: no known price. `embedder_cost` is on the bill only where one was
    called, `guard_cost` only where a guard cost something."""

    planner_cost: Decimal | None = Decimal(0)
    summarizer_cost: Decimal | None = Decimal(0)
    total_cost: Decimal | None = Decimal(0)
    embedder_cost: Decimal | None = None
    guard_cost: Decimal | None = None


@dataclass(slots=True)
class ContextUtilizationMetadata:
    """How the window was used. Tokens throughout; `context_window` and `budget_tokens` are None if unknown. Nothing is
    counted in mode `off`."""

    model_name: str
    strategy: str = "passthrough"
    goal: str = "synthesis"
    context_window: int | None = None
    budget_tokens: int | None = None
    tokens_used: int | None = None
    tokens_estimated: bool = False
    utilization: float | None = None
    breakdown: dict[str, int] | None = None
    messages_included: int = 0
    messages_excluded: int = 0
    llm_planning_used: bool = False
    planning_reason: str | None = None
    fallback_reason: str | None = None
    artifacts_processed: list[ArtifactUsageRecord] = field(default_factory=list)
    planning_usage: ContextPlanningUsage = field(default_factory=ContextPlanningUsage)
    planning_cost: ContextPlanningCost = field(default_factory=ContextPlanningCost)
    economics: dict[str, Any] | None = None
    """What a plan saves beside what it costs (a `PlanComparison`), and what this request saved; on the bill only where
    a plan was made or something is left out."""
    cache_stats: dict[str, int] = field(default_factory=lambda: {"hits": 0, "misses": 0})
    memory: dict[str, int] | None = None
    """Pinned messages, summaries and tokens of the memory message; on the bill only where there is one."""
    recall: dict[str, int] | None = None
    """Rounds of the tool `recall`, the tokens that they added and might have added; only where it was offered."""
    profile: dict[str, Any] | None = None
    """The prompt profile that stands in front, and what it saves; on the bill only where profiles are configured."""
    things: list[dict[str, str]] | None = None
    """Memory id and type of the remembered things that were shown; on the bill only where there were any."""
    pages: list[dict[str, Any]] | None = None
    """Artifact id and numbers of the pages of PDFs that went up as those pages alone; only where there were any."""
    left_by: str | None = None
    """`max_turns`: older turns are not forwarded, since the conversation has more than that (guarantee §3.11); on the
    bill only then."""
    compacted: bool | None = None
    """Whether room was made for a client that asked for compaction; on the bill only where it was."""
    cleared: list[dict[str, Any]] | None = None
    """What a client's edits took out of the prompt; on the bill only where they did."""
    workflow_spec_tokens: int | None = None
    """About the tokens of workflow specifications in the prompt, also in `breakdown`; only where there are any."""
    warnings: list[str] = field(default_factory=list)

    def without(self, cleared: tuple[dict[str, Any], ...]) -> None:
        """Notes what edits took out of the prompt, in place; then its figures are estimates. Once a request."""
        if self.cleared is not None or not cleared:
            return
        self.cleared = list(cleared)
        if self.tokens_used is None or self.breakdown is None:
            return
        left = sum(each["cleared_input_tokens"] for each in cleared)
        breakdown = dict(self.breakdown)
        for name in ("artifacts", "history", "current"):
            taken = min(left, breakdown.get(name, 0))
            breakdown[name], left = breakdown.get(name, 0) - taken, left - taken
        self.breakdown, self.tokens_used, self.tokens_estimated = breakdown, sum(breakdown.values()), True
        self.utilization = round(self.tokens_used / self.budget_tokens, 4) if self.budget_tokens else None


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
    agent: dict[str, str] | None = None
    """Id and type of the agent that answered; on the bill only where one was named."""
    economics: dict[str, Any] | None = None
    """What the client's own request would have cost beside what was billed, in USD as texts; on the bill only where
    that says something: where something may leave for economy or was left out, or an internal model was asked."""
