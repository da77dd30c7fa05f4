"""Translates the body of a response request to that of a chat, and keeps what only Responses can express.

Reads the items of `input` as chat messages, with what only an upstream that speaks Responses understands.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, NamedTuple

from gateway.core import errors
from gateway.core.formats.compaction_items import as_message
from gateway.core.formats.responses.item_reader import (
    NAMESPACE,
    Item,
    ItemReader,
    ReadMessage,
    filled,
    joined,
    objects,
    tool_name,
)
from gateway.core.formats.responses.response_request import INSTRUCTIONS_FIELD, LOGPROBS
from gateway.core.formats.responses.sealed_thoughts import OpenedThoughts
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.chat import NativeRequest
from gateway.core.types.items import (
    BETWEEN,
    ITEM_ORDER,
    LOCAL_SHELL,
    PATCH,
    PATCH_OPERATIONS,
    SHELL,
    TYPED,
    TYPED_TOOLS,
    is_hosted_shell,
    item_order,
    named_file,
    output_parts,
    part_at,
    rest_of,
    typed_kind,
)

STANDING = ("item_reference", "compaction", "compaction_trigger")
"""Items that refer to something else: they are answered, or replaced by it, before the rest is read."""
COVERED = object()
"""Replaces an item that a later compaction covers."""
OWN_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})(_[0-9a-f]{12})?")
"""An item id of this gateway; its first group is common to all items of an answer (`core.ids.new_id`)."""
COMMENTARY = "commentary"
"""The phase of a message that does not end its answer."""


@record
class CompactedExtract:
    """Replaces a compaction item: the extract of what was before it, and the open question."""

    text: str | None
    question: Item | None = None


class ReadEnd(NamedTuple):
    """A number of items, and what these were read as: messages, the paths of `needs`, and hosted items."""

    items: int = 0
    messages: int = 0
    needs: int = 0
    hosted: int = 0


class InputReader(ItemReader):
    """Reads the items of a request.

    The assistant's thoughts are stored as `reasoning_items`, for the upstream that wrote them, and as
    `reasoning_content` if they are text. Hosted calls and what belongs to them are stored as `output_items`.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        """`is_kept`: what is read may be the beginning of a later request, so its ends are recorded."""
        super().__init__()
        self.unheld: list[str] = []
        self.hosted: list[tuple[str, str]] = []
        """Paths and types of items that only the upstream that ran them understands."""
        self.needs = self.unheld
        self._items: list[Item] = []
        """Items of the open answer, in order, as they are sent back."""
        self._waiting: list[Item] = []
        """Thoughts whose answer has not come yet."""
        self.opened: list[OpenedThoughts] = []
        """Thoughts that the gateway sealed, of the open answer or the next: all between two results or others' messages
        is one answer."""
        self._stem: str | None = None
        """The common part of the open answer's ids, if this gateway gave them."""
        self.is_kept = is_kept
        self.ends: list[ReadEnd] = []
        """Where the input may be cut, so that the rest is read as it is behind the beginning."""

    def cut(self, items: int, known: int) -> None:
        """Records that the first `items` were read, if what follows is read as if they were not there.
        `known`: the messages before those of this reader."""
        is_open = self._answer is not None or self._reasoning or self._waiting or self.opened
        if not is_open and not self._call_ids and not self._hosted:
            self.ends.append(ReadEnd(items, known + len(self.messages), len(self.unheld), len(self.hosted)))

    def begin(self, before: "ResponsesReading | None", count: int) -> Sequence[ReadMessage]:
        """Begins at the last end among the first `count` items of an earlier request; returns the messages before."""
        ends = before.ends[: bisect_right(before.ends, (count, sys.maxsize))] if before is not None else ()
        if before is None or not ends:
            return ()
        self.ends = [*ends]
        self.unheld += before.native.needs[: ends[-1].needs]
        self.hosted += before.native.hosted[: ends[-1].hosted]
        return before.read[: ends[-1].messages]

    def read(self, item: Any, where: str) -> None:
        """Adds an item, and records its place in its answer."""
        before = self._answer
        super().read(item, where)
        kind = item.get("type") or "message"
        if kind == "reasoning" or self._answer is not None:
            self._waiting.append(_without_id(item))
        if kind != "reasoning" and self._answer is not None:
            is_new = self._answer is not before
            self._items, self._waiting = [*([] if is_new else self._items), *self._waiting], []
            self._stem = _stem_of(item) or (None if is_new else self._stem)

    def read_other(self, item: Item, kind: str, where: str) -> None:
        """Stores an item verbatim on the assistant's message that it belongs to."""
        if kind in STANDING:
            raise errors.invalid(f"{where}.type", f"must not be {kind}: this is for responses alone")
        answer = self._answer
        if answer is None:
            answer = self.add_answer({"content": None}, "complete", where)
        self._add_thoughts(answer)
        answer.setdefault("output_items", []).append(item)
        self.hosted.append((where, kind))

    def read_other_part(self, kind: str, where: str) -> None:
        """Records a part that only its maker understands; it keeps its place in the answer (`item_order`)."""
        self.hosted.append((where, kind))

    def end(self) -> None:
        """Completes the last answer. Drops thoughts that led to nothing: an answer was cut off, or its rest deleted."""
        self.taken_items()
        self._waiting = []
        self._close()
        self.opened = []

    def add_answer(self, content: dict[str, Any], status: str, where: str) -> dict[str, Any]:
        """Completes the open message of the assistant's and begins a new one."""
        self._close()
        return super().add_answer(content, status, where)

    def _close(self) -> None:
        if self._answer is None:
            return
        if order := item_order(self._items):
            self._answer[ITEM_ORDER] = order
        for thoughts in self.opened:
            thoughts.put_into(self._answer)
        self.opened = []

    def thoughts(self, items: list[Item], where: str) -> dict[str, Any]:
        """Returns reasoning items as a message's fields: the items, and their text if it is readable."""
        return {"reasoning_items": [_without_id(item) for item in items], **super().thoughts(items, where)}

    def answer(self, where: str) -> dict[str, Any]:
        """Returns the open message, or a new one: all between two results or others' messages is stored as one."""
        answer = self._answer
        if answer is None:
            return super().answer(where)
        self._add_thoughts(answer)
        return answer

    def add_words(self, content: dict[str, Any], item: Item, status: str, where: str) -> None:
        """Adds a text. One between calls and their results joins the message with the calls; one that continues an
        answer joins that answer."""
        if content["content"] is None and not content.get("refusal"):
            content = {**content, "content": ""}  # of an empty answer
        if isinstance(item.get("phase"), str):
            content = {**content, "phase": item["phase"]}
        answer = self._answer
        goes_on = self._goes_on(item)
        said = answer is not None and (answer.get("content") is not None or answer.get("refusal"))
        if answer is not None and (goes_on or answer.get("tool_calls")):
            self._add_thoughts(answer)
            _join(answer, content, BETWEEN if goes_on else "")
            self.messages[-1].status = status if status != "complete" else self.messages[-1].status
        elif answer is not None and "output_items" in answer and not said:
            self._add_thoughts(answer)
            answer.update(content)
        else:
            self.add_answer(content, status, where)

    def _goes_on(self, item: Item) -> bool:
        """Returns whether a message belongs to the same answer as the one before, and is stored with it."""
        said = [each for each in self._items if each.get("type") in (None, "message")]
        if self._answer is None or not said:
            return False
        return said[-1].get("phase") == COMMENTARY or (self._stem is not None and self._stem == _stem_of(item))

    def _add_thoughts(self, answer: dict[str, Any]) -> None:
        more = self.taken_thoughts()
        if more:
            answer.setdefault("reasoning_items", []).extend(more["reasoning_items"])
            texts = [text for text in (answer.get("reasoning_content"), more.get("reasoning_content")) if text]
            if texts:
                answer["reasoning_content"] = "\n\n".join(texts)


