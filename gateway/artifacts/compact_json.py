"""JSON without white space between its tokens. Its text is edited, never written anew: numbers keep their digits,
members their order and doubled names."""

import json
import re

import orjson

WHITE = str.maketrans("", "", " \t\r\n")
WHITE_IN_LINE = str.maketrans("", "", " \t\r")
ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
BACKSLASH, QUOTE = "\x00", "\x01"
"""Stand for an escaped backslash and an escaped quote: JSON's strings hold no control characters as they are."""


def compact_json(text: str) -> str | None:
    """The text of one JSON array or object, or of several on lines of their own, without its spacing; None if it is
    neither. Escapes become the characters they stand for, but for halves of surrogate pairs."""
    if _is_json(text):
        return _without(WHITE, text)
    if "\n" in text and all(map(_is_line, text.split("\n"))):
        return _without(WHITE_IN_LINE, text)
    return None


def _is_line(line: str) -> bool:
    """Whether it can stand in JSON lines: an array, an object, or nothing."""
    bare = line.strip(" \t\r")
    return not bare or (bare[0] in "{[" and _is_json(bare))


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except (
        ValueError
    ):  # whole numbers and halves of surrogate pairs of which orjson will not hear are JSON all the same
        pass
    else:
        return True
    try:
        json.loads(text, parse_constant=_no_json, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _without(white: dict[int, int | None], text: str) -> str:
    """Takes characters out of what stands outside of strings. Between two quotes that are not escaped stands, by turns,
    what is outside and what is inside of one."""
    escaped = "\\" in text
    if escaped:
        text = text.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)
    pieces = text.split('"')
    pieces[::2] = '"'.join(pieces[::2]).translate(white).split('"')
    text = '"'.join(pieces)
    if escaped:
        text = ESCAPES.sub(_unescaped, text).replace("\\/", "/")
        text = text.replace(QUOTE, '\\"').replace(BACKSLASH, "\\\\")
    return text


def _unescaped(match: re.Match[str]) -> str:
    """What `\\uXXXX` stands for, if JSON can hold it as it is."""
    characters = json.dumps(json.loads(f'"{match.group()}"'), ensure_ascii=False)[1:-1]
    try:
        characters.encode()
    except UnicodeEncodeError:
        return match.group()
    return characters.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)
