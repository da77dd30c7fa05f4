"""Buckets of time and pages of them (guarantee §13.4): they begin with whole days, hours or minutes, UTC; the first is
cut at `start_time` and the last at `end_time`."""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from gateway.http.fields import invalid

PREFIX = "page_"


@dataclass(frozen=True, slots=True)
class Width:
    """How wide a bucket is, and how many a page has."""

    unit: Literal["day", "hour", "minute"]
    seconds: int
    default: int
    most: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """From `start` on and before `end`, in Unix seconds."""

    start: int
    end: int
    key: str
    """The name of its day, hour or minute, as reports group by it."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets that were asked for. Without an end they reach into that of `now`; with a later one no further."""

    width: Width
    start: int
    end: int | None
    now: int
    limit: int
    page: str | None = None

    def check_page(self) -> None:
        """
        Raises:
            InvalidRequest: `page` is no cursor of this query.
        """
        self._first()

    def on_page(self) -> tuple[Bucket, ...]:
        """The buckets of this page; none where all of the time is still to come."""
        found: list[Bucket] = []
        begin = self._first()
        while begin < self._last and len(found) < self.limit:
            end = min(self._floor(begin) + self.width.seconds, self.end or self._last)
            found.append(Bucket(begin, end, _name(self._floor(begin), self.width.unit)))
            begin = end
        return tuple(found)

    def next_page(self, shown: tuple[Bucket, ...]) -> str | None:
        """The cursor of the page behind these, if there is one."""
        if not shown or shown[-1].end >= self._last:
            return None
        return PREFIX + base64.urlsafe_b64encode(shown[-1].end.to_bytes(8)).decode()

    @property
    def _last(self) -> int:
        until_now = self._floor(self.now) + self.width.seconds
        return until_now if self.end is None else min(self.end, until_now)

    def _floor(self, second: int) -> int:
        return second - second % self.width.seconds

    def _first(self) -> int:
        if self.page is None:
            return self.start
        try:
            told = base64.urlsafe_b64decode(self.page.removeprefix(PREFIX).encode("ascii"))
        except (ValueError, binascii.Error):
            told = b""
        begin = int.from_bytes(told) if len(told) == 8 else 0
        is_ours = self.page.startswith(PREFIX) and begin == self._floor(begin) and self.start < begin
        if not is_ours or (self.end is not None and begin >= self.end):
            raise invalid("page", "must be the next_page of the same query")
        return begin


def _name(second: int, unit: str) -> str:
    size = {"day": 10, "hour": 13, "minute": 16}[unit]
    return datetime.fromtimestamp(second, UTC).isoformat(" ")[:size]
