"""The parameters of a request for usage or costs, with OpenAI's names and bounds (guarantee §13.4)."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import parse_qs

from gateway.api.pagination import number_of, refuse_nul, unix_time_of
from gateway.core import errors
from gateway.core.frozen_records import record

# Buckets of time and pages of them (guarantee §13.4): they begin with whole days, hours or minutes, UTC; the first is
# cut at `start_time` and the last at `end_time`.

PREFIX = "page_"


@record
class BucketWidth:
    """The width of a bucket, and the number of buckets on a page."""

    unit: Literal["day", "hour", "minute"]
    seconds: int
    default: int
    most: int


@record
class TimeBucket:
    """From `start` on and before `end`, in Unix seconds."""

    start: int
    end: int
    key: str
    """The name of its day, hour or minute, as reports group by it."""


@record
class TimeBuckets:
    """The buckets of a request. Without an end they reach to that of `now`; with a later end they reach no further."""

    width: BucketWidth
    start: int
    end: int | None
    now: int
    limit: int
    page: str | None = None

    def on_page(self) -> tuple[TimeBucket, ...]:
        """Returns the buckets of this page; none where all of the time lies in the future."""
        found: list[TimeBucket] = []
        begin = self.first()
        while begin < self._last and len(found) < self.limit:
            end = min(self._floor(begin) + self.width.seconds, self.end or self._last)
            found.append(TimeBucket(begin, end, _name(self._floor(begin), self.width.unit)))
            begin = end
        return tuple(found)

    def next_page(self, shown: tuple[TimeBucket, ...]) -> str | None:
        """Returns the cursor of the page after the buckets `shown`; None where they are the last."""
        if not shown or shown[-1].end >= self._last:
            return None
        return PREFIX + base64.urlsafe_b64encode(shown[-1].end.to_bytes(8)).decode()

    @property
    def _last(self) -> int:
        until_now = self._floor(self.now) + self.width.seconds
        return until_now if self.end is None else min(self.end, until_now)

    def _floor(self, second: int) -> int:
        return second - second % self.width.seconds

    def first(self) -> int:
        """Returns when the page begins. Raises InvalidRequest: `page` is no cursor of this query."""
        if self.page is None:
            return self.start
        try:
            told = base64.urlsafe_b64decode(self.page.removeprefix(PREFIX).encode("ascii"))
        except (ValueError, binascii.Error):
            told = b""
        begin = int.from_bytes(told) if len(told) == 8 else 0
        is_ours = self.page.startswith(PREFIX) and begin == self._floor(begin) and self.start < begin
        if not is_ours or (self.end is not None and begin >= self.end):
            raise errors.invalid("page", "must be the next_page of the same query")
        return begin


def _name(second: int, unit: str) -> str:
    size = {"day": 10, "hour": 13, "minute": 16}[unit]
    return datetime.fromtimestamp(second, UTC).isoformat(" ")[:size]


MAX_NAMED = 1000
"""Values that a filter may name."""
LISTS = ("include", "group_by", "models", "api_key_ids", "user_ids", "project_ids")
COMMON_PARAMETERS = (
    "start_time",
    "end_time",
    "bucket_width",
    "limit",
    "page",
    "group_by",
    "api_key_ids",
    "project_ids",
)
USAGE_GROUPS = ("project_id", "user_id", "api_key_id", "model")


@record
class ReportParameters:
    """The parameters of an endpoint: fields beside the common ones, groups, and limits by width."""

    groups: tuple[str, ...]
    widths: Mapping[str, BucketWidth]
    more: tuple[str, ...] = ("models", "user_ids")

    @property
    def known(self) -> tuple[str, ...]:
        return (*COMMON_PARAMETERS, *self.more)


_BY_WIDTH = {
    "1m": BucketWidth("minute", 60, 60, 1440),
    "1h": BucketWidth("hour", 3600, 24, 168),
    "1d": BucketWidth("day", 86400, 7, 31),
}
COMPLETIONS = ReportParameters((*USAGE_GROUPS, "batch", "service_tier"), _BY_WIDTH, ("models", "user_ids", "batch"))
EMBEDDINGS = ReportParameters(USAGE_GROUPS, _BY_WIDTH)
COSTS = ReportParameters(
    ("project_id", "line_item", "api_key_id", "conversation_id"),
    {"1d": BucketWidth("day", 86400, 7, 180)},
    ("include",),
)
SAVINGS = "net_saving"
"""What `include` may name in addition to OpenAI's fields."""


@record
class ReportRequest:
    """A parsed request. Lists are empty where the request names nothing."""

    buckets: TimeBuckets
    group_by: tuple[str, ...]
    models: tuple[str, ...] = ()
    api_key_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    batch: bool | None = None
    with_savings: bool = False


def asked(text: str, kind: ReportParameters, now: datetime) -> ReportRequest:
    """Parses the parameters of a query string; a list is `NAME[]=…` or `NAME=…`, one for each member.
    Raises InvalidRequest: a parameter is unknown or breaks its rule; `param` names the first."""
    given: dict[str, list[str]] = {}
    for name, values in parse_qs(text, keep_blank_values=True).items():
        plain = name.removesuffix("[]")
        if plain not in kind.known or (name != plain and plain not in LISTS):
            raise errors.invalid(name, f"is not known; known are {', '.join(kind.known)}")
        given.setdefault(plain, []).extend(values)
    first = {name: values[0] for name, values in given.items()}
    width = kind.widths[_among(first, "bucket_width", tuple(kind.widths)) or "1d"]
    start, end = unix_time_of(first, "start_time"), unix_time_of(first, "end_time")
    if start is None:
        raise errors.missing("start_time")
    if end is not None and end <= start:
        raise errors.invalid("end_time", "must be later than start_time")
    rule = f"must be a whole number from 1 to {width.most} with this bucket_width"
    limit = number_of(first, "limit", rule, 1, width.most, digits=4) or width.default
    buckets = TimeBuckets(width, start, end, int(now.timestamp()), limit, first.get("page"))
    buckets.first()  # which checks it
    batch = _among(first, "batch", ("true", "false"))
    lists = {name: _many(given, name) for name in LISTS if name not in ("include", "group_by")}
    included = _among_all(given, "include", (SAVINGS,))
    return ReportRequest(
        buckets,
        _among_all(given, "group_by", kind.groups),
        **lists,
        batch=None if batch is None else batch == "true",
        with_savings=bool(included),
    )


def _many(given: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(given.get(name, ())))
    if "" in values:
        raise errors.invalid(name, "must not name an empty text")
    refuse_nul(name, *values)
    if len(values) > MAX_NAMED:
        raise errors.invalid(name, f"may name {MAX_NAMED} at most")
    return values


def _among_all(given: Mapping[str, Sequence[str]], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    found = _many(given, name)
    if any(each not in known for each in found):
        raise errors.invalid(name, f"must name some of {', '.join(known)}")
    return found


def _among(given: Mapping[str, str], name: str, known: tuple[str, ...]) -> str | None:
    value = given.get(name)
    if value is not None and value not in known:
        raise errors.invalid(name, f"must be {' or '.join(known)}")
    return value
