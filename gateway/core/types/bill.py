"""The bill: references and figures only, never content (guarantee §6). Figures of a provider's usage, by the chat API's
names; sums over bills (guarantee §13.1); what a branch has cost, and would have cost without a gateway (§4 I7)."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from operator import add, attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, Self

from gateway.core import jsons
from gateway.core.frozen_records import record

MAX_TOKENS = 10**12
"""A higher reported value is not taken for a count."""
USAGE_DETAILS = ("prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details")
"""Objects that break a figure down; those of the prompt first."""
CACHE_READ_NAMES = frozenset(
    {
        *("cachedtokens", "cachereadinputtokens", "promptcachehittokens", "cachedinputtokens", "cachereadtokens"),
        *("cachereadinputtokencount", "cachedcontenttokencount", "cachedprompttokens", "cachedprompttexttokens"),
        *("numcachedtokens", "inputcachedtokens", "cachehittokens", "inputcachereadtokens"),
    }
)
"""Names for tokens read from a cache, in lower case and without underscores: OpenAI's (Moonshot's, Together's),
Anthropic's, DeepSeek's, OpenRouter's, Bedrock's, Gemini's, xAI's and those of gateways in front of them."""
CACHE_WRITE_NAMES = frozenset(
    {
        *("cachewritetokens", "cachecreationtokens", "cachecreationinputtokens", "cachewriteinputtokens"),
        *("cachedcreationtokens", "cachedcreationinputtokens", "cachewriteinputtokencount", "cachedwritetokens"),
        *("promptcachewritetokens", "inputcachewritetokens", "inputcachecreationtokens"),
    }
)
"""Names for tokens written to a cache, in the same form."""
CACHED_USAGE_FIELDS = CACHE_READ_NAMES | CACHE_WRITE_NAMES
OF_PROMPT = CACHED_USAGE_FIELDS | {"promptcachemisstokens"}
SPLIT_BY_HOUR = ("cache_creation_token_details", "cache_creation")
"""Objects that split the tokens written to a cache into those for five minutes and those for an hour."""
HOUR, HOUR_ALONE = "ephemeral_1h_input_tokens", "claude_cache_creation_1_h_tokens"  # the latter is new-api's
COUNT = re.compile(r"tokens?(_?count)?$|^reasoning$", re.IGNORECASE)
"""Matches the names of token counts by their ends."""
USAGE_FIGURES = ("prompt_tokens", "completion_tokens", "total_tokens")
OF_ANSWER = ("completion_tokens", "output_tokens", "total_tokens")
"""How the names of counts begin that an answer adds to."""


def is_figure(value: Any) -> bool:
    """Returns whether a value is a count of tokens: an integer, even as `12.0`, from 0 to `MAX_TOKENS`."""
    if type(value) is int:
        return 0 <= value <= MAX_TOKENS
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS


def figure(usage: Any, name: str) -> int:
    """Returns the count `name` of a usage object; 0 if it is missing or no valid count."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if type(value) is int:
        return value if 0 <= value <= MAX_TOKENS else 0
    return int(value) if type(value) is float and is_figure(value) else 0


