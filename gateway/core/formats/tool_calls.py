"""Normalizes tool calls of upstreams to OpenAI's protocol (guarantee §1.9): distinct ids, whole names, arguments in a
string. Renders calls of tools that another provider ran as text (guarantee §1.14).

Client-run tools that are not functions are sent as functions to an upstream that knows only those, and their calls are
converted back (guarantee §1.11). Freeform tools, `custom` in OpenAI's chats, take a single text; their grammars move to
the descriptions. Calls of typed tools are returned whole.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.ids import content_digest, new_id
from gateway.core.jsons import Json
from gateway.core.types.items import CUSTOM, ITEM_DONE, TYPED, arguments_of, is_data_url, typed_kind

CALL = "call_"
"""Prefix of the call ids made here."""
BODIES = {"function": "arguments", "custom": "input"}
"""The object that holds each kind of call, and its field with the text that the model writes."""


class CallIds:
    """The ids of one answer's calls."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def distinct(self, said: Any) -> str:
        """Returns a call's own id, or a new one if it has none or shares it with an earlier call."""
        found = id_of(said)
        if not found or found in self._taken:
            found = new_id(CALL)
        self._taken.add(found)
        return found


NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that Anthropic refuses in the id of a call."""
ANY_ID = re.compile("(?!)")
LONGEST_CALL_ID = 64
"""Characters of a call's id beyond which OpenAI and Bedrock refuse it."""


class CallPairs:
    """Makes an id for each call of all, and names the call of each result. Results belong to the calls that had their
    id and have no result yet, in order; else to the last that had it."""

    def __init__(self, refused: re.Pattern[str] = NO_ID) -> None:
        """`refused`: characters that an id must not have; if there are none, ids may be of any length, too."""
        self._refused = refused
        self._used: set[str] = set()
        self._unanswered: dict[str, list[str]] = {}
        self._last: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        stem = self._fitting(call_id) or "call"
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        self._unanswered.setdefault(call_id, []).append(name)
        self._last[call_id] = name
        return name

    def of_result(self, call_id: str) -> str:
        if unanswered := self._unanswered.get(call_id):
            return unanswered.pop(0)
        return self._last.get(call_id, self._fitting(call_id))

    def in_message(self, message: Json) -> Json:
        """Returns the next message of a chat with the ids of its calls, or of the call that it answers."""
        if calls := message.get("tool_calls"):
            return {**message, "tool_calls": [{**call, "id": self.of_call(str(call.get("id")))} for call in calls]}
        if call_id := message.get("tool_call_id"):
            return {**message, "tool_call_id": self.of_result(str(call_id))}
        return message

    def _fitting(self, call_id: str) -> str:
        is_long = len(call_id) > LONGEST_CALL_ID and self._refused is not ANY_ID
        return short_id(call_id) if is_long else self._refused.sub("_", call_id)


def short_id(call_id: str) -> str:
    """Returns another id in place of one that is too long; the same id becomes the same one."""
    return CALL + content_digest(call_id)[:32]


def id_of(said: Any) -> str:
    """Returns an id as a string; empty if it is neither a string nor an integer."""
    is_number = isinstance(said, int) and not isinstance(said, bool)
    return said if isinstance(said, str) else str(said) if is_number else ""


def written(value: Any) -> str:
    """Returns arguments as the string that the protocol requires: some servers send them as JSON."""
    return value if isinstance(value, str) else jsons.dumps_text(value)


def whole_call(call: Json, ids: CallIds) -> Json:
    """Normalizes a call of a whole message; a sound one is returned unchanged. `ids`: those of the message's calls."""
    found = in_function(call)
    if found.get("type") == "custom" and not any(isinstance(found.get(kind), dict) for kind in BODIES):
        found = {**found, "custom": {}}
    call_id = ids.distinct(found.get("id"))
    if call_id != found.get("id"):
        found = {**found, "id": call_id}
    for kind, field in BODIES.items():
        said = found.get(kind)
        if not isinstance(said, dict):
            continue
        mended = {name: said[name] for name in ("name",) if isinstance(said.get(name), str)} or {"name": ""}
        mended[field] = "{}" if said.get(field) is None else written(said[field])
        if any(said.get(name) != value for name, value in mended.items()):
            found = {**found, kind: {**said, **mended}}
    return found if found.get("type") else {**found, "type": "custom" if "custom" in found else "function"}