def read_input(
    value: Any, *, optional: bool = False, reader: InputReader | None = None, before: Sequence[ReadMessage] = ()
) -> tuple[list[ReadMessage], list[str], list[tuple[str, str]]]:
    """Converts `input` to chat messages; also returns the paths of what no chat can hold, and paths and types of hosted
    calls. `optional`: the request names a history or a prompt, so that `input` may be absent; `reader`: reads it, and
    begins behind the items of its last end, which were read as `before`.
    Raises InvalidRequest: an item breaks a rule; names `input[i]…`."""
    if value is None:
        if optional:
            return [], [], []
        raise errors.missing("input")
    if isinstance(value, str):
        return [ReadMessage({"role": "user", "content": value}, "complete", "input")], [], []
    if not isinstance(value, list):
        raise errors.invalid("input", "must be a string or a list of items")
    reader = reader or InputReader()
    first = reader.ends[-1].items if reader.ends else 0
    for index, item in enumerate(value[first:], first):
        if isinstance(item, CompactedExtract):
            for body in (as_message(item.text) if item.text else None, item.question):
                if body is not None:
                    reader.add(body, f"input[{index}]")
                    reader.messages[-1].stands = True
        elif isinstance(item, OpenedThoughts):
            reader.opened.append(item)
        elif item is not COVERED:
            reader.read(item, f"input[{index}]")
            if reader.is_kept:
                reader.cut(index + 1, len(before))
    reader.end()
    messages, is_answered = paired(reader.messages)
    known = len(before)
    reader.ends = [end for end in reader.ends if end.messages <= known or is_answered[end.messages - known - 1]]
    return [*before, *messages], reader.unheld, reader.hosted


