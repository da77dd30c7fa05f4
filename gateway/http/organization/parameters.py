"""What a request for usage or costs may ask, with OpenAI's names and bounds (guarantee §13.4)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from urllib.parse import parse_qs

from gateway.http.fields import invalid, missing
from gateway.http.organization.buckets import Buckets, Width

T = TypeVar("T")
LATEST = 253_402_300_799
"""The last second of the year 9999."""
MOST_NAMED = 1000
"""Values that a filter may name."""
LISTS = ("include", "group_by", "models", "api_key_ids", "user_ids", "project_ids")
COMMON = ("start_time", "end_time", "bucket_width", "limit", "page", "group_by", "api_key_ids", "project_ids")
USAGE_GROUPS = ("project_id", "user_id", "api_key_id", "model")


@dataclass(frozen=True, slots=True)
class Kind:
    """What one of these endpoints takes: fields beside the common ones, groups, and limits by width."""

    groups: tuple[str, ...]
    widths: Mapping[str, Width]
    more: tuple[str, ...] = ("models", "user_ids")

    @property
    def known(self) -> tuple[str, ...]:
        """All its parameters."""
        return (*COMMON, *self.more)


_BY_WIDTH = {"1m": Width("minute", 60, 60, 1440), "1h": Width("hour", 3600, 24, 168), "1d": Width("day", 86400, 7, 31)}
COMPLETIONS = Kind((*USAGE_GROUPS, "batch", "service_tier"), _BY_WIDTH, ("models", "user_ids", "batch"))
EMBEDDINGS = Kind(USAGE_GROUPS, _BY_WIDTH)
COSTS = Kind(
    ("project_id", "line_item", "api_key_id", "conversation_id"),
    {"1d": Width("day", 86400, 7, 180)},
    ("include",),
)
SAVINGS = "net_saving"
"""What `include` may name beside OpenAI's fields."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read. Lists are empty where nothing was named."""

    buckets: Buckets
    group_by: tuple[str, ...]
    models: tuple[str, ...] = ()
    api_key_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    batch: bool | None = None
    with_savings: bool = False


def asked(text: str, kind: Kind, now: datetime) -> Asked:
    """The parameters of a query string; a list is `NAME[]=…` or `NAME=…`, once for each member.

    Raises:
        InvalidRequest: names the first that is not known or breaks its rule.
    """
    given: dict[str, list[str]] = {}
    for name, values in parse_qs(text, keep_blank_values=True).items():
        plain = name.removesuffix("[]")
        if plain not in kind.known or (name != plain and plain not in LISTS):
            raise invalid(name, f"is not known; known are {', '.join(kind.known)}")
        given.setdefault(plain, []).extend(values)
    width = kind.widths[_one(given, "bucket_width", lambda value: _among(value, tuple(kind.widths))) or "1d"]
    start = _one(given, "start_time", _unix)
    if start is None:
        raise missing("start_time")
    end = _one(given, "end_time", _unix)
    if end is not None and end <= start:
        raise invalid("end_time", "must be later than start_time")
    limit = _one(given, "limit", lambda value: _within(value, width.most)) or width.default
    buckets = Buckets(width, start, end, int(now.timestamp()), limit, _one(given, "page", str))
    buckets.check_page()
    batch = _one(given, "batch", lambda value: _among(value, ("true", "false")))
    lists = {name: _many(given, name) for name in LISTS if name not in ("include", "group_by")}
    included = _among_all(given, "include", (SAVINGS,))
    return Asked(
        buckets,
        _among_all(given, "group_by", kind.groups),
        **lists,
        batch=None if batch is None else batch == "true",
        with_savings=bool(included),
    )


def _one(given: Mapping[str, Sequence[str]], name: str, read: Callable[[str], T]) -> T | None:
    values = given.get(name)
    if values is None:
        return None
    try:
        return read(values[0])
    except ValueError as error:
        raise invalid(name, f"must {error}") from None


def _many(given: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(given.get(name, ())))
    if "" in values:
        raise invalid(name, "must not name an empty text")
    if any("\x00" in value for value in values):
        raise invalid(name, "must not hold a NUL")
    if len(values) > MOST_NAMED:
        raise invalid(name, f"may name {MOST_NAMED} at most")
    return values


def _among_all(given: Mapping[str, Sequence[str]], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    found = _many(given, name)
    if any(each not in known for each in found):
        raise invalid(name, f"must name some of {', '.join(known)}")
    return found


def _among(value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"be {' or '.join(known)}")
    return value


def _unix(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 12 and int(value) <= LATEST):
        raise ValueError("be a time in whole Unix seconds")
    return int(value)


def _within(value: str, most: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and 1 <= int(value) <= most):
        raise ValueError(f"be a whole number from 1 to {most} with this bucket_width")
    return int(value)