def in_function(call: Json) -> Json:
    """Moves a call's name and arguments into its `function`: some servers put them beside it."""
    if isinstance(call.get("function"), dict) or "custom" in call or call.get("type") not in (None, "", "function"):
        return call
    moved = {name: call[name] for name in ("name", "arguments") if name in call}
    return {**{name: value for name, value in call.items() if name not in moved}, "function": moved}


class CallPieces:
    """The calls of one streamed message, sorted as their pieces arrive.

    The index distinguishes calls before the id does; where an upstream sends no index, or the same for all, a new id
    begins a call, and so does a name after complete arguments. A call is passed on when its name is known: a name may
    come late, or in pieces. Id, type and name are sent once, since clients concatenate pieces.
    """

    def __init__(self, tools: frozenset[str]) -> None:
        """`tools`: the names of the request's tools; empty if it has none."""
        self._tools = tools
        self._ids = CallIds()
        self._calls: list[_PartialCall] = []

    def mended(self, pieces: list[Json]) -> list[Json]:
        """Records the pieces of one chunk and returns those to pass on now."""
        found: list[Json] = []
        for position, raw in enumerate(pieces):
            if raw.get("type") not in (None, "", *BODIES):  # of an unknown kind
                found.append(raw)
                continue
            piece = in_function(raw) if "name" in raw or "arguments" in raw else raw
            kind = next((kind for kind in BODIES if isinstance(piece.get(kind), dict)), "function")
            said = piece.get(kind)
            said = said if isinstance(said, dict) else {}
            name = said.get("name")
            came = _CallPiece(piece, kind, said, name if isinstance(name, str) else "", len(pieces) > 1, position)
            call = self._call(came)
            if call is None:
                continue
            if call.is_new:
                for before in self._calls[:-1]:
                    found += before.released(self._ids)
                call.is_new = False
            found += self._passed(call, came)
        return found

    def rest(self) -> list[Json]:
        """Returns, at the end of the message, the calls still held, and `{}` for functions without arguments."""
        found: list[Json] = []
        for call in self._calls:
            found += call.released(self._ids, anyhow=True)
            if not call.has_text and call.kind == "function":
                call.has_text = True
                found.append({"index": call.index, call.kind: {BODIES[call.kind]: "{}"}})
        return found

    def _call(self, came: "_CallPiece") -> "_PartialCall | None":
        """Returns the call that a piece belongs to; None if the piece repeats it whole."""
        place = came.place
        known = self._known(place, came)
        if known is None:
            return self._begun(place, came)
        if not self._begins_anew(known, came):
            return known
        again = (known.said_id, known.name, known.text) == (came.call_id, came.name, came.text)
        return None if again and came.call_id else self._begun(place, came)

    def _begins_anew(self, known: "_PartialCall", came: "_CallPiece") -> bool:
        """Returns whether a piece at the place of a known call begins another one."""
        if not came.name or not known.name:
            return False
        other = came.name != known.name
        if known.is_whole:
            return other or bool(came.text)
        return other and {known.name, came.name} <= self._tools and not came.name.startswith(known.name)

    def _known(self, place: int | None, came: "_CallPiece") -> "_PartialCall | None":
        by_id = [call for call in self._calls if came.call_id and call.said_id == came.call_id]
        here = [call for call in self._calls if call.place == place]
        if place is None:
            here = self._calls[-1:]
        if not here:
            return by_id[-1] if by_id and not came.name and came.text else None
        if not came.call_id or came.call_id == here[-1].said_id:
            return here[-1]
        if place is None and by_id:
            return by_id[-1]
        same = [call for call in here if call in by_id]
        if same:
            return same[-1]
        return here[-1] if not here[-1].said_id and not (here[-1].is_whole and came.name) else None

    def _begun(self, place: int | None, came: "_CallPiece") -> "_PartialCall":
        used = {call.index for call in self._calls}
        index = place if place is not None and place >= 0 and place not in used else max(used, default=-1) + 1
        call = _PartialCall(place, index, came.kind)
        self._calls.append(call)
        return call

    def _passed(self, call: "_PartialCall", came: "_CallPiece") -> list[Json]:
        call.said_id = call.said_id or came.call_id
        name = self._name(call.name, came.name)
        added = name[len(call.name) :] if name.startswith(call.name) else ""
        call.name = name
        if came.text is not None:
            call.pieces.append(came.text)
            call.has_text = True
        if not call.is_told:
            call.held = {**call.held, **{k: v for k, v in came.whole.items() if v or k not in call.held}}
            call.kind, call.body = came.kind, {**call.body, **came.body}
            known = self._is_whole_name(name) and bool(call.said_id)
            return call.released(self._ids) if known or (name and call.text) else []
        body = {k: v for k, v in came.body.items() if k != "name" or not v}
        if added:
            body["name"] = added
        if came.text is not None or BODIES[call.kind] in body:
            body[BODIES[call.kind]] = came.text or ""
        piece = {k: v for k, v in came.whole.items() if k != "id" or not v}
        if call.kind in piece or body:
            piece[call.kind] = body
        if not body and set(piece) <= {"index", "type", call.kind}:
            return []
        return [{**piece, "index": call.index}]

    def _name(self, known: str, came: str) -> str:
        """Extends a name by a piece: the next part, the whole name again, or the name so far."""
        if known + came in self._tools:
            return known + came
        if came.startswith(known):
            return came
        return known if known.endswith(came) or known in self._tools else known + came

    def _is_whole_name(self, name: str) -> bool:
        if not self._tools or not name:
            return bool(name)
        return name in self._tools and not any(tool != name and tool.startswith(name) for tool in self._tools)


