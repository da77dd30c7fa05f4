"""Refused requests are kept in bounded memory, whoever floods the gateway."""

from datetime import UTC, datetime, timedelta

from gateway.core.instrumentation.refusals import (
    KEPT_EACH,
    MAX_KINDS,
    MAX_TENANTS,
    RefusedRequest,
    RefusedRequests,
    field_of,
)

AT = datetime(2026, 11, 21, tzinfo=UTC)


def refused(number: int, tenant: str, code: str = "budget_exceeded") -> RefusedRequest:
    return RefusedRequest(f"req_{number}", AT + timedelta(seconds=number), tenant, "/v1/messages", 429, code)


def test_a_flood_of_one_tenant_pushes_out_its_own_alone() -> None:
    kept = RefusedRequests()
    kept.note(refused(0, "quiet"))
    for number in range(1, 1000):
        kept.note(refused(number, "loud"))
    assert [each.request_id for each in kept.latest("quiet")] == ["req_0"]
    assert [each.request_id for each in kept.latest("loud")] == [f"req_{n}" for n in range(999, 999 - KEPT_EACH, -1)]
    assert len(kept.latest(None)) == KEPT_EACH + 1
    assert kept.latest(None)[-1].tenant == "quiet"
    assert kept.counts("loud") == [((429, "budget_exceeded"), 999)]
    assert kept.counts(None) == [((429, "budget_exceeded"), 1000)]
    assert not kept.latest("nobody")
    assert not kept.counts("nobody")


def test_many_tenants_and_kinds_take_bounded_room() -> None:
    kept = RefusedRequests()
    for number in range(2 * MAX_TENANTS):
        kept.note(refused(number, f"tenant-{number}", f"code-{number}"))
    assert len(kept.latest(None)) == MAX_TENANTS
    assert len(kept.counts(None)) == MAX_KINDS


def test_what_is_no_name_of_a_field_is_not_kept() -> None:
    assert field_of("messages[0].content") == "messages[0].content"
    assert [field_of(each) for each in (None, "My secret", "a" * 65, "<b>")] == [None] * 4
