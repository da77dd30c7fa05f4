"""What applies to requests of one kind, worked out once: most requests are of a kind that was there before."""

from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.config.allowances import LimitSettings
from gateway.models.allowed import Account, Allowed, Ask, picousd
from gateway.models.keys import KeyPolicy
from gateway.quota.holders import account_of, applying

MOST_KEPT = 4096
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Counted:
    """One limit: whose, the key of what is counted, and how much there may be."""

    allowed: Allowed
    key: str
    limit: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request counts for. It holds from `since` until `until`, when the first of its periods is over. Of several
    budgets of one account the least counts; sums are picodollars."""

    of: KeyPolicy | None
    since: datetime
    until: datetime
    requests: tuple[Counted, ...]
    tokens: tuple[Counted, ...]
    at_once: tuple[Counted, ...]
    hard: tuple[tuple[Account, int], ...]
    soft: tuple[tuple[Account, int], ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing applies."""
        return not (self.requests or self.tokens or self.at_once or self.hard or self.soft)


class Plans:
    """Those of the latest requests."""

    def __init__(self, settings: LimitSettings) -> None:
        self._settings = settings
        self._kept: dict[tuple[str | None, ...], Plan] = {}

    def of(self, ask: Ask, key: KeyPolicy | None) -> Plan:
        """What a request counts for. A key that says something else now is another."""
        kind = (ask.key_id, ask.tenant, ask.user, ask.project, ask.model)
        kept = self._kept.get(kind)
        if kept is not None and kept.of is key and kept.since <= ask.at < kept.until:
            return kept
        plan = _plan(applying(self._settings, ask, key), ask.at, key)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[kind] = plan
        return plan


def _plan(allowed: list[Allowed], at: datetime, key: KeyPolicy | None) -> Plan:
    hard: dict[bytes, tuple[Account, int]] = {}
    soft: dict[bytes, tuple[Account, int]] = {}
    for each in allowed:
        for budget in each.budgets:
            account, sum_ = account_of(each.holder, budget.period, at, hard=budget.hard), picousd(budget.usd)
            found = hard if budget.hard else soft
            known = found.get(account.digest)
            if known is None or sum_ < known[1]:
                found[account.digest] = (account, sum_)
    ends = [each.resets_at for each, _ in (*hard.values(), *soft.values()) if each.resets_at is not None]
    limits = [(each, each.limits) for each in allowed]
    return Plan(
        key,
        at if ends else FIRST,
        min(ends, default=LAST),
        tuple(_counted(each, "requests", limit.rpm) for each, limit in limits if limit.rpm is not None),
        tuple(_counted(each, "tokens", limit.tpm) for each, limit in limits if limit.tpm is not None),
        tuple(_counted(each, "at once", limit.concurrent) for each, limit in limits if limit.concurrent is not None),
        tuple(hard.values()),
        tuple(soft.values()),
    )


def _counted(allowed: Allowed, what: str, limit: int) -> Counted:
    return Counted(allowed, allowed.holder.digest(what).hex(), limit)