def paired(messages: Iterable[ReadMessage]) -> tuple[list[ReadMessage], list[bool]]:
    """Returns the messages with results right behind their calls: Responses takes them also behind what was said
    meanwhile, a chat does not. Also returns whether after each of the messages no call waits for its result."""
    groups: list[list[ReadMessage]] = []
    waiting: dict[str, list[list[ReadMessage]]] = {}
    is_answered: list[bool] = []
    calls = 0
    for message in messages:
        expected = waiting.get(message.body.get("tool_call_id", ""))
        if expected:
            expected.pop(0).append(message)
            calls -= 1
        else:
            groups.append([message])
            for call in message.body.get("tool_calls") or ():
                waiting.setdefault(call["id"], []).append(groups[-1])
                calls += 1
        is_answered.append(not calls)
    return [message for group in groups for message in group], is_answered


def _without_id(item: Item) -> Item:
    """Removes the id and status that this gateway gave an item: the item's maker knows it by another id."""
    own_id = ("id",) if _stem_of(item) is not None else ()
    status = ("status",) if item.get("type") == "reasoning" and (own_id or not item.get("id")) else ()
    return {name: value for name, value in item.items() if name not in (*own_id, *status, "pinned")}


def _stem_of(item: Item) -> str | None:
    """Returns the common part of the ids of an answer's items; None if this gateway did not give this id."""
    found = OWN_ITEM_ID.fullmatch(str(item.get("id")))
    return found[1] if found else None


def _join(answer: dict[str, Any], content: dict[str, Any], between: str) -> None:
    """Adds a text to a message in place: to its text, after `between`, else as parts. Refusals become one."""
    before, said = answer.get("content"), content.get("content")
    cited = [*(answer.get("annotations") or ()), *(content.get("annotations") or ())]
    told = [
        output_parts({"content": each.get("content"), "refusal": each.get("refusal")}) for each in (answer, content)
    ]
    answer.update({name: value for name, value in content.items() if name != "content"})
    if cited:
        answer["annotations"] = cited
    if refused := "".join(part.get("refusal") or "" for each in told for part in each):
        answer["refusal"] = refused
    if between:
        texts = ["".join(part.get("text") or "" for part in each) for each in told]
        answer["content"] = between.join(filter(None, texts)) or (None if refused else "")
        return
    parts: list[Any] = []
    for each in (before, said):
        parts += [{"type": "text", "text": each}] if isinstance(each, str) else each or []
    parts = [part for part in parts if part.get("type") != "refusal"]
    texts = [part.get("text") for part in parts]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    answer["content"] = (texts[0] if plain else parts) if parts else None


# Tools of a request and their choice, converted to a chat's. Hosted tools stay as they are.

