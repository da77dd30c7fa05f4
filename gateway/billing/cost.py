"""What a call cost, by LiteLLM's price names, in exact decimals (guarantee §6); sums over bills as CSV and JSON; what
leaving tokens out saves at most, as a plan promises it, and as a bill realises it (guarantee §5, ADR 16)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

from gateway.core import printing
from gateway.core.types import bill, report_lists, turn
from gateway.core.types.content_parts import dicts_of

Kinds = Iterable[tuple[str, int, tuple[str, ...]]]
"""Kinds of tokens: name, count, and the names of their prices, of which the first that is known counts."""
ZERO = Decimal(0)
NO_PLANNING = bill.ContextPlanningCost()
EXACT_MONEY = Context(prec=80, rounding=ROUND_HALF_EVEN)
"""Precision for every digit of a price times a count of tokens, so that only `rounded` rounds."""
TIER = re.compile(r"_above_(\d+)k_tokens")
SERVICE_TIERS = ("priority", "flex", "batches", "balanced", "ultrafast")
CHEAPER_INPUT = ("cache_read_input_token_cost",)
"""The cheaper price that input may have in place of the usual one."""
DEARER_INPUT = ("cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr")
"""The dearer prices that input may have in place of the usual one."""
PRICED_UNITS = (
    ("seconds", ("input_cost_per_second", "output_cost_per_second")),
    ("characters", ("input_cost_per_character",)),
    ("images", ("output_cost_per_image", "input_cost_per_image")),
    ("pixels", ("output_cost_per_pixel", "input_cost_per_pixel")),
    ("usd", (bill.PER_USD,)),
)
"""Units by which a call of another API than chat completions may be charged in place of tokens, with their prices."""
DEARER_OUTPUT = ("output_cost_per_reasoning_token",)
"""The dearer price that output may have in place of the usual one."""


class TokenRates:
    """The price of each kind of token for one call: in the highest context tier that its prompt exceeds, and in its
    service tier, where this kind has a price for them."""

    def __init__(self, prices: Mapping[str, Decimal], prompt_tokens: int, service_tier: str | None) -> None:
        self._prices = prices
        self._suffixes = [""]
        tiers = {int(tier) for tier in TIER.findall(" ".join(prices))}
        if tiers or service_tier in SERVICE_TIERS:
            passed = sorted((tier for tier in tiers if prompt_tokens > tier * 1000), reverse=True)
            above = (*(f"_above_{tier}k_tokens" for tier in passed), "")
            services = (f"_{service_tier}", "") if service_tier in SERVICE_TIERS else ("",)
            self._suffixes = [context + service for context in above for service in services]
        self.used: dict[str, str] = {}
        self.lines: list[bill.PriceLine] | None = None

    def find(self, *names: str) -> Decimal | None:
        """Returns the first of these prices that the model has, in its most specific form; None where it has none."""
        for name in names:
            for suffix in self._suffixes:
                price = self._prices.get(name + suffix)
                if price is not None:
                    self.used[name] = str(price)
                    return price
        return None


def price_call(
    purpose: str,
    model: str,
    usage: Mapping[str, Any],
    prices: Mapping[str, Decimal],
    *,
    estimated: bool = False,
    lines: list[bill.PriceLine] | None = None,
) -> bill.CallCost:
    """Prices one call by its usage (OpenAI's names; cached and cache-write tokens are part of the prompt's).

    Prompt and completion cost are each rounded to 12 decimals, half-even. A model without prices for both sides costs
    None, never 0; a configured price of 0 is a price. Searches that the provider ran count with the completion. Where
    the gateway notes `units` in the usage and the model has a price for one of them (`PRICED_UNITS`), the call is
    charged by that unit.
    `lines`: receives each product that is added up, for callers that show the sum."""
    prompt, completion = bill.figure(usage, "prompt_tokens"), bill.figure(usage, "completion_tokens")
    rates = TokenRates(prices, prompt, usage.get("service_tier"))
    recorded = dict(usage)
    if "units" in usage and (whole := _cost_of_units(rates, usage["units"])) is not None:
        return bill.CallCost(purpose, model, recorded, rounded(whole), rounded(ZERO), estimated, rates.used)
    input_rate = rates.find("input_cost_per_token")
    output_rate = rates.find("output_cost_per_token", "output_cost_per_image_token")
    if input_rate is None or output_rate is None:
        return bill.CallCost(purpose, model, recorded, None, None, estimated)
    details = usage.get("prompt_tokens_details") or {}
    rates.lines = lines
    prompt_cost = _prompt_cost(rates, input_rate, prompt, details, usage)
    about = usage.get("completion_tokens_details") or {}
    if about:
        completion += _reasoning_apart(usage, about, prompt + completion)
    completion_cost = _completion_cost(rates, output_rate, completion, about)
    searches = bill.figure(usage.get("server_tool_use"), "web_search_requests")
    if searches and (price := rates.find(bill.PER_SEARCH)) is not None:
        completion_cost = EXACT_MONEY.add(completion_cost, _product(rates, "searches", searches, price))
    return bill.CallCost(
        purpose, model, recorded, rounded(prompt_cost), rounded(completion_cost), estimated, rates.used
    )


def price_internal(call: bill.InternalCall) -> bill.CallCost:
    """Prices a call of an internal model."""
    return price_call(call.purpose, call.route, call.usage, internal_prices(call), estimated=call.estimated)


def internal_prices(call: bill.InternalCall) -> Mapping[str, Decimal]:
    """Returns the prices of an internal model. An embedder has no output: its input price is all of its price."""
    is_whole = call.purpose == "embedder" and "input_cost_per_token" in call.prices
    return {"output_cost_per_token": ZERO, **call.prices} if is_whole else call.prices


def planning_usage(calls: Sequence[bill.CallCost]) -> bill.ContextPlanningUsage:
    """Sums tokens and calls of the internal models among these calls, by purpose."""
    found: dict[str, dict[str, int]] = {}
    for call in calls:
        if call.purpose not in bill.MODEL_PURPOSES:
            sums = found.setdefault(call.purpose, {"prompt_tokens": 0, "completion_tokens": 0, "calls": 0})
            usage = bill.usage_of(call.usage)
            sums["prompt_tokens"] += usage.prompt_tokens
            sums["completion_tokens"] += usage.completion_tokens
            sums["calls"] += 1
    return bill.ContextPlanningUsage(**found)


def _prompt_cost(rates: TokenRates, rate: Decimal, prompt: int, details: Any, usage: Mapping[str, Any]) -> Decimal:
    cached, written = bill.cache_tokens(usage)
    if not (cached or written or details):
        return EXACT_MONEY.add(ZERO, _product(rates, "input", prompt, rate))
    hour = min(written, bill.written_for_an_hour(usage)) if written else 0
    of_cached = details.get("cached_tokens_details") if isinstance(details, dict) else None
    pictures = min(cached, bill.figure(of_cached, "image_tokens")) if cached else 0
    sounds = min(cached - pictures, bill.figure(of_cached, "audio_tokens")) if cached else 0
    kinds: Kinds = (
        ("cached_image_input", pictures, ("cache_read_input_image_token_cost", "cache_read_input_token_cost")),
        ("cached_audio_input", sounds, ("cache_read_input_audio_token_cost", "cache_read_input_token_cost")),
        ("cached_input", cached - pictures - sounds, ("cache_read_input_token_cost",)),
        ("cache_write", written - hour, ("cache_creation_input_token_cost",)),
        ("cache_write_1h", hour, ("cache_creation_input_token_cost_above_1hr", "cache_creation_input_token_cost")),
        ("audio_input", bill.figure(details, "audio_tokens") - sounds, ("input_cost_per_audio_token",)),
        ("image_input", bill.figure(details, "image_tokens") - pictures, ("input_cost_per_image_token",)),
    )
    return _cost_by_kind(rates, ("input", rate), prompt, kinds)


def _completion_cost(rates: TokenRates, rate: Decimal, completion: int, details: Any) -> Decimal:
    if not details:
        return EXACT_MONEY.add(ZERO, _product(rates, "output", completion, rate))
    kinds: Kinds = (
        ("reasoning", bill.figure(details, "reasoning_tokens"), ("output_cost_per_reasoning_token",)),
        ("audio_output", bill.figure(details, "audio_tokens"), ("output_cost_per_audio_token",)),
        ("image_output", bill.figure(details, "image_tokens"), ("output_cost_per_image_token",)),
    )
    return _cost_by_kind(rates, ("output", rate), completion, kinds)


def _cost_by_kind(rates: TokenRates, others: tuple[str, Decimal], tokens: int, kinds: Kinds) -> Decimal:
    """Returns the cost of all tokens, not rounded: each kind at its own price if it has one, the rest at `others`."""
    cost = ZERO
    for kind, count, names in kinds:
        taken = min(count, tokens)
        price = rates.find(*names) if taken > 0 else None
        if price is not None:
            cost = EXACT_MONEY.add(cost, _product(rates, kind, taken, price))
            tokens -= taken
    return EXACT_MONEY.add(cost, _product(rates, others[0], tokens, others[1]))


def _product(rates: TokenRates, kind: str, tokens: int | Decimal, rate: Decimal) -> Decimal:
    cost = EXACT_MONEY.multiply(rate, tokens)
    if rates.lines is not None:
        rates.lines.append(bill.PriceLine(kind, tokens, rate, cost))
    return cost


def _cost_of_units(rates: TokenRates, units: Any) -> Decimal | None:
    """Returns the cost by the first unit that has a count and a price, not rounded; None if there is none."""
    for name, names in PRICED_UNITS:
        count = units.get(name) if isinstance(units, dict) else None
        if is_amount(count) and (price := rates.find(*names)) is not None:
            return _product(rates, name, Decimal(str(count)), price)
    return None


def _reasoning_apart(usage: Mapping[str, Any], details: Any, sum_of_both: int) -> int:
    """Returns the reasoning tokens beside the completion's, as xAI and Gemini report them: only the total has them."""
    reasoning = bill.figure(details, "reasoning_tokens")
    return reasoning if reasoning and bill.figure(usage, "total_tokens") == sum_of_both + reasoning else 0


