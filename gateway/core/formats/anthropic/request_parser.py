"""A request of Anthropic's Messages as one of chat completions, and what a chat has no words for (ADR 27)."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core import jsons
from gateway.core.errors import invalid, missing
from gateway.core.formats.anthropic.compacting import COVERED, CompactedMessages
from gateway.core.formats.anthropic.edits import edits_of
from gateway.core.formats.anthropic.message_reader import MessageReader, MessageSource
from gateway.core.types.chat import NativeRequest
from gateway.core.types.items import ANTHROPIC_BLOCK, named_file, part_at

# Tools that Anthropic defines and clients run, as functions for models of others (guarantee §1.12).
#
# The schemas are those that Anthropic documents for each type. Calls need no way back: a function's call is
# `tool_use`.

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


SAME = ("model", "max_tokens", "temperature", "top_p", "stream")
"""Fields that a chat has by the same name."""
OWN = ("context", "conversation", "attachments", "agent", "memory", "store")
"""The gateway's own (guarantee §2)."""
SAID = frozenset((*SAME, *OWN, "messages", "system", "tools", "tool_choice", "stop_sequences"))
"""Fields that a chat says in full. All others go up untouched to Anthropic, and nowhere else."""
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
NAMES = {"stop": "stop_sequences", "user": "metadata.user_id", "response_format": "output_config.format"}
"""What errors of a chat name, by what they are called here."""
BETA = "anthropic_beta"
"""The field under which the header `anthropic-beta` goes up: a list of names."""
MAX_USER_CHARS = 64
"""OpenAI's limit for `user`. A longer name is told by its digest."""
SESSION_OF_USER = re.compile(r"_session_([0-9a-zA-Z-]{8,64})\Z")
"""As Claude Code ends `metadata.user_id`."""
SESSION_HEADER = "x-claude-code-session-id"
MESSAGE = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
TOOL = re.compile(r"(tools\[\d+\])\.function\b")


@dataclass(frozen=True, slots=True)
class MessagesReading:
    """A request in the inner form. `session` is what its client calls the conversation by itself; `places` say of each
    chat message where it stands in what was sent; `edits` what is to be cleared of its context."""

    chat: Json
    native: NativeRequest
    places: list[MessageSource] = field(default_factory=list)
    session: str | None = None
    edits: list[Json] = field(default_factory=list)

    def own_name(self, path: str) -> str:
        """How the request calls a field of the chat."""
        found = MESSAGE.match(path)
        if found is None or int(found[1]) >= len(self.places):
            return NAMES.get(path, TOOL.sub(r"\1", path))
        place, part, below = self.places[int(found[1])], found[2], path[found.end() :]
        if place.stands:
            return place.path
        if part is not None:
            below = self._source(part_at(self.chat["messages"], int(found[1]), int(part)), below)
        if part is None:
            return place.path + below
        is_known = int(part) < len(place.parts)
        return (place.parts[int(part)] if is_known else f"{place.path}.content[{part}]") + below

    @staticmethod
    def _source(part: Json, below: str) -> str:
        """What of a block holds its file."""
        if below not in (".file", ".file.file_id", ".file.file_data", ".file_id"):
            return below
        if below.endswith(".file_id") or named_file(part) is not None:
            return ".source.file_id"
        return ".source.content" if part.get(ANTHROPIC_BLOCK) else ".source.data"


def read_request(body: Json, headers: Mapping[str, str], *, counted: bool = False) -> MessagesReading:
    """
    Args:
        headers: in lower case.
        counted: its tokens are asked for, and no answer: then it need not say how long that may be.

    Raises:
        InvalidRequest: a field breaks a rule; `param` names it.
    """
    if body.get("max_tokens") is None and not counted:
        raise missing("max_tokens")
    messages = body.get("messages")
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    reader = MessageReader()
    if body.get("system") is not None:
        reader.system(body["system"])
    for index, message in enumerate(messages):
        told, message = message if isinstance(message, CompactedMessages) else ((), message)
        for each in told:
            reader.add(each, f"messages[{index}]", stands=True)
        if message is not COVERED:
            reader.read(message, f"messages[{index}]")
    chat: Json = {name: body[name] for name in (*SAME, *OWN) if body.get(name) is not None}
    chat["messages"] = reader.messages
    if chat.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    user, session = _user(body.get("metadata"))
    if user is not None:
        chat["user"] = user
    fields = {name: value for name, value in body.items() if name not in SAID and value is not None}
    needs = [*reader.needs]
    hosted = [("mcp_servers", "mcp_servers")] if fields.get("mcp_servers") else []
    _read_tools(body, chat, fields, needs, hosted)
    _read_format(body, chat)
    if headers.get("anthropic-beta"):
        fields[BETA] = [name.strip() for name in headers["anthropic-beta"].split(",") if name.strip()]
    named = headers.get(SESSION_HEADER) or session
    native = NativeRequest("anthropic", fields, tuple(needs), tuple(reader.marks), tuple(hosted))
    return MessagesReading(chat, native, reader.places, named, edits_of(fields.get("context_management")))


