"""The meter: what a request would have cost without a gateway, beside what it was billed (guarantee §6)."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing import cost, prompt_cache
from gateway.core.frozen_records import record
from gateway.core.types import bill

MIN_HEAD_TOKENS = 1024
"""With a warm cache, most providers read an unchanged head from it if the head is at least this long."""
ZERO = Decimal(0)
NOTHING_SPENT = bill.BranchCosts("", 0, 0, ZERO, ZERO)
MAX_OTHERS = 4
"""Models of a branch, beside the latest, whose latest prompts are known."""


@record
class MeteredRequest:
    """What the meter knows of a request.

    Attributes:
        model: the name that was asked for.
        usage: of the first call of the primary model, as the upstream reported it.
        primary: what the primary model would have cost with the prompt that was sent, without rounds of `recall`;
            `billed`: what the request cost, with these, planner and summarizer included.
        counted: tokens of the prompt as the gateway counts them; its other counts are scaled by what was reported.
        left: what was left out of the prompt.
        rewritten: a pass changed what was forwarded before.
        at: when the request arrived, in seconds since 1970.
        head: tokens of its tools and system messages, as the gateway counts them.
        idle: the conversation was unused for so long that its cache may have expired.
        bounced: tokens of results that were read again soon after they had been cut, by the gateway's count.
        has_new_head: tells whether its tools or system messages differ from the previous request's; asked only where
            little was read.
    """

    model: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    primary: Decimal
    billed: Decimal
    counted: int
    left: bill.LeftOutTokens | None
    rewritten: bool
    at: float = 0.0
    head: int = 0
    idle: bool = False
    bounced: int = 0
    has_new_head: Callable[[], bool] = bool  # False


def metered(
    request: MeteredRequest, note: bill.EconomyNote, before: bill.BranchCosts | None, *, is_reported: bool = True
) -> tuple[dict[str, Any], bill.BranchCosts]:
    """Computes the bill's `economics`, and the branch's sums with this request.

    The direct bill is the primary model's own with what was left out put back, at the rates of its prompt cache: if
    nothing was left out since the branch began, both are equal to the digit.

    `before`: the branch's sums until now, if any; `is_reported`: `economics` is wanted; else it is {}."""
    usage, left, model, rewritten = request.usage, request.left, request.model, request.rewritten
    prompt = bill.figure(usage, "prompt_tokens")
    scale = prompt / request.counted if request.counted else 1.0
    tokens = round(scale * left.tokens) if left is not None else 0
    known = _latest_of(before, model, request.at)
    is_back = known is not before  # another model was asked meanwhile, and may have had a pass
    if left is not None and known is not None and not is_back:  # what was metered before is not estimated again
        if rewritten and left.gained is not None:
            tokens = known.prompt_tokens + round(scale * left.gained) - prompt
        elif not rewritten and left.change is not None and known.left_tokens > 0:
            tokens = known.left_tokens + round(scale * left.change)
    reads = bill.reported_counts(usage, reads=True)
    writes = any(bill.reported_counts(usage, reads=False))
    changes = bool(tokens or rewritten or (known is not None and known.left_tokens))
    charged = partial(_rates, usage, request.prices, reads=bool(reads), writes=writes)
    rates = charged(prompt + tokens) if changes or note.clearable else None
    added = ZERO
    is_cold = note.is_cold or known is None
    cached = known.prompt_tokens - known.left_tokens if known is not None else 0
    stayed = round(scale * left.unchanged) if rewritten and left is not None else cached
    least = MIN_HEAD_TOKENS if rewritten else prompt_cache.MIN_CACHED_TOKENS
    if reads and not is_back and stayed >= least and (request.idle or not rewritten):
        is_cold = _was_cold(request, note, max(reads), min(stayed, cached), round(scale * request.head))
    if changes and rates is not None and prompt:
        whole = 0 if is_cold or known is None else known.prompt_tokens
        sent = 0 if is_cold or known is None else known.prompt_tokens - known.left_tokens
        if before is not None and before.sent is not None and 0 < before.sent.kept < sent and not is_back:
            # Its client has breakpoints only so far: what follows is paid in full each time.
            is_head = before.sent.kept <= round(scale * request.head) + prompt_cache.BLOCK
            whole = before.sent.kept if is_head else whole - (sent - before.sent.kept)
            sent = before.sent.kept
        if rewritten and left is not None:
            sent = min(sent, round(scale * left.unchanged))
        if reads and not is_back and max(reads) < whole / 2 and request.has_new_head():
            whole = max(reads)  # a direct request would not have read more, either
            sent = min(sent, whole)
        if is_back or (rewritten and reads):  # what stayed is read only if a breakpoint is near its end
            sent = min(sent, max(reads, default=0))
        if before is None and any(reads) and left is not None and left.latest and not note.is_cold:
            # A client that changes its messages at each step: all but the latest of them was cached.
            whole, sent = max(0, prompt + tokens - round(scale * left.latest)), max(reads)
        own = charged(prompt) or rates
        added = cost.rounded(cost.EXACT_MONEY.subtract(rates.prompt(prompt + tokens, whole), own.prompt(prompt, sent)))
    direct = max(ZERO, request.primary + added)
    report = _report(request, note, direct, round(scale * request.bounced), charged) if is_reported else {}
    if is_reported and note.mode == bill.OBSERVE:
        report["estimated_saving"] = _usd(_estimated(note, rates, is_cold=is_cold))
    sums = before or NOTHING_SPENT
    return report, bill.BranchCosts(
        model,
        prompt + tokens,
        tokens,
        sums.direct + direct,
        sums.billed + request.billed,
        note.clearable,
        cut=sums.cut,
        bounced=sums.bounced,
        others=_others(sums, model),
    )


