"""Which runs of a test belong to `make test`."""

import pytest


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """`number` is `few` in `make test`, and `many` in `make chaos`."""
    rows = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.chaos)]
    return pytest.mark.parametrize("number", rows)
