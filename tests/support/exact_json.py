"""JSON compared as it is written: 1.0 is not 1, keys keep their order, no digit is lost."""

import json
from typing import Any


class Number(str):
    """A number's own digits; equal to another of the same kind and value."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number):
            return False
        whole = "." not in self.lower().replace("e", ".")
        return (
            whole == ("." not in other.lower().replace("e", "."))
            and repr(float(self)) == repr(float(other))
            and (not whole or int(self) == int(other))
        )

    def __hash__(self) -> int:
        return hash(float(self))


def as_written(raw: bytes | str) -> Any:
    """JSON with its numbers as `Number`."""
    return json.loads(raw, parse_float=Number, parse_int=Number)


def keys_in_order(value: Any) -> Any:
    """The keys of all objects in a value, in their order."""
    if isinstance(value, dict):
        return [(key, keys_in_order(member)) for key, member in value.items()]
    return [keys_in_order(member) for member in value] if isinstance(value, list) else None


MODES = ["auto", "simple", "off"]


ODD = (
    b'{"z": 1.0, "a": 1, "big": 123456789012345678901234567890, "edge": 18446744073709551616, "neg": -0.0, '
    b'"long": 9007199254740993, "tiny": 5e-324, "huge": 1.7976931348623157e308, "exp": 1E+2, "ten": 0.10, '
    b'"empty": "", "null": null, "list": [], "object": {}, "deep": [[[{"y": [true, false]}]]], '
    b'"text": "\\u00fc \\ud83c\\udf0a \\u2028 \\u0000 \\\\ \\/ \\" <&> \xe2\x80\xae\xf0\x9f\x8c\x8a", "\\u00e4 key": 0}'
)
