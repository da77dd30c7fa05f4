"""JSON as the whole house reads and writes it: orjson, with Decimal written as a number."""

import json
import re
from decimal import Decimal
from typing import Any

import orjson

JSONDecodeError = orjson.JSONDecodeError
loads = orjson.loads
ORJSON_LIMITS = re.compile("64-bit|[Rr]ecursion")
LONG_NUMBER = re.compile(rb"(?<![.\d])\d{19}")


def loads_exact(raw: bytes) -> Any:
    """`loads`, but whole numbers of any size keep their value: orjson turns those beyond 64 bits into doubles.

    Raises:
        JSONDecodeError: it is no JSON; NaN and Infinity are none either.
    """
    value = loads(raw)
    return json.loads(raw) if LONG_NUMBER.search(raw) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON. Money keeps its value: 12 decimals and a double's shortest form agree."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError as error:
        if not ORJSON_LIMITS.search(str(error)):
            raise
        return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def dumps_text(value: Any) -> str:
    """`dumps`, as a string."""
    return dumps(value).decode()


def canonical(value: Any) -> bytes:
    """Keys sorted, so that values that are equal as JSON give the same bytes."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # whole numbers beyond 64 bits
        return json.dumps(value, default=_plain, sort_keys=True, separators=(",", ":")).encode()