def sound(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a usage object without impossible counts: negative, absurd, greater than the whole that they are a part
    of, or not a number. Fields that count no tokens stay unchanged."""
    given = {name: int(usage[name]) for name in USAGE_FIGURES if is_figure(usage.get(name))}
    sent, answered = given.get("prompt_tokens", MAX_TOKENS), given.get("completion_tokens", MAX_TOKENS)
    total = given.get("total_tokens", 0)
    if "total_tokens" in usage and total < sent + answered < MAX_TOKENS:
        given["total_tokens"] = sent + answered
    written = max(answered, total - sent)  # some count reasoning beside the answer
    kept: dict[str, Any] = {}
    for name, value in usage.items():
        if name in USAGE_FIGURES:
            if name in given or value is None:
                kept[name] = given.get(name)
            continue
        part = name in USAGE_DETAILS
        is_prompts = name in USAGE_DETAILS[:2] or name in SPLIT_BY_HOUR or _plain(name) in OF_PROMPT
        most = sent if is_prompts else written if part or "reasoning" in name else MAX_TOKENS
        if isinstance(value, dict):
            kept[name] = _within(value, most)
        elif (value is None or not part) and _may_be(name, value, most):
            kept[name] = _counted(name, value)
    read, made = cache_tokens(kept)
    if read + made > sent:
        for holder in (kept, *(kept[name] for name in USAGE_DETAILS[:2] if isinstance(kept.get(name), dict))):
            for name in [name for name in holder if _plain(name) in CACHE_WRITE_NAMES]:
                del holder[name]
    return kept


def cache_tokens(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the prompt's tokens that were read from a provider's cache, and those that were written to it."""
    read = written = 0
    for holder, name, is_read in _cache_counts(usage):
        count = figure(holder, name)
        read, written = (read or count, written) if is_read else (read, written or count)
    return read, written


def of_prompt_alone(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a usage object counts of the prompt, of an answer that has only begun."""
    return {name: count for name, count in usage.items() if not name.startswith(OF_ANSWER)}


def without_cache(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the usage without its counts of cached tokens, for an API with its own names for `cache_tokens`."""
    return {name: value for name, value in usage.items() if _plain(name) not in OF_PROMPT}


def reported_counts(usage: Mapping[str, Any], *, reads: bool) -> list[int]:
    """Lists the counts that a usage object reports of tokens read from a provider's cache, or else written to it, those
    of the details first; empty if the provider reports none."""
    return [figure(holder, name) for holder, name, is_read in _cache_counts(usage) if is_read is reads]


def _cache_counts(usage: Mapping[str, Any]) -> list[tuple[Any, str, bool]]:
    """Lists where a usage object counts cached tokens, in its details first: the object, the name, and whether they
    were read."""
    of_prompt, of_input = usage.get(USAGE_DETAILS[0]), usage.get(USAGE_DETAILS[1])
    names = (
        tuple(of_prompt) if isinstance(of_prompt, dict) else (),
        tuple(of_input) if isinstance(of_input, dict) else (),
    )
    places, holders = _names_of_cached(*names, tuple(usage)), (of_prompt, of_input, usage)
    return [(holders[at], name, is_read) for at, name, is_read in places] if places else []


@lru_cache(256)
def _names_of_cached(*reported: tuple[str, ...]) -> tuple[tuple[int, str, bool], ...]:
    """Selects the names for cached tokens in each object, cached: a provider reports the same names in each answer."""
    known = [(at, name, _plain(name)) for at, names in enumerate(reported) for name in names]
    return tuple((at, name, plain in CACHE_READ_NAMES) for at, name, plain in known if plain in CACHED_USAGE_FIELDS)


def written_for_an_hour(usage: Mapping[str, Any]) -> int:
    """Returns the tokens written to the cache for an hour; 0 if the provider does not report them."""
    details = usage.get("prompt_tokens_details")
    holders = (details, usage) if isinstance(details, dict) else (usage,)
    split = [figure(holder.get(name), HOUR) for holder in holders for name in SPLIT_BY_HOUR]
    return next(filter(None, (*split, *(figure(holder, HOUR_ALONE) for holder in holders))), 0)


@lru_cache(1024)
def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _may_be(name: str, value: Any, most: int) -> bool:
    return value is None or not COUNT.search(name) or (is_figure(value) and value <= most)


def _within(value: dict[str, Any], most: int) -> dict[str, Any]:
    found = {}
    for name, each in value.items():
        if isinstance(each, dict):
            found[name] = _within(each, most)
        elif _may_be(name, each, most):
            found[name] = _counted(name, each)
    return found


def _counted(name: str, value: Any) -> Any:
    """Converts a count such as `12.0` to an integer; other values stay unchanged."""
    return int(value) if type(value) is float and COUNT.search(name) else value


@record
class PlanComparison:
    """What a plan saves and what it costs, in USD; None if a price is unknown (ADR 16)."""

    saved_tokens: int
    """Tokens saved by the plan in each request."""
    expected_requests: int
    """Requests expected to follow the plan's decisions."""
    saving: Decimal | None
    planning_cost: Decimal | None
    invalidated_tokens: int = 0
    """Tokens of the frozen prefix that a provider's prompt cache has to write again."""
    invalidation_cost: Decimal | None = None
    """Additional cost of these tokens."""

    @property
    def pays(self) -> bool | None:
        """Whether the saving is larger than the cost; None if one of them is unknown."""
        if self.saving is None or self.planning_cost is None:
            return None
        return self.saving > self.planning_cost + (self.invalidation_cost or Decimal(0))

    def as_economics(self, *, applied: bool) -> dict[str, Any]:
        """Returns the bill's `economics`, an estimate (`pending`); `applied`: the plan was followed."""
        names = (
            *("saved_tokens", "expected_requests", "saving", "planning_cost"),
            *("invalidated_tokens", "invalidation_cost", "pays"),
        )
        return {**jsons.picked(self, *names), "applied": applied, "pending": True}


@record
class LeftOutTokens:
    """Additional tokens that a request would have had with everything included (guarantee §5)."""

    tokens: int
    """Below 0 if labels and excerpts take more than was left out."""
    fresh: int
    """The part of `tokens` that this request would have sent for the first time."""
    unchanged: int = 0
    """Tokens of the prompt's beginning that it shares with an earlier request."""
    kept_messages: int = 0
    """The messages of that beginning, where this request changes what follows; else 0."""
    latest: int = 0  # if no costs of the branch are known: tokens of what is new, or follows the last answer; 0: none
    change: int | None = None  # the part of `tokens` that the previous request had not left out; None: not known
    gained: int | None = None  # tokens of what a conversation gained since then, where a pass was made; None: not known


Purpose = Literal["planner", "summarizer", "embedder", "guard"]


@record
class InternalCall:
    """One call of an internal model, not priced yet: `route` is the deployment's (`ModelDeployment.route`), `usage` has
    OpenAI's names, `prices` LiteLLM's. `estimated`: counted here, as nothing was reported or it was cut off."""

    purpose: Purpose
    route: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    estimated: bool = False


UNCHARGED = {"input_cost_per_token": Decimal(0), "output_cost_per_token": Decimal(0)}
"""Prices of a call that was not charged, whose usage is zero, for a model that has none."""
FAILED_TRY = "failed_try"
"""The purpose of a call of the model, or of a fallback, that failed before another one answered."""
MODEL_PURPOSES = ("primary", FAILED_TRY)
"""Purposes of calls made to answer the request; all others are an internal model's."""
PICO = Decimal("0.000000000001")
"""Each call's prompt and completion cost is rounded to this (guarantee §6)."""
PER_SEARCH = "search_context_cost_per_query"
"""LiteLLM's name for the price of a web search that the provider runs."""
PER_USD = "guard_cost_per_usd"
"""A price of 1 USD, so that a guard's cost in USD is charged like that of any other call (`billing.cost`)."""
RECALLED = "recalled"
"""Reason of a record: the question brought back some content that had been left out."""
SAME_DOCUMENT = "same_document"
"""Reason of a record: the same document is elsewhere in the window."""


@dataclass(slots=True)  # frozen, each would take four times as long to create, and each message has one
class ArtifactUsageRecord:
    """How one artifact was used; `processed_size_chars` counts the characters of it that were forwarded. `guarded`: a
    plan excludes it, and it is shown all the same (guarantee §5). `reason` is `recalled` where this question brought
    back what had been left out, `same_document` where the window shows the same document elsewhere. `standing`: nothing
    was decided or changed since an earlier request. All three are on the bill only if set."""

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
    """Type named by its client, if other than `document`."""
    attachment_source: str | None = None
    """Source named by its client."""
    untouched: bool = False
    """It is unchanged in its message."""
    message: int | None = None
    """Index of the message that holds a tool result, if that message can be forwarded."""


NOT_ON_THE_BILL = ("untouched", "message")
"""Fields of a record for the gateway's own use."""
CLIENTS_WORDS = ("attachment_type", "attachment_source")
"""Fields of a record with text from the client."""


def anonymous(record: ArtifactUsageRecord) -> ArtifactUsageRecord:
    """Returns a record without any text written by a client."""
    return replace(record, source=nameless(record.source), attachment_type=None, attachment_source=None)


def nameless(source: str) -> str:
    """Returns an artifact's source without the given name: `attachment:0:title` -> `attachment:0`,
    `history:msg_3:tool` -> `history:msg_3`, `step_2:tool` -> `step_2`."""
    kind, _, rest = source.partition(":")
    return kind if kind.startswith("step_") else f"{kind}:{rest.partition(':')[0]}"


@record
class UsageMetadata:
    """Tokens of the primary model as upstream reported them, or as counted by the gateway."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


def usage_of(usage: Mapping[str, Any]) -> UsageMetadata:
    """Reads the three figures of a usage object; a missing total is the sum of the others."""
    prompt, completion = figure(usage, "prompt_tokens"), figure(usage, "completion_tokens")
    return UsageMetadata(prompt, completion, figure(usage, "total_tokens") or prompt + completion)


@record
class PriceLine:
    """Tokens times rate: a term of a bill's cost, in USD, not rounded. `kind`: `input`, `cached_input`, `cache_write`,
    `cache_write_1h`, `audio_input`, `image_input`, `cached_audio_input`, `cached_image_input`; `output`, `reasoning`,
    `audio_output`, `image_output`; `searches`, counted; or `seconds`, `characters`, `images` in place of tokens."""

    kind: str
    tokens: int | Decimal
    rate: Decimal
    cost: Decimal


@record
class CallCost:
    """The cost of one model call, in USD with 12 decimals. Priced: both costs are set; unpriced, as the model has no
    known price: both are None, and so is every total; not charged: a usage of zero."""

    purpose: str
    model: str
    usage: dict[str, Any]
    prompt_cost: Decimal | None
    completion_cost: Decimal | None
    estimated: bool = False
    rates: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Decimal | None:
        """Sum of prompt and completion cost; None if unpriced."""
        if self.prompt_cost is None or self.completion_cost is None:
            return None
        return self.prompt_cost + self.completion_cost


@record
class CostMetadata:
    """The sum over all calls of a request; null, never 0, when a model that was called has no known price."""

    prompt_cost: Decimal | None = None
    completion_cost: Decimal | None = None
    planning_cost: Decimal | None = Decimal(0)
    total_cost: Decimal | None = None
    currency: str = "USD"
    priced: bool = False
    estimated: bool = False


@record
class ContextPlanningUsage:
    """Tokens and calls of the internal models. `embedder` is on the bill only where it was called, `guard` only where
    one cost something."""

    planner: dict[str, int] = field(default_factory=dict)
    summarizer: dict[str, int] = field(default_factory=dict)
    embedder: dict[str, int] = field(default_factory=dict)
    guard: dict[str, int] = field(default_factory=dict)


@record
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
    """What a plan saves and costs (a `PlanComparison`), and what this request saved; on the bill only if a plan was
    made or something is left out."""
    cache_stats: dict[str, int] = field(default_factory=lambda: {"hits": 0, "misses": 0})
    memory: dict[str, int] | None = None
    """Pinned messages, summaries and tokens of the memory message; on the bill only if there is one."""
    recall: dict[str, int] | None = None
    """Rounds of the tool `recall`, the tokens that they added and might have added; only if it was offered."""
    profile: dict[str, Any] | None = None
    """The prompt profile at the head of the prompt, and what it saves; on the bill only if profiles are configured."""
    things: list[dict[str, str]] | None = None
    """Memory id and type of the remembered entities that were shown; on the bill only if there were any."""
    pages: list[dict[str, Any]] | None = None
    """Artifact id and page numbers of PDFs of which only these pages were sent upstream; only if there were any."""
    left_by: str | None = None
    """`max_turns`: older turns are not forwarded, since the conversation has more than that (guarantee §3.11); on the
    bill only then."""
    compacted: bool | None = None
    """Whether the conversation was compacted for a client that asked for it; on the bill only if it was."""
    cleared: list[dict[str, Any]] | None = None
    """What a client's edits removed from the prompt; on the bill only if they did."""
    workflow_spec_tokens: int | None = None
    """Estimated tokens of workflow specifications in the prompt, also in `breakdown`; only if there are any."""
    warnings: list[str] = field(default_factory=list)

    def without(self, cleared: tuple[dict[str, Any], ...]) -> None:
        """Records, in place, what a client's edits removed from the prompt, after which the figures are estimates. Only
        the first call of a request counts."""
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
    """Id and type of the agent that answered; on the bill only if one was named."""
    economics: dict[str, Any] | None = None
    """What the client's own request would have cost, and what was billed, in USD as strings; on the bill only if they
    may differ: something may leave for economy or was left out, or an internal model was called."""


TIME_GROUPS = frozenset(("day", "hour", "minute"))
"""Groups by the time of requests, in UTC."""
COST_GROUPS = ("day", "model", "key", "project", "tenant", "user", "agent", "endpoint", "conversation")
"""Groups that a person may choose. `key` is the id of a key, never the key; `endpoint` None: chat completions."""


@record
class CostSums:
    """Sums over any number of bills, by the rules of an audit.

    Tokens are those of primary models. Fields are in whole picodollars, properties in USD. `cost_picousd` sums the
    calls that have a price: with `unpriced` requests it is a lower bound.
    """

    requests: int = 0
    partial: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cost_picousd: int = 0
    priced: int = 0
    """Requests with a call whose price is known."""
    unpriced: int = 0
    """Requests with a call whose price is unknown."""
    planning_cost_picousd: int = 0
    planning_unpriced: int = 0
    """Calls of internal models without a price."""
    estimated: int = 0
    saved_picousd: int = 0
    metered: int = 0
    """Requests whose cost without a gateway is known."""
    direct_cost_picousd: int = 0
    """Cost of the metered requests without a gateway."""
    net_saving_picousd: int = 0
    """`direct_cost_picousd` less what was billed for them; below 0 if more was billed."""
    held_out_requests: int = 0
    """Requests of conversations that go direct while others are economised (`context.economy_holdout`)."""
    held_out_cost_picousd: int = 0
    economised_requests: int = 0
    """Requests of the economised conversations."""
    economised_cost_picousd: int = 0
    bounced_tokens: int = 0
    """Tokens of results that were read again soon after they had been cut."""
    bounced_cost_picousd: int = 0
    """Cost of these tokens, a part of `cost`."""

    def __add__(self, other: "CostSums") -> "CostSums":
        return CostSums(*map(add, _figures(self), _figures(other)))

    @property
    def cost(self) -> Decimal:
        """USD, planning included."""
        return self.cost_picousd * PICO

    @property
    def planning(self) -> Decimal:
        """USD of planners and summarizers, a part of `cost`."""
        return self.planning_cost_picousd * PICO

    @property
    def known_cost(self) -> Decimal | None:
        """`cost`, or None if none of the requests has a price."""
        return None if self.unpriced and not self.priced else self.cost

    @property
    def known_planning(self) -> Decimal | None:
        """`planning`, or None if there are calls of internal models and none has a price."""
        return None if self.planning_unpriced and not self.planning_cost_picousd else self.planning

    @property
    def saved(self) -> Decimal:
        """USD saved by leaving content out, as estimated by the bills, before the cost of doing so."""
        return self.saved_picousd * PICO

    @property
    def bounced(self) -> Decimal:
        """USD of results that were read again soon after they had been cut, a part of `cost`."""
        return self.bounced_cost_picousd * PICO

    @property
    def unmetered(self) -> int:
        """Requests that are not in the net saving."""
        return self.requests - self.metered

    @property
    def net_saving(self) -> Decimal | None:
        """USD saved compared with no gateway, below 0 if it cost more; None if that is known of no request."""
        return self.net_saving_picousd * PICO if self.metered else None

    @property
    def direct(self) -> Decimal | None:
        """USD that the metered requests would have cost without a gateway; None if there are none."""
        return self.direct_cost_picousd * PICO if self.metered else None

    @property
    def held_out_step(self) -> Decimal | None:
        """Average USD of a request in conversations that go direct; None if there is none."""
        return _average(self.held_out_cost_picousd, self.held_out_requests)

    @property
    def economised_step(self) -> Decimal | None:
        """Average USD of a request in economised conversations; None if there is none."""
        return _average(self.economised_cost_picousd, self.economised_requests)


def _average(picousd: int, requests: int) -> Decimal | None:
    return picousd // requests * PICO if requests else None


SUM_NAMES = tuple(field.name for field in fields(CostSums))
_figures = attrgetter(*SUM_NAMES)


@record
class CostQuery:
    """Which bills to add up, and how to group them.

    Bills of requests that came from `since` on and before `until`, both in UTC. `tenant` None: all tenants. Each
    non-empty filter must match; `project` is that of the key, or its tenant if the key has none.
    """

    by: tuple[str, ...] = ()
    """Names of `COST_GROUPS` or `TIME_GROUPS`, or `project_id`: the key's project, or its tenant."""
    since: datetime | None = None
    until: datetime | None = None
    tenant: str | None = None
    models: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    conversation: str | None = None
    endpoints: tuple[str | None, ...] = ()


@record
class CostRow:
    """The sums of a group, with its name for each member of `CostQuery.by`: None if its bills have none."""

    names: tuple[str | None, ...]
    sums: CostSums


@record
class CostReport:
    """Sums of bills by group, from one snapshot of the storage."""

    rows: tuple[CostRow, ...]
    missing: int = 0
    """Bills of an older version that are in no sums yet; at most `MAX_UNCOUNTED_BILLS`."""
    by: tuple[str, ...] = ()

    @property
    def total(self) -> CostSums:
        """All groups together."""
        return sum((row.sums for row in self.rows), CostSums())

    def at_most(self, limit: int) -> tuple[tuple[CostRow, ...], CostSums, int]:
        """Returns at most `limit` groups (the latest if grouped by time, else the most expensive), the sums of the
        other groups, and their number."""
        kept, others = self.rows[:limit], self.rows[limit:]
        if not TIME_GROUPS.isdisjoint(self.by):
            kept, others = self.rows[-limit:], self.rows[:-limit]
        return kept, sum((row.sums for row in others), CostSums()), len(others)


MAX_UNCOUNTED_BILLS = 10_000
"""Bills that are not in the sums yet are counted up to this number."""


EconomyMode = Literal["auto", "observe", "off"]
OFF, OBSERVE, AUTO = "off", "observe", "auto"
PassKind = Literal["cold", "paid"]
COLD: PassKind = "cold"
"""A pass that is free, as the provider's prompt cache has surely expired."""
PAID: PassKind = "paid"
"""A pass that the branch's savings pay for."""
DIGEST_BYTES_EACH = 2
"""Bytes of the digest of a message and all before it."""


@record
class SentPrompt:
    """What a request forwarded, as digests.

    Attributes:
        route: the deployment's route.
        tools, system: digests, in hex.
        first: the number of messages before those that have a digest of their own.
        messages: for each of the latest messages, `DIGEST_BYTES_EACH` bytes: the digest of it and all before it.
        at: when, in seconds since 1970; `lifetime`: seconds that the provider caches it unused.
        kept: tokens of it that are in the provider's cache.
    """

    route: str
    tools: str
    system: str
    first: int
    messages: bytes
    at: int = 0
    lifetime: int = 0
    kept: int = 0

    def as_list(self) -> list[Any]:
        """Returns the list that is stored for this prompt."""
        digests = b64encode(self.messages).decode()
        return [self.route, self.tools, self.system, self.first, digests, self.at, self.lifetime, self.kept]

    @classmethod
    def of_list(cls, stored: Sequence[Any]) -> Self:
        """Parses a stored list. Raises ValueError, TypeError: the list is not a valid prompt."""
        route, tools, system, first, digests, at, lifetime, kept = stored
        sent = b64decode(digests, validate=True)
        return cls(str(route), str(tools), str(system), int(first), sent, int(at), int(lifetime), int(kept))

    @property
    def count(self) -> int:
        """Messages that were forwarded."""
        return self.first + len(self.messages) // DIGEST_BYTES_EACH

    def digest_after(self, count: int) -> bytes | None:
        """Returns the digest of the first `count` messages; None if it is not stored."""
        at = (count - 1 - self.first) * DIGEST_BYTES_EACH
        return self.messages[at : at + DIGEST_BYTES_EACH] if 0 <= at < len(self.messages) else None


@record
class ResultMarks:
    """Tool results of one request, as concatenated digests of their texts and of their calls, `SIZE` bytes each.
    `age`: the number of answers since."""

    age: int
    digests: bytes
    SIZE: ClassVar = 6

    @classmethod
    def together(cls, found: Iterable[Self]) -> frozenset[bytes]:
        """Collects the digests of all marks."""
        return frozenset(
            each.digests[at : at + cls.SIZE] for each in found for at in range(0, len(each.digests), cls.SIZE)
        )

    @classmethod
    def grown(cls, before: Iterable[Self], new: Sequence[bytes], within: int) -> tuple[Self, ...]:
        """Returns the marks after one more answer: those of the last `within` answers, and the new ones."""
        older = (cls(each.age + 1, each.digests) for each in before if each.age < within)
        return (*older, *([cls(0, b"".join(new))] if new else ()))


class OtherPrompt(NamedTuple):
    """The latest prompt of a model that a branch has left for another. `until`: when its provider has forgotten it at
    the latest, in seconds since 1970; the rest as in `BranchCosts`."""

    model: str
    prompt_tokens: int
    left_tokens: int
    until: int


@record
class BranchCosts:
    """Running sums up to an answer, in USD, stored with it, so that no request walks its history for them.

    Attributes:
        model: the model that answered, by the name that the client requested.
        prompt_tokens: of its request, as the client sent it.
        left_tokens: how many of these were not forwarded.
        direct: what the client's own requests would have cost.
        billed: what was billed.
        clearable: tokens that a pass would have cleared, if none was made (`observe`).
        sent: what its latest request forwarded, if the provider reports what it reads from its cache.
        cut: tool results that recently left the window or became labels; `bounced`: those that were read again.
        others: the latest prompts of other models, the latest model first.
    """

    model: str
    prompt_tokens: int
    left_tokens: int
    direct: Decimal
    billed: Decimal
    clearable: int = 0
    sent: SentPrompt | None = None
    cut: tuple[ResultMarks, ...] = ()
    bounced: tuple[ResultMarks, ...] = ()
    others: tuple[OtherPrompt, ...] = ()

    def as_text(self) -> str:
        """Serializes the sums for storage; money is in whole picodollars."""
        money = [int(self.direct / PICO), int(self.billed / PICO)]
        more: list[Any] = [self.sent.as_list()] if self.sent is not None else []
        if self.cut or self.bounced or self.others:
            marks = (
                [[each.age, b64encode(each.digests).decode()] for each in found] for found in (self.cut, self.bounced)
            )
            more = [*(more or [None]), *marks, *([[*map(list, self.others)]] if self.others else ())]
        return jsons.dumps_text([self.model, self.prompt_tokens, self.left_tokens, *money, self.clearable, *more])

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """Parses stored sums; None if another version wrote them in another form."""
        try:
            model, prompt, left, direct, billed, clearable, *more = jsons.loads(text)
            money = int(direct) * PICO, int(billed) * PICO
            known = SentPrompt.of_list(more[0]) if more and more[0] is not None else None
            cut, bounced = (
                tuple(ResultMarks(int(age), b64decode(digests, validate=True)) for age, digests in found)
                for found in (more[1:3] if len(more) > 2 else ((), ()))
            )
            others = tuple(OtherPrompt(str(name), *map(int, given)) for name, *given in (more[3] if more[3:] else ()))
            return cls(str(model), int(prompt), int(left), *money, int(clearable), known, cut, bounced, others)
        except (ValueError, TypeError):
            return None


@record
class EconomyNote:
    """What economy did for one request.

    Attributes:
        mode: that of the request, `auto` or `observe`.
        is_cold: the provider's cache of its prefix had surely expired.
        passed: which pass was made; None: none.
        cleared: tokens that it removed from the prompt.
        shaped: tokens by which shaping shortened new results (guarantee §4 I8).
        clearable: with `observe`, tokens that passes would have removed until now.
    """

    mode: str
    is_cold: bool = False
    passed: PassKind | None = None
    cleared: int = 0
    clearable: int = 0
    shaped: int = 0
