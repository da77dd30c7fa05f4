"""JSON as the whole house reads and writes it: orjson, with Decimal written as a number."""

from decimal import Decimal
from typing import Any

import orjson

JSONDecodeError = orjson.JSONDecodeError
loads = orjson.loads


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON. Money keeps its value: 12 decimals and a double's shortest form agree."""
    return orjson.dumps(value, default=_plain)


def dumps_text(value: Any) -> str:
    """`dumps`, as a string."""
    return dumps(value).decode()


def canonical(value: Any) -> bytes:
    """Keys sorted, so that values that are equal as JSON give the same bytes."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
