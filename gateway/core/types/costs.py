"""Sums over bills, and what may be asked of them (guarantee §13.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal

from gateway.core.types.bill import PICO

TIMES = frozenset(("day", "hour", "minute"))
"""Groups by when requests came, in UTC."""
GROUPS = ("day", "model", "key", "project", "tenant", "user", "agent", "endpoint", "conversation")
"""What a person may ask for. `key` is the id of a key, never the key; `endpoint` is None for chat completions."""


@dataclass(frozen=True, slots=True)
class CostSums:
    """Figures of any number of bills, by the rules by which an audit adds them up.

    Tokens are those of primary models. Money is in whole picodollars here, and in USD by the properties. `cost_picousd`
    holds the calls that have a price: with `unpriced` requests it is the least that they cost.
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
    """Requests with a call whose price is not."""
    planning_cost_picousd: int = 0
    planning_unpriced: int = 0
    """Calls of internal models without a price."""
    estimated: int = 0
    saved_picousd: int = 0
    metered: int = 0
    """Requests of which it is known what they would have cost without a gateway."""
    direct_cost_picousd: int = 0
    """What these would have cost."""
    net_saving_picousd: int = 0
    """How much less was billed for them, below 0 where it was more."""
    held_out_requests: int = 0
    """Of conversations that go direct while others are economised (`context.economy_holdout`)."""
    held_out_cost_picousd: int = 0
    economised_requests: int = 0
    """Of these others."""
    economised_cost_picousd: int = 0
    bounced_tokens: int = 0
    """Of results that were read again soon after they had been cut."""
    bounced_cost_picousd: int = 0
    """What these cost, a part of `cost`."""

    def __add__(self, other: "CostSums") -> "CostSums":
        return CostSums(*(getattr(self, name) + getattr(other, name) for name in FIGURES))

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
        """`cost`, or None where none of the requests has a price."""
        return None if self.unpriced and not self.priced else self.cost

    @property
    def known_planning(self) -> Decimal | None:
        """`planning`, or None where calls of internal models have no price and none has one."""
        return None if self.planning_unpriced and not self.planning_cost_picousd else self.planning

    @property
    def saved(self) -> Decimal:
        """USD that the bills say leaving out has saved, without what that cost: an estimate."""
        return self.saved_picousd * PICO

    @property
    def bounced(self) -> Decimal:
        """USD of what was read again soon after it had been cut, a part of `cost`."""
        return self.bounced_cost_picousd * PICO

    @property
    def unmetered(self) -> int:
        """Requests that are in no net saving."""
        return self.requests - self.metered

    @property
    def net_saving(self) -> Decimal | None:
        """USD less than without a gateway, below 0 where it was more; None where that is known of no request."""
        return self.net_saving_picousd * PICO if self.metered else None

    @property
    def direct(self) -> Decimal | None:
        """USD that the metered requests would have cost without a gateway; None where there is none."""
        return self.direct_cost_picousd * PICO if self.metered else None

    @property
    def held_out_step(self) -> Decimal | None:
        """USD that a request of a conversation that goes direct cost on average; None where there is none."""
        return _average(self.held_out_cost_picousd, self.held_out_requests)

    @property
    def economised_step(self) -> Decimal | None:
        """The same of those that are compared with them."""
        return _average(self.economised_cost_picousd, self.economised_requests)


def _average(picousd: int, requests: int) -> Decimal | None:
    return picousd // requests * PICO if requests else None


FIGURES = tuple(field.name for field in fields(CostSums))


@dataclass(frozen=True, slots=True)
class CostQuery:
    """Which bills, and by what to add them up.

    Bills of requests that came from `since` on and before `until`, both in UTC. `tenant` None is all tenants. Of the
    filters each that names anything must hold; `project` is that of the key, or its tenant where the key has none.
    """

    by: tuple[str, ...] = ()
    """Of `GROUPS` or `TIMES`, or `project_id`: the key's project, or its tenant."""
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


@dataclass(frozen=True, slots=True)
class CostRow:
    """The sums of a group, by its name for each member of `CostQuery.by`: None where bills name nothing there."""

    names: tuple[str | None, ...]
    sums: CostSums


@dataclass(frozen=True, slots=True)
class CostReport:
    """What adding up has found, of one state of the storage."""

    rows: tuple[CostRow, ...]
    missing: int = 0
    """Bills that an older version wrote and that are in no sums yet; at most `MAX_COUNTED`."""
    by: tuple[str, ...] = ()

    @property
    def total(self) -> CostSums:
        """All groups together."""
        return _all(self.rows)

    def at_most(self, limit: int) -> tuple[tuple[CostRow, ...], CostSums, int]:
        """So many groups, the latest where they are told apart by time and else the dearest; the sums of the others,
        and how many these are."""
        kept, others = self.rows[:limit], self.rows[limit:]
        if not TIMES.isdisjoint(self.by):
            kept, others = self.rows[-limit:], self.rows[:-limit]
        return kept, _all(others), len(others)


MAX_COUNTED = 10_000
"""Bills that are in no sums yet are counted up to this number."""


def _all(rows: Iterable[CostRow]) -> CostSums:
    return sum((row.sums for row in rows), CostSums())


def joined(rows: Iterable[tuple[tuple[str | None, ...], Mapping[str, int]]]) -> tuple[CostRow, ...]:
    """Rows of the same names as one; groups of which nothing is left go."""
    found: dict[tuple[str | None, ...], CostSums] = {}
    for names, figures in rows:
        more = CostSums(**figures)
        found[names] = found[names] + more if names in found else more
    return tuple(CostRow(names, found[names]) for names in found if found[names] != CostSums())


def in_order(rows: Iterable[CostRow], by: tuple[str, ...]) -> tuple[CostRow, ...]:
    """By time first where that is a group, then the dearest first, then by name."""
    times = [place for place, group in enumerate(by) if group in TIMES]

    def key(row: CostRow) -> tuple[list[str], int, int, tuple[str, ...]]:
        when = [row.names[place] or "" for place in times]
        return when, -row.sums.cost_picousd, -row.sums.requests, tuple(name or "" for name in row.names)

    return tuple(sorted(rows, key=key))
