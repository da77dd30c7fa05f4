"""Translates a Messages request to one of chat completions, and keeps what a chat cannot express (ADR 27).

A user's block that a chat cannot express stays in the content as a part `native_block`. An answer's blocks are split
over the assistant's message: thoughts in `thinking_blocks`, text in `content`, calls in `tool_calls`. If these do not
hold all blocks in order, all of them are also in `native_blocks`, verbatim.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

from gateway.core import errors, ids, jsons
from gateway.core.formats.anthropic.edits import COVERED, CompactedMessages, edits_of
from gateway.core.frozen_records import record
from gateway.core.ids import FILE
from gateway.core.jsons import Json
from gateway.core.types.chat import CacheMark, NativeRequest, a_pin
from gateway.core.types.content_parts import as_parts, dicts_of
from gateway.core.types.items import ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS, BREAKPOINT, named_file, named_picture, part_at

Block = dict[str, Any]
ANTHROPIC_ROLES = ("user", "assistant", "system")
ANTHROPIC_TEXT_FIELDS = frozenset(("type", "text"))
ANTHROPIC_CALL_FIELDS = frozenset(("type", "id", "name", "input", BREAKPOINT))
BARE_CALL_FIELDS = ANTHROPIC_CALL_FIELDS - {BREAKPOINT}
BARE_RESULT_FIELDS = {"type", "tool_use_id", "content"}
BLOCK_ORDER = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
"""Order of an answer's blocks that `native_blocks` need not record."""
PAGE_CITED = "web_search_result_location"
"""Type of a page citation. Anthropic's own has a sealed `encrypted_index`; in one from a chat's answer it is empty."""
CITED_BEFORE_CHARS = 10_000
"""How far before a text its cited words are looked for."""
PICTURES_NOTE = "[The answer has pictures, which this API has no block for: they are in `images` of the message.]"
AT_HOME = ("search_result", "tool_reference")
"""User blocks that become text in a chat (`plain_blocks.py`), so that other upstreams get them, too."""


class MessageSource(NamedTuple):
    """Where a chat message came from in the client's request: its path, and those of the parts of its content."""

    path: str
    parts: tuple[str, ...] = ()
    stands: bool = False
    """The message comes from a compaction block, so an error names this path and nothing below it."""


class ReadAmount(NamedTuple):
    """How much some of a request was read as: chat messages, needs and marks."""

    messages: int = 0
    needs: int = 0
    marks: int = 0


NOTHING_READ = ReadAmount()


