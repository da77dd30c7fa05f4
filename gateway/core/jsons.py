"""JSON as the whole house reads and writes it: orjson, with Decimal written as a number."""

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain
from typing import Any, AnyStr

import orjson

Json = dict[str, Any]
"""A JSON object."""
JSONDecodeError = orjson.JSONDecodeError
loads = orjson.loads
Fragment = orjson.Fragment
"""JSON that is already serialized, as a part of a value."""
MAX_DEPTH = 200
EXACT_BELOW = 1000
SMALL_BYTES = 4096
DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
NINETEEN_DIGITS = b"0" * 19
MIN_HUGE = 2.0**63
WIDE_BYTES = 4
"""Most bytes of memory of a character of a text that is not all ASCII; in an ASCII text it takes one."""
PART_BYTES, VALUE_BYTES = 72, 16
"""Bytes of memory of an object or a list without its values, and of a value without its text."""
BESIDE_SIGNS = bytes(set(range(256)) - set(b"{[,"))
"""All bytes but `{`, `[` and `,`, deleted so that these can be counted: three counts of a long text take three to ten
times as long."""
LINE_SEPARATORS = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2[\x80-\x9f]|\x7f")
"""Characters that JSON need not escape, but that end a line or control a terminal: U+2028, U+2029, U+007F to U+009F,
in UTF-8."""
FLAT = frozenset((str, int, bool, float, type(None)))
NESTED = frozenset((dict, list))
ORJSON_LIMITS = re.compile("64-bit|[Rr]ecursion|surrogates")


def picked(value: object, *names: str) -> Json:
    """Returns attributes of a value by their names, in this order."""
    return {name: getattr(value, name) for name in names}


def loads_exact(raw: bytes) -> Any:
    """Parses JSON as `loads` does, but with integers of any size exact: orjson turns those beyond 64 bits into doubles.

    Of several members with one name the last one counts, here and wherever the value is sent.
    Raises JSONDecodeError: `raw` is not JSON (NaN, Infinity, numbers beyond a double, lone surrogates and a byte order
    mark are refused, too), or it is nested more deeply than `dumps` can write."""
    return checked(raw, loads(raw))


def checked(raw: bytes, value: Any, *, small: bool = True, most_deep: int = MAX_DEPTH) -> Any:
    """Returns `value`, parsed from `raw`, if no integer in it has lost digits; else parses `raw` again, exactly.
    `small`: whether a short `raw` may be inspected instead of the value; `most_deep`: levels of nesting allowed.
    Raises JSONDecodeError: the value is nested too deeply."""
    shallow = len(raw) <= 2 * MAX_DEPTH or (len(raw) < SMALL_BYTES and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH)
    if small and shallow and NINETEEN_DIGITS not in raw.translate(DIGITS_TO_ZERO):
        return value
    deep, huge = _survey(value, most_deep)
    if deep:
        raise JSONDecodeError(f"nested more than {most_deep} deep", "", 0)
    return json.loads(raw) if huge else value


