"""Lossless compaction: JSON loses its spacing, nothing else is touched (contract §4 I5)."""

import json


def compact(text: str) -> str:
    """The same JSON value without white space between its tokens, or the text itself if that is no shorter.

    Numbers keep their digits: they are read as text, so that no value is rounded on the way.
    """
    stripped = text.lstrip()
    if not stripped.startswith(("{", "[")):
        return text
    try:
        value = json.loads(
            text, parse_float=_Digits, parse_int=_Digits, object_pairs_hook=_Pairs, parse_constant=_no_json
        )
        shorter = "".join(_write(value))
        shorter.encode()
    except (ValueError, RecursionError):  # no JSON, too deep, or an escaped lone surrogate
        return text
    return shorter if len(shorter) < len(text) else text


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


class _Digits(str):
    """A number as it was written."""

    __slots__ = ()


class _Pairs(list[tuple[str, object]]):
    """An object's members in their order, doubled names included."""


def _write(value: object) -> list[str]:
    if isinstance(value, _Digits):
        return [str(value)]
    if isinstance(value, _Pairs):
        out = ["{"]
        for number, (key, member) in enumerate(value):
            out.append(("," if number else "") + json.dumps(key, ensure_ascii=False) + ":")
            out.extend(_write(member))
        return [*out, "}"]
    if isinstance(value, list):
        out = ["["]
        for number, member in enumerate(value):
            if number:
                out.append(",")
            out.extend(_write(member))
        return [*out, "]"]
    return [json.dumps(value, ensure_ascii=False)]
