"""Which pass pays now: pure decisions on figures (guarantee §4 I7).

Where the provider's cache of the prefix has expired, a rewrite is free, and old results leave. Else a pass is bought:
its price is what the changed end of the prompt costs once more, its return what its results cost to be carried on. It
is bought only out of what the branch has saved so far and a share of its bill, so that no session gets dearer by more
than that share. Old results near the end of a prompt are bought first, as little is written anew behind them; what they
save pays for deeper passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from gateway.billing.economy.rates import CacheRates
from gateway.core.types import bill

COLD_AGE, PAID_AGE, ROOM_AGE = 3, 4, 1
"""Answers since a result was first forwarded, from which on a pass may clear it: a free one, one that is bought, one
near the end that makes room. Once 4 answers have followed, each further one adds the cost of carrying the result to its
rent."""
MIN_RESULT_TOKENS = 200
"""A result of fewer is hardly longer than its label."""
LABEL_TOKENS = 60
MIN_CLEARED_TOKENS = 500
"""A pass that clears less is not worth the change."""
MIN_RENT = Decimal(1)
"""Times the price of a pass that carrying has cost before it is bought (rent or buy)."""
MAX_PAYBACK = Decimal("0.15")
"""Of the answers that a conversation has had, within how many further ones a pass has to pay for itself."""
MAX_CREDIT = Decimal("1.008")
"""Times what direct requests would have cost, beyond which no pass is bought."""
ROOM_SHARE = Decimal("0.01")
"""Of the budget, which a pass near the end of a window frees beside what has no room."""
DEEP_SHARE = Decimal("0.3")
"""Of the budget, about, which is written anew by a pass for room that decides everything anew."""
MIN_SAVED = Decimal("0.1")
"""Share of the direct cost that a branch has saved before a pass for room keeps more than it has to."""


@dataclass(frozen=True, slots=True)
class CarriedResult:
    """A tool's result that stands in full in the window and may leave: the `index` of its message in the prompt, its
    tokens, and the answers since it was first forwarded."""

    index: int
    tokens: int
    age: int

    @property
    def spared(self) -> int:
        """Tokens that its label takes less."""
        return self.tokens - LABEL_TOKENS


def cleared_when_cold(carried: Sequence[CarriedResult]) -> list[CarriedResult]:
    """What a pass clears that costs nothing; empty where that is too little."""
    return _enough([each for each in carried if each.age >= COLD_AGE and each.tokens >= MIN_RESULT_TOKENS])


def credit(costs: bill.BranchCosts) -> Decimal:
    """USD that a branch may spend on a pass."""
    return costs.direct * MAX_CREDIT - costs.billed


def may_keep_more(costs: bill.BranchCosts | None) -> bool:
    """Whether a pass for room may keep results whole beside what it fills: out of what was saved, like all that costs
    more. A session that ends soon after its first pass gets none of its price back."""
    return costs is not None and costs.billed <= costs.direct * (1 - MIN_SAVED)


def cleared_when_paid(
    carried: Sequence[CarriedResult],
    sizes: Sequence[int],
    known: int,
    rates: CacheRates,
    answers: int,
    costs: bill.BranchCosts,
) -> list[CarriedResult]:
    """What the pass clears that pays best; empty where none pays, or where the branch has not saved enough to buy it.
    `sizes`: tokens of each message of the prompt; `known`: how many of these an earlier request forwarded; `answers`:
    how many the conversation has had: it has to pay within a share of as many; `costs`: of the branch until now."""
    candidates = _worth_clearing(carried, PAID_AGE, known)
    most, best = credit(costs), (Decimal(0), 0)
    rent = Decimal(0)
    for cut in _cuts(candidates, sizes, known, rates):
        rent += rates.read * (cut.last.spared * (cut.last.age - PAID_AGE + 1))
        gain = rates.read * cut.spared * answers * MAX_PAYBACK - cut.price
        pays = cut.spared >= MIN_CLEARED_TOKENS and rent >= MIN_RENT * cut.price and cut.price <= most
        if pays and gain > best[0]:
            best = gain, cut.count
    return _latest(candidates, best[1])


def cleared_for_room(
    carried: Sequence[CarriedResult],
    sizes: Sequence[int],
    known: int,
    rates: CacheRates,
    budget: int,
    costs: bill.BranchCosts,
) -> list[CarriedResult]:
    """What leaves near the end of a window that has no room, where little is written anew, at the least price. Empty
    where the bill would exceed its bound, this request included; or where it would not with a pass that decides all
    anew: that one is cheaper if the session goes on, and this one if it ends.
    `sizes, known, costs`: as for `cleared_when_paid`; `budget`: tokens that the prompt may have."""
    old, new = sum(sizes[:known]), sum(sizes[known:])
    unchanged = rates.prompt(old + new, old)
    most = credit(replace(costs, direct=costs.direct + unchanged)) - unchanged
    deep = DEEP_SHARE * budget
    if most >= (rates.write - rates.read) * deep - rates.read * (old - deep):
        return []
    candidates = _worth_clearing(carried, ROOM_AGE, known)
    enough = old + new - budget + ROOM_SHARE * budget
    cuts = [cut for cut in _cuts(candidates, sizes, known, rates) if cut.spared >= enough and cut.price <= most]
    return _latest(candidates, min(cuts, key=lambda cut: cut.price).count if cuts else 0)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A pass that begins at the result `last` and clears it and all candidates behind it, `count` in all."""

    last: CarriedResult
    count: int
    spared: int
    price: Decimal


def _cuts(candidates: Sequence[CarriedResult], sizes: Sequence[int], known: int, rates: CacheRates) -> Iterator[_Cut]:
    """The passes that may be bought, from the end of what an earlier request forwarded to its beginning."""
    at = {each.index: each for each in candidates}
    suffix = spared = count = 0
    for index in range(known - 1, min(at, default=known) - 1, -1):
        suffix += sizes[index]
        if (found := at.get(index)) is not None:
            spared, count = spared + found.spared, count + 1
            price = (rates.write - rates.read) * (suffix - spared) - rates.read * spared
            yield _Cut(found, count, spared, price)


def _worth_clearing(carried: Sequence[CarriedResult], age: int, known: int) -> list[CarriedResult]:
    """Of that age, and among what an earlier request forwarded."""
    found = (each for each in carried if each.index < known)
    return [each for each in found if each.age >= age and each.tokens >= MIN_RESULT_TOKENS]


def _latest(candidates: Sequence[CarriedResult], count: int) -> list[CarriedResult]:
    return sorted(candidates, key=lambda each: each.index)[len(candidates) - count :]


def _enough(found: list[CarriedResult]) -> list[CarriedResult]:
    return found if sum(each.spared for each in found) >= MIN_CLEARED_TOKENS else []
