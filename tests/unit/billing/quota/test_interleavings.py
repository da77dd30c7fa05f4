"""Budgets under random interleavings of requests over several processes that crash (guarantee §12.3): never more than
the budget and one request."""

import asyncio
import contextlib
import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.quota.budgets import BudgetAccounts, InternalReservation, NotLeft
from gateway.billing.quota.gate import AdmissionRequest, Quota, account_of
from gateway.core.config.setting_sections import LimitSettings, SpendBudget
from gateway.core.errors import BudgetExceeded, RateLimitExceeded, StorageUnavailable
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types.bill import InternalCall
from gateway.core.types.keys import LEASE_SECONDS, AccountLease, KeyPolicy, LimitHolder, SpendingAccount
from gateway.storage.quota.budget_rows import granted
from gateway.storage.quota.local import LocalRates
from tests.support.hand_clock import HandClock

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACCOUNT = account_of(LimitHolder("key", "key_1"), "month", AT, hard=True)


class World:
    """The database that the processes share: bills and leases, each change of it at once."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.spent = 0
        self.leases: dict[int, tuple[int, float]] = {}
        self.clock = HandClock()
        self.is_away = False

    async def wait(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)

    async def bill(self, cost: int) -> None:
        await self.wait()
        self.spent += cost
        await self.wait()


class Store:
    """One process's view of it, by the rules of the real one."""

    def __init__(self, world: World, process: int) -> None:
        self.world = world
        self.process = process

    async def spent(self, account: SpendingAccount) -> int:
        await self.world.wait()
        self._reach()
        found = self.world.spent
        await self.world.wait()
        return found

    async def lease(self, account: SpendingAccount, budget: int, held: int, more: int) -> AccountLease:
        world = self.world
        await world.wait()
        self._reach()
        now = world.clock.seconds
        others = sum(sum_ for who, (sum_, until) in world.leases.items() if who != self.process and until > now)
        found = granted(budget, world.spent, others, held, more)
        world.leases[self.process] = (found.granted, now + LEASE_SECONDS)
        await world.wait()
        self._reach()
        return found

    async def give_back(self, account: SpendingAccount) -> None:
        await self.world.wait()
        self._reach()
        self.world.leases.pop(self.process, None)

    async def sweep(self) -> None: ...

    def _reach(self) -> None:
        if self.world.is_away and self.world.chance.random() < 0.5:
            raise StorageUnavailable("away")


@pytest.mark.parametrize("actual", [1000, 5000, None])
@pytest.mark.parametrize("asked", [[3000, 3000], [3000, 4000, 2000], [3000, 9999, 1000], [9999, 3000]])
async def test_s12_3_a_request_that_turns_to_other_targets_is_reserved_and_counted_once(
    asked: list[int], actual: int | None
) -> None:
    """What the dearest may cost is held; one that does not fit takes nothing of what the others hold."""
    world = World(random.Random(1))
    allowed = {"budgets": [{"usd": "0.00000001"}], "limits": {"tpm": 8000}}
    limits = LimitSettings.model_validate({"all": allowed})
    quota = Quota(limits, Store(world, 1), LocalRates, world.clock, GatewayMetrics(()), TelemetryHooks())
    request = await quota.admit(AdmissionRequest("req_1", "t", None, None, None, "m", AT), None)
    assert request is not None
    (spending,), (counted,) = request.hard, request._plan.tokens
    largest = 0

    async def used() -> tuple[int, int]:
        _, (previous, _, current, _) = await quota.rates.take(counted.key, 8000, 0)
        return spending.reserved, previous + current

    for tokens in asked:
        refused = pytest.raises(RateLimitExceeded) if tokens > 8000 else contextlib.nullcontext()
        with refused:
            await request.reserve(tokens, tokens)
        largest = largest if tokens > 8000 else max(largest, tokens)
        assert await used() == (largest, largest)
    if actual is None:
        request.closed()
    else:
        request.billed(actual, actual)
    assert await used() == (0, actual or 0)
    assert spending.used == (actual or 0)
    request.leave()
    await quota.close()


