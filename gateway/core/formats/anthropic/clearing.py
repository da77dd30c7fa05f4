"""Tool uses and thoughts that a client's edits name, taken out of what goes up (guarantee §10.15)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.core.formats.anthropic.edits import (
    CHARS_PER_TOKEN,
    CLEAR_THINKING,
    CLEAR_TOOLS,
    CLEARED,
    KEEP,
    TRIGGERS,
    is_exact,
    thinking_turns,
    without_old_thoughts,
)
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import ANTHROPIC_BLOCKS

Json = dict[str, Any]
THOUGHTS = ("thinking_blocks", "reasoning_content")


class ToolUsePlace(NamedTuple):
    """A tool use: the indexes of the message with the call and of its result, the call's number, and its tool."""

    message: int
    call: int
    result: int
    tool: str


def edited(messages: list[Json], edits: Sequence[Json], tokens: int | None) -> tuple[list[Json], list[Json]]:
    """The messages as edits leave them, and what was cleared, as Anthropic reports it.

    Args:
        tokens: what the prompt takes before; None where nobody counted it.
    """
    told: list[Json] = []
    turns = thinking_turns(list(edits))
    if turns is not None:
        kept = without_old_thoughts(messages, turns)
        changed = [(old, new) for old, new in zip(messages, kept, strict=True) if old is not new and old != new]
        if changed:
            chars = sum(len(str(old.get(name) or "")) for old, _ in changed for name in THOUGHTS)
            figures = {"cleared_thinking_turns": len(changed), "cleared_input_tokens": chars // CHARS_PER_TOKEN}
            told.append({"type": CLEAR_THINKING, **figures})
        messages = kept
    for edit in edits:
        if is_exact(edit):
            messages, cleared = _without_uses(messages, edit, tokens)
            told += cleared
    return messages, told


def _without_uses(messages: list[Json], edit: Json, tokens: int | None) -> tuple[list[Json], list[Json]]:
    uses = _uses(messages)
    trigger = edit.get("trigger") or {}
    limit = trigger.get("value") or TRIGGERS[CLEAR_TOOLS]
    if (len(uses) if trigger.get("type") == "tool_uses" else tokens or 0) <= limit:
        return messages, []
    keep = (edit.get("keep") or {}).get("value", KEEP)
    excluded, inputs = edit.get("exclude_tools") or (), edit.get("clear_tool_inputs") or ()
    found, chars, count = list(messages), 0, 0
    for use in uses[: len(uses) - keep]:
        if use.tool in excluded:
            continue
        before = len(str(found[use.result])) + len(str(found[use.message]))
        if len(str(found[use.result].get("content"))) > len(CLEARED):
            found[use.result] = {**found[use.result], "content": CLEARED}
        if inputs is True or (isinstance(inputs, list) and use.tool in inputs):
            found[use.message] = _without_input(found[use.message], use.call)
        saved = before - len(str(found[use.result])) - len(str(found[use.message]))
        chars, count = chars + max(saved, 0), count + (saved > 0)
    least = (edit.get("clear_at_least") or {}).get("value", 0)
    if not count or chars // CHARS_PER_TOKEN < least:
        return messages, []
    figures = {"cleared_tool_uses": count, "cleared_input_tokens": chars // CHARS_PER_TOKEN}
    return found, [{"type": CLEAR_TOOLS, **figures}]


def _uses(messages: Sequence[Json]) -> list[ToolUsePlace]:
    """The tool uses that have a result, oldest first."""
    found: list[ToolUsePlace] = []
    open_calls: dict[str, tuple[int, int, str]] = {}
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
            open_calls = {
                str(call.get("id")): (index, number, str((call.get("function") or {}).get("name")))
                for number, call in enumerate(calls)
            }
        elif role == "tool":
            call = open_calls.pop(str(message.get("tool_call_id")), None)
            if call is not None:
                found.append(ToolUsePlace(call[0], call[1], index, call[2]))
        elif role not in INSTRUCTION_ROLES:
            open_calls = {}
    return found


def _without_input(message: Json, number: int) -> Json:
    calls = list(message["tool_calls"])
    call = calls[number]
    calls[number] = {**call, "function": {**(call.get("function") or {}), "arguments": "{}"}}
    found = {**message, "tool_calls": calls}
    native = message.get(ANTHROPIC_BLOCKS)
    if isinstance(native, list):
        found[ANTHROPIC_BLOCKS] = [
            {**block, "input": {}} if isinstance(block, dict) and block.get("id") == call.get("id") else block
            for block in native
        ]
    return found
