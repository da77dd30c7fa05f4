"""The meter: what a request would have cost without a gateway, beside what it was billed (guarantee §6)."""

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing.cost import EXACT_MONEY, TokenRates, rounded
from gateway.billing.economy.rates import CacheRates, cache_rates
from gateway.core.types import bill

MIN_CACHED_TOKENS = 4096
"""Providers cache no shorter prompt (OpenAI from 1,024, others up to this)."""
MIN_HEAD_TOKENS = 1024
"""A head that stays is read at the least where it is longer and the cache is warm, as far as most providers go."""
ZERO = Decimal(0)
NOTHING_SPENT = bill.BranchCosts("", 0, 0, ZERO, ZERO)


def metered(
    note: bill.EconomyNote,
    before: bill.BranchCosts | None,
    *,
    model: str,
    usage: Mapping[str, Any],
    prices: Mapping[str, Decimal],
    primary: Decimal,
    billed: Decimal,
    counted: int,
    left: bill.LeftOutTokens | None,
    rewritten: bool,
    idle: bool = False,
    is_told: bool = True,
    bounced: int = 0,
) -> tuple[dict[str, Any], bill.BranchCosts]:
    """The bill's `economics`, and the branch's sums with this request.

    The direct bill is the primary model's own with what was left out put back, by the rates of its prompt cache: where
    nothing was left out since the branch began, both are equal to the digit.

    Args:
        before: the branch's sums until now, where there are any.
        model: the name that was asked for.
        usage: of the first call of the primary model, as the upstream reported it.
        primary: what the primary model would have cost with the prompt that was sent, without rounds of `recall`;
            `billed`: what the request cost, with these, planner and summarizer included.
        counted: tokens of the prompt as the gateway counts them; its other counts are scaled by what was reported.
        left: what was left out of the prompt.
        rewritten: a pass changed what was forwarded before.
        idle: nobody used the conversation for so long that its cache may have expired.
        is_told: `economics` is wanted beside the sums; else it is {}.
        bounced: tokens of results that were read again soon after they had been cut, by the gateway's count.
    """
    prompt = bill.figure(usage, "prompt_tokens")
    scale = prompt / counted if counted else 1.0
    tokens = round(scale * left.tokens) if left is not None else 0
    known = before if before is not None and before.model == model else None
    reads, writes = bill.told(usage, bill.CACHE_READ_NAMES), bool(bill.told(usage, bill.CACHE_WRITE_NAMES))
    changes = bool(tokens or rewritten or (known is not None and known.left_tokens))
    charged = partial(_rates, usage, prices, reads=bool(reads), writes=writes)
    rates = charged(prompt + tokens) if changes or note.clearable else None
    added = ZERO
    is_cold = note.is_cold or known is None
    if known is not None and not rewritten and reads and known.prompt_tokens - known.left_tokens >= MIN_CACHED_TOKENS:
        is_cold = not any(reads)  # the upstream knows better
    if idle and rewritten and reads and left is not None and scale * left.unchanged >= MIN_HEAD_TOKENS:
        is_cold = not any(reads)
    if changes and rates is not None and prompt:
        whole = 0 if is_cold or known is None else known.prompt_tokens
        sent = 0 if is_cold or known is None else known.prompt_tokens - known.left_tokens
        if rewritten and left is not None:
            sent = min(sent, round(scale * left.unchanged))
        own = charged(prompt) or rates
        added = rounded(EXACT_MONEY.subtract(rates.prompt(prompt + tokens, whole), own.prompt(prompt, sent)))
    direct = max(ZERO, primary + added)
    told_of: dict[str, Any] = {}
    if is_told:
        told_of |= {
            "mode": note.mode,
            "direct_cost": _usd(direct),
            "billed_cost": _usd(billed),
            "net_saving": _usd(direct - billed),
        }
        if note.passed is not None:
            told_of |= {"pass": note.passed, "cleared_tokens": note.cleared}
        if again := round(scale * bounced):
            paid = charged(prompt)
            cost = None if paid is None else _usd(rounded(EXACT_MONEY.multiply(paid.write, again)))
            told_of["bounced"] = {"tokens": again, "cost": cost}
        if note.mode == bill.OBSERVE:
            told_of["estimated_saving"] = _usd(_estimated(note, rates, is_cold=is_cold))
    sums = before or NOTHING_SPENT
    return told_of, bill.BranchCosts(
        model,
        prompt + tokens,
        tokens,
        sums.direct + direct,
        sums.billed + billed,
        note.clearable,
        cut=sums.cut,
        bounced=sums.bounced,
    )


def _rates(
    usage: Mapping[str, Any], prices: Mapping[str, Decimal], prompt_tokens: int, *, reads: bool, writes: bool
) -> CacheRates | None:
    """The rates by which the upstream charges, as far as it tells: one that names no cached tokens (`reads`) charges
    the usual price for all, and one that names none that it took in (`writes`) charges that for them. None if no price
    is known."""
    tier = usage.get("service_tier")
    full = TokenRates(prices, prompt_tokens, tier).find("input_cost_per_token")
    if full is None:
        return None
    found = cache_rates(prices, prompt_tokens, for_an_hour=bool(bill.written_for_an_hour(usage)), service_tier=tier)
    if found is None or not reads:
        return CacheRates(full, full)
    return found if writes else CacheRates(found.read, full)


def _estimated(note: bill.EconomyNote, rates: CacheRates | None, *, is_cold: bool) -> Decimal:
    if rates is None:
        return ZERO
    return rounded(EXACT_MONEY.multiply(rates.write if is_cold else rates.read, note.clearable))


def _usd(value: Decimal) -> str:
    """USD without zeros at the end: a bill may stand twice in a stream."""
    return f"{value.normalize(EXACT_MONEY):f}"
