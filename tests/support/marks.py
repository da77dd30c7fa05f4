"""Which runs of a test belong to `make test`."""

from collections.abc import Sequence
from typing import Any

import pytest


def some_or_all(all_of_them: Sequence[Any], some: Sequence[Any]) -> list[Any]:
    """`some` of the values in `make test`, the others in `make chaos`."""
    return [pytest.param(each, marks=[] if each in some else pytest.mark.chaos) for each in all_of_them]


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """`number` is `few` in `make test`, and `many` in `make chaos`."""
    rows = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.chaos)]
    return pytest.mark.parametrize("number", rows)