def is_json(text: str) -> bool:
    """Returns whether a text is JSON by its grammar, which allows numbers of any size and lone surrogates."""
    try:
        loads(text)
    except ValueError:  # orjson refuses what it cannot represent
        pass
    else:
        return True
    try:
        json.loads(text, parse_constant=_not_json, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def parsed_bytes(raw: AnyStr) -> int:
    """Estimates the bytes of memory that a JSON text takes when parsed: `part_bytes` plus `text_bytes`."""
    return part_bytes(raw) + text_bytes(raw)


def part_bytes(raw: AnyStr) -> int:
    """Estimates the bytes of memory of a JSON text's objects, lists and values without their strings; braces, brackets
    and commas in strings count, too. The estimates of pieces add up to that of the whole."""
    signs = (raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")).translate(None, BESIDE_SIGNS)
    commas = signs.count(b",")
    return PART_BYTES * (len(signs) - commas) + VALUE_BYTES * commas


def text_bytes(raw: AnyStr) -> int:
    """Estimates the bytes of memory of a JSON text's strings."""
    return (1 if raw.isascii() else WIDE_BYTES) * len(raw)


def loads_answer(raw: bytes) -> Any:
    """Parses an upstream's answer leniently, since it was paid for; integers are exact as in `loads_exact`. Lone
    surrogates pass: servers that cut texts by UTF-16 units send a character's halves in two chunks. Bytes that are not
    UTF-8 become U+FFFD; NaN, Infinity and numbers beyond a double become null; strings may hold raw control characters.
    Raises JSONDecodeError: the answer is still not JSON, or it is nested too deeply."""
    try:
        return checked(raw, loads(raw))
    except JSONDecodeError:
        text = raw.decode("utf-8", "replace")
    return _loads_standard(text, lambda _: None, strict=False)


def object_in(raw: bytes) -> Json | None:
    """Parses an object leniently, as `loads_answer` does; None where it is none."""
    try:
        found = loads_answer(raw)
    except JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def loads_mended(raw: bytes, most_deep: int = MAX_DEPTH) -> Any:
    """Parses a client's JSON as `loads_exact` does, but a lone surrogate, as written by programs that cut texts by
    UTF-16 units, becomes U+FFFD. `most_deep`: levels of nesting allowed.
    Raises JSONDecodeError: as `loads_exact`."""
    try:
        return checked(raw, loads(raw), most_deep=most_deep)
    except JSONDecodeError as error:
        if b"\\u" not in raw or "surrogate" not in error.msg:
            raise
    return with_whole_characters(_loads_standard(raw, _not_json, most_deep=most_deep))


def _loads_standard(
    raw: bytes | str, odd: Callable[[str], Any], *, strict: bool = True, most_deep: int = MAX_DEPTH
) -> Any:
    """Parses by the standard library what orjson refused.
    `odd`: makes the value of NaN, Infinity and numbers beyond a double; `strict`: control characters in strings must
    be escaped; `most_deep`: as in `checked`."""

    def number(text: str) -> Any:
        return found if math.isfinite(found := float(text)) else odd(text)

    try:
        text = raw if isinstance(raw, str) else raw.decode()
        value = json.loads(text, parse_constant=odd, parse_float=number, strict=strict)
    except (ValueError, RecursionError) as error:
        raise JSONDecodeError(str(error), "", 0) from None
    if _survey(value, most_deep)[0]:
        raise JSONDecodeError(f"nested more than {most_deep} deep", "", 0)
    return value


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON's")


def _survey(value: Any, most_deep: int = MAX_DEPTH) -> tuple[bool, bool]:
    """Returns whether a value is nested too deeply, and whether it holds a double that may have been a huge integer.

    Works level by level, so that C code does the counting: 400 plain messages take 30 µs.
    """
    members: list[Any] = [value]
    huge = False
    for _ in range(most_deep + 1):
        kinds = set(map(type, members))
        if float in kinds and not huge:
            huge = any(type(member) is float and abs(member) >= MIN_HUGE for member in members)
        if kinds <= FLAT:
            return False, huge
        nested = members if kinds <= NESTED else [member for member in members if type(member) in NESTED]
        if list in kinds:
            members = list(chain.from_iterable([item.values() if type(item) is dict else item for item in nested]))
        else:
            members = list(chain.from_iterable(map(dict.values, nested)))
    return bool(members), huge


def loads_decimal(raw: bytes | str) -> Any:
    """Parses JSON with fractions as `Decimal`: amounts of money beyond the precision of a double keep their last digit.
    Raises ValueError: the text is not JSON."""
    return json.loads(raw, parse_float=Decimal)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        # Below this, 12 decimals are at most 15 digits, which a double's shortest form reproduces exactly.
        return float(value) if -EXACT_BELOW < value < EXACT_BELOW else orjson.Fragment(str(value))
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


def _plain_double(value: Any) -> Any:
    """Converts a value for the standard library, which cannot write Decimal."""
    if isinstance(value, Fragment):
        return json.loads(orjson.dumps(value))
    return float(value) if isinstance(value, Decimal) else _plain(value)


def dumps(value: Any) -> bytes:
    """Serializes a value as compact UTF-8 JSON. A Decimal of any size keeps its value."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError as error:
        if not ORJSON_LIMITS.search(str(error)):
            raise
    try:
        return _standard(value).encode()
    except UnicodeEncodeError:  # escaped, a lone surrogate passes unchanged
        return json.dumps(value, default=_plain_double, separators=(",", ":")).encode()


def _standard(value: Any) -> str:
    """Serializes by the standard library what orjson cannot write."""
    return json.dumps(value, default=_plain_double, ensure_ascii=False, separators=(",", ":"))


def _whole(text: str) -> str:
    """Joins the halves of surrogate pairs in a text; a lone half, which no provider accepts, becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def with_whole_characters(value: Any) -> Any:
    """Returns the value with the halves of surrogate pairs in its strings joined; a lone half becomes U+FFFD."""
    try:
        orjson.dumps(value, default=_plain)
    except TypeError as error:
        if "surrogates" in str(error) or "64-bit" in str(error):
            return json.loads(_whole(_standard(value)))
    return value


def escaped(character: re.Match[bytes]) -> bytes:
    """Returns a character as a JSON escape: `\\u2028`."""
    return b"\\u%04x" % ord(character.group().decode())


def texts_in(value: Any) -> Iterator[str]:
    """Yields the strings in a value in order, without the names of members."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict | list):
            waiting += reversed(each.values() if isinstance(each, dict) else each)


def dumps_text(value: Any) -> str:
    """Serializes a value by `dumps`, as a string."""
    return dumps(value).decode()


def dumps_stored(value: Any) -> str:
    """Serializes a value for storage, to be read by `loads_stored`: a leading blank marks integers beyond 64 bits, so
    that reading a value without them costs nothing extra. The text is valid Unicode."""
    try:
        return orjson.dumps(value, default=_plain).decode()
    except TypeError:
        return " " + _whole(_standard(value))


def loads_stored(text: str) -> Any:
    """Parses what `dumps_stored` wrote; every number is exact."""
    return json.loads(text) if text.startswith(" ") else loads(text)


def canonical(value: Any) -> bytes:
    """Serializes a value with sorted keys, so that values that are equal when stored as JSON give the same bytes."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits, or lone surrogates
        stored = json.loads(_whole(_standard(value)))
    if stored != value:
        return canonical(stored)
    return json.dumps(value, default=_plain_double, sort_keys=True, separators=(",", ":")).encode()
