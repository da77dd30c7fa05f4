"""`context_management.edits`: what a client wants cleared, as far as the gateway's own window does it (guarantee §10).
Above an edit's token limit, the window shortens the prompt as usual. Tool uses and thoughts that edits name are removed
from what is sent upstream (guarantee §10.15).

The gateway puts its compaction block in front of an answer, and accepts it back in place of everything before it. The
block's `content` is a readable extract of the conversation; `encrypted_content` seals what it replaces: a place in a
stored conversation, or that extract. Blocks of other makers are left unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.core import errors, jsons
from gateway.core.formats.compaction_items import (
    CHARS_PER_TOKEN,
    CompactionMark,
    CompactionSealer,
    as_message,
    is_compacted,
)
from gateway.core.jsons import Json
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import ANTHROPIC_BLOCKS
from gateway.core.types.tool_steps import turn_starts

EDITS = "context_management"
"""The field that holds the edits."""
CLEAR_TOOLS, CLEAR_THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
TRIGGERS = {CLEAR_TOOLS: 100_000, COMPACT: 150_000}
"""Input tokens above which Anthropic applies an edit without a trigger."""
EXACT_EDIT_FIELDS = ("keep", "clear_at_least", "exclude_tools", "clear_tool_inputs")
KEEP = 3
"""Latest tool uses that are retained if an edit does not set `keep`."""
CLEARED_RESULT = "[Cleared to make room, as the client asked.]"
THOUGHT_FIELDS = ("thinking_blocks", "reasoning_content")


def edits_of(value: Any) -> list[Json]:
    """Parses `context_management`. Raises InvalidRequest: it breaks the rules of Anthropic's API; names the field."""
    if value is None:
        return []
    edits = value.get("edits") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(edits, list | None):
        raise errors.invalid("context_management", "must be an object with a list of edits")
    for index, edit in enumerate(edits or ()):
        where = f"context_management.edits[{index}]"
        if not isinstance(edit, dict) or not isinstance(edit.get("type"), str):
            raise errors.invalid(where, "must be an object with a type")
        trigger = edit.get("trigger")
        if trigger is not None and not (isinstance(trigger, dict) and _is_positive(trigger.get("value"))):
            raise errors.invalid(f"{where}.trigger.value", "must be a whole number of at least 1")
        if edit["type"] == CLEAR_TOOLS:
            _check_fields(edit, where)
    return edits or []


def is_exact(edit: Json) -> bool:
    """Returns whether an edit names the tool uses to clear: it is then applied exactly, otherwise by the window."""
    by_uses = (edit.get("trigger") or {}).get("type") == "tool_uses"
    return edit["type"] == CLEAR_TOOLS and (by_uses or any(edit.get(name) is not None for name in EXACT_EDIT_FIELDS))


def has_exact_edits(fields: Mapping[str, Any]) -> bool:
    """Returns whether an edit in a request's native fields names the tool uses to clear, whatever the window holds."""
    return any(is_exact(edit) for edit in edits_of(fields.get(EDITS)))


def limit_of(edits: list[Json]) -> int | None:
    """Returns the input tokens above which an edit clears something; None without such an edit. The number of calls is
    no trigger here: the window counts tokens."""
    found = []
    for edit in edits:
        trigger = edit.get("trigger") or {}
        if edit["type"] in TRIGGERS and not is_exact(edit) and trigger.get("type", "input_tokens") == "input_tokens":
            found.append(trigger.get("value") or TRIGGERS[edit["type"]])
    return min(found, default=None)


def compacts(edits: Sequence[Json]) -> bool:
    """Returns whether the edits request compaction blocks."""
    return any(edit["type"] == COMPACT for edit in edits)


def pauses(edits: Sequence[Json]) -> bool:
    """Returns whether a compaction is to end the answer."""
    return any(edit["type"] == COMPACT and edit.get("pause_after_compaction") is True for edit in edits)


def thinking_turns(edits: list[Json]) -> int | None:
    """Returns for how many of the latest answers thoughts are retained; None for all."""
    for edit in edits:
        if edit["type"] == CLEAR_THINKING:
            keep = edit.get("keep")
            if keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all"):
                return None
            value = keep.get("value") if isinstance(keep, dict) else None
            return value if _is_positive(value) else 1
    return None


