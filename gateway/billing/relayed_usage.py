"""The usage of other APIs than chats, in the names of a chat's, and its price (guarantee §13.8)."""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gateway.billing.cost import ZERO, is_amount, price_call
from gateway.core.types import bill

RELAYED_ENDPOINTS = {
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
"""The paths below `/v1/` that call a model, each with the name of its API in the ledger."""
TOKEN_FIGURES = frozenset(("prompt_tokens", "completion_tokens"))
WRITES_NOTHING = ("embeddings", "moderations")
"""APIs whose models have no billed output: their input price is their whole price."""
CHAT_NAMES = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("input_tokens_details", "prompt_tokens_details"),
    ("input_token_details", "prompt_tokens_details"),
    ("output_tokens_details", "completion_tokens_details"),
    ("output_token_details", "completion_tokens_details"),
)
KIND_OF_OUTPUT = {"images": "image_tokens", "audio/speech": "audio_tokens"}
"""The kind of output tokens where the usage does not break them down."""
MAX_FIGURES, NAME_CHARS = 50, 64
"""The most that is retained of a usage: members of an object, and characters of a name."""
Count = Callable[[str], int]
IMAGE_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
PICTURE_TOKENS = {"low": 272, "medium": 1056, "standard": 1056}
MAX_PICTURE_TOKENS = 4160
"""Output tokens of an image of 2**20 pixels at OpenAI's models: by its quality, and at most."""
LARGEST_PICTURE = 1536 * 1024
PARTIAL_TOKENS = 100
MAX_PICTURE_BYTES = 50 * 2**20
SPOKEN_TOKENS = 2
"""Tokens of speech per character, at most."""
MIN_BYTES_A_SECOND, HEARD_TOKENS, WRITTEN_TOKENS = 2000, 20, 10
"""Per second of a recording: the fewest bytes (16 kbit/s), and the most tokens of input and of output."""
DEARER = {
    "input_cost_per_token": ("input_cost_per_image_token", "input_cost_per_audio_token"),
    "output_cost_per_token": ("output_cost_per_image_token", "output_cost_per_audio_token"),
}


def chat_usage(path: str, reported: Mapping[str, Any]) -> dict[str, Any] | None:
    """Converts the usage of an answer to a chat's names; None if it has no figures that a price could rest on. Of the
    legacy API's one figure is enough: the gateway counts the other.
    `path`: of the call, below `/v1/`."""
    endpoint = RELAYED_ENDPOINTS[path]
    usage = _figures(reported)
    for theirs, ours in CHAT_NAMES:
        if theirs in usage:
            usage.setdefault(ours, usage.pop(theirs))
    seconds = usage.get("seconds")
    if usage.get("type") == "duration" and is_amount(seconds):
        return {**usage, "units": {"seconds": seconds}}
    usage.pop("units", None)  # a name of ours
    usage = bill.sound(usage)
    lacking = {name for name in TOKEN_FIGURES if not bill.is_figure(usage.get(name))}
    usage = {name: value for name, value in usage.items() if name not in lacking}
    if lacking:
        is_enough = "prompt_tokens" not in lacking if endpoint in WRITES_NOTHING else endpoint == "completions"
        return usage if is_enough and lacking != TOKEN_FIGURES else None
    written = usage["completion_tokens"]
    kind = KIND_OF_OUTPUT.get(path) or KIND_OF_OUTPUT.get(endpoint)
    if kind is not None and not usage.get("completion_tokens_details"):
        usage["completion_tokens_details"] = {kind: written}
    return usage


def lacks_figures(path: str, usage: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Returns whether a usage has a 0, or nothing, where there may be text: servers that do not count report 0, too.
    `usage`: in a chat's names; `fields`: all members of the request's body."""
    endpoint = RELAYED_ENDPOINTS[path]
    if endpoint in WRITES_NOTHING:
        return not usage["prompt_tokens"]
    if endpoint != "completions":
        return False
    if fields.get("echo"):  # the answer holds the prompt, so a 0 may be true
        return not usage.keys() >= TOKEN_FIGURES
    return not all(usage.get(name) for name in TOKEN_FIGURES)


def completed(reported: dict[str, Any] | None, counted: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fills zeros and gaps of the reported usage with the gateway's counts; returns the usage and whether any of it is
    counted.
    `counted`: None for tokens that exist and nobody could count; {} where the gateway could count none."""
    if not (reported and counted):
        return counted, True
    missing = {
        name: count
        for name, count in counted.items()
        if not reported.get(name) and (count != 0 or name not in reported)
    }
    kept = {name: value for name, value in reported.items() if name != "total_tokens" or not missing}
    return {**kept, **missing}, bool(missing)


def _figures(usage: Mapping[str, Any], deep: int = 2) -> dict[str, Any]:
    """Returns what is no content in a usage, whoever wrote it: numbers, short names, and objects of these."""
    found: dict[str, Any] = {}
    for name, value in list(usage.items())[:MAX_FIGURES]:
        if len(name) > NAME_CHARS:
            continue
        if value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= NAME_CHARS):
            found[name] = value
        elif isinstance(value, dict) and deep:
            found[name] = _figures(value, deep - 1)
    return found


