"""Tools and their choice: a request's as a chat has them. Hosted ones stay as they are."""

from typing import Any

from gateway.errors import invalid, missing
from gateway.wire.responses.items import filled

Json = dict[str, Any]
CHOICES = ("none", "auto", "required")
MODES = ("auto", "required")
OWN_KINDS = ("function", "custom")
"""Kinds of tools that clients run themselves, and that a chat has, too."""


def chat_tools(value: Any) -> tuple[list[Json], list[tuple[int, Json]]]:
    """The tools that a chat has, and the others with their places.

    Raises:
        InvalidRequest: names `tools[i]…`.
    """
    if value is None:
        return [], []
    if not isinstance(value, list):
        raise invalid("tools", "must be a list")
    own: list[Json] = []
    hosted: list[tuple[int, Json]] = []
    for index, tool in enumerate(value):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise invalid(where, "must be an object")
        kind = filled(tool, "type", where)
        if kind not in OWN_KINDS:
            hosted.append((index, tool))
        elif isinstance(tool.get(kind), dict):  # in a chat's shape, as some clients mix them
            own.append(tool)
        else:
            own.append(_function(tool, where) if kind == "function" else _custom(tool, where))
    return own, hosted


def _function(tool: Json, where: str) -> Json:
    filled(tool, "name", where)
    return {"type": "function", "function": _given(tool)}


def _custom(tool: Json, where: str) -> Json:
    filled(tool, "name", where)
    custom = _given(tool)
    shape = custom.get("format")
    if isinstance(shape, dict) and shape.get("type") == "grammar" and "grammar" not in shape:
        grammar = {name: value for name, value in shape.items() if name != "type"}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": custom}


def _given(tool: Json) -> Json:
    return {name: value for name, value in tool.items() if name != "type" and value is not None}


def chat_tool_choice(value: Any) -> tuple[Any, bool]:
    """The choice as a chat has it, and whether it is one of hosted tools, which no chat has.

    Raises:
        InvalidRequest: names `tool_choice…`.
    """
    if value is None or isinstance(value, str):
        if value not in (None, *CHOICES):
            raise invalid("tool_choice", f"must be one of {', '.join(CHOICES)}, or an object")
        return value, False
    if not isinstance(value, dict):
        raise invalid("tool_choice", "must be a string or an object")
    kind = filled(value, "type", "tool_choice")
    if kind in OWN_KINDS:
        return _chosen(value, "tool_choice"), False
    if kind == "allowed_tools":
        return _allowed(value)
    return value, True


def _chosen(value: Json, where: str) -> Json:
    kind = value["type"]
    if isinstance(value.get(kind), dict):
        return value
    return {"type": kind, kind: {"name": filled(value, "name", where)}}


def _allowed(value: Json) -> tuple[Json, bool]:
    if isinstance(value.get("allowed_tools"), dict):
        return value, False
    if value.get("mode") not in MODES:
        raise invalid("tool_choice.mode", f"must be one of {', '.join(MODES)}")
    tools = value.get("tools")
    if tools is None:
        raise missing("tool_choice.tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("tool_choice.tools", "must be a list of objects")
    if any(tool.get("type") not in OWN_KINDS for tool in tools):
        return value, True
    chosen = [_chosen(tool, f"tool_choice.tools[{index}]") for index, tool in enumerate(tools)]
    return {"type": "allowed_tools", "allowed_tools": {"mode": value["mode"], "tools": chosen}}, False
