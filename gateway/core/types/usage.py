"""What a provider's usage says, by a chat's names: which figures can be true, and what was read from a prompt cache or
written to it, whatever a provider calls that (guarantee §6)."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MAX_TOKENS = 10**12
"""A reported count above this is not one."""
PARTS = ("prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details")
"""Objects that tell what a figure is made of; those of the prompt first."""
READ = frozenset(
    {
        *("cachedtokens", "cachereadinputtokens", "promptcachehittokens", "cachedinputtokens", "cachereadtokens"),
        *("cachereadinputtokencount", "cachedcontenttokencount", "cachedprompttokens", "cachedprompttexttokens"),
        *("numcachedtokens", "inputcachedtokens", "cachehittokens", "inputcachereadtokens"),
    }
)
"""Names for tokens read from a cache, in lower case and without underscores: OpenAI's (Moonshot's, Together's),
Anthropic's, DeepSeek's, OpenRouter's, Bedrock's, Gemini's, xAI's and those of gateways before them."""
WRITTEN = frozenset(
    {
        *("cachewritetokens", "cachecreationtokens", "cachecreationinputtokens", "cachewriteinputtokens"),
        *("cachedcreationtokens", "cachedcreationinputtokens", "cachewriteinputtokencount", "cachedwritetokens"),
        *("promptcachewritetokens", "inputcachewritetokens", "inputcachecreationtokens"),
    }
)
"""The same for tokens written to one."""
OF_PROMPT = READ | WRITTEN | {"promptcachemisstokens"}
SPLIT_BY_HOUR = ("cache_creation_token_details", "cache_creation")
"""Objects that tell how much was written for five minutes, and how much for an hour; in new-api's words, one name."""
HOUR, HOUR_ALONE = "ephemeral_1h_input_tokens", "claude_cache_creation_1_h_tokens"
COUNT = re.compile(r"tokens?(_?count)?$|^reasoning$", re.IGNORECASE)
"""How the names of counts of tokens end."""
FIGURES = ("prompt_tokens", "completion_tokens", "total_tokens")


def is_figure(value: Any) -> bool:
    """Whether it is a count of tokens: a whole number, be it written `12.0`, not below 0 and not absurd."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS


def figure(usage: Any, name: str) -> int:
    """A count among these, 0 where there is none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if type(value) is int:
        return value if 0 <= value <= MAX_TOKENS else 0
    return int(value) if type(value) is float and is_figure(value) else 0


def sound(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage without what cannot be true: counts that are negative, absurd, more than the whole that they are a part
    of, or no number. What counts no tokens stays as it is."""
    given = {name: int(usage[name]) for name in FIGURES if is_figure(usage.get(name))}
    sent, answered = given.get("prompt_tokens", MAX_TOKENS), given.get("completion_tokens", MAX_TOKENS)
    total = given.get("total_tokens", 0)
    if "total_tokens" in usage and total < sent + answered < MAX_TOKENS:
        given["total_tokens"] = sent + answered
    written = max(answered, total - sent)  # some count thoughts beside the answer
    kept: dict[str, Any] = {}
    for name, value in usage.items():
        if name in FIGURES:
            if name in given or value is None:
                kept[name] = given.get(name)
            continue
        part = name in PARTS
        is_prompts = name in PARTS[:2] or name in SPLIT_BY_HOUR or _plain(name) in OF_PROMPT
        most = sent if is_prompts else written if part or "reasoning" in name else MAX_TOKENS
        if isinstance(value, dict):
            kept[name] = _within(value, most)
        elif (value is None or not part) and _may_be(name, value, most):
            kept[name] = _counted(name, value)
    read, made = cache_tokens(kept)
    if read + made > sent:
        for holder in (kept, *(kept[name] for name in PARTS[:2] if isinstance(kept.get(name), dict))):
            for name in [name for name in holder if _plain(name) in WRITTEN]:
                del holder[name]
    return kept


def cache_tokens(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of a prompt that were read from a provider's cache, and that were written to it."""
    read = written = 0
    for holder in (usage.get(PARTS[0]), usage.get(PARTS[1]), usage):
        for name in holder if isinstance(holder, dict) else ():
            plain = _plain(name)
            if not read and plain in READ:
                read = figure(holder, name)
            elif not written and plain in WRITTEN:
                written = figure(holder, name)
    return read, written


def without_cache(usage: Mapping[str, Any]) -> dict[str, Any]:
    """What is told besides, for an API that has names of its own for `cache_tokens`."""
    return {name: value for name, value in usage.items() if _plain(name) not in OF_PROMPT}


def told(usage: Mapping[str, Any], names: frozenset[str]) -> list[int]:
    """The counts under these names, those of the details first; empty where a provider has none of the names."""
    holders = (usage.get(PARTS[0]), usage.get(PARTS[1]), usage)
    return [figure(each, name) for each in holders if isinstance(each, dict) for name in each if _plain(name) in names]


def written_for_an_hour(usage: Mapping[str, Any]) -> int:
    """Those of the written that are kept for an hour, where that is told."""
    details = usage.get("prompt_tokens_details")
    holders = (details, usage) if isinstance(details, dict) else (usage,)
    split = [figure(holder.get(name), HOUR) for holder in holders for name in SPLIT_BY_HOUR]
    return next(filter(None, (*split, *(figure(holder, HOUR_ALONE) for holder in holders))), 0)


@lru_cache(1024)
def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _may_be(name: str, value: Any, most: int) -> bool:
    return value is None or not COUNT.search(name) or (is_figure(value) and value <= most)


def _within(value: dict[str, Any], most: int) -> dict[str, Any]:
    found = {}
    for name, each in value.items():
        if isinstance(each, dict):
            found[name] = _within(each, most)
        elif _may_be(name, each, most):
            found[name] = _counted(name, each)
    return found


def _counted(name: str, value: Any) -> Any:
    """A count as the whole number that it is."""
    return int(value) if type(value) is float and COUNT.search(name) else value
