"""JSON as the whole house reads and writes it: orjson, with Decimal written as a number."""

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain
from typing import Any, AnyStr

import orjson

JSONDecodeError = orjson.JSONDecodeError
loads = orjson.loads
Fragment = orjson.Fragment
"""JSON that is written already, as a part of a value."""
MAX_DEPTH = 200
EXACT_BELOW = 1000
SMALL_BYTES = 4096
DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
NINETEEN_DIGITS = b"0" * 19
MIN_HUGE = 2.0**63
WIDE_BYTES = 4
"""Memory of a character of a text that is not all ASCII, at most; else it is one byte."""
PART_BYTES, VALUE_BYTES = 72, 16
"""Memory of an object or a list beside its values, and of a value beside its text."""
BESIDE_SIGNS = bytes(set(range(256)) - set(b"{[,"))
"""What is left out to count these signs at once: three counts of a long text take three to ten times as long."""
LINE_SEPARATORS = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2[\x80-\x9f]|\x7f")
"""What JSON need not escape, and yet ends a line or controls a terminal: U+2028, U+2029, U+007F to U+009F, in UTF-8."""
FLAT = frozenset((str, int, bool, float, type(None)))
NESTED = frozenset((dict, list))
ORJSON_LIMITS = re.compile("64-bit|[Rr]ecursion|surrogates")


def loads_exact(raw: bytes) -> Any:
    """`loads`, but whole numbers of any size keep their value: orjson turns those beyond 64 bits into doubles.

    Of several members with one name the last one counts, for us and for whoever is sent the value again.
    Raises JSONDecodeError: it is no JSON (NaN, Infinity, numbers beyond a double, halves of a surrogate pair and a byte
    order mark are none either), or it is nested more deeply than it could be written again."""
    return checked(raw, loads(raw))


def checked(raw: bytes, value: Any, *, small: bool = True, most_deep: int = MAX_DEPTH) -> Any:
    """`value`, parsed from `raw`, if no whole number in it has lost digits; else `raw` parsed again so that none has.
    `small`: whether a short `raw` may be looked at instead of the value; `most_deep`: how deeply it may be nested.
    Raises JSONDecodeError: the value is nested too deeply."""
    shallow = len(raw) <= 2 * MAX_DEPTH or (len(raw) < SMALL_BYTES and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH)
    if small and shallow and NINETEEN_DIGITS not in raw.translate(DIGITS_TO_ZERO):
        return value
    deep, huge = _survey(value, most_deep)
    if deep:
        raise JSONDecodeError(f"nested more than {most_deep} deep", "", 0)
    return json.loads(raw) if huge else value


def is_json(text: str) -> bool:
    """Whether a text is JSON by its grammar: numbers of any size, halves of surrogate pairs and all."""
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
    """Bytes of memory that a JSON text takes once it is parsed, about: `part_bytes` and `text_bytes`."""
    return part_bytes(raw) + text_bytes(raw)


