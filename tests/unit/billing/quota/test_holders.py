"""Which budgets and limits apply to a request, and until when (guarantee §12.3, §12.4)."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, cast

import pytest

from gateway.billing.quota.budgets import most_output
from gateway.billing.quota.gate import AdmissionRequest, account_of, applying
from gateway.core.config.setting_sections import LimitSettings, Period, RateLimits, SpendBudget
from gateway.core.types.chat import RequestCaller
from gateway.core.types.keys import KeyPolicy, LimitHolder, period_of, picousd
from gateway.pipeline.pipeline import LimitedPipeline

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)  # a Saturday
FIVE = SpendBudget(usd="5")
ONE = SpendBudget(usd="1", period="day")
FAST = RateLimits(rpm=10)


def ask(**more: Any) -> AdmissionRequest:
    return AdmissionRequest(
        **{"request_id": "req_1", "tenant": "t", "key_id": "key_1", "project": "p", "user": "u", "model": "m"} | more,
        at=AT,
    )


def limits(**said: Any) -> LimitSettings:
    return LimitSettings.model_validate(said)


def test_a_key_with_budgets_of_its_own_has_no_others() -> None:
    settings = limits(keys={"budgets": [{"usd": 1}], "limits": {"rpm": 3}})
    (own,) = applying(settings, ask(), KeyPolicy("key_1", "t", budgets=(FIVE,)))
    assert (own.holder, own.budgets, own.limits.rpm) == (LimitHolder("key", "key_1"), (FIVE,), 3)
    (other,) = applying(settings, ask(key_id="key_2"), KeyPolicy("key_2", "t", limits=FAST))
    assert (other.holder.name, other.budgets[0].usd, other.limits) == ("key_2", Decimal(1), FAST)


def test_each_holder_is_found_and_everybody_comes_last() -> None:
    settings = limits(
        all={"limits": {"rpm": 9}},
        each_user={"limits": {"rpm": 1}},
        models={"m": {"limits": {"tpm": 5}}},
        projects={"p": {"budgets": [{"usd": 2}]}},
    )
    found = [each.holder for each in applying(settings, ask(), KeyPolicy("key_1", "t"))]
    assert found == [
        LimitHolder("user", "u", "t"),
        LimitHolder("project", "p"),
        LimitHolder("model", "m"),
        LimitHolder("all"),
    ]
    assert [each.holder.kind for each in applying(settings, ask(user=None, project=None, model="x"), None)] == ["all"]


def test_a_named_user_has_what_is_said_of_it_and_users_of_two_tenants_are_two() -> None:
    settings = limits(users={"u": {"limits": {"rpm": 7}}}, each_user={"limits": {"rpm": 1}})
    (one,), (two,) = (applying(settings, ask(tenant=tenant), None) for tenant in ("t", "s"))
    assert one.limits.rpm == two.limits.rpm == 7
    assert one.holder.digest("rpm") != two.holder.digest("rpm")
    (other,) = applying(settings, ask(user="v"), None)
    assert other.limits.rpm == 1


def test_without_anything_named_nothing_applies() -> None:
    assert not applying(LimitSettings(), ask(), KeyPolicy("key_1", "t"))
    assert not KeyPolicy("key_1", "t").is_limited
    assert KeyPolicy("key_1", "t", budgets=(ONE,)).is_limited


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("day", date(2026, 11, 21), datetime(2026, 11, 22, tzinfo=UTC)),
        ("week", date(2026, 11, 16), datetime(2026, 11, 23, tzinfo=UTC)),
        ("month", date(2026, 11, 1), datetime(2026, 12, 1, tzinfo=UTC)),
        ("total", date(1970, 1, 1), None),
    ],
)
def test_periods_are_days_of_utc(period: Period, start: date, end: datetime | None) -> None:
    assert period_of(period, AT) == (start, end)
    elsewhere = AT.astimezone(timezone(timedelta(hours=14)))  # the next day there
    assert period_of(period, elsewhere) == (start, end)


@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_each_moment_is_in_one_period(period: Period) -> None:
    """Without gaps, over two years and a leap day."""
    at, last = datetime(2027, 12, 1, tzinfo=UTC), None
    while at < datetime(2029, 1, 15, tzinfo=UTC):
        start, end = period_of(period, at)
        assert end is not None
        assert start <= at.date()
        assert at < end
        assert last is None or start in (last[0], last[1].date())
        last, at = (start, end), at + timedelta(hours=11)


def test_accounts_of_two_periods_or_holders_are_two() -> None:
    found = [
        account_of(LimitHolder(kind, "x", "t"), period, AT, hard=True)
        for kind in ("key", "user")
        for period in ("day", "week")
    ]
    assert len({each.digest for each in found}) == 4


def test_a_sum_is_whole_picodollars() -> None:
    assert picousd(FIVE.usd) == 5 * 10**12
    assert picousd(SpendBudget(usd="0.000000000001").usd) == 1


async def test_s12_4_names_that_clients_choose_are_not_kept_endlessly() -> None:
    """Memory filled by the `user` field or the name of a model: what is kept of both is short, and what the ledger
    has."""
    asked: list[AdmissionRequest] = []

    class Gate:
        limits_all = True

        async def admit(self, ask: AdmissionRequest, key: KeyPolicy | None) -> None:
            asked.append(ask)

    limited = LimitedPipeline(cast(Any, None), cast(Any, Gate()))
    caller = RequestCaller("acme", key_id="key_1")
    await limited.relayed("req_1", caller, ("m" * 10**6, "u" * 10**6), AT)
    await limited.relayed("req_2", caller, ("small", None), AT)
    assert [(len(each.model), len(each.user or "")) for each in asked] == [(512, 256), (5, 0)]


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"max_completion_tokens": 1, "max_tokens": 900}, 900),
        ({"max_completion_tokens": 900, "max_tokens": 1}, 900),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": None}, 512),
        ({}, 512),
    ],
)
def test_s12_3_of_two_limits_of_the_output_the_larger_is_reserved(fields: dict[str, Any], most: int) -> None:
    """A budget bypassed by two limits, of which upstreams take one or the other."""
    assert most_output(fields, 1, 512, 100) == most
    assert most_output(fields, 128, 512, 100) == 128 * most
