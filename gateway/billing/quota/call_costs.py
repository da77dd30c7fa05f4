"""What a call may cost at most before it is made, and what it did cost, as budgets count it (guarantee §12.3)."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing.cost import estimated_cost
from gateway.core.bounded_cache import BoundedCache
from gateway.core.types import keys, turn, upstreams
from gateway.core.types.keys import HeldAdmission

Dearest = tuple[Decimal | int, Decimal | int]
TIERS = "_above_"
"""Stands in the names of prices that hold for long prompts alone."""
MANY_TOKENS = 10**6
"""Tokens, for which a sum has all digits of the price of one."""
MAX_KEPT_PRICES = 1000
_DEAREST: BoundedCache[int, tuple[Mapping[str, Decimal], Dearest | None]] = BoundedCache(MAX_KEPT_PRICES)
"""By the identity of a model's prices, which are kept with them: adding them up anew is dear for each request."""
ESTIMATED = 1.15
"""By how much a prompt may be longer that was estimated and not counted (guarantee §6)."""


def prompt_at_most(tokens: int, *, exact: bool) -> int:
    """The most tokens of a prompt of which so many were found."""
    return tokens if exact else int(tokens * ESTIMATED) + 1


def most_output(forward: dict[str, Any], choices: int, longest: int | None, reserved: int) -> int:
    """The most tokens of an answer with all its choices: the request's own limit, else what the model can write, else
    what the context keeps free for it. Of two limits the larger counts: which one holds, its upstream decides."""
    named = max((value for name in upstreams.OUTPUT_LIMITS if isinstance(value := forward.get(name), int)), default=0)
    return (named or longest or reserved) * choices


def most_cost(prices: Mapping[str, Decimal], prompt: int, output: int, service_tier: Any) -> int | None:
    """Picodollars that a call costs at the most; None where its price is not known."""
    if service_tier is None:
        kept = _DEAREST.peek(id(prices))
        dearest = kept[1] if kept is not None and kept[0] is prices else _remembered(prices)
        if dearest is not None:
            return -int(-(prompt * dearest[0] + output * dearest[1]) // 1)
    tier = service_tier if isinstance(service_tier, str) else None
    most = estimated_cost(prices, prompt, output, tier)["max"]
    return None if most is None else keys.picousd(most)


def _remembered(prices: Mapping[str, Decimal]) -> Dearest | None:
    """The dearest prices of a token in a prompt and in an answer, in picodollars; None where that depends on more."""
    dearest = None
    if not any(TIERS in name for name in prices):
        one = estimated_cost(prices, MANY_TOKENS, 0)["max"], estimated_cost(prices, 0, MANY_TOKENS)["max"]
        if one[0] is not None and one[1] is not None:
            dearest = _each(one[0]), _each(one[1])
    _DEAREST.put(id(prices), (prices, dearest))
    return dearest


def _each(many: Decimal) -> Decimal | int:
    """Picodollars of one token, given USD of `MANY_TOKENS`; mostly whole: sums of integers take half the time."""
    one = many.scaleb(12) / MANY_TOKENS
    return int(one) if one == one.to_integral_value() else one


def billed(admission: HeldAdmission, entry: turn.LedgerEntry) -> None:
    admission.billed(_cost(entry), _tokens(entry))


def owed(admission: HeldAdmission, entry: turn.LedgerEntry) -> Callable[[], None]:
    """The bill waits in memory: what it cost is held until what this returns is called."""
    admission.owed(_cost(entry))
    return partial(billed, admission, entry)


def _cost(entry: turn.LedgerEntry) -> int:
    known = entry.figures.known_cost if entry.figures is not None else None
    return keys.picousd(known) if known is not None else 0


def _tokens(entry: turn.LedgerEntry) -> int | None:
    """Those of the primary model."""
    usage = entry.metadata.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) else None