class MessageReader:
    """Reads Anthropic's messages into chat messages, one after the other. `places` holds the source of each, `needs`
    the blocks that only Anthropic's models understand, `marks` the positions of the client's `cache_control`. `start`
    is what was read before the first message, `ends` what was read after that with each of Anthropic's messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.places: list[MessageSource] = []
        self.needs: list[str] = []
        self.marks: list[CacheMark] = []
        self.start = NOTHING_READ
        self.ends: list[ReadAmount] = []

    def end(self) -> None:
        """Ends one of Anthropic's messages."""
        messages, needs, marks = self.start
        self.ends.append(ReadAmount(len(self.messages) - messages, len(self.needs) - needs, len(self.marks) - marks))

    def begin(self, before: "MessagesReading | None", count: int) -> int:
        """Begins with what the first `count` messages of an earlier request were read as. Returns how many chat
        messages that are."""
        self.start = ReadAmount(len(self.messages), len(self.needs), len(self.marks))
        if before is None or not count:
            return 0
        self.ends = before.ends[:count]
        start, end = before.start, self.ends[-1]
        moved = self.start.messages - start.messages
        self.messages += before.chat["messages"][start.messages :][: end.messages]
        self.places += before.places[start.messages :][: end.messages]
        self.needs += before.native.needs[start.needs :][: end.needs]
        marks = before.native.marks[start.marks :][: end.marks]
        self.marks += [CacheMark(mark.message + moved, mark.part, mark.value) for mark in marks]
        return end.messages

    def read(self, message: Any, where: str) -> None:
        """Reads the message at path `where`. Raises InvalidRequest: it breaks a rule; names the field."""
        if not isinstance(message, dict):
            raise errors.invalid(where, "must be an object")
        role, content = message.get("role"), message.get("content")
        if role not in ANTHROPIC_ROLES:
            raise errors.invalid(f"{where}.role", f"must be one of {', '.join(ANTHROPIC_ROLES)}")
        if content is None:
            raise errors.missing(f"{where}.content")
        first = len(self.messages)
        self._read(role, content, where)
        if "pinned" in message and a_pin(message["pinned"], f"{where}.pinned"):
            self.messages[first:] = [{**each, "pinned": True} for each in self.messages[first:]]

    def _read(self, role: str, content: Any, where: str) -> None:
        if isinstance(content, str):
            self.add({"role": role, "content": content}, where)
            return
        if (bare := _bare_step(role, content)) is not None:
            self.add(bare, where if role == "assistant" else f"{where}.content[0]")
            return
        blocks = checked_blocks(content, f"{where}.content")
        if role == "assistant":
            answer = assistant_message(blocks, f"{where}.content")
            self._mark_answer(blocks, answer)
            self.add(answer, where)
        else:
            self._said(role, blocks, where)

    def system(self, value: Any) -> None:
        """Reads the top-level field `system`: a string, or text blocks."""
        if isinstance(value, str):
            self.add({"role": "system", "content": value}, "system")
            return
        blocks = checked_blocks(value, "system")
        for index, block in enumerate(blocks):
            if block["type"] != "text":
                raise errors.invalid(f"system[{index}].type", "must be text")
        if blocks:
            self._said("system", blocks, "system")

    def _said(self, role: str, blocks: list[Block], where: str) -> None:
        """Adds tool results first, since chats need them right after their calls; then the other blocks."""
        parts: list[Block] = []
        paths: list[str] = []
        marks: list[tuple[int, Any]] = []
        under = where if where == "system" else f"{where}.content"
        for index, block in enumerate(blocks):
            path = f"{under}[{index}]"
            if block["type"] == "tool_result":
                self._mark([*dicts_of(block.get("content")), block])
                self.add(self._result(block, path), path)
                continue
            found = self._parts(block, path)
            parts += found
            paths += [path] * len(found)
            if block.get(BREAKPOINT):
                marks.append((len(parts) - 1, block[BREAKPOINT]))
        if marks:
            self.marks += [CacheMark(len(self.messages), part, value) for part, value in marks]
        if parts or not any(block["type"] == "tool_result" for block in blocks):
            self.add({"role": role, "content": shortest(parts)}, where, paths)

    def _result(self, block: Block, where: str) -> dict[str, Any]:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str) or not call_id:
            raise errors.missing(f"{where}.tool_use_id")
        content = block.get("content")
        if content is None:
            content = ""
        elif not isinstance(content, str):
            inner = checked_blocks(content, f"{where}.content")
            parts = [part for i, each in enumerate(inner) for part in self._parts(each, f"{where}.content[{i}]")]
            content = shortest(parts)
        failed = {"is_error": True} if block.get("is_error") else {}
        return {"role": "tool", "tool_call_id": call_id, "content": content, **failed}

    def _parts(self, block: Block, where: str) -> list[Block]:
        """Converts a block to parts of a chat's content."""
        kind = block["type"]
        if kind == "text":
            return [_without_mark(block)]
        if kind in ("image", "document"):
            source = block.get("source")
            if not isinstance(source, dict):
                raise errors.missing(f"{where}.source")
            found = _image(block, source) if kind == "image" else _document(block, source)
            if found is not None and named_picture(found) is not None:
                self.needs.append(f"{where}.source.file_id")
            if found is not None:
                return [found]
        if kind == "search_result":
            checked_blocks(block.get("content") or [], f"{where}.content")
        if kind not in AT_HOME:
            self.needs.append(where)
        return [{"type": ANTHROPIC_BLOCK, ANTHROPIC_BLOCK: _without_mark(block)}]

    def _mark_answer(self, blocks: list[Block], answer: dict[str, Any]) -> None:
        """Records the cache marks of the next message, an answer: on its texts, and of its calls at its end. Blocks
        that are kept verbatim have one at their end."""
        if ANTHROPIC_BLOCKS in answer:
            self._mark(blocks)
            return
        texts = [block for block in blocks if block["type"] == "text" and block["text"] != PICTURES_NOTE]
        for part, block in enumerate(texts):
            if block.get(BREAKPOINT) and block is not blocks[-1]:
                self.marks.append(CacheMark(len(self.messages), part, block[BREAKPOINT]))
        self._mark([block for block in blocks if block["type"] != "text" or block is blocks[-1]])

    def _mark(self, blocks: list[Block]) -> None:
        """Records the cache mark of the next message: marks on its blocks count as one at its end."""
        for block in reversed(blocks):
            if block.get(BREAKPOINT):
                self.marks.append(CacheMark(len(self.messages), None, block[BREAKPOINT]))
                return

    def add(self, message: dict[str, Any], path: str, parts: list[str] | None = None, *, stands: bool = False) -> None:
        """Adds a chat message that was read at `path`, its parts at `parts`."""
        self.messages.append(message)
        self.places.append(MessageSource(path, tuple(parts or ()), stands))