async def test_s12_3_what_internal_models_may_cost_is_held_until_the_request_reserves_what_they_did() -> None:
    """No other request takes meanwhile what its own call needs; what they did not cost is free again then."""
    world = World(random.Random(1))
    limits = LimitSettings.model_validate({"all": {"budgets": [{"usd": "0.00000001"}]}})
    quota = Quota(limits, Store(world, 1), LocalRates, world.clock, GatewayMetrics(()), TelemetryHooks())
    planned = await quota.admit(AdmissionRequest("req_1", "t", None, None, None, "m", AT), None)
    other = await quota.admit(AdmissionRequest("req_2", "t", None, None, None, "m", AT), None)
    assert planned is not None
    assert other is not None
    internal = InternalReservation(planned)
    internal.beside(3000)
    prices = {"input_cost_per_token": Decimal("1E-9"), "output_cost_per_token": Decimal("1E-9")}
    usage = {"prompt_tokens": 3, "completion_tokens": 3}
    await internal.reserve(InternalCall("planner", "p", usage, prices, estimated=True))
    with pytest.raises(BudgetExceeded):
        await other.reserve(2000, 0)
    await planned.reserve(3000 + 4000, 0)
    await other.reserve(3000, 0)
    (spending,) = planned.hard
    assert spending.reserved == 10_000
    for each in (planned, other):
        each.closed()
    assert spending.reserved == 0
    await quota.close()


@given(
    seed=st.integers(0, 2**32),
    processes=st.integers(1, 4),
    budget=st.integers(1, 400),
    largest=st.integers(1, 120),
    faults=st.booleans(),
)
def test_s12_3_a_budget_is_never_exceeded_by_more_than_one_request(
    seed: int, processes: int, budget: int, largest: int, faults: bool
) -> None:
    """Whatever is reserved, billed for less, cancelled, crashed and asked for again."""
    world = asyncio.run(_storm(random.Random(seed), processes, budget, largest, faults=faults))
    assert world.spent <= budget + largest - 1


async def _storm(chance: random.Random, processes: int, budget: int, largest: int, *, faults: bool) -> World:
    world = World(chance)
    alive: list[tuple[BudgetAccounts, list[asyncio.Task[None]]]] = []

    def begin() -> None:
        alive.append((BudgetAccounts(Store(world, chance.randrange(10**9)), world.clock), []))

    async def request(budgets: BudgetAccounts) -> None:
        spending, most = budgets.spending(ACCOUNT, budget, world.clock.monotonic()), chance.randint(1, largest)
        try:
            if not await budgets.check(spending):
                return
            await budgets.hold(spending, most)
        except (NotLeft, StorageUnavailable):
            return
        cost = 0
        try:
            await world.wait()
            paid = chance.randint(0, most)
            task = asyncio.ensure_future(world.bill(paid))  # a bill is written whoever leaves
            cost = paid
            try:
                await asyncio.shield(task)
            finally:
                if not task.done():
                    await asyncio.wait({task})
        finally:
            budgets.release(spending, most, cost)

    for _ in range(processes):
        begin()
    for _ in range(60):
        budgets, running = chance.choice(alive)
        running.append(asyncio.ensure_future(request(budgets)))
        await world.wait()
        event = chance.random()
        world.is_away = faults and event < 0.2
        if event < 0.1 and running:
            chance.choice(running).cancel()
        elif event < 0.15:  # killed: its lease stays until it ends by itself
            alive.remove((budgets, running))
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            begin()
        elif event < 0.25:
            await budgets.keep()
        elif event < 0.3:
            world.clock.seconds += chance.choice((1, 6, 20))
    world.is_away = False
    await asyncio.gather(*(task for _, running in alive for task in running), return_exceptions=True)
    for budgets, _ in alive:
        assert all(each.reserved == 0 for each in budgets.held())
        await budgets.close()
    return world