def applied(edits: Sequence[Json], metadata: Any) -> list[Json]:
    """Returns what was cleared, by an answer's bill, in the format of Anthropic's `applied_edits`.
    `metadata`: the answer's `response_metadata`."""
    if metadata is None or not edits:
        return []
    metadata = jsons.loads(jsons.dumps(metadata))  # it may already be serialized
    used = metadata.get("context_utilization") or {}
    told: list[Json] = used.get("cleared") or []
    if not any(edit["type"] == CLEAR_TOOLS and not is_exact(edit) for edit in edits):
        return told
    results = [each for each in used.get("artifacts_processed") or () if each.get("artifact_type") == "tool_result"]
    chars = [each["original_size_chars"] - each["processed_size_chars"] for each in results]
    cleared = [size for size in chars if size > 0]
    if not cleared:
        return told
    tokens = sum(cleared) // CHARS_PER_TOKEN
    return [*told, {"type": CLEAR_TOOLS, "cleared_tool_uses": len(cleared), "cleared_input_tokens": tokens}]


def without_old_thoughts(messages: list[Json], turns: int) -> list[Json]:
    """Removes thoughts from all but the latest `turns` answers; the steps of a turn are one answer."""
    found, seen, in_answer = list(messages), 0, False
    starts = set(turn_starts(str(message.get("role")) for message in messages))
    for index in range(len(found) - 1, -1, -1):
        role = found[index].get("role")
        if role == "assistant" and not in_answer:
            seen, in_answer = seen + 1, True
        elif index in starts:
            in_answer = False
        if role == "assistant" and seen > turns:
            found[index] = {k: v for k, v in found[index].items() if k not in THOUGHT_FIELDS}
    return found


def _check_fields(edit: Json, where: str) -> None:
    for name in ("keep", "clear_at_least"):
        given = edit.get(name)
        value = given.get("value") if isinstance(given, dict) else None
        if given is not None and not (_is_positive(value) or (value == 0 and not isinstance(value, bool))):
            raise errors.invalid(f"{where}.{name}.value", "must be a whole number")
    for name in ("exclude_tools", "clear_tool_inputs"):
        value = edit.get(name)
        is_flag = name == "clear_tool_inputs" and isinstance(value, bool)
        are_names = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if value is not None and not is_flag and not are_names:
            raise errors.invalid(f"{where}.{name}", "must be a list of names")


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class ToolUsePlace(NamedTuple):
    """A tool use: the indexes of the message with the call and of its result, the call's index in it, and its tool."""

    message: int
    call: int
    result: int
    tool: str


def by_chars(message: Json) -> float:
    """Estimates the tokens of a message."""
    return len(str(message)) / CHARS_PER_TOKEN


def edited(
    messages: list[Json], edits: Sequence[Json], tokens: int | None, count: Callable[[Json], float] = by_chars
) -> tuple[list[Json], list[Json]]:
    """Applies edits; returns the messages and what was cleared, in the format of Anthropic's `applied_edits`.
    `tokens`: those of the prompt before the edits; None if nobody counted them; `count`: counts those of a message."""
    told: list[Json] = []
    turns = thinking_turns(list(edits))
    if turns is not None:
        kept = without_old_thoughts(messages, turns)
        changed = [(old, new) for old, new in zip(messages, kept, strict=True) if old is not new and old != new]
        if changed:
            saved = sum(count(old) - count(new) for old, new in changed)
            figures = {"cleared_thinking_turns": len(changed), "cleared_input_tokens": int(saved)}
            told.append({"type": CLEAR_THINKING, **figures})
        messages = kept
    for edit in edits:
        if is_exact(edit):
            messages, cleared = _without_uses(messages, edit, tokens, count)
            told += cleared
    return messages, told


def _without_uses(
    messages: list[Json], edit: Json, tokens: int | None, count: Callable[[Json], float]
) -> tuple[list[Json], list[Json]]:
    uses = _uses(messages)
    trigger = edit.get("trigger") or {}
    limit = trigger.get("value") or TRIGGERS[CLEAR_TOOLS]
    if (len(uses) if trigger.get("type") == "tool_uses" else tokens or 0) <= limit:
        return messages, []
    keep = (edit.get("keep") or {}).get("value", KEEP)
    excluded, inputs = edit.get("exclude_tools") or (), edit.get("clear_tool_inputs") or ()
    found, saved, uses_cleared = list(messages), 0.0, 0
    for use in uses[: max(len(uses) - keep, 0)]:
        if use.tool in excluded:
            continue
        before = found[use.result], found[use.message]
        if len(str(found[use.result].get("content"))) > len(CLEARED_RESULT):
            found[use.result] = {**found[use.result], "content": CLEARED_RESULT}
        if inputs is True or (isinstance(inputs, list) and use.tool in inputs):
            found[use.message] = _without_input(found[use.message], use.call)
        changed = [
            pair for pair in zip(before, (found[use.result], found[use.message]), strict=True) if pair[0] != pair[1]
        ]
        less = sum(count(old) - count(new) for old, new in changed)
        saved, uses_cleared = saved + max(less, 0), uses_cleared + (less > 0)
    least = (edit.get("clear_at_least") or {}).get("value", 0)
    if not uses_cleared or saved < least:
        return messages, []
    figures = {"cleared_tool_uses": uses_cleared, "cleared_input_tokens": int(saved)}
    return found, [{"type": CLEAR_TOOLS, **figures}]


