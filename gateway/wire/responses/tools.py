"""Tools and their choice: a request's as a chat has them. Hosted ones stay as they are."""

from typing import Any, NamedTuple

from gateway.errors import invalid, missing
from gateway.wire.responses.items import filled, tool_name
from gateway.wire.responses.namespaces import NAMESPACE, joined

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
        if kind == NAMESPACE:
            own += [_own(each, path) for path, each in _within(tool, where)]
        elif kind not in OWN_KINDS:
            hosted.append((index, tool))
        elif isinstance(tool.get(kind), dict):  # in a chat's shape, as some clients mix them
            own.append(tool)
        else:
            own.append(_own(tool, where))
    return own, hosted


def _own(tool: Json, where: str) -> Json:
    return _function(tool, where) if tool["type"] == "function" else _custom(tool, where)


def _within(group: Json, where: str) -> list[tuple[str, Json]]:
    """The tools of a namespace, under names in one piece, each with its path."""
    namespace, tools = filled(group, "name", where), group.get("tools")
    if not isinstance(tools, list):
        raise invalid(f"{where}.tools", "must be a list")
    found = []
    for index, tool in enumerate(tools):
        path = f"{where}.tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") not in OWN_KINDS:
            raise invalid(path, f"must be an object of type {' or '.join(OWN_KINDS)}")
        found.append((path, {**tool, "name": joined(namespace, filled(tool, "name", path))}))
    return found


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


class Choice(NamedTuple):
    """Which tool is to be called: `chat` is the choice as a chat has it, without hosted tools."""

    chat: Any
    names_hosted: bool = False
    forces_hosted: bool = False


def chat_tool_choice(value: Any) -> Choice:
    """The choice of a request.

    Raises:
        InvalidRequest: names `tool_choice…`.
    """
    if value is None or isinstance(value, str):
        if value not in (None, *CHOICES):
            raise invalid("tool_choice", f"must be one of {', '.join(CHOICES)}, or an object")
        return Choice(value)
    if not isinstance(value, dict):
        raise invalid("tool_choice", "must be a string or an object")
    kind = filled(value, "type", "tool_choice")
    if kind in OWN_KINDS:
        return Choice(_chosen(value, "tool_choice"))
    if kind == "allowed_tools":
        return _allowed(value)
    return Choice(None, names_hosted=True, forces_hosted=True)


def _chosen(value: Json, where: str) -> Json:
    kind = value["type"]
    if isinstance(value.get(kind), dict):
        return value
    return {"type": kind, kind: {"name": tool_name(value, where)}}


def _allowed(value: Json) -> Choice:
    if isinstance(value.get("allowed_tools"), dict):
        return Choice(value)
    if value.get("mode") not in MODES:
        raise invalid("tool_choice.mode", f"must be one of {', '.join(MODES)}")
    tools = value.get("tools")
    if tools is None:
        raise missing("tool_choice.tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("tool_choice.tools", "must be a list of objects")
    own = [(index, tool) for index, tool in enumerate(tools) if tool.get("type") in OWN_KINDS]
    chosen = [_chosen(tool, f"tool_choice.tools[{index}]") for index, tool in own]
    names_hosted = len(own) < len(tools)
    if names_hosted and not own:
        return Choice("none", names_hosted=True, forces_hosted=value["mode"] == "required")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": value["mode"], "tools": chosen}}
    return Choice(allowed, names_hosted=names_hosted)
