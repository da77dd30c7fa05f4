"""The short form of an answer that calls tools: its calls without their long inputs, mostly text written into a file
long ago (guarantee §4 I7). It follows from the answer alone, so a frame need not hold it."""

from operator import is_
from typing import Any

from gateway.core import jsons
from gateway.core.types import items

MIN_LONG_INPUT = 500
"""Fewest characters of a text in a call's arguments that is left out."""
MAX_HEAD = 120
"""Most characters of the text's first line that stays. A longer line is left out as a whole: half of it could be half a
value, which masking does not recognise."""


def with_short_inputs(body: dict[str, Any]) -> dict[str, Any]:
    """Shortens the long inputs of an answer's tool calls to a short first line; most are text written into a file long
    ago. Returns the same answer if nothing is long, or if more than the calls would have to change."""
    if body.get("role") != "assistant" or any(body.get(name) for name in items.IN_BLOCKS) or _is_sealed(body):
        return body
    calls = body.get("tool_calls") or ()
    short = [_short_call(call) for call in calls]
    return body if all(map(is_, short, calls)) else {**body, "tool_calls": short}


def _is_sealed(said: dict[str, Any]) -> bool:
    """Returns whether a provider signed any of these fields, and may check the signature against the call."""
    sealed = (said.get(name) for name in items.SEALED)
    return any(any(each.values()) if isinstance(each, dict) else each for each in sealed)


def _short_call(call: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the long inputs of a call. Calls whose fields an API knows, and may check, stay whole."""
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