class _CallPiece:
    """One piece of a call."""

    __slots__ = ("body", "call_id", "kind", "name", "place", "text", "whole")

    def __init__(self, whole: Json, kind: str, body: Json, name: str, several: bool, position: int) -> None:
        index = whole.get("index")
        self.place: int | None = index if type(index) is int else -1 - position if several else None
        self.whole = whole
        self.kind = kind
        self.body = body
        self.name = name
        self.call_id = id_of(whole.get("id"))
        said = body.get(BODIES[kind])
        self.text = None if said is None else written(said)


class _PartialCall:
    """One call. `place`: the index that the upstream gives it; `index`: the one that it has here."""

    __slots__ = (
        *("body", "has_text", "held", "index", "is_new", "is_told", "kind", "name", "pieces", "place", "said_id"),
    )

    def __init__(self, place: int | None, index: int, kind: str) -> None:
        self.place = place
        self.index = index
        self.kind = kind
        self.said_id = self.name = ""
        self.held: Json = {}
        self.body: Json = {}
        self.pieces: list[str] = []
        self.is_new, self.is_told, self.has_text = True, False, False

    @property
    def text(self) -> str:
        """The arguments received so far."""
        return "".join(self.pieces)

    @property
    def is_whole(self) -> bool:
        return self.text.rstrip().endswith(("}", "]")) and jsons.is_json(self.text)

    def released(self, ids: CallIds, *, anyhow: bool = False) -> list[Json]:
        """Returns the first piece, with all received so far; none if already released, or nameless without `anyhow`."""
        if self.is_told or not (self.name or anyhow):
            return []
        self.is_told = True
        body = {**self.body, "name": self.name, BODIES[self.kind]: self.text}
        held = {**self.held, "index": self.index, "id": ids.distinct(self.said_id)}
        return [{**held, "type": held.get("type") or self.kind, self.kind: body}]


