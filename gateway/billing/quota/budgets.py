"""Budgets: the most that a call may cost before it is made, and what it did cost; what this process may spend, and what
its running requests hold of that (guarantee §12.3, ADR 28).

Every sum here is whole picodollars. What the storage records as held by this process is never less than what its
requests hold and have spent since: so no other process is granted the same money.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing.cost import estimated_cost, internal_prices
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.instrumentation import logs
from gateway.core.types import bill, keys, turn, upstreams
from gateway.core.types.keys import HeldAdmission, SpendingAccount

log = logs.get_logger("gateway.billing.quota")
TRUSTED_SECONDS = 60.0
"""How long a process spends out of a lease: clocks of replicas may differ by the rest of its lifetime."""
RENEW_SECONDS = 30.0
"""A lease is renewed so long before its trusted time ends, while requests hold some of it."""
IDLE_SECONDS = 5.0
"""Idle time after which a process gives back what no request holds."""
BUDGET_FRESH_SECONDS = 10.0
"""How long a soft budget relies on what was read."""
NEVER = float("-inf")
Dearest = tuple[Decimal | int, Decimal | int]
TIERS = "_above_"
"""Part of the names of prices that apply to long prompts only."""
MANY_TOKENS = 10**6
"""Tokens whose cost has all digits of the price of one."""
MAX_KEPT_PRICES = 1000
_DEAREST: BoundedCache[int, tuple[Mapping[str, Decimal], Dearest | None]] = BoundedCache(MAX_KEPT_PRICES)
"""By the identity of a model's prices, which the entry holds too: computing them for each request is expensive."""
ESTIMATED = 1.15
"""Factor by which a prompt may be longer than its estimate (guarantee §6)."""


def prompt_at_most(tokens: int, *, exact: bool) -> int:
    """Returns the most tokens that a prompt can have of which so many were counted (`exact`) or estimated."""
    return tokens if exact else int(tokens * ESTIMATED) + 1


def most_output(forward: dict[str, Any], choices: int, longest: int | None, reserved: int) -> int:
    """Returns the most tokens of an answer with all its choices: the request's own limit, else the model's, else what
    the context reserves for it. Of two limits the larger counts: the upstream decides which one holds."""
    named = max((value for name in upstreams.OUTPUT_LIMITS if isinstance(value := forward.get(name), int)), default=0)
    return (named or longest or reserved) * choices


def most_cost(
    prices: Mapping[str, Decimal], prompt: int, output: int, service_tier: Any, kinds: tuple[str, ...] = ()
) -> int | None:
    """Estimates the most that a call can cost in picodollars; None where its price is not known.
    `kinds`: as in `estimated_cost`."""
    if service_tier is None and not kinds:
        kept = _DEAREST.peek(id(prices))
        dearest = kept[1] if kept is not None and kept[0] is prices else _remembered(prices)
        if dearest is not None:
            return -int(-(prompt * dearest[0] + output * dearest[1]) // 1)
    tier = service_tier if isinstance(service_tier, str) else None
    most = estimated_cost(prices, prompt, output, tier, kinds)["max"]
    return None if most is None else keys.picousd(most)


def _remembered(prices: Mapping[str, Decimal]) -> Dearest | None:
    """Caches the dearest prices of a prompt's and an answer's token, in picodollars; None where they depend on more."""
    dearest = None
    if not any(TIERS in name for name in prices):
        one = estimated_cost(prices, MANY_TOKENS, 0)["max"], estimated_cost(prices, 0, MANY_TOKENS)["max"]
        if one[0] is not None and one[1] is not None:
            dearest = _each(one[0]), _each(one[1])
    _DEAREST.put(id(prices), (prices, dearest))
    return dearest


def _each(many: Decimal) -> Decimal | int:
    """Converts USD of `MANY_TOKENS` to picodollars of one token; mostly an int: sums of integers take half the time."""
    one = many.scaleb(12) / MANY_TOKENS
    return int(one) if one == one.to_integral_value() else one


class InternalReservation:
    """What the internal models of one request may cost, beside what it may cost itself. The request holds it until it
    reserves what they did cost: to release it before would let others take what its own call needs."""

    def __init__(self, admission: HeldAdmission | None) -> None:
        self._admission = admission
        self._most = 0
        self._lock = asyncio.Lock()

    def beside(self, most: int | None) -> None:
        """Leaves room for so much more: else what they cost could leave too little for the request itself."""
        self._most = most or 0

    async def reserve(self, call: bill.InternalCall) -> None:
        """Reserves the most that one more call can cost. Raises: as `HeldAdmission.reserve`."""
        if self._admission is None:
            return
        usage = bill.usage_of(call.usage)
        async with self._lock:
            more = most_cost(internal_prices(call), usage.prompt_tokens, usage.completion_tokens, None)
            await self._admission.reserve(None if more is None else self._most + more, None)
            self._most += more or 0

    def settle(self, calls: Iterable[bill.CallCost]) -> None:
        """Releases what a further admission holds; `calls`: those that were billed apart."""
        if self._admission is not None:
            self._admission.billed(sum(keys.picousd(call.total or Decimal(0)) for call in calls), None)


def billed(admission: HeldAdmission, entry: turn.LedgerEntry) -> None:
    admission.billed(_cost(entry), _tokens(entry))


def owed(admission: HeldAdmission, entry: turn.LedgerEntry) -> Callable[[], None]:
    """Holds the cost of a bill that waits in memory until the returned function is called."""
    admission.owed(_cost(entry))
    return partial(billed, admission, entry)


def _cost(entry: turn.LedgerEntry) -> int:
    known = entry.figures.known_cost if entry.figures is not None else None
    return keys.picousd(known) if known is not None else 0


def _tokens(entry: turn.LedgerEntry) -> int | None:
    """Returns the tokens of the primary model; None where the bill has none."""
    usage = entry.metadata.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) else None


