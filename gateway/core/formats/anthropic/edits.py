"""`context_management.edits`: what a client wants cleared, as far as the gateway's own window does it (guarantee §10).

Above the tokens that an edit names, the window makes room as it always does: tool results are reduced, old ones first.
"""

from collections.abc import Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.errors import invalid
from gateway.core.types.tool_steps import turn_starts

Json = dict[str, Any]
CLEAR_TOOLS, CLEAR_THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
TRIGGERS = {CLEAR_TOOLS: 100_000, COMPACT: 150_000}
"""Input tokens above which Anthropic applies an edit that names none."""
EXACT = ("keep", "clear_at_least", "exclude_tools", "clear_tool_inputs")
KEEP = 3
"""Of the latest tool uses, if an edit says nothing of it."""
CLEARED = "[Cleared to make room, as the client asked.]"
CHARS_PER_TOKEN = 4
"""For figures: what was left out is not counted."""


def edits_of(value: Any) -> list[Json]:
    """
    Raises:
        InvalidRequest: `context_management` is not what Anthropic's API says; names the field.
    """
    if value is None:
        return []
    edits = value.get("edits") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(edits, list | None):
        raise invalid("context_management", "must be an object with a list of edits")
    for index, edit in enumerate(edits or ()):
        where = f"context_management.edits[{index}]"
        if not isinstance(edit, dict) or not isinstance(edit.get("type"), str):
            raise invalid(where, "must be an object with a type")
        trigger = edit.get("trigger")
        if trigger is not None and not (isinstance(trigger, dict) and _is_positive(trigger.get("value"))):
            raise invalid(f"{where}.trigger.value", "must be a whole number of at least 1")
        if edit["type"] == CLEAR_TOOLS:
            _check_fields(edit, where)
    return edits or []


def is_exact(edit: Json) -> bool:
    """Whether an edit says which tool uses are to go: then it is followed to the letter, and else by the window."""
    by_uses = (edit.get("trigger") or {}).get("type") == "tool_uses"
    return edit["type"] == CLEAR_TOOLS and (by_uses or any(edit.get(name) is not None for name in EXACT))


def limit_of(edits: list[Json]) -> int | None:
    """Input tokens above which something is to be cleared; None without such an edit. How many calls there are is no
    trigger here: the window goes by tokens."""
    found = []
    for edit in edits:
        trigger = edit.get("trigger") or {}
        if edit["type"] in TRIGGERS and not is_exact(edit) and trigger.get("type", "input_tokens") == "input_tokens":
            found.append(trigger.get("value") or TRIGGERS[edit["type"]])
    return min(found, default=None)


def compacts(edits: Sequence[Json]) -> bool:
    """Whether compaction blocks are wanted."""
    return any(edit["type"] == COMPACT for edit in edits)


def pauses(edits: Sequence[Json]) -> bool:
    """Whether a compaction is to end the answer."""
    return any(edit["type"] == COMPACT and edit.get("pause_after_compaction") is True for edit in edits)


def thinking_turns(edits: list[Json]) -> int | None:
    """Of how many of the latest answers thoughts are kept; None for all."""
    for edit in edits:
        if edit["type"] == CLEAR_THINKING:
            keep = edit.get("keep")
            if keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all"):
                return None
            value = keep.get("value") if isinstance(keep, dict) else None
            return value if _is_positive(value) else 1
    return None


def applied(edits: Sequence[Json], metadata: Any) -> list[Json]:
    """What was cleared of tool results by an answer's bill, as Anthropic reports it.

    Args:
        metadata: the answer's `response_metadata`.
    """
    if metadata is None or not edits:
        return []
    metadata = jsons.loads(jsons.dumps(metadata))  # it may have been written already
    told: list[Json] = (metadata.get("context_utilization") or {}).get("cleared") or []
    if not any(edit["type"] == CLEAR_TOOLS and not is_exact(edit) for edit in edits):
        return told
    records = (metadata.get("context_utilization") or {}).get("artifacts_processed") or ()
    chars = [record["original_size_chars"] - record["processed_size_chars"] for record in records if _is_tool(record)]
    cleared = [size for size in chars if size > 0]
    if not cleared:
        return told
    tokens = sum(cleared) // CHARS_PER_TOKEN
    return [*told, {"type": CLEAR_TOOLS, "cleared_tool_uses": len(cleared), "cleared_input_tokens": tokens}]


def without_old_thoughts(messages: list[Json], turns: int) -> list[Json]:
    """The messages with the thoughts of the latest answers alone; the steps of a turn are one answer."""
    found, seen, in_answer = list(messages), 0, False
    starts = set(turn_starts(str(message.get("role")) for message in messages))
    for index in range(len(found) - 1, -1, -1):
        role = found[index].get("role")
        if role == "assistant" and not in_answer:
            seen, in_answer = seen + 1, True
        elif index in starts:
            in_answer = False
        if role == "assistant" and seen > turns:
            kept = {k: v for k, v in found[index].items() if k not in ("thinking_blocks", "reasoning_content")}
            found[index] = kept
    return found


def _check_fields(edit: Json, where: str) -> None:
    for name in ("keep", "clear_at_least"):
        value = edit.get(name)
        if value is not None and not (isinstance(value, dict) and _is_count(value.get("value"))):
            raise invalid(f"{where}.{name}.value", "must be a whole number")
    for name in ("exclude_tools", "clear_tool_inputs"):
        value = edit.get(name)
        is_flag = name == "clear_tool_inputs" and isinstance(value, bool)
        if value is not None and not is_flag and not _are_names(value):
            raise invalid(f"{where}.{name}", "must be a list of names")


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_count(value: Any) -> bool:
    return _is_positive(value) or (value == 0 and not isinstance(value, bool))


def _is_tool(record: Json) -> bool:
    return record.get("artifact_type") == "tool_result"


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