UNTOLD = frozenset({"reasoning", "mcp_list_tools", "tool_search_call", "tool_search_output", "compaction"})
"""Items and blocks without content for the task: thoughts, which other fields hold, and lists of tools."""
IN_OTHER_FIELDS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
"""Blocks of an answer that its chat message holds in other fields."""
TOOL_CALL_SUFFIXES = ("_call", "_call_output", "_tool_result")
TOOL_NAME_FIELDS = ("server_label", "server_name", "name")
"""Fields that name a tool and its server."""
TOOL_CALL_SKIPPED_FIELDS = frozenset(
    {
        *("type", "id", "status", "call_id", "tool_use_id", "caller", *TOOL_NAME_FIELDS),
        *("encrypted_content", "encrypted_index", "encrypted_stdout", "file_id", "vector_store_id", "score"),
        *("attributes", "container_id", "approval_request_id", "media_type", "page_age", "retrieved_at"),
        *("environment", "max_output_length", "background", "partial_images", "output_format", "size"),
    }
)
"""Fields without content for a model: ids, sealed data, settings."""
ACTION = "action: "
PICTURE, FILE = "(a picture)", "(a file)"


def told_blocks(blocks: Any) -> str:
    """Renders as text those blocks of an answer that no other field of its message holds."""
    listed = blocks if isinstance(blocks, list) else []
    return told_items(
        [each for each in listed if isinstance(each, dict) and str(each.get("type")) not in IN_OTHER_FIELDS]
    )


def with_told(message: dict[str, Any], told: str) -> dict[str, Any]:
    """Puts rendered text in front of an answer's own content."""
    if not told:
        return message
    content = message.get("content")
    if isinstance(content, str | None):
        return {**message, "content": f"{told}\n\n{content}" if content else told}
    return {**message, "content": [{"type": "text", "text": told}, *content]}