def _uses(messages: Sequence[Json]) -> list[ToolUsePlace]:
    """Returns the tool uses that have a result, oldest first."""
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


COMPACTION_BLOCK = "compaction"
COVERED = object()
"""Replaces a message that a compaction block covers."""
NOTHING_BEFORE = "(Nothing was said before.)"


class FoundCompaction(NamedTuple):
    """The last compaction block of a request: the indexes of its message and of itself in that, and its sealed text."""

    message: int
    block: int
    sealed: str


def find_block(body: Mapping[str, Any]) -> FoundCompaction | None:
    """Finds the last compaction block that may be the gateway's own; returns None if there is none."""
    given = body.get("messages")
    messages: list[Any] = given if isinstance(given, list) else []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, dict) or message.get("role") != "assistant":
            continue
        content = parts_of(message.get("content"))
        for at in range(len(content) - 1, -1, -1):
            block = content[at]
            is_item = isinstance(block, dict) and block.get("type") == COMPACTION_BLOCK
            sealed = block.get("encrypted_content") if is_item else None
            if isinstance(sealed, str):
                return FoundCompaction(index, at, sealed)
    return None


def expanded(body: Json, found: FoundCompaction, compacted: CompactionMark) -> Json:
    """Replaces a compaction block, and all before it but instructions, by the content of its mark."""
    messages = body["messages"]
    before: list[Any] = []
    for each in messages[: found.message]:
        is_systems = isinstance(each, dict) and each.get("role") in INSTRUCTION_ROLES
        before.append(each if is_systems else COVERED)
    here = messages[found.message]
    rest = here["content"][found.block + 1 :]
    told: list[Any] = [as_message(compacted.extract)] if compacted.extract else []
    told += [compacted.question] if compacted.question is not None else []
    if told and before:  # in place of covered messages, so that all others keep their indexes
        before[-1] = CompactedMessages(told) if before[-1] is COVERED else before[-1]
        told = [] if isinstance(before[-1], CompactedMessages) else told
    answer: Any = {**here, "content": rest} if rest else COVERED
    if told:
        answer = CompactedMessages([*told], answer)
    return {**body, "messages": [*before, answer, *messages[found.message + 1 :]]}


class CompactedMessages(NamedTuple):
    """Chat messages from a compaction block, and Anthropic's message after them."""

    messages: list[Json]
    then: Any = COVERED


def block_of(sealer: CompactionSealer, completion: Mapping[str, Any]) -> Json | None:
    """Makes the block that precedes the answer of a completion or first chunk; None if nothing was compacted."""
    if not is_compacted(completion):
        return None
    return as_block(sealer, sealer.made_for(str(completion["id"])))


def as_block(sealer: CompactionSealer, compacted: CompactionMark) -> Json:
    """Builds the compaction block of a mark."""
    content = compacted.extract or sealer.extract() or NOTHING_BEFORE
    return {
        "type": COMPACTION_BLOCK,
        "content": content,
        "encrypted_content": compacted.sealed(sealer.tenant, sealer.secret),
    }


def block_events(block: Json, index: int) -> list[Json]:
    """Builds the stream events of a compaction block."""
    delta = {"type": "compaction_delta", "content": block["content"], "encrypted_content": block["encrypted_content"]}
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": COMPACTION_BLOCK, "content": None}},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def with_iterations(usage: Json) -> Json:
    """Adds the parts of usage: the compaction, for which no model was called, and the answer."""
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    made = {"type": COMPACTION_BLOCK, **dict.fromkeys(names, 0)}
    return {**usage, "iterations": [made, {"type": "message", **{name: usage.get(name) or 0 for name in names}}]}