def _read_tools(body: Json, chat: Json, fields: Json, needs: list[str], hosted: list[tuple[str, str]]) -> None:
    """Tools that a client runs are a chat's functions. Where any says more than those can, all of them go up as they
    came, too.

    Args:
        hosted: gets paths and types of those that Anthropic runs.
    """
    tools = body.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        raise invalid("tools", "must be a list")
    functions: list[Json] = []
    exact = True
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise invalid(where, "must be an object")
        if not isinstance(tool.get("name"), str | None):
            raise invalid(f"{where}.name", "must be a string")
        if tool.get("type") not in (None, "custom"):
            exact = False
            function = client_function(tool)
            if function is None:
                hosted.append((where, str(tool["type"])))
            else:
                functions.append({"type": "function", "function": function})
            continue
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise missing(f"{where}.name")
        if not isinstance(tool.get("input_schema"), dict):
            raise missing(f"{where}.input_schema")
        function = {"name": tool["name"], "description": tool.get("description"), "parameters": tool["input_schema"]}
        function |= {"strict": tool.get("strict")}
        function = {name: value for name, value in function.items() if value is not None}
        kept = {"cache_control": tool["cache_control"]} if tool.get("cache_control") else {}
        functions.append({"type": "function", "function": function, **kept})
        said = {"type", "name", "description", "input_schema", "strict", "cache_control"}
        exact = exact and tool.keys() <= said
    if not exact:
        fields["tools"] = tools
    choice = body.get("tool_choice")
    if functions:
        chat["tools"] = functions
        _read_choice(choice, chat)
    elif choice is not None:
        fields["tool_choice"] = choice
    if hosted and isinstance(choice, dict):
        names = [each["function"]["name"] for each in functions]
        if (choice.get("type") == "tool" and choice.get("name") not in names) or (
            choice.get("type") == "any" and not names
        ):
            needs.append("tool_choice")


def _read_choice(choice: Any, chat: Json) -> None:
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool":
        if not isinstance(choice.get("name"), str):
            raise missing("tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(kind, str) and kind in CHOICES:
        chat["tool_choice"] = CHOICES[kind]
    else:
        raise invalid("tool_choice.type", f"must be one of {', '.join((*CHOICES, 'tool'))}")
    if choice.get("disable_parallel_tool_use") is not None:
        chat["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _read_format(body: Json, chat: Json) -> None:
    """Structured output, as it is asked for today and as it was in its beta."""
    config = body.get("output_config")
    asked = (config.get("format") if isinstance(config, dict) else None) or body.get("output_format")
    if isinstance(asked, dict) and asked.get("type") == "json_schema" and isinstance(asked.get("schema"), dict):
        schema = {"name": "output", "schema": asked["schema"], "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}


def _user(metadata: Any) -> tuple[str | None, str | None]:
    """Who asks, and in which session of Claude Code: it says both in `metadata.user_id`, in one text or as JSON."""
    given = metadata.get("user_id") if isinstance(metadata, dict) else None
    if given is None:
        return None, None
    if not isinstance(given, str):
        raise invalid("metadata.user_id", "must be a string")
    user, session = given, None
    if ended := SESSION_OF_USER.search(given):
        user, session = given[: ended.start()], ended.group(1)
    elif given.startswith("{"):
        user, session = _user_as_json(given)
    if len(user) > MAX_USER_CHARS:
        user = f"user_{hashlib.sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
    return user or None, session


def _user_as_json(given: str) -> tuple[str, str | None]:
    try:
        said = jsons.loads(given.encode("utf-8", "surrogatepass"))
    except jsons.JSONDecodeError:
        return given, None
    session = said.pop("session_id", None)
    return jsons.dumps_text(said), session if isinstance(session, str) and session else None