def price_relayed(
    path: str, route: str, usage: Mapping[str, Any], prices: Mapping[str, Decimal], *, estimated: bool
) -> bill.CallCost:
    """Prices a relayed call. A call of unknown tokens is unpriced, unless it is charged by another unit.
    `usage`: in a chat's names; None for tokens that exist and nobody counted; `estimated`: the gateway counted."""
    if RELAYED_ENDPOINTS[path] in WRITES_NOTHING and "input_cost_per_token" in prices:
        prices = {"output_cost_per_token": ZERO, **prices}
    known = {name: value for name, value in usage.items() if value is not None or name not in TOKEN_FIGURES}
    if len(known) < len(usage) or not known.keys() & TOKEN_FIGURES:
        prices = {name: price for name, price in prices.items() if "_per_token" not in name}
    return price_call("primary", route, known, prices, estimated=estimated)


def units_of(path: str, fields: Mapping[str, Any]) -> dict[str, int]:
    """Counts the units that are charged where a model has no token price: characters to speak, images to draw."""
    text, number = fields.get("input"), fields.get("n", 1)
    if path == "audio/speech":
        return {"characters": len(text)} if isinstance(text, str) else {}
    if RELAYED_ENDPOINTS[path] == "images":
        number = _number(number)
        if number is not None and not bill.is_figure(number):
            return {}
        images = 1 if number is None else number
        size = IMAGE_SIZE.fullmatch(str(fields.get("size")))
        return {"images": images, "pixels": images * int(size[1]) * int(size[2])} if size else {"images": images}
    return {}


def most_usage(
    path: str, fields: Mapping[str, Any], sizes: tuple[int, int], count: Count, longest: int
) -> dict[str, Any]:
    """Estimates the most that a call may use, by its body: prompts, `max_tokens`, `n`, `best_of`, size and quality of
    images, characters to speak, length of recordings.
    `sizes`: bytes of its body (no prompt has more tokens), and of files in it; `longest`: tokens of an answer that
    names no limit."""
    body, files = sizes
    prompt, times = input_tokens(path, fields, count), max(_least_one(fields, "n"), _least_one(fields, "best_of"))
    usage: dict[str, Any] = {"prompt_tokens": body - files if prompt is None else prompt, "completion_tokens": 0}
    units = units_of(path, fields)
    match RELAYED_ENDPOINTS[path]:
        case "completions":
            prompts = fields.get("prompt")
            several = len(prompts) if isinstance(prompts, list) and not all(type(p) is int for p in prompts) else 1
            named = _number(fields.get("max_tokens"))
            usage["completion_tokens"] = (named if bill.is_figure(named) else longest) * times * max(several, 1)
        case "images":
            pixels = units.get("pixels") or times * LARGEST_PICTURE
            partial = _number(fields.get("partial_images"))
            written = math.ceil(pixels * PICTURE_TOKENS.get(str(fields.get("quality")), MAX_PICTURE_TOKENS) / 2**20)
            usage["completion_tokens"] = written + (PARTIAL_TOKENS * partial * times if bill.is_figure(partial) else 0)
            usage["prompt_tokens"] += MAX_PICTURE_TOKENS * 3 // 2 * -(-files // MAX_PICTURE_BYTES)
        case "audio" if path == "audio/speech":
            usage["completion_tokens"] = SPOKEN_TOKENS * units.get("characters", body)
        case "audio":
            units = {"seconds": -(-files // MIN_BYTES_A_SECOND)}
            usage["prompt_tokens"] += HEARD_TOKENS * units["seconds"]
            usage["completion_tokens"] = WRITTEN_TOKENS * units["seconds"]
    return {**usage, "units": units}


def most_price(path: str, usage: Mapping[str, Any], prices: Mapping[str, Decimal]) -> Decimal | None:
    """Prices the most that a call may use, in USD: by tokens or by units, whichever is dearer; None if unpriced."""
    dear = {**prices}
    for name, kinds in DEARER.items():
        known = [prices[each] for each in (name, *kinds) if each in prices]
        if known:
            dear[name] = max(known)
    tokens = {name: value for name, value in usage.items() if name != "units"}
    found = (price_relayed(path, "", each, dear, estimated=True) for each in (tokens, {"units": usage["units"]}))
    known = [call.total for call in found if call.total is not None]
    return max(known, default=None)


def _number(value: Any) -> Any:
    """Returns a number that a form may hold as text as an int; any other value unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < NAME_CHARS else value


def _least_one(fields: Mapping[str, Any], name: str) -> int:
    number = _number(fields.get(name))
    return max(1, number) if bill.is_figure(number) else 1


def input_tokens(path: str, fields: Mapping[str, Any], count: Count) -> int | None:
    """Counts the tokens of a request's input; None where it is not text alone, or not in the request.
    `fields`: all members of its body."""
    match path:
        case "embeddings" | "moderations" | "audio/speech":
            return _tokens(fields.get("input"), count)
        case "completions":
            return _tokens(fields.get("prompt"), count)
        case "images/generations":
            return _tokens(fields.get("prompt"), count)
    return None


def _tokens(value: Any, count: Count) -> int | None:
    """Counts the tokens of a text, of several texts, of a list of tokens, or of several such lists."""
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
