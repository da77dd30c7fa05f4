"""The parts of JSON with the places where they stand, read by the standard library's decoder, in C."""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # what the decoder itself reads strings with
from typing import Any, NamedTuple

DECODER = json.JSONDecoder(strict=False)
WHITE = re.compile(r"[ \t\r\n]*")
NEXT = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")


class Item(NamedTuple):
    """An element or a member: `start` is where its name begins, `value` where its value does."""

    start: int
    value: int
    end: int
    is_flat: bool


def items_of(text: str, item: Item) -> tuple[list[Item], int | None]:
    """The elements or members of an array or object, as far as they are whole, and where it ends (None: nowhere)."""
    found: list[Item] = []
    is_object = text[item.value] == "{"
    if not is_object and text[item.value] != "[":
        return found, None
    at = WHITE.match(text, item.value + 1).end()  # type: ignore[union-attr]
    while at < item.end and text[at] not in "]}":
        value = value_of_member(text, at) if is_object else at
        if value is None:
            return found, None
        try:
            decoded, until = DECODER.raw_decode(text, value)
        except (ValueError, RecursionError):
            return found, None
        found.append(Item(at, value, until, not isinstance(decoded, dict | list)))
        at = WHITE.match(text, until).end()  # type: ignore[union-attr]
        if at < item.end and text[at] not in ",]}":
            return found, None
        at = NEXT.match(text, at).end()  # type: ignore[union-attr]
    return found, at + 1 if at < item.end else None


def values_of(text: str, at: int, end: int) -> tuple[list[Item], int]:
    """Arrays and objects one after the other, and where they end."""
    found: list[Item] = []
    after = at
    while True:
        at = NEXT.match(text, at, end).end()  # type: ignore[union-attr]  # it matches anywhere
        if at >= end or text[at] not in "{[":
            return found, after
        try:
            _, after_value = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, after
        found.append(Item(at, at, after_value, False))
        at = after = after_value


def value_of_member(text: str, at: int) -> int | None:
    """Where the value of the member that begins there begins."""
    if text[at : at + 1] != '"':
        return None
    try:
        _, end = scanstring(text, at + 1, False)
    except ValueError:
        return None
    colon = COLON.match(text, end)
    return colon.end() if colon else None


def fields(text: str, origin: int) -> list[tuple[str, Any]]:
    """The values of the record that begins at `origin` by their paths (`items.0.price`), its own before nested ones."""
    try:
        value, _ = DECODER.raw_decode(text, origin)
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, Any]] = []
    level: list[tuple[str, Any]] = [("", value)]
    while level:
        below: list[tuple[str, Any]] = []
        for path, each in level:
            if isinstance(each, dict | list):
                members = each.items() if isinstance(each, dict) else enumerate(each)
                below.extend((f"{path}.{name}" if path else str(name), member) for name, member in members)
            else:
                found.append((path, each))
        level = below
    return found
