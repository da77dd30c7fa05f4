"""Tool steps as they stand in messages: calls and their results, as tools make them, and as functions did before
there were tools (`function_call`, role `function`)."""

from collections.abc import Mapping
from typing import Any

RESULT_ROLES = ("tool", "function")
CALL_FIELDS = ("tool_calls", "function_call")


def calls_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that an assistant's message makes; empty for any other. That of a function has no id."""
    calls = [call for call in body.get("tool_calls") or () if isinstance(call, dict)]
    function = body.get("function_call")
    return [*calls, {"function": function}] if isinstance(function, dict) else calls


def without_calls(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an assistant said beside its calls."""
    return {name: value for name, value in body.items() if name not in CALL_FIELDS}


def take_call(calls: list[dict[str, Any]], result: Mapping[str, Any]) -> dict[str, Any]:
    """The call that a result answers, taken out of `calls`: where ids are repeated, their order counts (§3.3). A
    function's result names the function. Empty if there is none."""
    for number, call in enumerate(calls):
        if _answers(result, call):
            return calls.pop(number)
    return {}


def asked(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the tool that was called, and the arguments as they were written."""
    function, custom = call.get("function") or {}, call.get("custom") or {}
    arguments = function.get("arguments") or custom.get("input") or ""
    return str(function.get("name") or custom.get("name") or "tool"), str(arguments)


def _answers(result: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    if result.get("role") == "function":
        return "id" not in call and (call.get("function") or {}).get("name") == result.get("name")
    return str(call.get("id")) == str(result.get("tool_call_id"))