@pytest.mark.long
async def test_s12_3_thousands_of_cancelled_requests_hold_nothing() -> None:
    """Wherever each is when its client leaves."""
    chance = random.Random(7)
    world = World(chance)
    budgets = BudgetAccounts(Store(world, 1), world.clock)

    async def request() -> None:
        spending = budgets.spending(ACCOUNT, 10**6, world.clock.monotonic())
        await budgets.hold(spending, 10)
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            budgets.release(spending, 10, 0)

    for _ in range(40):
        tasks = [asyncio.ensure_future(request()) for _ in range(100)]
        for task in tasks:
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        world.clock.seconds += 70  # the lease is asked for anew
    await budgets.close()
    (spending,) = budgets.held()
    assert spending.reserved == 0
    assert not world.leases


async def test_no_request_may_go_over_not_even_alone() -> None:
    world = World(random.Random(1))
    budgets = BudgetAccounts(Store(world, 1), world.clock)
    spending = budgets.spending(ACCOUNT, 100, world.clock.monotonic())
    with pytest.raises(NotLeft):
        await budgets.hold(spending, 101)
    assert (spending.left, spending.is_spent) == (100, False)
    await budgets.hold(spending, 100)
    with pytest.raises(NotLeft):
        await budgets.hold(spending, 1)
    world.spent += 100
    budgets.release(spending, 100, 100)
    assert not await budgets.check(spending)
    with pytest.raises(NotLeft):
        await budgets.hold(spending, 1)
    assert spending.is_spent


async def test_a_process_that_knows_of_enough_asks_nobody() -> None:
    world = World(random.Random(1))
    budgets = BudgetAccounts(Store(world, 1), world.clock)
    spending = budgets.spending(ACCOUNT, 100_000, world.clock.monotonic())
    await budgets.hold(spending, 10)
    world.is_away, world.chance = True, random.Random(0)
    for _ in range(50):
        assert await budgets.check(spending)
        await budgets.hold(spending, 10)
        budgets.release(spending, 10, 10)


async def test_s12_3_of_a_budget_that_was_lowered_no_more_is_given_out_than_there_is() -> None:
    """A lease out of the earlier budget may be more than all of the new one."""
    world = World(random.Random(1))
    budgets = BudgetAccounts(Store(world, 1), world.clock)
    await budgets.hold(budgets.spending(ACCOUNT, 100_000, world.clock.monotonic()), 10)
    spending = budgets.spending(ACCOUNT, 100, world.clock.monotonic())
    await budgets.hold(spending, 90)
    with pytest.raises(NotLeft):
        await budgets.hold(spending, 1)


async def test_s12_3_a_hook_is_told_once_of_a_budget_however_rarely_it_is_asked_for() -> None:
    """The process forgets an account that nobody asks for, not that it told of it; a raised budget is another one."""
    told: list[str] = []

    class Hooks(TelemetryHooks):
        def budget_exceeded(self, account: SpendingAccount, budget: int, spent: int, *, hard: bool) -> None:
            told.append(f"{'hard' if hard else 'soft'} {budget}")

    world = World(random.Random(1))
    world.spent = 5000
    store, metrics, hooks = Store(world, 1), GatewayMetrics(()), Hooks()

    def key(usd: str, *, hard: bool) -> KeyPolicy:
        return KeyPolicy("key_1", "t", budgets=(SpendBudget(usd=Decimal(usd), hard=hard),))

    quota = Quota(LimitSettings(), store, LocalRates, world.clock, metrics, hooks)
    for policy in (key("1e-9", hard=True), key("1e-9", hard=False), key("2e-9", hard=True)):
        for _ in range(3):
            with contextlib.suppress(BudgetExceeded):
                await quota.admit(AdmissionRequest("req_1", "t", "key_1", None, None, "m", AT), policy)
            world.clock.seconds += LEASE_SECONDS + 1
            await quota.budgets.keep()
            assert not list(quota.budgets.held())
    assert told == ["hard 1000", "soft 1000", "hard 2000"]
    await quota.close()
