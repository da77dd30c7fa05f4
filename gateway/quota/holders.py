"""Which budgets and limits apply to a request, and for which days (guarantee §12.3). Decided purely."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from gateway.config.allowances import Allowance, LimitSettings, Period
from gateway.models.allowed import Account, Allowed, Ask, Holder
from gateway.models.keys import KeyPolicy

BEGINNING = date(1970, 1, 1)
"""Where the period `total` begins."""


def applying(settings: LimitSettings, ask: Ask, key: KeyPolicy | None) -> list[Allowed]:
    """All holders that the request counts for and that may not spend or ask all they like, in the order in which they
    are asked: what is everybody's last, so that who has used up their own takes nothing of it."""
    return [each for each in _holders(settings, ask, key) if each.budgets or each.limits.is_set]


def has_own(key: KeyPolicy | None) -> bool:
    """Whether a key has budgets or limits of its own."""
    return key is not None and (bool(key.budgets) or key.limits.is_set)


def _holders(settings: LimitSettings, ask: Ask, key: KeyPolicy | None) -> Iterator[Allowed]:
    if ask.key_id is not None:
        own = Holder("key", ask.key_id)
        budgets, limits = (key.budgets, key.limits) if key is not None else ((), settings.keys.limits)
        yield Allowed(own, budgets or settings.keys.budgets, limits if limits.is_set else settings.keys.limits)
    if ask.user is not None:
        named = settings.users.get(ask.user, settings.each_user)
        yield _allowed(Holder("user", ask.user, ask.tenant), named)
    if ask.project is not None and ask.project in settings.projects:
        yield _allowed(Holder("project", ask.project), settings.projects[ask.project])
    if ask.model in settings.models:
        yield _allowed(Holder("model", ask.model), settings.models[ask.model])
    yield _allowed(Holder("all"), settings.all)


def _allowed(holder: Holder, allowance: Allowance) -> Allowed:
    return Allowed(holder, allowance.budgets, allowance.limits)


def period_of(period: Period, at: datetime) -> tuple[date, datetime | None]:
    """The first day (UTC) of the period that a moment lies in, and when it is over; None: never."""
    day = at.astimezone(UTC).date()
    if period == "total":
        return BEGINNING, None
    if period == "day":
        first, after = day, day + timedelta(days=1)
    elif period == "week":
        first = day - timedelta(days=day.weekday())
        after = first + timedelta(days=7)
    else:
        first = day.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    return first, datetime(after.year, after.month, after.day, tzinfo=UTC)


def account_of(holder: Holder, period: Period, at: datetime, *, hard: bool) -> Account:
    """What the holder spends in the period that a moment lies in."""
    start, resets_at = period_of(period, at)
    return Account(holder, period, start, resets_at, holder.digest(period, "hard" if hard else "soft"))
