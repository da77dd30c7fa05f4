"""Buckets and their pages (guarantee §13.4)."""

import pytest

from gateway.api.organization.parameters import BucketWidth, TimeBuckets
from gateway.core.errors import InvalidRequest

DAY = BucketWidth("day", 86400, 7, 31)
NOW = 10 * 86400 + 5000


def test_s13_4_buckets_begin_with_days_and_are_cut_at_both_ends() -> None:
    found = TimeBuckets(DAY, 86400 + 30, 3 * 86400 + 7, NOW, 7).on_page()
    assert [(each.start, each.end, each.key) for each in found] == [
        (86430, 2 * 86400, "1970-01-02"),
        (2 * 86400, 3 * 86400, "1970-01-03"),
        (3 * 86400, 3 * 86400 + 7, "1970-01-04"),
    ]


@pytest.mark.parametrize("end", [None, 99 * 86400])
def test_s13_4_there_are_none_after_that_of_now(end: int | None) -> None:
    found = TimeBuckets(DAY, 9 * 86400, end, NOW, 7).on_page()
    assert [each.start for each in found] == [9 * 86400, 10 * 86400]
    assert found[-1].end == 11 * 86400
    assert TimeBuckets(DAY, 12 * 86400, end, NOW, 7).on_page() == ()


def test_s13_4_pages_follow_each_other_without_a_gap() -> None:
    page, found, pages = None, [], 0
    while True:
        buckets = TimeBuckets(DAY, 40, None, NOW, 3, page)
        shown = buckets.on_page()
        found += [each.start for each in shown]
        pages += 1
        if (page := buckets.next_page(shown)) is None:
            break
    assert (pages, found) == (4, [40, *range(86400, 11 * 86400, 86400)])


@pytest.mark.parametrize("page", ["", "page_", "page_AAAA", "x", "page_AAAAAAABUYE=", "page_AAAAAAAAAAA=", "page_ü"])
def test_s13_4_a_cursor_of_another_query_is_none(page: str) -> None:
    with pytest.raises(InvalidRequest):
        TimeBuckets(DAY, 40, 2 * 86400, NOW, 3, page).first()