def part_bytes(raw: AnyStr) -> int:
    """Those of its objects, lists and values beside their texts; signs that stand in texts count, too. Of pieces they
    add up to those of the whole."""
    signs = (raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")).translate(None, BESIDE_SIGNS)
    commas = signs.count(b",")
    return PART_BYTES * (len(signs) - commas) + VALUE_BYTES * commas


def text_bytes(raw: AnyStr) -> int:
    """Those of its texts."""
    return (1 if raw.isascii() else WIDE_BYTES) * len(raw)


def loads_answer(raw: bytes) -> Any:
    """`loads_exact` for what an upstream says, which was paid for. Half of a surrogate pair passes: servers that cut
    texts by UTF-16 units send a sign's halves in two chunks. Bytes that are no UTF-8 are U+FFFD; numbers that JSON has
    not (NaN, Infinity, those beyond a double) are null; texts may hold control characters as they are.
    Raises JSONDecodeError: it is no JSON all the same, or it is nested too deeply."""
    try:
        return checked(raw, loads(raw))
    except JSONDecodeError:
        text = raw.decode("utf-8", "replace")
    return _loads_standard(text, _null, strict=False)


def loads_mended(raw: bytes) -> Any:
    """`loads_exact` for what a client says: a half of a surrogate pair, as programs write that cut texts by UTF-16
    units, is U+FFFD.
    Raises JSONDecodeError: as `loads_exact`."""
    try:
        return loads_exact(raw)
    except JSONDecodeError as error:
        if b"\\u" not in raw or "surrogate" not in error.msg:
            raise
    return with_whole_characters(_loads_standard(raw, _not_json))


def _loads_standard(raw: bytes | str, odd: Callable[[str], Any], *, strict: bool = True) -> Any:
    """What orjson has not parsed.
    `odd`: makes the value of NaN, Infinity, and numbers beyond a double; `strict`: control characters in texts must be
    escaped."""

    def number(text: str) -> Any:
        return found if math.isfinite(found := float(text)) else odd(text)

    try:
        text = raw if isinstance(raw, str) else raw.decode()
        value = json.loads(text, parse_constant=odd, parse_float=number, strict=strict)
    except (ValueError, RecursionError) as error:
        raise JSONDecodeError(str(error), "", 0) from None
    if _survey(value)[0]:
        raise JSONDecodeError(f"nested more than {MAX_DEPTH} deep", "", 0)
    return value


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON's")


def _null(_: str) -> None:
    return None


def _survey(value: Any, most_deep: int = MAX_DEPTH) -> tuple[bool, bool]:
    """Whether a value is nested too deeply, and whether it holds a number that may have been a huge whole one.

    It goes level by level, so that C does the counting: 400 plain messages take 30 µs.
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
    """`loads`, with numbers as they are written: money beyond what a double can tell apart keeps its last digit.
    Raises ValueError: it is no JSON."""
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
    if isinstance(value, Fragment):
        return json.loads(orjson.dumps(value))
    return float(value) if isinstance(value, Decimal) else _plain(value)


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON. Money keeps its value, whatever its size."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError as error:
        if not ORJSON_LIMITS.search(str(error)):
            raise
    try:
        return _standard(value).encode()
    except UnicodeEncodeError:  # escaped, half of a surrogate pair goes on as it came
        return json.dumps(value, default=_plain_double, separators=(",", ":")).encode()


def _standard(value: Any) -> str:
    """For what orjson does not write."""
    return json.dumps(value, default=_plain_double, ensure_ascii=False, separators=(",", ":"))


def _whole(text: str) -> str:
    """Text with the halves of surrogate pairs joined; one without its other half is U+FFFD: no provider takes it."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def with_whole_characters(value: Any) -> Any:
    """The value, its texts as `_whole` has them."""
    try:
        orjson.dumps(value, default=_plain)
    except TypeError as error:
        if "surrogates" in str(error) or "64-bit" in str(error):
            return json.loads(_whole(_standard(value)))
    return value


def escaped(character: re.Match[bytes]) -> bytes:
    """A character as JSON may write it in a text: `\\u2028`."""
    return b"\\u%04x" % ord(character.group().decode())


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value in their order, names of members not among them."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict | list):
            waiting += reversed(each.values() if isinstance(each, dict) else each)


def dumps_text(value: Any) -> str:
    """`dumps`, as a string."""
    return dumps(value).decode()


def dumps_stored(value: Any) -> str:
    """`dumps_text` for `loads_stored`: a blank in front tells of whole numbers beyond 64 bits, so that reading what has
    none costs nothing. What is stored is valid Unicode."""
    try:
        return orjson.dumps(value, default=_plain).decode()
    except TypeError:
        return " " + _whole(_standard(value))


def loads_stored(text: str) -> Any:
    """What `dumps_stored` wrote, every number as it was."""
    return json.loads(text) if text.startswith(" ") else loads(text)


def canonical(value: Any) -> bytes:
    """Keys sorted, so that values that are equal as JSON give the same bytes; as it would be stored."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # whole numbers beyond 64 bits, or halves of surrogate pairs
        stored = json.loads(_whole(_standard(value)))
    if stored != value:
        return canonical(stored)
    return json.dumps(value, default=_plain_double, sort_keys=True, separators=(",", ":")).encode()
