"""Parameters and pages of the APIs over what is stored."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from gateway.api.fields import keeps_metadata_rules
from gateway.api.shapes import ListObject
from gateway.core import errors, names
from gateway.core.types import records

METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)
MAX_PAGE_SIZE = 100
MAX_METADATA_PAIRS = 16
ANTHROPIC_PAGE = 1000
"""The most members of a page in Anthropic's API. It is also the default: a client that does not page gets all."""
Query = Mapping[str, str]
MAX_NUMBER = 10**18 - 1
LATEST = 253_402_300_798
"""Latest Unix time of a query: a second may be added, and databases hold no time after the year 9999."""
T = TypeVar("T")


def parameters(text: str) -> Query:
    """Parses a query string; each parameter has its first value."""
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}


def included(text: str, name: str = "include") -> tuple[str, ...]:
    """Returns the values of a parameter in a query string, which may occur several times, with brackets or without."""
    if name not in text:
        return ()
    found = parse_qs(text)
    return (*found.get(name, ()), *found.get(f"{name}[]", ()))


def check_named(query: Query, *names: str) -> None:
    """Raises InvalidRequest: one of these parameters is given and empty."""
    for name in names:
        if query.get(name) == "":
            raise errors.invalid(name, "must not be empty")


def refuse_nul(name: str, *values: str | None) -> None:
    """Raises InvalidRequest: a value of this parameter holds a NUL."""
    if names.has_nul(*values):
        raise errors.invalid(name, "must not hold a NUL")


def limit_of(query: Query, default: int = 20, most: int = MAX_PAGE_SIZE) -> int:
    """Parses `limit`: how many members a page may have. Raises InvalidRequest: it is not from 1 to `most`."""
    return number_of(query, "limit", f"must be a whole number from 1 to {most}", 1, most) or default


def unix_time_of(query: Query, name: str) -> int | None:
    """Parses a time in whole Unix seconds. Raises InvalidRequest: it is none, or beyond what databases hold."""
    return number_of(query, name, "must be a Unix time in whole seconds", most=LATEST)


def number_of(
    query: Query,
    name: str,
    rule: str = "must be a whole number",
    least: int = 0,
    most: int = MAX_NUMBER,
    digits: int | None = None,
) -> int | None:
    """Parses a whole number; None where it is not given. `digits`: the most that it may have; None: as `most` has.
    Raises InvalidRequest: it is none, or not from `least` to `most`; `rule` is what the message says."""
    text = query.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= (digits or len(str(most)))
    if not (is_number and least <= int(text) <= most):
        raise errors.invalid(name, rule)
    return int(text)


def newest_first(query: Query, default: str) -> bool:
    """Returns whether the order is `desc`. Raises InvalidRequest: it is neither `asc` nor `desc`."""
    order = query.get("order", default)
    if order not in ("asc", "desc"):
        raise errors.invalid("order", "must be asc or desc")
    return order == "desc"


def paging_of(query: Query, order: str) -> records.ItemQuery:
    """Parses `limit`, `after` and `order`, whose default is `order`.
    Raises InvalidRequest: one of them breaks its rule; `param` names it."""
    check_named(query, "after")
    return records.ItemQuery(limit_of(query), query.get("after"), newest_first(query, order))


def part_of(data: Sequence[T], paging: records.ItemQuery, missing: str) -> ListObject[T]:
    """Returns the requested part of a list that begins with its oldest member.
    Raises ItemNotFound: no member has the id `after`; `missing` is the message."""
    rest = data[::-1] if paging.newest_first else data
    if paging.after is not None:
        ids = [each["id"] for each in rest]  # type: ignore[index]
        if paging.after not in ids:
            raise errors.ItemNotFound(missing, param="after")
        rest = rest[ids.index(paging.after) + 1 :]
    return listed(rest[: paging.limit], has_more=len(rest) > paging.limit)


class AnthropicPaging(NamedTuple):
    """The requested part of a list of Anthropic's API: behind the member `cursor`, or the last ones before it.
    `field`: the parameter that names it."""

    limit: int
    field: str
    cursor: str | None

    @property
    def is_before(self) -> bool:
        """Whether the part ends before the cursor."""
        return self.field == "before_id"

    def part_of(self, data: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns the requested part of a whole list. Raises InvalidRequest: no member has the cursor's id."""
        if self.cursor is not None:
            ids = [each["id"] for each in data]
            if self.cursor not in ids:
                raise errors.invalid(self.field, "names no member of the list")
            at = ids.index(self.cursor)
            data = data[:at] if self.is_before else data[at + 1 :]
        page = data[-self.limit :] if self.is_before else data[: self.limit]
        return self.page(page, has_more=len(data) > self.limit)

    @staticmethod
    def page(data: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
        """Returns a page in Anthropic's form."""
        return {name: value for name, value in listed(data, has_more=has_more).items() if name != "object"}


def anthropic_paging_of(query: Query) -> AnthropicPaging:
    """Parses `limit`, `after_id` and `before_id`. Raises InvalidRequest: one of them breaks its rule."""
    check_named(query, "after_id", "before_id")
    if "after_id" in query and "before_id" in query:
        raise errors.invalid("before_id", "cannot be combined with after_id")
    field = "before_id" if "before_id" in query else "after_id"
    return AnthropicPaging(limit_of(query, ANTHROPIC_PAGE, ANTHROPIC_PAGE), field, query.get(field))


def metadata_of(query: Query) -> tuple[tuple[str, str], ...]:
    """Parses the pairs of `metadata[KEY]=VALUE`. Raises InvalidRequest: there are too many."""
    found = tuple((m.group(1), value) for name, value in query.items() if (m := METADATA.fullmatch(name)))
    if len(found) > MAX_METADATA_PAIRS:
        raise errors.invalid("metadata", f"may name {MAX_METADATA_PAIRS} keys")
    return found


def listed(data: Sequence[T], *, has_more: bool) -> ListObject[T]:
    """Returns a page in OpenAI's form; the next one begins after `last_id`."""
    first_id, last_id = [each["id"] for each in (data[0], data[-1])] if data else (None, None)  # type: ignore[index]
    return {"object": "list", "data": list(data), "first_id": first_id, "last_id": last_id, "has_more": has_more}


def given_metadata(value: Any) -> dict[str, str]:
    """Validates metadata; null is an empty object. Raises InvalidRequest: it breaks OpenAI's rules."""
    if value is None:
        return {}
    if not keeps_metadata_rules(value):
        raise errors.invalid(
            "metadata", "must be an object of up to 16 strings of up to 512 characters, keys of up to 64"
        )
    return dict(value)
