"""Budgets: what a call may cost at most before it is made, and what it did cost; what this process may spend, and what
its running requests hold of that (guarantee §12.3, ADR 28).

Every sum here is whole picodollars. What the storage has written down as held by this process is never less than what
its requests hold and have spent since: so nobody else is given the same.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing.cost import estimated_cost
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.instrumentation import logs
from gateway.core.types import keys, turn, upstreams
from gateway.core.types.keys import HeldAdmission, SpendingAccount

log = logs.get_logger("gateway.billing.quota")
TRUSTED_SECONDS = 60.0
"""For how long a process spends out of a lease: clocks of replicas may differ by the rest."""
RENEW_SECONDS = 30.0
"""So long before a lease is trusted no more it is renewed, while requests hold something of it."""
IDLE_SECONDS = 5.0
"""After which a process gives back what no request holds."""
BUDGET_FRESH_SECONDS = 10.0
"""For how long a soft budget goes by what was read."""
NEVER = float("-inf")
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


class NotLeft(Exception):
    """There is not so much left of a budget."""


class AccountSpending:
    """What this process knows of one account. `spent` is what the storage said last, `used` what was billed here since;
    `reserved` is held by running requests, and by bills that wait for the storage. `lease` is the part of what is
    written down for this process that is within the budget."""

    __slots__ = (
        *("account", "budget", "lease", "lock", "read_at", "reserved"),
        *("spent", "told", "touched", "until", "used", "version", "written"),
    )

    def __init__(self, account: SpendingAccount, budget: int) -> None:
        self.account = account
        self.budget = budget
        self.spent = 0
        self.used = 0
        self.reserved = 0
        self.lease = 0
        self.written = False
        self.until = NEVER
        self.read_at = NEVER
        self.touched = 0.0
        self.told = False
        self.version = 0
        self.lock = asyncio.Lock()

    def free(self, now: float) -> int:
        """What may be given out without asking."""
        return self.lease - self.reserved - self.used if now < self.until else 0

    def is_fresh(self, now: float) -> bool:
        """Whether what was read is good enough for a soft budget."""
        return now - self.read_at < BUDGET_FRESH_SECONDS

    @property
    def left(self) -> int:
        """What is left, if nothing more is billed, as far as is known here."""
        return self.budget - self.spent - self.used

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, as far as is known here."""
        return self.left <= 0


class BudgetAccounts:
    def __init__(self, store: ports.BudgetStore, clock: ports.Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[tuple[bytes, date], AccountSpending] = {}
        self._growing: set[asyncio.Task[None]] = set()

    def spending(self, account: SpendingAccount, budget: int, now: float) -> AccountSpending:
        """What is known of an account, about which is asked `now` (monotonic)."""
        key = (account.digest, account.start)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = AccountSpending(account, budget)
        if known.budget != budget:  # a lease out of another sum may be more than there is of this one
            known.budget, known.until = budget, NEVER
        known.touched = now
        return known

    async def check(self, spending: AccountSpending) -> bool:
        """Whether anything is left of a hard budget. Before it says no, it asks.
        Raises StorageUnavailable: it cannot ask."""
        if spending.free(self._clock.monotonic()) <= 0:
            await self._read(spending)
            return not spending.is_spent
        return True

    async def look(self, spending: AccountSpending) -> bool:
        """Whether anything is left of a soft budget, as of a few seconds ago.
        Raises StorageUnavailable: it cannot ask."""
        if not spending.is_fresh(self._clock.monotonic()):
            await self._read(spending)
        return not spending.is_spent

    def try_hold(self, spending: AccountSpending, amount: int) -> bool:
        """Reserves so much of a hard budget where nobody has to be asked for it."""
        if spending.lock.locked() or spending.free(self._clock.monotonic()) < amount:
            return False
        spending.reserved += amount
        return True

    async def hold(self, spending: AccountSpending, amount: int) -> None:
        """Reserves so much of a hard budget, until `release`.
        Raises NotLeft: it does not fit. `spending` has what the storage says of it now; StorageUnavailable: it cannot
        be asked, and what is known here is not enough."""
        if self.try_hold(spending, amount):
            return
        task = asyncio.ensure_future(self._grow(spending, amount))
        self._growing.add(task)
        task.add_done_callback(self._growing.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:  # what it gets all the same is nobody's
            task.add_done_callback(lambda done: _undo(done, spending, amount))
            raise

    def release(self, spending: AccountSpending, amount: int, cost: int) -> None:
        """A request holds so much less, and `cost` was billed for it."""
        spending.reserved -= amount
        spending.used += cost
        spending.touched = self._clock.monotonic()

    async def _grow(self, spending: AccountSpending, amount: int) -> None:
        """Asks the storage for more, one at a time for each account: nothing is given out of a lease that changes."""
        async with spending.lock:
            if spending.free(self._clock.monotonic()) < amount or amount == 0:
                fits = await self._lease(spending, amount)
                if not fits:
                    raise NotLeft
            spending.reserved += amount

    async def _lease(self, spending: AccountSpending, amount: int) -> bool:
        began, used = self._clock.monotonic(), spending.used
        spending.until = NEVER  # should it fail, nobody knows what is written there
        spending.version += 1
        found = await self._store.lease(spending.account, spending.budget, spending.reserved, amount)
        spending.version += 1
        spending.used -= used  # that much is in what was spent
        spending.spent, spending.written = found.spent, found.granted > 0
        spending.lease = min(found.granted, max(0, spending.budget - found.spent - found.others))
        spending.until, spending.read_at = began + TRUSTED_SECONDS, began
        return found.fits

    async def _read(self, spending: AccountSpending) -> None:
        """Reads what was spent. What was billed here meanwhile may count twice; never is it forgotten."""
        began, used, version = self._clock.monotonic(), spending.used, spending.version
        spent = await self._store.spent(spending.account)
        if spending.version != version or spending.lock.locked():
            return  # somebody else has asked, or is about to know better
        spending.version += 1
        spending.spent, spending.read_at = spent, began
        spending.used -= used
        if spending.until > began:
            spending.lease -= used  # what was billed is no longer held

    async def keep(self) -> None:
        """What is to be done every few seconds: renews what requests hold, and gives back what none does."""
        now = self._clock.monotonic()
        for key, spending in list(self._known.items()):
            if spending.reserved and spending.until - now < RENEW_SECONDS and not spending.lock.locked():
                await _tried(self._grow(spending, 0))
            elif not spending.reserved and now - spending.touched >= IDLE_SECONDS:
                if spending.written:
                    await _tried(self._give_back(spending))
                elif now - spending.touched >= keys.LEASE_SECONDS and not spending.lock.locked():
                    del self._known[key]

    async def close(self) -> None:
        """Gives back what no request holds."""
        if self._growing:
            await asyncio.wait(self._growing)
        for spending in self._known.values():
            if spending.written and not spending.reserved:
                await _tried(self._give_back(spending))

    async def _give_back(self, spending: AccountSpending) -> None:
        async with spending.lock:
            if spending.reserved:
                return
            spending.lease, spending.until = 0, NEVER
            await self._store.give_back(spending.account)
            spending.written = False

    def held(self) -> Iterable[AccountSpending]:
        """All that is known, for tests and figures."""
        return self._known.values()


async def _tried(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except (errors.StorageUnavailable, errors.LimitsUnavailable, NotLeft):
        pass  # a lease ends by itself


def _undo(done: "asyncio.Task[None]", spending: AccountSpending, amount: int) -> None:
    if not done.cancelled() and done.exception() is None:
        spending.reserved -= amount
