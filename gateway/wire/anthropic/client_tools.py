"""Tools that Anthropic defines and clients run, as functions for models of others (guarantee §1.12).

The schemas are those that Anthropic documents for each type. Calls need no way back: a function's call is `tool_use`.
"""

from typing import Any

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
LINE: Json = {"type": "integer"}
EDITS: Json = {
    "path": TEXT,
    "file_text": {**TEXT, "description": "With create: the whole text of the file."},
    "old_str": {**TEXT, "description": "With str_replace: the text to replace, which stands in the file exactly once."},
    "insert_line": {**LINE, "description": "With insert: the line behind which it goes; 0: in front of all."},
    "view_range": {
        "type": "array",
        "items": LINE,
        "description": "With view: first and last line, from 1; -1: the end.",
    },
}
OLD_NEW: Json = {"new_str": {**TEXT, "description": "With str_replace and insert: the new text."}}
NEW: Json = {
    "new_str": {**TEXT, "description": "With str_replace: the new text."},
    "insert_text": {**TEXT, "description": "With insert: the new text."},
}


def _commands(told: str, commands: tuple[str, ...], fields: Json) -> tuple[str, Json]:
    properties = {"command": {**TEXT, "enum": [*commands]}, **fields}
    return told, {"type": "object", "properties": properties, "required": ["command"]}


BASH: tuple[str, Json] = (
    "Runs a command in a bash shell that lives as long as the session. `restart` starts it anew.",
    {"type": "object", "properties": {"command": TEXT, "restart": {"type": "boolean"}}},
)
EDITOR = _commands(
    "Views and edits text files. Views files with line numbers, and folders.",
    ("view", "create", "str_replace", "insert"),
    {**EDITS, **NEW},
)
OLD_EDITOR = _commands(
    "Views and edits text files; undo_edit takes the last edit of a file back.",
    ("view", "create", "str_replace", "insert", "undo_edit"),
    {**EDITS, **OLD_NEW},
)
MEMORY = _commands(
    "Keeps files below /memories, which last beyond this conversation. View the folder before anything else.",
    ("view", "create", "str_replace", "insert", "delete", "rename"),
    {
        **EDITS,
        **NEW,
        "old_path": {**TEXT, "description": "With rename."},
        "new_path": {**TEXT, "description": "With rename."},
    },
)
TOOLS = {
    "bash_": BASH,
    "text_editor_20241022": OLD_EDITOR,
    "text_editor_20250124": OLD_EDITOR,
    "text_editor_": EDITOR,
    "memory_": MEMORY,
}
"""By how their types begin; the first that fits counts."""


def client_function(tool: Json) -> Json | None:
    """The function that a typed tool is; None of one that clients do not run, or that is not known."""
    kind, name = str(tool.get("type")), tool.get("name")
    found = next((each for start, each in TOOLS.items() if kind.startswith(start)), None)
    if found is None or not isinstance(name, str) or not name:
        return None
    return {"name": name, "description": found[0], "parameters": found[1]}