RESPONSES_TOOL_CHOICES = ("none", "auto", "required")
ALLOWED_TOOLS_MODES = ("auto", "required")
OWN_KINDS = ("function", "custom")
"""Kinds of tools that clients run themselves and that a chat has, too."""
TEXT: Json = {"type": "string"}
TEXT_LIST_SCHEMA: Json = {"type": "array", "items": TEXT}
MILLISECONDS: Json = {"type": "integer", "description": "How long it may take, in milliseconds."}
TYPED_FUNCTIONS: dict[str, tuple[str, Json, list[str]]] = {
    LOCAL_SHELL: (
        "Runs a command on the user's machine and returns what it writes.",
        {
            "command": {
                **TEXT_LIST_SCHEMA,
                "description": 'The program and its arguments, such as ["bash", "-lc", "ls -la"].',
            },
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
            "commands": {**TEXT_LIST_SCHEMA, "description": "Each a whole command line."},
            "timeout_ms": MILLISECONDS,
            "max_output_length": {"type": "integer", "description": "The most characters of output to return."},
        },
        ["commands"],
    ),
    PATCH: (
        "Creates, updates or deletes one file.",
        {
            "type": {**TEXT, "enum": [*PATCH_OPERATIONS]},
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
"""For each typed tool, as described to a model: what it does, its arguments, and the required ones."""


def chat_tools(value: Any) -> tuple[dict[str, Json], list[tuple[int, Json]]]:
    """Splits tools into a chat's by their paths, and the others with their indexes.
    Raises InvalidRequest: names `tools[i]…`."""
    if value is None:
        return {}, []
    if not isinstance(value, list):
        raise errors.invalid("tools", "must be a list")
    own: dict[str, Json] = {}
    hosted: list[tuple[int, Json]] = []
    named = [tool.get("name") for tool in value if isinstance(tool, dict)]
    for index, tool in enumerate(value):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise errors.invalid(where, "must be an object")
        kind = filled(tool, "type", where)
        if kind == NAMESPACE:
            own |= {path: _own(each, path) for path, each in _within(tool, where)}
        elif kind in TYPED_TOOLS and kind not in named and not is_hosted_shell(tool):
            own[where] = _typed(tool)
        elif kind not in OWN_KINDS:
            hosted.append((index, tool))
        elif isinstance(tool.get(kind), dict):  # in a chat's shape, as some clients mix them
            own[f"{where}.{kind}"] = tool
        else:
            own[where] = _own(tool, where)
    return own, hosted


def _own(tool: Json, where: str) -> Json:
    filled(tool, "name", where)
    kind, own = tool["type"], rest_of(tool, "type")
    shape = own.get("format")
    if kind == "custom" and isinstance(shape, dict) and shape.get("type") == "grammar" and "grammar" not in shape:
        own["format"] = {"type": "grammar", "grammar": {k: v for k, v in shape.items() if k != "type"}}
    return {"type": kind, kind: own}


def _typed(tool: Json) -> Json:
    """Converts a typed tool to the function that replaces it."""
    does, arguments, needs = TYPED_FUNCTIONS[TYPED_TOOLS[tool["type"]]]
    skills = (tool.get("environment") or {}).get("skills") if isinstance(tool.get("environment"), dict) else ()
    told = [f"{s.get('name')} ({s.get('path')}): {s.get('description')}" for s in skills or () if isinstance(s, dict)]
    description = "\n".join([does, *(["Skills, each a folder with a SKILL.md to read first:"] if told else []), *told])
    schema = {"type": "object", "properties": arguments, "required": needs, "additionalProperties": False}
    function = {"name": tool["type"], "description": description, "parameters": schema}
    return {"type": "function", "function": function, TYPED: tool}


def _within(group: Json, where: str) -> list[tuple[str, Json]]:
    """Returns the tools of a namespace, under joined names, each with its path."""
    namespace, tools = filled(group, "name", where), group.get("tools")
    if not isinstance(tools, list):
        raise errors.invalid(f"{where}.tools", "must be a list")
    found = []
    for index, tool in enumerate(tools):
        path = f"{where}.tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") not in OWN_KINDS:
            raise errors.invalid(path, f"must be an object of type {' or '.join(OWN_KINDS)}")
        found.append((path, {**tool, "name": joined(namespace, filled(tool, "name", path))}))
    return found


class ToolChoice(NamedTuple):
    """Which tool to call: `chat` is the choice in a chat's form, without hosted tools."""

    chat: Any
    names_hosted: bool = False
    forces_hosted: bool = False


def chat_tool_choice(value: Any, typed: Collection[str] = ()) -> ToolChoice:
    """Converts the tool choice of a request.
    `typed`: the types of its tools that became functions.
    Raises InvalidRequest: names `tool_choice…`."""
    if value is None or isinstance(value, str):
        if value not in (None, *RESPONSES_TOOL_CHOICES):
            raise errors.invalid("tool_choice", f"must be one of {', '.join(RESPONSES_TOOL_CHOICES)}, or an object")
        return ToolChoice(value)
    if not isinstance(value, dict):
        raise errors.invalid("tool_choice", "must be a string or an object")
    kind = filled(value, "type", "tool_choice")
    if kind in (*OWN_KINDS, *typed):
        return ToolChoice(_chosen(value, "tool_choice"))
    if kind == "allowed_tools":
        return _allowed(value, typed)
    return ToolChoice(None, names_hosted=True, forces_hosted=True)


def _chosen(value: Json, where: str) -> Json:
    kind = value["type"]
    if kind in TYPED_TOOLS:
        return {"type": "function", "function": {"name": kind}}
    if isinstance(value.get(kind), dict):
        return value
    filled(value, "name", where)
    return {"type": kind, kind: {"name": tool_name(value, where)}}


def _allowed(value: Json, typed: Collection[str]) -> ToolChoice:
    if isinstance(value.get("allowed_tools"), dict):
        return ToolChoice(value)
    if value.get("mode") not in ALLOWED_TOOLS_MODES:
        raise errors.invalid("tool_choice.mode", f"must be one of {', '.join(ALLOWED_TOOLS_MODES)}")
    tools = value.get("tools")
    if tools is None:
        raise errors.missing("tool_choice.tools")
    tools = objects(tools, "tool_choice.tools")
    own = [(index, tool) for index, tool in enumerate(tools) if tool.get("type") in (*OWN_KINDS, *typed)]
    chosen = [_chosen(tool, f"tool_choice.tools[{index}]") for index, tool in own]
    names_hosted = len(own) < len(tools)
    if names_hosted and not own:
        return ToolChoice("none", names_hosted=True, forces_hosted=value["mode"] == "required")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": value["mode"], "tools": chosen}}
    return ToolChoice(allowed, names_hosted=names_hosted)


RESPONSES_SAME_FIELDS = (
    *("model", "temperature", "top_p", "parallel_tool_calls", "service_tier", "user", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention", "metadata", "store", "stream"),
    *("conversation", "context", "attachments", "agent", "memory"),
)
"""Fields that a chat has by the same name, the gateway's own among them."""
RESPONSES_TRANSLATED_FIELDS = (
    *("input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens", "top_logprobs"),
    *("include", "stream_options", "truncation", "background", "previous_response_id", "context_management"),
)
RESPONSES_FIELD_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
}
"""Chat fields that errors name, and their names in this API."""
TOOL_PATH = re.compile(r"tools\[(\d+)\](\.(?:function|custom)\b)?")
MESSAGE_PATH = re.compile(r"messages\[(\d+)\]((?:\.\w+|\[\d+\])*)")
NO_CHATS = ("instructions", "tools", "tool_choice", "text", "reasoning", "include", "max_tool_calls", "prompt")
"""Fields that a chat cannot have in this form."""
TRUNCATIONS = ("auto", "disabled")
OUTPUT_FIELDS = {".content": ".output", ".tool_call_id": ".call_id"}
OF_FILE = re.compile(r"(\.content\[(\d+)\])\.file(\.\w+)?")
Place = tuple[str, str, str]
"""The path of an item, the role of its message, and the path of its first call. The role is `STANDS` if the item was a
compaction, so that an error names nothing below it."""
STANDS = ""


@record
class ResponsesReading:
    """A request in the inner form. `chat`: the equivalent body of a chat; `places`: where its messages came from in the
    request. `tools` in `native.fields` are the hosted ones, which are sent beside those of the chat."""

    LIST: ClassVar[str] = "input"
    chat: Json
    native: NativeRequest
    places: tuple[Place, ...]
    tools: tuple[str, ...] = ()
    """The paths of the chat's tools."""
    whole: bool = False
    """The client wants an error if not everything fits: it sent `truncation: disabled` explicitly."""
    previous: str | None = None
    """`previous_response_id`."""
    threshold: int | None = None
    """Tokens above which a prompt is compacted (`context_management`)."""
    said: frozenset[str] = frozenset()
    """Fields that the client sent in a chat's form, among those of Responses."""
    says_nothing: bool = False
    """The request has no messages and only continues the history, or gives the prompt, that it names."""
    read: Sequence[ReadMessage] = field(default=(), repr=False)
    """The messages of `input`."""
    ends: Sequence[ReadEnd] = field(default=(), repr=False)
    """As of its reader."""
    known: int = 0
    """How many of the messages of `input` an earlier request revealed."""

    @property
    def leading(self) -> int:
        """The number of chat messages before those of the list."""
        return len(self.places) - len(self.read)

    def external_field_name(self, path: str) -> str:
        """Translates the path of a chat's field to its path in the client's request."""
        found = MESSAGE_PATH.match(path)
        if found is None:
            tool = TOOL_PATH.match(path)
            if tool is not None and int(tool[1]) < len(self.tools):
                place = self.tools[int(tool[1])]
                if not tool[2]:
                    place = place.removesuffix(".function").removesuffix(".custom")
                return place + path[tool.end() :]
            return path if path in self.said else RESPONSES_FIELD_NAMES.get(path, path)
        index, below = int(found[1]), found[2]
        place, role, called = self.places[index] if index < len(self.places) else ("input", "", "")
        if place == "instructions" or role == STANDS:
            return place
        if called and not path[found.end(1) + 1 :]:  # in an answer with calls, only these can break a rule
            return called
        if (of_file := OF_FILE.fullmatch(below)) is not None:
            below = of_file[1] + self._file_field(index, int(of_file[2]), of_file[3])
        if role == "tool":
            below = next(
                (new + below[len(old) :] for old, new in OUTPUT_FIELDS.items() if below.startswith(old)), below
            )
        return place + below + path[found.end() :]

    def _file_field(self, message: int, part: int, named: str) -> str:
        """Returns the path, below an `input_file`, of what holds its file."""
        if named:
            return named
        by_id = named_file(part_at(self.chat["messages"], message, part)) is not None
        return ".file_id" if by_id else ".file_data"


def read_request(
    body: Mapping[str, Any], before: ResponsesReading | None = None, count: int = 0, *, is_kept: bool = False
) -> ResponsesReading:
    """Reads a request into the inner form. `before`: an earlier one whose first `count` items are the same; `is_kept`:
    the reading may be that of a later one.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    if body.get("background"):
        text = "background responses are not served: send background false, or leave it out."
        raise errors.InvalidRequest(text, param="background", code="unsupported_parameter")
    truncation = body.get("truncation")
    if truncation not in (None, *TRUNCATIONS):
        raise errors.invalid("truncation", f"must be one of {', '.join(TRUNCATIONS)}")
    says_more = any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt"))
    reader = InputReader(is_kept=is_kept)
    known = reader.begin(before, count)
    messages, needs, hosted = read_input(body.get("input"), optional=says_more, reader=reader, before=known)
    bodies, places = [each.body for each in messages], [_place(each) for each in messages]
    instructions = body.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise errors.invalid("instructions", "must be a string")
        if instructions:
            bodies.insert(0, {"role": "system", "content": instructions})
            places.insert(0, ("instructions", "system", ""))
    chat: Json = {name: body[name] for name in RESPONSES_SAME_FIELDS if body.get(name) is not None}
    chat["messages"] = bodies
    for index, message in enumerate(messages, len(bodies) - len(messages)):
        if message.pinned:
            bodies[index] = {**bodies[index], "pinned": True}
    native = rest_of(body, *RESPONSES_SAME_FIELDS, *RESPONSES_TRANSLATED_FIELDS)
    if instructions:
        native[INSTRUCTIONS_FIELD] = instructions
    if "prompt" in native:
        needs.append("prompt")
    own, apart = chat_tools(body.get("tools"))
    hosted += [(f"tools[{index}]", str(tool["type"])) for index, tool in apart]
    needs += _tools(body, chat, native, list(own.values()), [tool for _, tool in apart])
    _words(body, chat, native)
    previous = body.get("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise errors.invalid("previous_response_id", "must be a string")
    if previous is not None and body.get("conversation") is not None:
        text = "previous_response_id and conversation name two histories: send one of them."
        raise errors.InvalidRequest(text, param="previous_response_id", code="invalid_value")
    native_words = NativeRequest("responses", native, tuple(needs), hosted=tuple(hosted))
    return ResponsesReading(
        chat,
        native_words,
        tuple(places),
        tuple(own),
        whole=truncation == "disabled",
        previous=previous,
        threshold=_threshold(body),
        says_nothing=says_more and not bodies,
        read=messages,
        ends=reader.ends,
        known=len(known),
    )


def _place(message: ReadMessage) -> Place:
    return message.where, STANDS if message.stands else str(message.body["role"]), message.called


def _threshold(body: Mapping[str, Any]) -> int | None:
    """Returns the lowest threshold in `context_management`."""
    given = body.get("context_management")
    if given is None:
        return None
    if not isinstance(given, list):
        raise errors.invalid("context_management", "must be a list")
    found: list[int] = []
    for index, each in enumerate(given):
        where = f"context_management[{index}]"
        if not isinstance(each, dict) or each.get("type") != "compaction":
            raise errors.invalid(f"{where}.type", "must be compaction")
        limit = each.get("compact_threshold")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise errors.invalid(f"{where}.compact_threshold", "must be a whole number of at least 1")
        found += [limit] if limit is not None else []
    return min(found, default=None)


def read_as_chat(body: Mapping[str, Any]) -> ResponsesReading:
    """Reads a body with fields of Responses that is answered as a chat, as some clients send them: all its other fields
    are a chat's.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    reading = read_request({name: value for name, value in body.items() if name != "background"})
    others = {name: value for name, value in reading.native.fields.items() if name not in NO_CHATS}
    native = {name: value for name, value in reading.native.fields.items() if name in NO_CHATS}
    if body.get("stream_options") is not None:
        others["stream_options"] = body["stream_options"]
    chat = {**others, **reading.chat}
    return replace(reading, chat=chat, native=replace(reading.native, fields=native), said=frozenset(others))


def _tools(body: Mapping[str, Any], chat: Json, native: Json, own: list[Json], hosted: list[Json]) -> list[str]:
    """Sets tools and their choice in `chat` and `native`.
    Returns the paths of what no chat can do without: a choice that forces a hosted tool."""
    given = body.get("tool_choice")
    choice = chat_tool_choice(given, [tool["function"].get("name") for tool in own if typed_kind(tool)])
    if own:
        chat["tools"] = own
    else:
        chat.pop("parallel_tool_calls", None)
    if hosted:
        native["tools"] = hosted
    if own and choice.chat is not None:
        chat["tool_choice"] = choice.chat
    if choice.names_hosted or (hosted and not own and given is not None):
        native["tool_choice"] = given
    return ["tool_choice"] if choice.forces_hosted or (given == "required" and hosted and not own) else []


def _words(body: Mapping[str, Any], chat: Json, native: Json) -> None:
    """Sets the form of the answer: its format, its length, its thoughts."""
    text, reasoning = dict(_object(body, "text")), dict(_object(body, "reasoning"))
    shape = text.pop("format", None)
    if shape is not None:
        chat["response_format"] = _response_format(shape)
    for fields, name, chat_name in ((text, "verbosity", "verbosity"), (reasoning, "effort", "reasoning_effort")):
        value = fields.pop(name, None)
        if value is not None:
            chat[chat_name] = value
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    include = body.get("include") or []
    if not isinstance(include, list) or not all(isinstance(each, str) for each in include):
        raise errors.invalid("include", "must be a list of strings")
    if LOGPROBS in include or body.get("top_logprobs"):
        chat["logprobs"] = True
        chat["top_logprobs"] = body.get("top_logprobs") or 0
    others = [each for each in include if each != LOGPROBS]
    for name, rest in (("text", text), ("reasoning", reasoning), ("include", others)):
        if rest:
            native[name] = rest


def _response_format(shape: Any) -> Json | None:
    if not isinstance(shape, dict) or not isinstance(shape.get("type"), str):
        raise errors.invalid("text.format", "must be an object with a type")
    if shape["type"] != "json_schema" or "json_schema" in shape:
        return shape
    return {"type": "json_schema", "json_schema": rest_of(shape, "type")}


def _object(body: Mapping[str, Any], name: str) -> Json:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.invalid(name, "must be an object")
    return value
