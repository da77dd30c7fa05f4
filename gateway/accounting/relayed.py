"""The usage of other APIs than chats, in the names of a chat's, and its price (guarantee §13.8)."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gateway.accounting.cost import ZERO, is_amount, price_call
from gateway.models.bill import CallCost
from gateway.models.usage import is_figure, sound

ENDPOINTS = {
    "embeddings": "embeddings",
    "moderations": "moderations",
    "audio/speech": "audio",
    "audio/transcriptions": "audio",
    "audio/translations": "audio",
    "images/generations": "images",
    "images/edits": "images",
    "images/variations": "images",
    "completions": "completions",
}
"""The paths below `/v1/` that ask a model, by the name of their API in the ledger."""
FIGURES = frozenset(("prompt_tokens", "completion_tokens"))
WRITES_NOTHING = ("embeddings", "moderations")
"""APIs whose models have no output that is paid: their input price is all of their price."""
NAMES = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("input_tokens_details", "prompt_tokens_details"),
    ("input_token_details", "prompt_tokens_details"),
    ("output_tokens_details", "completion_tokens_details"),
    ("output_token_details", "completion_tokens_details"),
)
KIND_OF_OUTPUT = {"images": "image_tokens", "audio/speech": "audio_tokens"}
"""What the output is where the usage does not tell its parts."""
MOST_FIGURES, NAME_CHARS = 50, 64
"""What is kept of a usage at most: members of an object, and characters of a name."""
Count = Callable[[str], int]


def chat_usage(path: str, reported: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an answer reports, in a chat's names; None if it tells no figures that a price could stand on.

    Args:
        path: of the call, below `/v1/`.
    """
    endpoint = ENDPOINTS[path]
    usage = _figures(reported)
    for theirs, ours in NAMES:
        if theirs in usage:
            usage.setdefault(ours, usage.pop(theirs))
    seconds = usage.get("seconds")
    if usage.get("type") == "duration" and is_amount(seconds):
        return {**usage, "units": {"seconds": seconds}}
    usage.pop("units", None)  # a name of ours
    usage = sound(usage)
    if not is_figure(usage.get("prompt_tokens")):
        return None
    written = usage.get("completion_tokens")
    if not is_figure(written):
        usage.pop("completion_tokens", None)
        return usage if endpoint in WRITES_NOTHING else None
    kind = KIND_OF_OUTPUT.get(path) or KIND_OF_OUTPUT.get(endpoint)
    if kind is not None and not usage.get("completion_tokens_details"):
        usage["completion_tokens_details"] = {kind: written}
    return usage


def _figures(usage: Mapping[str, Any], deep: int = 2) -> dict[str, Any]:
    """What is no content, whoever wrote it: numbers, short names, and objects of these."""
    found: dict[str, Any] = {}
    for name, value in list(usage.items())[:MOST_FIGURES]:
        if len(name) > NAME_CHARS:
            continue
        if value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= NAME_CHARS):
            found[name] = value
        elif isinstance(value, dict) and deep:
            found[name] = _figures(value, deep - 1)
    return found


def price_relayed(
    path: str, route: str, usage: Mapping[str, Any], prices: Mapping[str, Decimal], *, estimated: bool
) -> CallCost:
    """Prices a relayed call. One whose tokens nobody knows is unpriced, unless it is charged by something else.

    Args:
        usage: in a chat's names; with None for tokens that there are and nobody counted.
        estimated: the gateway counted.
    """
    if ENDPOINTS[path] in WRITES_NOTHING and "input_cost_per_token" in prices:
        prices = {"output_cost_per_token": ZERO, **prices}
    known = {name: value for name, value in usage.items() if value is not None or name not in FIGURES}
    if len(known) < len(usage) or not known.keys() & FIGURES:
        prices = {name: price for name, price in prices.items() if "_per_token" not in name}
    return price_call("primary", route, known, prices, estimated=estimated)


def units_of(path: str, fields: Mapping[str, Any]) -> dict[str, int]:
    """What a request is charged by where its model has no price for tokens: characters to speak, pictures to draw."""
    text, number = fields.get("input"), fields.get("n", 1)
    if path == "audio/speech":
        return {"characters": len(text)} if isinstance(text, str) else {}
    if ENDPOINTS[path] == "images":
        number = int(number) if isinstance(number, str) and number.isdecimal() else number
        return {"images": 1 if number is None else number} if number is None or is_figure(number) else {}
    return {}


def input_tokens(path: str, fields: Mapping[str, Any], count: Count) -> int | None:
    """Tokens of what a request gives its model to read; None where that is not text alone, or not in the request.

    Args:
        fields: all members of its body.
    """
    match path:
        case "embeddings" | "moderations" | "audio/speech":
            return _tokens(fields.get("input"), count)
        case "completions":
            return _tokens(fields.get("prompt"), count)
        case "images/generations":
            return _tokens(fields.get("prompt"), count)
    return None


def _tokens(value: Any, count: Count) -> int | None:
    """Of a text, of several, of tokens, or of several lists of them."""
    if isinstance(value, str):
        return count(value)
    if not isinstance(value, list):
        return None
    if all(type(each) is int for each in value):
        return len(value)
    return _sum(_part(each, count) if isinstance(each, dict) else _tokens(each, count) for each in value)


def _part(part: dict[str, Any], count: Count) -> int | None:
    text = part.get("text")
    return count(text) if isinstance(text, str) and str(part.get("type")).endswith("text") else None


def _sum(counts: Any) -> int | None:
    total = 0
    for each in counts:
        if each is None:
            return None
        total += each
    return total
