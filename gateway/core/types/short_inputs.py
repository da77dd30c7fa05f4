"""The short form of an answer that calls tools: its calls without their long inputs, mostly what was written into a
file long ago (guarantee §4 I7). It follows from the answer alone, so that a frame need not hold it."""

from operator import is_
from typing import Any

from gateway.core import jsons
from gateway.core.types import items

MIN_LONG_INPUT = 500
"""Characters of a text in a call's arguments that may be left out."""
MAX_HEAD = 120
"""Characters of its first line, which stays if it has no more: half a line could be half a value, which masking does
not know."""


def with_short_inputs(body: dict[str, Any]) -> dict[str, Any]:
    """An answer of which the calls' long inputs are left out but for a short first line: what was written into a
    file long ago, mostly. The same where nothing is long, or where more than the calls would have to change."""
    if body.get("role") != "assistant" or any(body.get(name) for name in items.IN_BLOCKS) or _is_sealed(body):
        return body
    calls = body.get("tool_calls") or ()
    short = [_short_call(call) for call in calls]
    return body if all(map(is_, short, calls)) else {**body, "tool_calls": short}


def _is_sealed(said: dict[str, Any]) -> bool:
    """Whether a provider signed something in it, and may check that against the call."""
    sealed = (said.get(name) for name in items.SEALED)
    return any(any(each.values()) if isinstance(each, dict) else each for each in sealed)


def _short_call(call: dict[str, Any]) -> dict[str, Any]:
    """A call with its long inputs left out. What an API knows by their fields, and may check, stays whole."""
    function, custom = call.get("function"), call.get("custom")
    if items.TYPED in call or _is_sealed(call) or (isinstance(function, dict) and _is_sealed(function)):
        return call
    if isinstance(function, dict) and len(written := function.get("arguments") or "") >= MIN_LONG_INPUT:
        try:
            given = jsons.loads_exact(written.encode())
        except ValueError:
            return call
        short = _short_input(given)
        return call if short == given else {**call, "function": {**function, "arguments": jsons.dumps_text(short)}}
    if isinstance(custom, dict) and isinstance(written := custom.get("input"), str) and len(written) >= MIN_LONG_INPUT:
        return {**call, "custom": {**custom, "input": _short_input(written)}}
    return call


def _short_input(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) < MIN_LONG_INPUT:
            return value
        end = value.find("\n", 0, MAX_HEAD + 1) + 1
        return f"{value[:end]}[{len(value) - end:,} characters are left out here; the call was made with all of them]"
    if isinstance(value, list):
        return [_short_input(each) for each in value]
    return {name: _short_input(each) for name, each in value.items()} if isinstance(value, dict) else value
