"""Tools of Responses that clients run and whose calls are items of their own: shells and patches (guarantee §1.11).

The inner form has each as a function: its name is the tool's type, its arguments are what the call's item holds.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.core import jsons

Json = dict[str, Any]
TYPED = "typed_tool"
"""The field of an inner function with its tool as the request has it, and that of an inner call with its item's type.
Only an upstream that has such tools, and an edge of Responses, see more than the function."""
LOCAL_SHELL, SHELL, PATCH = "local_shell_call", "shell_call", "apply_patch_call"
OPERATIONS = ("create_file", "update_file", "delete_file")
HOSTED_SHELLS = ("container_auto", "container_reference")
"""Environments of a shell that whoever answers runs."""
FAILED = '"status":"failed"'
MOST = 10**12


class TypedCall(NamedTuple):
    """What a call's item is like: the type of its tool, the field that holds what is to be done, the fields of that in
    their order, and what that always says."""

    tool: str
    holds: str
    fields: tuple[str, ...]
    always: Json


TYPED_CALLS = {
    LOCAL_SHELL: TypedCall(
        "local_shell", "action", ("command", "working_directory", "env", "timeout_ms", "user"), {"type": "exec"}
    ),
    SHELL: TypedCall("shell", "action", ("commands", "timeout_ms", "max_output_length"), {}),
    PATCH: TypedCall("apply_patch", "operation", ("type", "path", "diff"), {}),
}
"""By the types of items."""
TYPED_TOOLS = {kind.tool: name for name, kind in TYPED_CALLS.items()}
"""The type of a call's item by the type of its tool."""
OUTPUT = "_output"
"""What the type of a result's item adds to that of its call."""


def typed_kind(tool: Any) -> str | None:
    """The type of the calls of an inner function that stands for such a tool; None of any other tool."""
    typed = tool.get(TYPED) if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else None
    return TYPED_TOOLS.get(str(typed.get("type"))) if isinstance(typed, dict) else None


def is_hosted_shell(item: Mapping[str, Any]) -> bool:
    """Whether a shell, or a call of one, is run by whoever answers."""
    environment = item.get("environment")
    return isinstance(environment, dict) and environment.get("type") in HOSTED_SHELLS


def arguments_of(kind: str, held: Any) -> str:
    """The arguments of the function: the same for all that asks for the same, so that a resent call is the one that was
    handed out.

    Args:
        held: what an item holds, or the arguments as a model wrote them; what fits no field is left out.
    """
    if not isinstance(held, dict):
        try:
            held = json.loads(held, strict=False) if isinstance(held, str) else {}
        except (json.JSONDecodeError, RecursionError):
            held = {}
    typed = TYPED_CALLS[kind]
    if isinstance(held, dict) and isinstance(held.get(typed.holds), dict):  # as a model may write it
        held = held[typed.holds]
    given = {name: value for name, value in held.items() if value is not None} if isinstance(held, dict) else {}
    found = _patch(given) if kind == PATCH else _shell(kind, given)
    whole = jsons.with_whole_characters({name: found[name] for name in typed.fields if name in found})
    return jsons.dumps_text(whole)


def _shell(kind: str, given: Json) -> Json:
    found: Json = {
        name: int(value)
        for name in ("timeout_ms", "max_output_length")
        if isinstance(value := given.get(name), int | float) and 0 < value < MOST
    }
    found |= {name: value for name in ("working_directory", "user") if isinstance(value := given.get(name), str)}
    if isinstance(given.get("env"), dict) and given["env"]:
        found["env"] = {str(name): str(value) for name, value in given["env"].items()}
    if kind == SHELL:
        return {**found, "commands": _texts(given.get("commands"), ())}
    return {**found, "command": _texts(given.get("command"), ("bash", "-lc"))}


def _texts(value: Any, before: tuple[str, ...]) -> list[str]:
    if isinstance(value, str):  # one text in the place of a list
        return [*before, value]
    return [str(each) for each in value] if isinstance(value, list) else []


def _patch(given: Json) -> Json:
    kind = given.get("type") if given.get("type") in OPERATIONS else "update_file"
    found: Json = {"type": kind, "path": str(given.get("path") or "")}
    return found if kind == "delete_file" else {**found, "diff": str(given.get("diff") or "")}


def typed_item(kind: str, arguments: Any) -> Json:
    """What the item of a call says beside its ids and status."""
    typed = TYPED_CALLS[kind]
    held = {**typed.always, **json.loads(arguments_of(kind, arguments))}
    if kind == LOCAL_SHELL:
        held.setdefault("env", {})
    found: Json = {"type": kind, typed.holds: held}
    return {**found, "environment": {"type": "local"}} if kind == SHELL else found


def status_of(kind: Any, status: str) -> str:
    """The status of an item: a patch that was not told to its end is in progress, as it can be nothing else."""
    return "in_progress" if kind == PATCH and status == "incomplete" else status


def result_text(kind: str, item: Mapping[str, Any]) -> str:
    """A result as a model reads it: what the tool wrote where that tells all, else the result as JSON.

    Args:
        kind: the type of the call's item.
    """
    output = item.get("output")
    if kind == LOCAL_SHELL:
        return str(output)
    said = {"output": output} if kind == SHELL else {"status": item.get("status") or "completed", "output": output}
    only = output[0] if kind == SHELL and isinstance(output, list) and len(output) == 1 else None
    plain = only.get("stdout") if isinstance(only, dict) else output if kind == PATCH else None
    if isinstance(plain, str) and result_item(kind, plain) == said:
        return plain
    return jsons.dumps_text(output if kind == SHELL else {k: v for k, v in said.items() if v is not None})


def result_item(kind: str, text: str) -> Json:
    """What the item of a result says beside its ids; of a text that was made shorter, as far as it tells."""
    if kind == LOCAL_SHELL:
        return {"output": text}
    try:
        found = jsons.loads(text) if text.startswith(("[", "{")) else None
    except jsons.JSONDecodeError:
        found = None
    if kind == SHELL:
        if isinstance(found, list) and all(isinstance(each, dict) and "outcome" in each for each in found):
            return {"output": found}
        return {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}
    if isinstance(found, dict) and found.get("status") in ("completed", "failed") and len(found) <= 2:
        return {"status": found["status"], "output": found.get("output")}
    return {"status": "failed" if FAILED in text else "completed", "output": text}