def _was_cold(request: MeteredRequest, note: bill.EconomyNote, read: int, promised: int, head: int) -> bool:
    """Returns whether a conversation's prompt had left its provider's cache, as far as what was read shows. With its
    tools and system messages (`head` tokens) other conversations begin, too, and keep these in the cache.
    `promised`: tokens that are read if the cache still holds them."""
    if not read:
        return True
    is_own, is_short = read > head + prompt_cache.BLOCK, prompt_cache.fell_short(promised, read)
    if note.is_cold:
        return is_short or not is_own
    return request.idle and is_short and not (is_own or request.rewritten)


def _report(
    request: MeteredRequest,
    note: bill.EconomyNote,
    direct: Decimal,
    again: int,
    charged: Callable[[int], prompt_cache.CacheRates | None],
) -> dict[str, Any]:
    """`again`: tokens that bounced; `charged`: finds the rates of a prompt by its tokens."""
    report: dict[str, Any] = {
        "mode": note.mode,
        "direct_cost": _usd(direct),
        "billed_cost": _usd(request.billed),
        "net_saving": _usd(direct - request.billed),
    }
    if note.passed is not None:
        report |= {"pass": note.passed, "cleared_tokens": note.cleared}
    if again:
        paid = charged(bill.figure(request.usage, "prompt_tokens"))
        added = None if paid is None else _usd(cost.rounded(cost.EXACT_MONEY.multiply(paid.write, again)))
        report["bounced"] = {"tokens": again, "cost": added}
    return report


def _latest_of(before: bill.BranchCosts | None, model: str, at: float) -> bill.BranchCosts | bill.OtherPrompt | None:
    """Returns the latest prompt of a model in a branch; None if its provider has forgotten it, or never had one."""
    if before is None or before.model == model:
        return before
    return next((each for each in before.others if each.model == model and each.until >= at), None)


def _others(before: bill.BranchCosts, model: str) -> tuple[bill.OtherPrompt, ...]:
    """Returns the latest prompts of the models other than this one, which has just been asked."""
    latest, sent = [], before.sent
    if sent is not None:
        until = sent.at + sent.lifetime
        latest.append(bill.OtherPrompt(before.model, before.prompt_tokens, before.left_tokens, until))
    return tuple(each for each in (*latest, *before.others) if each.model != model)[:MAX_OTHERS]


def _rates(
    usage: Mapping[str, Any], prices: Mapping[str, Decimal], prompt_tokens: int, *, reads: bool, writes: bool
) -> prompt_cache.CacheRates | None:
    """Returns the rates that the upstream charges, as far as its usage shows: if it names no cached tokens (`reads`),
    it charges the usual price for all; if it names no cache writes (`writes`), it charges the usual price for them.
    None if no price is known."""
    tier = usage.get("service_tier")
    full = cost.TokenRates(prices, prompt_tokens, tier).find("input_cost_per_token")
    if full is None:
        return None
    found = prompt_cache.cache_rates(
        prices, prompt_tokens, for_an_hour=bool(bill.written_for_an_hour(usage)), service_tier=tier
    )
    if found is None or not reads:
        return prompt_cache.CacheRates(full, full)
    return found if writes else prompt_cache.CacheRates(found.read, full)


def _estimated(note: bill.EconomyNote, rates: prompt_cache.CacheRates | None, *, is_cold: bool) -> Decimal:
    if rates is None:
        return ZERO
    return cost.rounded(cost.EXACT_MONEY.multiply(rates.write if is_cold else rates.read, note.clearable))


def _usd(value: Decimal) -> str:
    """Formats USD without trailing zeros: a bill may occur twice in a stream."""
    return f"{value.normalize(cost.EXACT_MONEY):f}"
