"""Budgets computed from the ledger's sums, and what processes hold of them (adapter of `ports.BudgetStore`; ADR 28)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gateway.core import ports, processes
from gateway.core.bounded_cache import BoundedCache
from gateway.core.types import keys
from gateway.core.types.keys import AccountLease, SpendingAccount
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_for
from gateway.storage.keyed_hashes import Users, user_digest, user_name
from gateway.storage.rows import MAX_INT, utc

PAST_SECONDS = 30.0
"""How long the sum of past days is cached. A bill belongs to the day on which its request came, so yesterday's sum may
still grow: it is always read."""
SHARE = 10
"""A process holds 1/`SHARE` of what is left, beside what its requests need."""
MAX_PAST = 10_000
DAYS = schema.usage_days
LEASES = schema.budget_leases


@dataclass(slots=True)
class SqlBudgets:
    """Leases of one process. PostgreSQL takes an advisory lock for each account, SQLite has one writer at a time. An
    account's bills and leases are read consistently, as no process lowers its lease meanwhile."""

    _transactions: DatabaseTransactions
    _clock: ports.Clock
    _secret: Callable[[], Awaitable[bytes]]
    """Of keyed hashes."""
    _process: str
    _users: Users = "plain"
    """How a request's user appears in the ledger."""
    _past: BoundedCache[tuple[bytes, date], tuple[float, date, int]] = field(
        default_factory=lambda: BoundedCache(MAX_PAST)
    )

    async def spent(self, account: SpendingAccount) -> int:
        """Sums the picodollars of all bills since the account's period began (`ports.BudgetStore`)."""
        count = await self._count(account)
        spent, remember = await self._transactions.run(count)
        remember()
        return spent

    async def lease(self, account: SpendingAccount, budget: int, held: int, more: int) -> AccountLease:
        """Stores what this process holds of a budget, and grants it more (`ports.BudgetStore`)."""
        count = await self._count(account)
        now = self._clock.now()
        mine = _of(account, self._process)

        def work(connection: sa.Connection) -> tuple[AccountLease, Callable[[], None]]:
            _lock(connection, account)
            spent, remember = count(connection)
            others = _others(connection, account, self._process, now)
            found = granted(budget, spent, others, held, more)
            if found.granted:
                _write(connection, {**mine, "amount_picousd": min(found.granted, MAX_INT), "expires_at": _until(now)})
            else:
                connection.execute(LEASES.delete().where(*_where(mine)))
            return found, remember

        found, remember = await self._transactions.run(work, write=True)
        remember()
        return found

    async def give_back(self, account: SpendingAccount) -> None:
        delete = LEASES.delete().where(*_where(_of(account, self._process)))

        def work(connection: sa.Connection) -> None:
            _lock(connection, account)
            connection.execute(delete)

        await self._transactions.run(work, write=True)

    async def sweep(self) -> None:
        """Deletes expired leases."""
        delete = LEASES.delete().where(LEASES.c.expires_at <= self._clock.now() - timedelta(seconds=keys.LEASE_SECONDS))
        await self._transactions.run(lambda connection: connection.execute(delete), write=True)

    async def _count(self, account: SpendingAccount) -> Callable[[sa.Connection], tuple[int, Callable[[], None]]]:
        """Returns a function that reads what was spent, and how to remember the part of past days."""
        where, key = await self._whose(account), (account.digest, account.start)
        now, yesterday = self._clock.monotonic(), self._clock.now().astimezone(UTC).date() - timedelta(days=1)
        kept = self._past.peek(key)
        ended = [DAYS.c.day < account.resets_at.date()] if account.resets_at is not None else []
        past = kept[2] if kept is not None and kept[1] == yesterday and now < kept[0] else None

        def count(connection: sa.Connection) -> tuple[int, Callable[[], None]]:
            of_past = past
            if of_past is None:
                of_past = 0
                if account.start < yesterday:
                    of_past = _sum(connection, where, DAYS.c.day >= account.start, DAYS.c.day < yesterday)
            late = _sum(connection, where, DAYS.c.day >= max(account.start, yesterday), *ended)
            return of_past + late, lambda: self._remember(key, (now + PAST_SECONDS, yesterday, of_past), past is None)

        return count

    def _remember(self, key: tuple[bytes, date], found: tuple[float, date, int], is_new: bool) -> None:
        if is_new:
            self._past.put(key, found)

    async def _whose(self, account: SpendingAccount) -> list[sa.ColumnElement[bool]]:
        holder, columns = account.holder, DAYS.c
        if holder.kind == "all":
            return []
        if holder.kind == "user":
            name = user_name(holder.name)
            if self._users == "hashed":
                name = user_digest(await self._secret(), holder.name)
            return [columns.tenant == holder.tenant, columns.end_user == name]
        column = {"key": columns.key_id, "model": columns.model, "project": columns.project}[holder.kind]
        return [column == holder.name]


def granted(budget: int, spent: int, others: int, held: int, more: int) -> AccountLease:
    """Computes what a process may hold, given what is spent and what others hold: what its requests hold, what they
    need, and a share of the rest."""
    room = budget - spent - others
    need = held + more
    if need <= room:
        return AccountLease(spent, others, need + (room - need) // SHARE, fits=True)
    return AccountLease(spent, others, held, fits=not more)


def _sum(connection: sa.Connection, whose: list[sa.ColumnElement[bool]], *days: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.sum(DAYS.c.cost_picousd)).where(*whose, *days)
    return int(connection.execute(query).scalar() or 0)


def _others(connection: sa.Connection, account: SpendingAccount, process: str, now: datetime) -> int:
    """Sums what other processes hold. One that was killed on this machine holds none: nobody waits for it."""
    columns = LEASES.c
    of_account = (columns.holder == account.digest, columns.period_start == account.start)
    query = sa.select(columns.process, columns.amount_picousd, columns.expires_at)
    found = connection.execute(query.where(*of_account, columns.process != process, columns.expires_at > now))
    return sum(amount for name, amount, until in found if not processes.is_dead(name, utc(until), now))


def _lock(connection: sa.Connection, account: SpendingAccount) -> None:
    """Locks an account until the transaction ends; as a statement of its own, so that the next sees all commits."""
    if connection.dialect.name != "sqlite":
        number = int.from_bytes(account.digest[:8], "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def _of(account: SpendingAccount, process: str) -> dict[str, Any]:
    return {"holder": account.digest, "period_start": account.start, "process": process}


def _where(mine: dict[str, Any]) -> list[sa.ColumnElement[bool]]:
    return [LEASES.c[name] == value for name, value in mine.items()]


def _write(connection: sa.Connection, row: dict[str, Any]) -> None:
    insert = insert_for(connection.dialect, LEASES).values(**row)
    new = {name: insert.excluded[name] for name in ("amount_picousd", "expires_at")}
    connection.execute(insert.on_conflict_do_update(index_elements=list(LEASES.primary_key), set_=new))


def _until(now: datetime) -> datetime:
    return now + timedelta(seconds=keys.LEASE_SECONDS)
