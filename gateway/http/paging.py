"""Lists as OpenAI has them: the parameters that they take, and their shape."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from gateway.http.messages import invalid

METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)
MOST_LISTED = 100
MOST_PAIRS = 16
ORDERS = ("asc", "desc")
Query = Mapping[str, str]


def parameters(text: str) -> Query:
    """The parameters of a query, each with its first value; unknown ones are nobody's business."""
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}


def check_named(query: Query, *names: str) -> None:
    """
    Raises:
        InvalidRequest: one of these is there, and empty.
    """
    for name in names:
        if query.get(name) == "":
            raise invalid(name, "must not be empty")


def limit_of(query: Query) -> int:
    """How many a page may hold."""
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= MOST_LISTED):
        raise invalid("limit", f"must be a whole number from 1 to {MOST_LISTED}")
    return int(limit)


def newest_first(query: Query, default: str) -> bool:
    """Whether the order is `desc`."""
    order = query.get("order", default)
    if order not in ORDERS:
        raise invalid("order", "must be asc or desc")
    return order == "desc"


def metadata_of(query: Query) -> tuple[tuple[str, str], ...]:
    """The pairs of `metadata[KEY]=VALUE`."""
    found = tuple((m.group(1), value) for name, value in query.items() if (m := METADATA.fullmatch(name)))
    if len(found) > MOST_PAIRS:
        raise invalid("metadata", f"may name {MOST_PAIRS} keys")
    return found


def listed(data: list[Any], *, has_more: bool) -> dict[str, Any]:
    """A page, with the ids by which the next one is asked for."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"object": "list", "data": data, **ends, "has_more": has_more}
