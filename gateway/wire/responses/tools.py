"""Tools and their choice: a request's as a chat has them. Hosted ones stay as they are."""

from collections.abc import Collection
from typing import Any, NamedTuple

from gateway.errors import invalid, missing
from gateway.models.typed_tools import LOCAL_SHELL, OPERATIONS, PATCH, SHELL, TYPED, TYPED_TOOLS, is_hosted_shell
from gateway.wire.responses.items import filled, tool_name
from gateway.wire.responses.namespaces import NAMESPACE, joined

Json = dict[str, Any]
CHOICES = ("none", "auto", "required")
MODES = ("auto", "required")
OWN_KINDS = ("function", "custom")
"""Kinds of tools that clients run themselves, and that a chat has, too."""
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT}
MILLISECONDS: Json = {"type": "integer", "description": "How long it may take, in milliseconds."}
TYPED_FUNCTIONS: dict[str, tuple[str, Json, list[str]]] = {
    LOCAL_SHELL: (
        "Runs a command on the user's machine and returns what it writes.",
        {
            "command": {**TEXTS, "description": 'The program and its arguments, such as ["bash", "-lc", "ls -la"].'},
            "working_directory": TEXT,
            "env": {"type": "object", "additionalProperties": TEXT, "description": "Variables of its environment."},
            "timeout_ms": MILLISECONDS,
            "user": {**TEXT, "description": "Who runs it."},
        },
        ["command"],
    ),
    SHELL: (
        "Runs commands in a shell, one after the other, and returns what each writes and how it ended.",
        {
            "commands": {**TEXTS, "description": "Each a whole command line."},
            "timeout_ms": MILLISECONDS,
            "max_output_length": {"type": "integer", "description": "The most characters of output to return."},
        },
        ["commands"],
    ),
    PATCH: (
        "Creates, updates or deletes one file.",
        {
            "type": {**TEXT, "enum": [*OPERATIONS]},
            "path": {**TEXT, "description": "The file, from the root of the workspace."},
            "diff": {
                **TEXT,
                "description": "With update_file: hunks, each begun by a line of @@ and what it stands below, then the "
                "lines around and within the change, each behind a space if it stays, - if it goes, + if it is new. "
                "With create_file: the lines of the file, each behind +. Nothing with delete_file.",
            },
        },
        ["type", "path"],
    ),
}
"""What each tells a model: what it does, its arguments, and those that it needs."""


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
    named = [tool.get("name") for tool in value if isinstance(tool, dict)]
    for index, tool in enumerate(value):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise invalid(where, "must be an object")
        kind = filled(tool, "type", where)
        if kind == NAMESPACE:
            own += [_own(each, path) for path, each in _within(tool, where)]
        elif kind in TYPED_TOOLS and kind not in named and not is_hosted_shell(tool):
            own.append(_typed(tool))
        elif kind not in OWN_KINDS:
            hosted.append((index, tool))
        elif isinstance(tool.get(kind), dict):  # in a chat's shape, as some clients mix them
            own.append(tool)
        else:
            own.append(_own(tool, where))
    return own, hosted


def _own(tool: Json, where: str) -> Json:
    return _function(tool, where) if tool["type"] == "function" else _custom(tool, where)


def _typed(tool: Json) -> Json:
    """A tool of a type of its own as the function that stands for it."""
    does, arguments, needs = TYPED_FUNCTIONS[TYPED_TOOLS[tool["type"]]]
    skills = (tool.get("environment") or {}).get("skills") if isinstance(tool.get("environment"), dict) else ()
    told = [f"{s.get('name')} ({s.get('path')}): {s.get('description')}" for s in skills or () if isinstance(s, dict)]
    description = "\n".join([does, *(["Skills, each a folder with a SKILL.md to read first:"] if told else []), *told])
    schema = {"type": "object", "properties": arguments, "required": needs, "additionalProperties": False}
    function = {"name": tool["type"], "description": description, "parameters": schema}
    return {"type": "function", "function": function, TYPED: tool}


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


def chat_tool_choice(value: Any, typed: Collection[str] = ()) -> Choice:
    """The choice of a request.

    Args:
        typed: the types of its tools that stand as functions.

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
    if kind in (*OWN_KINDS, *typed):
        return Choice(_chosen(value, "tool_choice"))
    if kind == "allowed_tools":
        return _allowed(value, typed)
    return Choice(None, names_hosted=True, forces_hosted=True)


def _chosen(value: Json, where: str) -> Json:
    kind = value["type"]
    if kind in TYPED_TOOLS:
        return {"type": "function", "function": {"name": kind}}
    if isinstance(value.get(kind), dict):
        return value
    filled(value, "name", where)
    return {"type": kind, kind: {"name": tool_name(value, where)}}


def _allowed(value: Json, typed: Collection[str]) -> Choice:
    if isinstance(value.get("allowed_tools"), dict):
        return Choice(value)
    if value.get("mode") not in MODES:
        raise invalid("tool_choice.mode", f"must be one of {', '.join(MODES)}")
    tools = value.get("tools")
    if tools is None:
        raise missing("tool_choice.tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("tool_choice.tools", "must be a list of objects")
    own = [(index, tool) for index, tool in enumerate(tools) if tool.get("type") in (*OWN_KINDS, *typed)]
    chosen = [_chosen(tool, f"tool_choice.tools[{index}]") for index, tool in own]
    names_hosted = len(own) < len(tools)
    if names_hosted and not own:
        return Choice("none", names_hosted=True, forces_hosted=value["mode"] == "required")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": value["mode"], "tools": chosen}}
    return Choice(allowed, names_hosted=names_hosted)