def is_silent(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is an empty answer, which some upstreams refuse."""
    if message.get("role") != "assistant" or message.get("content"):
        return False
    return not any(value for name, value in message.items() if name not in ("role", "name"))


def told_items(items: Any) -> str:
    """Renders an answer's `output_items` as text; empty if they have no content."""
    found: list[str] = []
    for item in items if isinstance(items, Sequence) and not isinstance(items, str) else ():
        kind = str(item.get("type")) if isinstance(item, dict) else ""
        if not kind or kind in UNTOLD:
            continue
        lines = [line for name, value in item.items() for line in _lines(name, value)]
        if not all(line.startswith(ACTION) for line in lines):  # a search without details is no content
            found.append("\n".join([f"[{_title(item, kind)}]", *lines]))
    return "\n\n".join(found)


def _title(item: Mapping[str, Any], kind: str) -> str:
    for ending in TOOL_CALL_SUFFIXES:
        kind = kind.removesuffix(ending) if kind != ending else kind
    return " ".join(
        [kind, *(item[name] for name in TOOL_NAME_FIELDS if isinstance(item.get(name), str) and item[name])]
    )


def _lines(name: str, value: Any) -> Iterator[str]:
    """Renders a field as lines, each with the field's name."""
    if name in TOOL_CALL_SKIPPED_FIELDS or value is None or value == "":
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
        is_picture = name == "result" or (isinstance(value, str) and is_data_url(value))
        yield f"{name}: {PICTURE if is_picture else value}"


INPUT = "input"
"""The only argument of a function that replaces a freeform tool."""
TOOL_INPUT_START = re.compile(r'\s*\{\s*"input"\s*:\s*"')
TOOL_INPUT_TEXT = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
HIGH_SURROGATE_END = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""A high surrogate at the end of a text, which has no meaning without its low surrogate."""


Names = Mapping[str, str]
"""Types of tool calls, by tool name."""


def names_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Maps the names of a request's tools that are not functions to their types."""
    found: dict[str, str] = {}
    for tool in body.get("tools") or ():
        if _custom(tool):
            found[str(tool["custom"].get("name"))] = CUSTOM
        elif kind := typed_kind(tool):
            found[str(_name(tool))] = kind
    return found


def without_typed(body: Json) -> Json:
    """Returns the body with typed tools, and calls of them, as plain functions."""
    found = {**body, "messages": [_message(message, _bare) for message in body["messages"]]}
    return {**found, "tools": [*map(_bare, body["tools"])]} if body.get("tools") else found


def without_freeform(body: Json, *, keeps_allowed: bool) -> Json:
    """Returns the body with freeform and typed tools, the choice of one, and calls of them, as plain functions.
    `keeps_allowed`: the upstream accepts a choice of `allowed_tools`; if not, only those tools are offered."""
    found = without_typed({**body, "messages": [_message(message, _as_function) for message in body["messages"]]})
    if found.get("tools"):
        found["tools"] = [_function(tool["custom"]) if _custom(tool) else tool for tool in found["tools"]]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        found["tool_choice"] = choice = _choice(choice)
        allowed = choice.get("allowed_tools")
        if isinstance(allowed, dict) and not keeps_allowed:
            named = [_name(tool) for tool in allowed.get("tools") or ()]
            found["tools"] = [tool for tool in found.get("tools") or () if _name(tool) in named]
            found["tool_choice"] = allowed.get("mode") or "auto"
            if not found["tools"]:
                found = {name: value for name, value in found.items() if name not in ("tools", "tool_choice")}
    return found


def with_short_ids(body: Json, calls: Sequence[Json]) -> Json:
    """Returns a chat, which has these calls, with others in place of the ids that OpenAI refuses as too long: where
    another provider answered before, they may hold the signature of its thoughts."""
    named = [call.get("id") for call in calls]
    return _with_ids(body, {n: short_id(n) for n in named if isinstance(n, str) and len(n) > LONGEST_CALL_ID})


MISTRALS_ID = re.compile("[a-zA-Z0-9]{9}")
BETWEEN_RESULT_AND_USER = {"role": "assistant", "content": "Understood."}


def as_mistral_takes(body: Json, calls: Sequence[Json]) -> Json:
    """Returns a chat, which has these calls, with ids of Mistral's form, and an answer between each result and a user's
    message that follows it: Mistral refuses others. Clients of Messages send words beside results."""
    named = [call.get("id") for call in calls]
    body = _with_ids(
        body, {n: content_digest(n)[:9] for n in named if isinstance(n, str) and not MISTRALS_ID.fullmatch(n)}
    )
    messages = list[Json]()
    for message in body["messages"]:
        if messages and messages[-1].get("role") == "tool" and message.get("role") == "user":
            messages.append(BETWEEN_RESULT_AND_USER)
        messages.append(message)
    return {**body, "messages": messages}


def _with_ids(body: Json, names: Mapping[str, str]) -> Json:
    return {**body, "messages": [_renamed(message, names) for message in body["messages"]]} if names else body


def _renamed(message: Json, names: Mapping[str, str]) -> Json:
    calls, answered = message.get("tool_calls"), str(message.get("tool_call_id"))
    if calls:
        return {**message, "tool_calls": [{**c, "id": names[c["id"]]} if c.get("id") in names else c for c in calls]}
    return {**message, "tool_call_id": names[answered]} if answered in names else message


def _custom(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("custom"), dict)


def _name(tool: Any) -> Any:
    inner = tool.get("function") if isinstance(tool, dict) else None
    return inner.get("name") if isinstance(inner, dict) else None


def _function(custom: Json) -> Json:
    """Converts a freeform tool to a function. Its schema suits strict mode, the default for a response's functions."""
    told = [str(custom["description"])] if custom.get("description") else []
    shape = custom.get("format")
    grammar = shape.get("grammar") if isinstance(shape, dict) else None
    if isinstance(grammar, dict):
        told.append(f"The input keeps this {grammar.get('syntax') or ''} grammar:\n{grammar.get('definition') or ''}")
    text = {"type": "string", "description": "The whole input of the tool, as it is."}
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
    described = {"description": "\n\n".join(told)} if told else {}
    return {"type": "function", "function": {"name": custom.get("name"), **described, "parameters": schema}}


def _choice(choice: Json) -> Json:
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, dict):
        tools = [_choice(tool) if isinstance(tool, dict) else tool for tool in allowed.get("tools") or ()]
        return {**choice, "allowed_tools": {**allowed, "tools": tools}}
    if not _custom(choice):
        return choice
    return {"type": "function", "function": {"name": choice["custom"].get("name")}}