def primary_usage(calls: Iterable[bill.CallCost]) -> dict[str, Any]:
    """Merges the usage of all calls of the primary model for one request: counts are added up, of all other fields the
    last value wins. {} without such a call."""
    return usage_together([call.usage for call in calls if call.purpose == "primary"])


def usage_together(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges usages into one; returns a single one unchanged."""
    if len(usages) <= 1:
        return usages[0] if usages else {}
    known = [bill.usage_of(usage) for usage in usages]
    return {
        **_added(usages),
        **{of.name: sum(getattr(each, of.name) for each in known) for of in fields(bill.UsageMetadata)},
    }


def _added(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in objects for name in each):
        values = [each[name] for each in objects if each.get(name) is not None]
        if values and all(isinstance(value, dict) for value in values):
            found[name] = _added(values)
        elif values and all(is_amount(value) for value in values):
            found[name] = sum(values)
        else:
            found[name] = values[-1] if values else None
    return found


def total_cost(calls: Sequence[bill.CallCost]) -> tuple[bill.CostMetadata, bill.ContextPlanningCost]:
    """Sums the cost of all calls; totals equal their parts exactly. A call without a known price makes every sum that
    it belongs to null, never 0 (guarantee §6); the other sums stay known."""
    if len(calls) == 1 and calls[0].purpose == "primary":
        return _cost_of(calls[0]), NO_PLANNING
    primary = [call for call in calls if call.purpose in bill.MODEL_PURPOSES]
    totals = {
        purpose: all_of(call.total for call in calls if call.purpose == purpose)
        for purpose in ("planner", "summarizer", "embedder", "guard")
    }
    planned = all_of(totals.values())
    made = {call.purpose for call in calls}
    embedded, guarded = (totals[purpose] if purpose in made else None for purpose in ("embedder", "guard"))
    planning = bill.ContextPlanningCost(totals["planner"], totals["summarizer"], planned, embedded, guarded)
    estimated = any(call.estimated for call in calls)
    prompt = all_of(call.prompt_cost for call in primary)
    completion = all_of(call.completion_cost for call in primary)
    if prompt is None or completion is None:  # a model has both prices, or its calls have no known cost
        return bill.CostMetadata(planning_cost=planned, estimated=estimated), planning
    if planned is None:
        whole = not primary
        return bill.CostMetadata(
            None if whole else prompt, None if whole else completion, None, estimated=estimated
        ), planning
    return bill.CostMetadata(
        prompt, completion, planned, prompt + completion + planned, "USD", True, estimated
    ), planning


def _cost_of(call: bill.CallCost) -> bill.CostMetadata:
    """Returns the cost of a request that made this one call, as most requests do."""
    if call.prompt_cost is None or call.completion_cost is None:
        return bill.CostMetadata(estimated=call.estimated)
    total = call.prompt_cost + call.completion_cost
    return bill.CostMetadata(call.prompt_cost, call.completion_cost, ZERO, total, "USD", True, call.estimated)


def all_of(values: Iterable[Decimal | None]) -> Decimal | None:
    """Returns the sum; None if one of the values is not known."""
    total = ZERO
    for value in values:
        if value is None:
            return None
        total += value
    return total


def rounded(value: Decimal) -> Decimal:
    """Rounds to 12 decimals, half-even (guarantee §6)."""
    return value.quantize(bill.PICO, context=EXACT_MONEY)


def is_amount(value: Any) -> bool:
    """Returns whether a value can count seconds or other units: a number from 0 to `bill.MAX_TOKENS`."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and 0 <= value <= bill.MAX_TOKENS


def dearer_kinds(
    prices: Mapping[str, Decimal], body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Returns the names of the model's prices for tokens other than text that a request may have: of sound if it asks
    for it or holds some, of pictures unless its `modalities` decline them."""
    asked = body.get("modalities")
    found: list[str] = []
    if "output_cost_per_audio_token" in prices and isinstance(asked, list) and "audio" in asked:
        found.append("output_cost_per_audio_token")
    if "output_cost_per_image_token" in prices and not (isinstance(asked, list) and "image" not in asked):
        found.append("output_cost_per_image_token")
    if "input_cost_per_audio_token" in prices and any(map(_is_heard, messages)):
        found.append("input_cost_per_audio_token")
    return tuple(found)


def _is_heard(message: Mapping[str, Any]) -> bool:
    parts = dicts_of(message.get("content"))
    return bool(message.get("audio")) or any(part.get("type") == "input_audio" for part in parts)


def estimated_cost(
    prices: Mapping[str, Decimal],
    prompt_tokens: int,
    most_tokens: int | None,
    service_tier: str | None = None,
    kinds: Iterable[str] = (),
) -> dict[str, Decimal | None]:
    """Estimates the least and the most that a call will cost in USD (guarantee §5, `dry_run`); None where a price, or
    the longest answer, is not known.

    The least: no output, and the whole prompt read from the provider's cache. The most: the whole prompt written to the
    cache, and the longest answer, reasoning included. A provider may serve a request in another tier than requested, so
    both tiers count.
    `most_tokens`: of all choices together; `service_tier`: the one that the request asks for; `kinds`: names of further
    prices that its tokens may have, by `dearer_kinds`."""
    inputs = (*DEARER_INPUT, *(name for name in kinds if name.startswith("input_")))
    outputs = (*DEARER_OUTPUT, *(name for name in kinds if name.startswith("output_")))
    least: list[Decimal] = []
    most: list[Decimal] = []
    for tier in dict.fromkeys((None, service_tier)):
        rates = TokenRates(prices, prompt_tokens, tier)
        read, written = rates.find("input_cost_per_token"), rates.find("output_cost_per_token")
        if read is None or written is None:
            return {"min": None, "max": None}
        least.append(_of(prompt_tokens, min([read, *_known(rates, CHEAPER_INPUT)])))
        answer = _of(most_tokens or 0, max([written, *_known(rates, outputs)]))
        most.append(_of(prompt_tokens, max([read, *_known(rates, inputs)])) + answer)
    return {"min": min(least), "max": max(most) if most_tokens is not None else None}


def _known(rates: TokenRates, names: tuple[str, ...]) -> list[Decimal]:
    return [price for name in names if (price := rates.find(name)) is not None]


def _of(tokens: int, price: Decimal) -> Decimal:
    return rounded(EXACT_MONEY.multiply(price, tokens))


def ledger_figures(
    metadata: Mapping[str, Any], calls: Sequence[bill.CallCost], *, is_metered: bool = True
) -> turn.LedgerFigures:
    """Computes the ledger's figures of a bill.
    `metadata`: its `response_metadata`, with numbers as they are written; `is_metered`: false where nobody knows what
    the client's own request would have cost, and the bill does not say."""
    cached, written = 0, 0
    known: Decimal | None = None
    planning, unpriced = ZERO, 0
    for call in calls:
        total = call.total
        if total is not None:
            known = total if known is None else known + total
        if call.purpose == "primary":
            read, wrote = bill.cache_tokens(call.usage)
            cached, written = cached + read, written + wrote
        elif call.purpose in bill.MODEL_PURPOSES:
            continue
        elif total is None:
            unpriced += 1
        else:
            planning += total
    direct, held_out = _direct(metadata, planning)
    total = metadata.get("cost", {}).get("total_cost")
    net = direct - total if is_metered and direct is not None and is_number(total) else None
    direct = direct if net is not None else None
    return turn.LedgerFigures(
        cached, written, known, planning, unpriced, _saved(metadata), direct, net, held_out, *_bounced(metadata)
    )


def with_figures(entry: turn.LedgerEntry) -> turn.LedgerEntry:
    """Adds the figures to a stored bill, also to one that an older version wrote without them."""

    return replace(entry, figures=ledger_figures(entry.metadata, entry.calls))


def meter_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the `economics` of a bill: what the client's own request would have cost; {} where it has none."""
    found = metadata.get("economics")
    return found if isinstance(found, dict) else {}


def _direct(metadata: Mapping[str, Any], planning: Decimal) -> tuple[Decimal | None, bool | None]:
    """Returns what the client's own request would have cost, None where that is not known; and whether its conversation
    goes direct. A request from which nothing was left out costs the same, less its internal models."""
    economics = meter_of(metadata)
    if economics:
        return usd_of(economics.get("direct_cost")), economics.get("holdout")
    used, total = metadata.get("context_utilization"), metadata.get("cost", {}).get("total_cost")
    is_own = not (isinstance(used, dict) and "economics" in used)
    return total - planning if is_own and is_number(total) else None, None


def _bounced(metadata: Mapping[str, Any]) -> tuple[int, Decimal]:
    """Returns tokens and USD of results that were read again soon after they had been cut."""
    found = meter_of(metadata).get("bounced")
    return (bill.figure(found, "tokens"), usd_of(found.get("cost")) or ZERO) if isinstance(found, dict) else (0, ZERO)


def usd_of(text: Any) -> Decimal | None:
    """Parses USD as `economics` writes them; None where the text is no number."""
    try:
        return Decimal(text) if isinstance(text, str) else None
    except InvalidOperation:
        return None


def is_number(value: Any) -> bool:
    """Returns whether a value is an amount of money as bills hold it."""
    return isinstance(value, Decimal | int) and not isinstance(value, bool)


def _saved(metadata: Mapping[str, Any]) -> Decimal:
    used = metadata.get("context_utilization")
    economics = used.get("economics") if isinstance(used, dict) else None
    saved = economics.get("realised_saving") if isinstance(economics, dict) else None
    return Decimal(saved) if saved is not None and is_number(saved) else ZERO


CURRENCY = "USD"
COST_FIGURES = (
    *("requests", "partial", "failed", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"),
    *("cost", "planning_cost", "net_saving", "direct_cost", "unmetered", "saved"),
    *("unpriced", "planning_unpriced", "estimated", "at_least", "currency"),
)
"""Names of the figures of each group. `cost` includes `planning_cost`; `net_saving`: `direct_cost`, which clients would
have paid without a gateway, less what was billed, of all requests but the `unmetered`; `saved`: by what was left out
alone, not less what that cost; `at_least`: a call in it has no known price."""


def figures_of(sums: bill.CostSums) -> dict[str, Any]:
    """Returns the sums by the names of `COST_FIGURES`; a cost of which nothing is known is None."""
    told = {
        "cost": sums.known_cost,
        "planning_cost": sums.known_planning,
        "net_saving": sums.net_saving,
        "direct_cost": sums.direct,
        "saved": sums.saved,
        "at_least": bool(sums.unpriced or sums.planning_unpriced),
        "currency": CURRENCY,
    }
    return {name: told[name] if name in told else getattr(sums, name) for name in COST_FIGURES}


def shown_name(group: str, name: str | None) -> str | None:
    """Returns the name that a row of sums has in reports: rows of chats name no endpoint in the ledger."""
    return report_lists.CHAT_ENDPOINT if name is None and group == "endpoint" else name


def as_csv(
    tables: Mapping[tuple[str, ...], Sequence[bill.CostRow]],
    names: Sequence[str] = COST_FIGURES,
    figures: Callable[[bill.CostSums], dict[str, Any]] = figures_of,
) -> Iterator[str]:
    """Yields lines of CSV. `by` names the groups that a line distinguishes; each group has a column for its names.
    `names`: of the `figures` of each group."""
    groups = list(dict.fromkeys(group for by in tables for group in by))
    yield printing.csv_line(("by", *groups, *names))
    for by, rows in tables.items():
        for row in rows:
            named = _named(by, row)
            yield printing.csv_line(
                ("+".join(by), *(named.get(group) for group in groups), *figures(row.sums).values())
            )


def as_json(
    by: Sequence[str], rows: Iterable[bill.CostRow], figures: Callable[[bill.CostSums], dict[str, Any]] = figures_of
) -> dict[str, Any]:
    """Returns a table as JSON-ready values: its groups, and for each row its names and figures."""
    listed = [{**_named(by, row), **figures(row.sums)} for row in rows]
    return {"by": list(by), "rows": listed}


def _named(by: Sequence[str], row: bill.CostRow) -> dict[str, str | None]:
    return {group: shown_name(group, name) for group, name in zip(by, row.names, strict=True)}


MIN_REQUESTS, MAX_REQUESTS = 3, 20
"""Bounds of how many requests are expected to forward what is decided now: clients ask about artifacts more than once,
and however long a conversation was, the estimate counts on no more than this."""
MIN_CACHED_PREFIX = 4096
"""Tokens: providers cache no shorter prompt (OpenAI from 1,024, others up to this)."""


def expected_requests(answers: int) -> int:
    """Estimates how many requests will forward what this one decides, itself included: a conversation that has had so
    many answers is expected to get as many again (the estimate that assumes least about its end)."""
    return min(MAX_REQUESTS, max(MIN_REQUESTS, 1 + answers))


def saving_of(prices: Mapping[str, Decimal], tokens: int, requests: int, prompt_tokens: int) -> Decimal | None:
    """Returns what these tokens cost over so many requests: the full input price in the first, the price of cached
    input in the others, as the prefix would have been cached by then. None if the price is unknown.
    `prices`: the primary model's, USD per token by LiteLLM's names; `prompt_tokens`: of the prompt that holds them,
    which decides the context tier."""
    rates = TokenRates(prices, prompt_tokens, None)
    full = rates.find("input_cost_per_token")
    if full is None:
        return None
    return _rounded(EXACT_MONEY.multiply(full + _cached_price(rates, full) * (requests - 1), tokens))


def compare(
    prices: Mapping[str, Decimal],
    *,
    candidate_tokens: int,
    saved_tokens: int,
    invalidated_tokens: int,
    requests: int,
    planning_cost: Decimal | None,
) -> bill.PlanComparison:
    """Compares what a smaller context saves, over the requests that will forward it, with what making it costs.

    Tokens of the frozen prefix that change are paid for in full once more.

    Args:
        prices: the primary model's, USD per token by LiteLLM's names.
        candidate_tokens: the context without the plan, which decides the context tier.
        saved_tokens: how many of these the plan leaves out.
        invalidated_tokens: how many were cached and will not be.
        planning_cost: of planner and summarizer, USD; None if unknown.
    """
    rates = TokenRates(prices, candidate_tokens, None)
    full = rates.find("input_cost_per_token")
    saving = saving_of(prices, saved_tokens, requests, candidate_tokens)
    invalidation = None
    if full is not None:
        invalidation = _rounded(EXACT_MONEY.multiply(full - _cached_price(rates, full), invalidated_tokens))
    return bill.PlanComparison(saved_tokens, requests, saving, planning_cost, invalidated_tokens, invalidation)


def realised(left: bill.LeftOutTokens, usage: Mapping[str, Any], prices: Mapping[str, Decimal]) -> Decimal | None:
    """Returns what one request saved, by the usage that the upstream reported. None if the price is unknown.

    Tokens that this request would have sent for the first time are worth the full input price. The rest is worth the
    price of cached input, where the upstream reports what it read from its cache, and did read where it could.
    """
    rates = TokenRates(prices, int(usage.get("prompt_tokens") or 0) + max(0, left.tokens), None)
    full = rates.find("input_cost_per_token")
    if full is None:
        return None
    fresh = max(0, min(left.fresh, left.tokens))
    again = _cached_price(rates, full) if _reads_cache(usage, left.unchanged) else full
    value = EXACT_MONEY.add(EXACT_MONEY.multiply(full, fresh), EXACT_MONEY.multiply(again, left.tokens - fresh))
    return rounded(value)


def as_realised(
    promised: dict[str, Any] | None,
    left: bill.LeftOutTokens | None,
    usage: Mapping[str, Any],
    prices: Mapping[str, Decimal],
) -> dict[str, Any] | None:
    """Completes a bill's `economics` when its usage is known: what a plan promised, and what this request saved. None
    if it has neither; a call that was not charged saved nothing.
    `promised`: the comparison of a plan, if one was made."""
    if left is None or not usage.get("prompt_tokens"):
        left = replace(left, tokens=0, fresh=0) if left else None
        if promised is None:
            return None
    tokens = left.tokens if left else 0
    saving = realised(left, usage, prices) if left else ZERO
    if promised is None:
        promised = {"saved_tokens": tokens, "saving": saving, "pending": False}
    return {**promised, "realised_tokens": tokens, "realised_saving": saving}


def _reads_cache(usage: Mapping[str, Any], unchanged: int) -> bool:
    """Returns whether the upstream would have read from its cache what an earlier request had sent.

    An upstream that never reports cache reads bills nothing at that price. One that reports no reads of a long prefix
    that it had been sent before has no cache.
    """
    reported = bill.reported_counts(usage, reads=True)
    return bool(reported) and (any(reported) or unchanged < MIN_CACHED_PREFIX)


def _cached_price(rates: TokenRates, full: Decimal) -> Decimal:
    """Returns the price of cached input; a model without one has no cache that would lower a bill."""
    price = rates.find("cache_read_input_token_cost")
    return full if price is None else min(price, full)


def _rounded(value: Decimal) -> Decimal:
    return rounded(max(ZERO, value))
