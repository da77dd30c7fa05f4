"""JSON as the whole house reads and writes it: orjson, with Decimal written as a number."""

import json
import re
from decimal import Decimal
from typing import Any

import orjson

JSONDecodeError = orjson.JSONDecodeError
loads = orjson.loads
MAX_DEPTH = 200
EXACT_BELOW = 1000
OPENING = b"[{"
NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
ORJSON_LIMITS = re.compile("64-bit|[Rr]ecursion")
LONG_NUMBER = re.compile(rb"(?<![.\d])\d{19}")


def loads_exact(raw: bytes) -> Any:
    """`loads`, but whole numbers of any size keep their value: orjson turns those beyond 64 bits into doubles.

    Raises:
        JSONDecodeError: it is no JSON; NaN and Infinity are none either.
    """
    value = loads(raw)
    return json.loads(raw) if LONG_NUMBER.search(raw) else value


def loads_decimal(raw: bytes | str) -> Any:
    """`loads`, with numbers as they are written: money beyond what a double can tell apart keeps its last digit.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(raw, parse_float=Decimal)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        # Below this, 12 decimals are at most 15 digits, which a double's shortest form gives back unchanged.
        return float(value) if -EXACT_BELOW < value < EXACT_BELOW else orjson.Fragment(str(value))
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


def _plain_double(value: Any) -> Any:
    """For the standard library, which can write no Decimal."""
    return float(value) if isinstance(value, Decimal) else _plain(value)


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON. Money keeps its value, whatever its size."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError as error:
        if not ORJSON_LIMITS.search(str(error)):
            raise
        return json.dumps(value, default=_plain_double, ensure_ascii=False, separators=(",", ":")).encode()


def dumps_text(value: Any) -> str:
    """`dumps`, as a string."""
    return dumps(value).decode()


def canonical(value: Any) -> bytes:
    """Keys sorted, so that values that are equal as JSON give the same bytes."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # whole numbers beyond 64 bits
        return json.dumps(value, default=_plain_double, sort_keys=True, separators=(",", ":")).encode()


def is_deep(raw: bytes, value: Any) -> bool:
    """Whether a value is nested more deeply than orjson can write it again.

    Brackets inside strings are counted at first, which can only say too much; then the value itself is measured.
    """
    depth = deepest = 0
    for byte in raw.translate(None, NOT_BRACKETS):
        depth += 1 if byte in OPENING else -1
        deepest = max(deepest, depth)
    if deepest <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [member for member in members if isinstance(member, dict | list)]