def _message(message: Json, made: Callable[[Json], Json]) -> Json:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [*map(made, calls)]} if calls else message


def _bare(tool: Any) -> Any:
    """Removes the note of its type from a tool or a call."""
    return {k: v for k, v in tool.items() if k != TYPED} if isinstance(tool, dict) and TYPED in tool else tool


def _as_function(call: Json) -> Json:
    if not _custom(call):
        return call
    arguments = json.dumps({INPUT: call["custom"].get(INPUT) or ""}, ensure_ascii=False)
    kept = {name: value for name, value in call.items() if name != "custom"}
    return {**kept, "type": "function", "function": {"name": call["custom"].get("name"), "arguments": arguments}}


def with_freeform(completion: Json, names: Names) -> Json:
    """Converts a completion's calls of these tools back to freeform and typed calls."""
    choices = []
    for choice in completion.get("choices") or ():
        message = choice.get("message") or {}
        if calls := message.get("tool_calls"):
            made = [_as_own(call, names.get(str(_name(call)))) for call in calls]
            choice = {**choice, "message": {**message, "tool_calls": made}}
        choices.append(choice)
    return {**completion, "choices": choices}


def _as_own(call: Json, kind: str | None) -> Json:
    if kind is None:
        return call
    function = call["function"]
    if kind != CUSTOM:
        arguments = arguments_of(kind, function.get("arguments"))
        return {**call, "function": {**function, "arguments": arguments}, TYPED: kind}
    kept = {name: value for name, value in call.items() if name != "function"}
    return {**kept, "type": "custom", "custom": {"name": function["name"], INPUT: input_of(function.get("arguments"))}}


def input_of(arguments: Any) -> str:
    """Extracts a freeform text from a call's arguments; outside strict mode a model may rename or omit `input`."""
    try:
        found = json.loads(arguments, strict=False) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        return str(arguments)
    if isinstance(found, dict):
        texts = [value for value in found.values() if isinstance(value, str)]
        found = (
            found[INPUT] if isinstance(found.get(INPUT), str) else texts[0] if len(texts) == len(found) == 1 else found
        )
    return found if isinstance(found, str) else str(arguments or "")


