"""Calls of tools that another provider ran, in words for models that know nothing of them: what was asked, what came of
it (guarantee §1.14). Items of Responses and blocks of Anthropic's alike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

UNTOLD = frozenset({"reasoning", "mcp_list_tools", "tool_search_call", "tool_search_output", "compaction"})
"""Items and blocks that say nothing of the task: thoughts, which are told otherwise, and which tools there were."""
IN_OTHER_FIELDS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
"""Blocks of an answer that its chat message says in its other fields."""
ENDINGS = ("_call", "_call_output", "_tool_result")
NAMES = ("server_label", "server_name", "name")
"""Fields that tell whose tool it was, and which."""
UNREAD = frozenset(
    {
        *("type", "id", "status", "call_id", "tool_use_id", "caller", *NAMES),
        *("encrypted_content", "encrypted_index", "encrypted_stdout", "file_id", "vector_store_id", "score"),
        *("attributes", "container_id", "approval_request_id", "media_type", "page_age", "retrieved_at"),
        *("environment", "max_output_length", "background", "partial_images", "output_format", "size"),
    }
)
"""Fields in which no model reads anything: ids, what is sealed, how it was set."""
ACTION = "action: "
PICTURE, FILE = "(a picture)", "(a file)"


def told_items(message: Mapping[str, Any]) -> str:
    """What an answer's `output_items` say; empty where that is nothing."""
    return _told(message.get("output_items"))


def told_blocks(blocks: Any) -> str:
    """What those of an answer's blocks say that stand in no other field of its message."""
    listed = blocks if isinstance(blocks, list) else []
    return _told([each for each in listed if isinstance(each, dict) and str(each.get("type")) not in IN_OTHER_FIELDS])


def with_told(message: dict[str, Any], told: str) -> dict[str, Any]:
    """The answer with what was told before its own words."""
    if not told:
        return message
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": told}, *content]}
    return {**message, "content": f"{told}\n\n{content}" if content else told}


def is_silent(message: Mapping[str, Any]) -> bool:
    """Whether it is an answer that says nothing at all, which some upstreams refuse."""
    return message.get("role") == "assistant" and not any(v for k, v in message.items() if k not in ("role", "name"))


def _told(items: Any) -> str:
    found: list[str] = []
    for item in items if isinstance(items, Sequence) and not isinstance(items, str) else ():
        kind = str(item.get("type")) if isinstance(item, dict) else ""
        if not kind or kind in UNTOLD:
            continue
        lines = [line for name, value in item.items() for line in _lines(name, value)]
        if not all(line.startswith(ACTION) for line in lines):  # that there was a search says nothing
            found.append("\n".join([f"[{_title(item, kind)}]", *lines]))
    return "\n\n".join(found)


def _title(item: Mapping[str, Any], kind: str) -> str:
    for ending in ENDINGS:
        kind = kind.removesuffix(ending) if kind != ending else kind
    return " ".join([kind, *(item[name] for name in NAMES if isinstance(item.get(name), str) and item[name])])


def _lines(name: str, value: Any) -> Iterator[str]:
    """A field as lines, each with the name of what it is of."""
    if name in UNREAD or value is None or value == "":
        return
    if isinstance(value, dict):
        if value.get("type") == "base64":
            yield f"{name}: {FILE}"
            return
        if name == "action" and isinstance(value.get("type"), str):
            yield f"{ACTION}{value['type']}"
        for key, each in value.items():
            yield from _lines(key, each)
    elif isinstance(value, list):
        for each in value:
            yield from _lines(name, each)
    else:
        is_picture = name == "result" or (isinstance(value, str) and value.startswith("data:"))
        yield f"{name}: {PICTURE if is_picture else value}"
