"""Parts of lists that are read by an index, however long the list is: each begins where the one before ended."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from gateway.core.types.report_lists import ListPart
from gateway.storage.stored_keys import storable
from gateway.storage.turns.completions import behind

Place = tuple[sa.Column[Any], sa.Column[Any]]
"""The columns that order a list: a time and an id."""


def in_part(place: Place, part: ListPart[Any]) -> Iterable[sa.ColumnElement[bool]]:
    """The rows within the times and behind the position that are asked for."""
    time = place[0]
    if part.since is not None:
        yield time >= part.since
    if part.until is not None:
        yield time < part.until
    if part.at is not None:
        yield behind(place, (part.at.time, storable(part.at.id)), newest_first=part.direction == "older")


def read_order(place: Place, part: ListPart[Any]) -> Iterable[sa.ColumnElement[Any]]:
    """The order in which a part is read: away from its position."""
    return [column.desc() if part.direction == "older" else column.asc() for column in place]