def _bare_step(role: str, content: Any) -> dict[str, Any] | None:
    """Converts a lone call, or a lone result of one text, by a shorter path; None for everything else, also for what
    breaks a rule."""
    if type(content) is not list or len(content) != 1 or type(block := content[0]) is not dict:
        return None
    kind = block.get("type")
    if role == "user" and kind == "tool_result" and block.keys() == BARE_RESULT_FIELDS:
        name, text = block["tool_use_id"], block["content"]
        is_one = type(name) is str and name and type(text) is str
        return {"role": "tool", "tool_call_id": name, "content": text} if is_one else None
    if role == "assistant" and kind == "tool_use" and block.keys() == BARE_CALL_FIELDS:
        is_one = type(block["id"]) is type(block["name"]) is str and block["id"] and type(block["input"]) is dict
        return {"role": role, "content": None, "tool_calls": [_call(block, "")]} if is_one else None
    return None


def checked_blocks(value: Any, where: str) -> list[Block]:
    """Returns a list of typed blocks. Raises InvalidRequest: the value is none; names the field."""
    if not isinstance(value, list):
        raise errors.invalid(where, "must be a string or a list of blocks")
    for index, block in enumerate(value):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise errors.invalid(f"{where}[{index}]", "must be an object with a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise errors.invalid(f"{where}[{index}].text", "must be a string")
    return value


def shortest(parts: list[Block]) -> Any:
    """Returns parts as a content; a single plain text becomes a string, as in most chats."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == ANTHROPIC_TEXT_FIELDS else parts


def assistant_message(blocks: list[Block], where: str) -> dict[str, Any]:
    """Converts an answer's blocks to a chat's assistant message.

    Thoughts without a signature were made from `reasoning_content`, and return to it.
    Raises InvalidRequest: a call breaks a rule; names the field."""
    texts: list[Block] = []
    thoughts: list[Block] = []
    unsigned: list[str] = []
    calls: list[dict[str, Any]] = []
    cited: list[Block] = []
    kept: list[Block] = []
    exact, last = True, 0
    spoken = SpokenText()
    for index, whole in enumerate(blocks):
        if whole.get("text") == PICTURES_NOTE:
            continue
        block = _without_pages(whole, cited, spoken)
        if block["type"] == "text":
            spoken = spoken.followed_by(block["text"])
        kept.append(block)
        place = BLOCK_ORDER.get(block["type"])
        exact = exact and place is not None and place >= last
        last = last if place is None else place
        if block["type"] == "text":
            texts.append(_without_mark(block))
        elif block["type"] == "thinking" and not block.get("signature"):
            unsigned.append(str(block.get("thinking") or ""))
        elif place == BLOCK_ORDER["thinking"]:
            thoughts.append(block)
        elif block["type"] == "tool_use":
            calls.append(_call(block, f"{where}[{index}]"))
            exact = exact and block.keys() <= ANTHROPIC_CALL_FIELDS
    message: dict[str, Any] = {"role": "assistant", "content": shortest(texts)}
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    if thoughts:
        message["thinking_blocks"] = thoughts
    if any(unsigned):
        message["reasoning_content"] = "\n\n".join(filter(None, unsigned))
    if cited:
        message["annotations"] = cited
    if not exact:
        message[ANTHROPIC_BLOCKS] = list(map(_without_mark, kept))
    return message


class SpokenText(NamedTuple):
    """The texts of an answer that came before: their length, and their end."""

    chars: int = 0
    end: str = ""

    def followed_by(self, text: str) -> "SpokenText":
        return SpokenText(self.chars + len(text), (self.end + text)[-CITED_BEFORE_CHARS:])

    def place_of(self, said: str, text: str) -> int:
        """Returns where words are, from the first text on: in the next `text`, else before it, since a stream may have
        citations in a text of their own; -1 if they are nowhere."""
        if (at := text.find(said)) >= 0:
            return self.chars + at
        at = self.end.rfind(said)
        return self.chars - len(self.end) + at if at >= 0 else -1


def _without_pages(block: Block, cited: list[Block], spoken: "SpokenText") -> Block:
    """Removes from a text the page citations of a chat's answer; appends them to `cited` as a chat's annotations.
    `spoken`: the answer's texts before this one, as annotations count from the first."""
    given = block.get("citations")
    if block["type"] != "text" or not isinstance(given, list):
        return block
    pages = [
        page
        for page in given
        if isinstance(page, dict) and page.get("type") == PAGE_CITED and page.get("encrypted_index") == ""
    ]
    for page in pages:
        said = str(page.get("cited_text") or "")
        start = spoken.place_of(said, block["text"]) if said else -1
        place = {"start_index": start, "end_index": start + len(said)} if start >= 0 else {}
        told = {"url": page.get("url"), "title": page.get("title"), **place}
        cited.append({"type": "url_citation", "url_citation": told})
    rest = [page for page in given if page not in pages]
    bare = {name: value for name, value in block.items() if name != "citations"}
    return {**bare, "citations": rest} if rest else bare


def _call(block: Block, where: str) -> dict[str, Any]:
    for name in ("id", "name"):
        if not isinstance(block.get(name), str) or not (block[name] or name == "name"):  # models forget names
            raise errors.missing(f"{where}.{name}")
    given = block.get("input")
    if not isinstance(given, dict):
        raise errors.invalid(f"{where}.input", "must be an object")
    function = {"name": block["name"], "arguments": jsons.dumps_text(given)}
    return {"id": block["id"], "type": "function", "function": function}


def _image(block: Block, source: Block) -> Block | None:
    if _is_of_files(source):
        return {"type": "input_image", "file_id": source["file_id"], **_kept(block)}
    url = source.get("url") if source.get("type") == "url" else None
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        url = f"data:{source.get('media_type')};base64,{source['data']}"
    return {"type": "image_url", "image_url": {"url": url}, **_kept(block)} if isinstance(url, str) else None


def _document(block: Block, source: Block) -> Block | None:
    """Converts a document to a `file` part; None if only Anthropic can read its content: no URL is ever fetched."""
    kind, title = source.get("type"), block.get("title")
    own: Block = {}
    if _is_of_files(source):
        named = {"filename": title} if isinstance(title, str) and title else {}
        return {"type": "file", "file": {"file_id": source["file_id"], **named}, **_kept(block)}
    if kind == "base64" and isinstance(source.get("data"), str):
        media_type = str(source.get("media_type") or "application/pdf")
        name = "document.pdf" if media_type == "application/pdf" else "document"
        data = f"data:{media_type};base64,{source['data']}"
    else:
        text = source.get("data") if kind == "text" else _text_of(source.get("content")) if kind == "content" else None
        if not isinstance(text, str):
            return None
        encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
        data, name = f"data:text/plain;base64,{encoded}", "document.txt"
        own = {ANTHROPIC_BLOCK: {"source": source} if kind == "content" else {}}
    file = {"file_data": data, "filename": title if isinstance(title, str) and title else name}
    return {"type": "file", "file": file, **own, **_kept(block)}


def _is_of_files(source: Block) -> bool:
    """Returns whether a source names a file by one of the gateway's ids, which Anthropic cannot have issued."""
    return source.get("type") == "file" and str(source.get("file_id")).startswith(FILE)


def _text_of(content: Any) -> str | None:
    """Returns the text of a document that is given as content; None if it holds anything else."""
    texts = [block.get("text") if isinstance(block, dict) else None for block in as_parts(content)]
    return "\n\n".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _kept(block: Block) -> Block:
    """Returns the other fields of a picture or a document: citations and context."""
    return {k: v for k, v in block.items() if k in ("citations", "context") and v is not None}


def _without_mark(block: Block) -> Block:
    return {k: v for k, v in block.items() if v is not None and k != BREAKPOINT}


# Tools that Anthropic defines and clients run, as functions for models of others (guarantee §1.12).
#
# The schemas are those that Anthropic documents for each type. Calls need no conversion: a function's call is
# `tool_use`.

TEXT: Json = {"type": "string"}
LINE_SCHEMA: Json = {"type": "integer"}
ANTHROPIC_EDITS: Json = {
    "path": TEXT,
    "file_text": {**TEXT, "description": "With create: the whole text of the file."},
    "old_str": {**TEXT, "description": "With str_replace: the text to replace, which stands in the file exactly once."},
    "insert_line": {**LINE_SCHEMA, "description": "With insert: the line behind which it goes; 0: in front of all."},
    "view_range": {
        "type": "array",
        "items": LINE_SCHEMA,
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


BASH_TOOL: tuple[str, Json] = (
    "Runs a command in a bash shell that lives as long as the session. `restart` starts it anew.",
    {"type": "object", "properties": {"command": TEXT, "restart": {"type": "boolean"}}},
)
EDITOR = _commands(
    "Views and edits text files. Views files with line numbers, and folders.",
    ("view", "create", "str_replace", "insert"),
    {**ANTHROPIC_EDITS, **NEW},
)
OLD_EDITOR = _commands(
    "Views and edits text files; undo_edit takes the last edit of a file back.",
    ("view", "create", "str_replace", "insert", "undo_edit"),
    {**ANTHROPIC_EDITS, **OLD_NEW},
)
ANTHROPIC_MEMORY_TOOL = _commands(
    "Keeps files below /memories, which last beyond this conversation. View the folder before anything else.",
    ("view", "create", "str_replace", "insert", "delete", "rename"),
    {
        **ANTHROPIC_EDITS,
        **NEW,
        "old_path": {**TEXT, "description": "With rename."},
        "new_path": {**TEXT, "description": "With rename."},
    },
)
ANTHROPIC_TOOLS = {
    "bash_": BASH_TOOL,
    "text_editor_20241022": OLD_EDITOR,
    "text_editor_20250124": OLD_EDITOR,
    "text_editor_": EDITOR,
    "memory_": ANTHROPIC_MEMORY_TOOL,
}
"""By prefix of the tool's type; the first match counts."""


def client_function(tool: Json) -> Json | None:
    """Returns the function that replaces a typed tool; None if clients do not run it, or it is unknown."""
    kind, name = str(tool.get("type")), tool.get("name")
    found = next((each for start, each in ANTHROPIC_TOOLS.items() if kind.startswith(start)), None)
    if found is None or not isinstance(name, str) or not name:
        return None
    return {"name": name, "description": found[0], "parameters": found[1]}


ANTHROPIC_SAME_FIELDS = ("model", "max_tokens", "temperature", "top_p", "stream")
"""Fields that a chat has by the same name."""
OWN_MESSAGE_FIELDS = ("context", "conversation", "attachments", "agent", "memory", "store")
"""The gateway's own fields (guarantee §2)."""
ANTHROPIC_SAID_FIELDS = frozenset(
    (*ANTHROPIC_SAME_FIELDS, *OWN_MESSAGE_FIELDS, "messages", "system", "tools", "tool_choice", "stop_sequences")
)
"""Fields that a chat expresses in full. All others are sent untouched to Anthropic, and nowhere else."""
OBJECT_FIELDS = ("thinking", "metadata", "tool_choice", "output_config")
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
FIELDS_OF_CHATS = {"stop": "stop_sequences", "user": "metadata.user_id", "response_format": "output_config.format"}
"""Chat fields that errors name, and their names in this API."""
BETA = "anthropic_beta"
"""The field that carries the header `anthropic-beta` upstream: a list of names."""
MAX_ANTHROPIC_USER_CHARS = 64
"""OpenAI's limit for `user`. A longer name is replaced by its digest."""
SESSION_OF_USER = re.compile(r"_session_([0-9a-zA-Z-]{8,64})\Z")
"""Ending that Claude Code gives `metadata.user_id`."""
SESSION_HEADER = "x-claude-code-session-id"
MESSAGE = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
ANTHROPIC_TOOL_PATH = re.compile(r"(tools\[\d+\])\.function\b")


@record
class MessagesReading:
    """A request in the inner form. `session`: the client's own name of the conversation; `places`: where each chat
    message came from in the request; `edits`: what to clear from its context. `start` and `ends`: as of its reader;
    `known`: how many chat messages behind the start an earlier request revealed."""

    LIST: ClassVar[str] = "messages"
    chat: Json
    native: NativeRequest
    places: list[MessageSource] = field(default_factory=list)
    session: str | None = None
    edits: list[Json] = field(default_factory=list)
    start: ReadAmount = NOTHING_READ
    ends: list[ReadAmount] = field(default_factory=list, repr=False)
    known: int = 0

    @property
    def leading(self) -> int:
        """The number of chat messages before those of the list."""
        return self.start.messages

    def external_field_name(self, path: str) -> str:
        """Translates the path of a chat's field to its path in the client's request."""
        found = MESSAGE.match(path)
        if found is None or int(found[1]) >= len(self.places):
            return FIELDS_OF_CHATS.get(path, ANTHROPIC_TOOL_PATH.sub(r"\1", path))
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
        """Returns the path, below a block, of what holds its file."""
        if below not in (".file", ".file.file_id", ".file.file_data", ".file_id"):
            return below
        if below.endswith(".file_id") or named_file(part) is not None:
            return ".source.file_id"
        return ".source.content" if part.get(ANTHROPIC_BLOCK) else ".source.data"


def read_request(
    body: Json,
    headers: Mapping[str, str],
    *,
    counted: bool = False,
    before: MessagesReading | None = None,
    count: int = 0,
    is_kept: bool = False,
) -> MessagesReading:
    """Reads a Messages request into the inner form. `headers`: in lower case; `counted`: only a token count is
    requested, so that `max_tokens` may be absent; `before`: an earlier request whose first `count` messages are the
    same; `is_kept`: the reading may be that of a later one.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    if body.get("max_tokens") is None and not counted:
        raise errors.missing("max_tokens")
    delivers = body.get("agent") is not None  # to an agent, a stored message may be delivered (guarantee §11.4)
    messages = [] if delivers and body.get("messages") is None else body.get("messages")
    if messages is None:
        raise errors.missing("messages")
    if not isinstance(messages, list) or not (messages or delivers):
        raise errors.invalid("messages", "must be a list of at least one message")
    for name in OBJECT_FIELDS:
        if not isinstance(body.get(name), dict | None):
            raise errors.invalid(name, "must be an object")
    reader = MessageReader()
    if body.get("system") is not None:
        reader.system(body["system"])
    known = reader.begin(before, count)
    for index, message in enumerate(messages[count:], count):
        told, message = message if isinstance(message, CompactedMessages) else ((), message)
        for each in told:
            reader.add(each, f"messages[{index}]", stands=True)
        if message is not COVERED:
            reader.read(message, f"messages[{index}]")
        if is_kept:
            reader.end()
    chat: Json = {
        name: body[name] for name in (*ANTHROPIC_SAME_FIELDS, *OWN_MESSAGE_FIELDS) if body.get(name) is not None
    }
    chat["messages"] = reader.messages
    if chat.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    user, session = _user(body.get("metadata"))
    if user is not None:
        chat["user"] = user
    fields = {name: value for name, value in body.items() if name not in ANTHROPIC_SAID_FIELDS and value is not None}
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and str(metadata.get("conversation_id")).startswith(ids.CONVERSATION):
        chat["metadata"] = {"conversation_id": metadata["conversation_id"]}  # Anthropic refuses it
        fields["metadata"] = {name: value for name, value in metadata.items() if name != "conversation_id"}
    needs = [*reader.needs]
    hosted = [("mcp_servers", "mcp_servers")] if fields.get("mcp_servers") else []
    _read_tools(body, chat, fields, needs, hosted)
    _read_format(body, chat)
    if headers.get("anthropic-beta"):
        fields[BETA] = [name.strip() for name in headers["anthropic-beta"].split(",") if name.strip()]
    named = headers.get(SESSION_HEADER) or session
    native = NativeRequest("anthropic", fields, tuple(needs), tuple(reader.marks), tuple(hosted))
    edits = edits_of(fields.get("context_management"))
    return MessagesReading(chat, native, reader.places, named, edits, reader.start, reader.ends, known)


def _read_tools(body: Json, chat: Json, fields: Json, needs: list[str], hosted: list[tuple[str, str]]) -> None:
    """Reads client-run tools as a chat's functions. If any has more than a function can express, all of them are also
    sent verbatim.
    `hosted`: receives paths and types of the tools that Anthropic runs."""
    tools = body.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        raise errors.invalid("tools", "must be a list")
    functions: list[Json] = []
    exact = True
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise errors.invalid(where, "must be an object")
        if not isinstance(tool.get("name"), str | None):
            raise errors.invalid(f"{where}.name", "must be a string")
        if tool.get("type") not in (None, "custom"):
            exact = False
            function = client_function(tool)
            if function is None:
                hosted.append((where, str(tool["type"])))
            else:
                functions.append({"type": "function", "function": function})
            continue
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise errors.missing(f"{where}.name")
        if not isinstance(tool.get("input_schema"), dict):
            raise errors.missing(f"{where}.input_schema")
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
            raise errors.missing("tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(kind, str) and kind in TOOL_CHOICES:
        chat["tool_choice"] = TOOL_CHOICES[kind]
    else:
        raise errors.invalid("tool_choice.type", f"must be one of {', '.join((*TOOL_CHOICES, 'tool'))}")
    if choice.get("disable_parallel_tool_use") is not None:
        chat["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _read_format(body: Json, chat: Json) -> None:
    """Reads structured output, in today's field or in that of its beta."""
    config = body.get("output_config")
    asked = (config.get("format") if isinstance(config, dict) else None) or body.get("output_format")
    if isinstance(asked, dict) and asked.get("type") == "json_schema" and isinstance(asked.get("schema"), dict):
        schema = {"name": "output", "schema": asked["schema"], "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}


def _user(metadata: Any) -> tuple[str | None, str | None]:
    """Returns the user and the session of Claude Code, which puts both in `metadata.user_id`, as text or as JSON."""
    given = metadata.get("user_id") if isinstance(metadata, dict) else None
    if given is None:
        return None, None
    if not isinstance(given, str):
        raise errors.invalid("metadata.user_id", "must be a string")
    user, session = given, None
    if ended := SESSION_OF_USER.search(given):
        user, session = given[: ended.start()], ended.group(1)
    elif given.startswith("{"):
        user, session = _user_as_json(given)
    if len(user) > MAX_ANTHROPIC_USER_CHARS:
        user = f"user_{hashlib.sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
    return user or None, session


def _user_as_json(given: str) -> tuple[str, str | None]:
    try:
        said = jsons.loads(given.encode("utf-8", "surrogatepass"))
    except jsons.JSONDecodeError:
        return given, None
    session = said.pop("session_id", None)
    return jsons.dumps_text(said), session if isinstance(session, str) and session else None