class NotLeft(Exception):
    """A budget has less left than was asked for."""


class AccountSpending:
    """What this process knows of one account. `spent` is what the storage reported last, `used` what was billed here
    since; running requests, and bills that wait for the storage, hold `reserved`. `lease` is the part within the budget
    of what the storage has recorded as held by this process."""

    __slots__ = (
        *("account", "budget", "lease", "lock", "read_at", "reserved"),
        *("spent", "touched", "until", "used", "version", "written"),
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
        self.version = 0
        self.lock = asyncio.Lock()

    def free(self, now: float) -> int:
        """Returns the picodollars that may be handed out without asking the storage."""
        return self.lease - self.reserved - self.used if now < self.until else 0

    def is_fresh(self, now: float) -> bool:
        """Returns whether what was read is recent enough for a soft budget."""
        return now - self.read_at < BUDGET_FRESH_SECONDS

    @property
    def left(self) -> int:
        """Picodollars that are left, if nothing more is billed, as far as this process knows."""
        return self.budget - self.spent - self.used

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, as far as this process knows."""
        return self.left <= 0


class BudgetAccounts:
    def __init__(self, store: ports.BudgetStore, clock: ports.Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[tuple[bytes, date], AccountSpending] = {}
        self._growing: set[asyncio.Task[None]] = set()

    def spending(self, account: SpendingAccount, budget: int, now: float) -> AccountSpending:
        """Returns what is known of an account, creating it when new, and notes `now` (monotonic) as its last use."""
        key = (account.digest, account.start)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = AccountSpending(account, budget)
        if known.budget != budget:  # a lease of another budget may be more than this one has
            known.budget, known.until = budget, NEVER
        known.touched = now
        return known

    async def check(self, spending: AccountSpending) -> bool:
        """Returns whether anything is left of a hard budget. Asks the storage before it returns false.
        Raises StorageUnavailable: the storage cannot be asked."""
        if spending.free(self._clock.monotonic()) <= 0:
            await self._read(spending)
            return not spending.is_spent
        return True

    async def look(self, spending: AccountSpending) -> bool:
        """Returns whether anything was left of a soft budget a few seconds ago.
        Raises StorageUnavailable: the storage cannot be asked."""
        if not spending.is_fresh(self._clock.monotonic()):
            await self._read(spending)
        return not spending.is_spent

    def try_hold(self, spending: AccountSpending, amount: int) -> bool:
        """Reserves so much of a hard budget if that needs no request to the storage; returns whether it did."""
        if spending.lock.locked() or spending.free(self._clock.monotonic()) < amount:
            return False
        spending.reserved += amount
        return True

    async def hold(self, spending: AccountSpending, amount: int) -> None:
        """Reserves so much of a hard budget, until `release`.
        Raises NotLeft: the amount does not fit, and `spending` has the storage's latest figures; StorageUnavailable:
        the storage cannot be asked, and what is known here is not enough."""
        if self.try_hold(spending, amount):
            return
        task = asyncio.create_task(self._grow(spending, amount))
        self._growing.add(task)
        task.add_done_callback(self._growing.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:  # what the task still obtains belongs to nobody
            task.add_done_callback(lambda done: _undo(done, spending, amount))
            raise

    def release(self, spending: AccountSpending, amount: int, cost: int) -> None:
        """Releases so much of what a request holds, and adds the `cost` that was billed for it."""
        spending.reserved -= amount
        spending.used += cost
        spending.touched = self._clock.monotonic()

    async def _grow(self, spending: AccountSpending, amount: int) -> None:
        """Asks the storage for more, one request at a time per account: nothing is handed out of a changing lease."""
        async with spending.lock:
            if spending.free(self._clock.monotonic()) < amount or amount == 0:
                fits = await self._lease(spending, amount)
                if not fits:
                    raise NotLeft
            spending.reserved += amount

    async def _lease(self, spending: AccountSpending, amount: int) -> bool:
        began, used = self._clock.monotonic(), spending.used
        spending.until = NEVER  # if the call fails, nobody knows what the storage has recorded
        spending.version += 1
        found = await self._store.lease(spending.account, spending.budget, spending.reserved, amount)
        spending.version += 1
        spending.used -= used  # `spent` includes it now
        spending.spent, spending.written = found.spent, found.granted > 0
        spending.lease = min(found.granted, max(0, spending.budget - found.spent - found.others))
        spending.until, spending.read_at = began + TRUSTED_SECONDS, began
        return found.fits

    async def _read(self, spending: AccountSpending) -> None:
        """Reads what was spent. What was billed here meanwhile may count twice; it is never forgotten."""
        began, used, version = self._clock.monotonic(), spending.used, spending.version
        spent = await self._store.spent(spending.account)
        if spending.version != version or spending.lock.locked():
            return  # another task has asked, or is about to know better
        spending.version += 1
        spending.spent, spending.read_at = spent, began
        spending.used -= used
        if spending.until > began:
            spending.lease -= used  # what was billed is no longer held

    async def keep(self) -> None:
        """Renews what requests hold, and gives back what none does; to be called every few seconds."""
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
        """Gives back what no request holds, after pending requests to the storage have ended."""
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
        """Returns all known accounts, for tests and figures."""
        return self._known.values()


async def _tried(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except (errors.StorageUnavailable, errors.LimitsUnavailable, NotLeft):
        pass  # a lease ends by itself


def _undo(done: "asyncio.Task[None]", spending: AccountSpending, amount: int) -> None:
    if not done.cancelled() and done.exception() is None:
        spending.reserved -= amount