class FreeformChunks:
    """Converts function calls of a stream back: freeform text passes as it comes, typed calls at their end."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._inputs: dict[tuple[Any, Any], _FreeformInput | _WholeArguments] = {}
        """By index of the choice and of the call; calls of plain functions are not among them."""

    def of(self, chunk: Json) -> Json:
        """Converts the calls of a chunk back; text still held is added to the chunk that ends them or their choice."""
        choices = []
        for choice in chunk.get("choices") or ():
            delta, index = choice.get("delta") or {}, choice.get("index")
            calls = [
                piece for n, each in enumerate(delta.get("tool_calls") or ()) for piece in self._call(index, n, each)
            ]
            done = (choice.get(ITEM_DONE) or {}).get("call")
            for key, held in [*self._inputs.items()]:
                if key[0] == index and (choice.get("finish_reason") or held.call_id == done):
                    calls += self._rest(key)
            kept = {name: value for name, value in delta.items() if name != "tool_calls"}
            choices.append({**choice, "delta": {**kept, "tool_calls": calls} if calls else kept})
        return {**chunk, "choices": choices} if choices else chunk

    def _call(self, choice: Any, position: int, piece: Any) -> list[Json]:
        if not isinstance(piece, dict):
            return [piece]
        key = choice, piece.get("index", position)
        function = piece.get("function") or {}
        rest: list[Json] = []
        known = self._inputs.get(key)
        if function.get("name") and (known is None or (piece.get("id") and piece["id"] != known.call_id)):
            rest = self._rest(key)
            if function["name"] in self._names:
                kind = self._names[function["name"]]
                self._inputs[key] = known = (
                    _FreeformInput(piece.get("id")) if kind == CUSTOM else _WholeArguments(piece.get("id"), kind)
                )
                return [*rest, known.begun(piece, function)]
            known = None
        if known is None:
            return [*rest, piece]
        text = known.add(function.get("arguments"))
        return [{"index": key[1], **known.piece(text)}] if text else []

    def _rest(self, key: tuple[Any, Any]) -> list[Json]:
        known = self._inputs.pop(key, None)
        text = known.rest() if known is not None else ""
        return [{"index": key[1], **known.piece(text)}] if known is not None and text else []


class _WholeArguments:
    """The arguments of a call that is passed on at its end."""

    def __init__(self, call_id: Any, kind: str) -> None:
        self.call_id = call_id
        self._kind = kind
        self._said: list[str] = []

    def begun(self, piece: Json, function: Json) -> Json:
        """Builds the call's first piece, without arguments; those that came with it are stored."""
        self.add(function.get("arguments"))
        return {**piece, "function": {**function, "arguments": ""}, TYPED: self._kind}

    def piece(self, text: str) -> Json:
        """Wraps a text in a piece of the call."""
        return {"function": {"arguments": text}}

    def add(self, piece: Any) -> str:
        """Stores more of the arguments; returns "", as none of them is passed on yet."""
        self._said.append(_text(piece))
        return ""

    def rest(self) -> str:
        """Returns all arguments when the call is over."""
        return arguments_of(self._kind, "".join(self._said))


def _text(piece: Any) -> str:
    return piece if isinstance(piece, str) else json.dumps(piece) if piece else ""


class _FreeformInput:
    """The freeform text in the arguments of a call, which arrive in pieces."""

    def __init__(self, call_id: Any) -> None:
        self.call_id = call_id
        self._said = ""
        """Arguments not yet passed on."""
        self._has_begun = False

    def begun(self, piece: Json, function: Json) -> Json:
        """Builds the call's first piece, with the text received so far."""
        kept = {name: value for name, value in piece.items() if name != "function"}
        said = {"name": function["name"], INPUT: self.add(function.get("arguments"))}
        return {**kept, "type": "custom", "custom": said}

    def piece(self, text: str) -> Json:
        """Wraps a text in a piece of the call."""
        return {"custom": {INPUT: text}}

    def add(self, piece: Any) -> str:
        """Adds a piece of the arguments; returns the text that can be passed on now."""
        self._said += _text(piece)
        if not self._has_begun:
            begins = TOOL_INPUT_START.match(self._said)
            if begins is None:
                return ""
            self._said, self._has_begun = self._said[begins.end() :], True
        found = TOOL_INPUT_TEXT.match(self._said)
        whole = found[0] if found is not None else ""
        half = HIGH_SURROGATE_END.search(whole)
        end = half.start(1) if half else len(whole)
        told, self._said = self._said[:end], self._said[end:]
        return str(json.loads(f'"{told}"', strict=False))

    def rest(self) -> str:
        """Returns the text not yet passed on when the call is over."""
        if not self._has_begun:
            return input_of(self._said)
        half = HIGH_SURROGATE_END.match(self._said[:6])
        return str(json.loads(f'"{half[1]}"')) if half else ""
