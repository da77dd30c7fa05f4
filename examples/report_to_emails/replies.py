"""Reads what a model answers when it was asked for JSON. A small model's JSON may be cut, wrapped in words, or none."""

import json
import re
from typing import Any

Json = dict[str, Any]
FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
PERSON = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s*([A-Z][\w.'-]+(?: [A-Z][\w.'-]+)+)\s*[,:–-]\s*(.+)$", re.MULTILINE)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SCORE = re.compile(r"\b(10|[1-9])\s*(?:/|out of)\s*10\b|\bscore\W{1,5}(10|[1-9])\b", re.IGNORECASE)


def object_in(text: str) -> Json | None:
    """The first JSON object in a text, also one that is cut off behind a whole member; None if there is none."""
    fenced = FENCE.search(text)
    for candidate in (fenced.group(1), text) if fenced else (text,):
        start = candidate.find("{")
        if start < 0:
            continue
        try:
            found, _ = json.JSONDecoder().raw_decode(candidate[start:])
        except ValueError:
            found = _mended(candidate[start:])
        if isinstance(found, dict):
            return found
    return None


def _mended(text: str) -> Any:
    """A cut object: ended behind the last member from which it can be closed."""
    for end in range(len(text), 1, -1):
        if text[end - 1] not in '}],"0123456789':
            continue
        beginning = text[:end].rstrip(", \n")
        try:
            return json.loads(beginning + _closing(beginning))
        except ValueError:
            continue
    return None


def _closing(text: str) -> str:
    """What closes all that is open in a text of JSON, whose strings are whole."""
    closing: list[str] = []
    for character in STRING.sub("", text):
        if character in "{[":
            closing.append("}" if character == "{" else "]")
        elif character in "}]" and closing:
            closing.pop()
    return "".join(reversed(closing))


def text_of(value: Any) -> str:
    """A value as one line of text; empty for what is no text."""
    return " ".join(value.split()) if isinstance(value, str) else ""


def objects_of(value: Any, *needed: str) -> list[Json]:
    """The objects of a list that have texts under these names."""
    members = value if isinstance(value, list) else []
    return [each for each in members if isinstance(each, dict) and all(text_of(each.get(name)) for name in needed)]


def people_in(text: str) -> list[tuple[str, str]]:
    """Names and what stands behind them, from lines like `- Ingrid Aas, chair of the board: …`."""
    return [(name, " ".join(rest.split())) for name, rest in PERSON.findall(text)]


def score_in(found: Json | None, text: str) -> int | None:
    """A score of 1 to 10; None if the answer gives none."""
    value = (found or {}).get("score")
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 10:
        return round(value)
    said = SCORE.search(text)
    return int(said.group(1) or said.group(2)) if said else None
