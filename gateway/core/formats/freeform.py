"""Tools that clients run and are no functions, for upstreams that have functions alone: each goes up as one, and its
calls come back as what they were (guarantee §1.11).

Freeform tools, which OpenAI's chats call `custom`, get a single text; `apply_patch` of coding agents is one. Grammars
become part of descriptions. Those of types of their own are functions already; their calls are told whole.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.core.types.items import CUSTOM
from gateway.core.types.typed_tools import TYPED, arguments_of, typed_kind

Json = dict[str, Any]
INPUT = "input"
"""The one argument of such a function."""
BEGINS = re.compile(r'\s*\{\s*"input"\s*:\s*"')
CHARACTERS = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""The first half of a character at the end of a text: what it is, the second half tells."""


Names = Mapping[str, str]
"""The types of the calls of tools, by the names of these."""


def names_of(body: Mapping[str, Any]) -> dict[str, str]:
    """A request's tools that are no functions."""
    found: dict[str, str] = {}
    for tool in body.get("tools") or ():
        if _custom(tool):
            found[str(tool["custom"].get("name"))] = CUSTOM
        elif kind := typed_kind(tool):
            found[str(_name(tool))] = kind
    return found


def without_typed(body: Json) -> Json:
    """The body with functions alone in the place of tools of types of their own, and of their calls."""
    found = {**body, "messages": [_message(message, _bare) for message in body["messages"]]}
    return {**found, "tools": [*map(_bare, body["tools"])]} if body.get("tools") else found


def without_freeform(body: Json, *, keeps_allowed: bool) -> Json:
    """The body with functions in the place of all such tools, of the choice of one, and of their calls.

    Args:
        keeps_allowed: the upstream takes a choice of `allowed_tools`; else only those are offered.
    """
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


def _custom(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("custom"), dict)


def _name(tool: Any) -> Any:
    inner = tool.get("function") if isinstance(tool, dict) else None
    return inner.get("name") if isinstance(inner, dict) else None


def _function(custom: Json) -> Json:
    """A freeform tool as a function. It may be strict, as a response's functions are where nobody says."""
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
    """A tool, or a call, without the note of its type."""
    return {k: v for k, v in tool.items() if k != TYPED} if isinstance(tool, dict) and TYPED in tool else tool


def _as_function(call: Json) -> Json:
    if not _custom(call):
        return call
    arguments = json.dumps({INPUT: call["custom"].get(INPUT) or ""}, ensure_ascii=False)
    kept = {name: value for name, value in call.items() if name != "custom"}
    return {**kept, "type": "function", "function": {"name": call["custom"].get("name"), "arguments": arguments}}


def with_freeform(completion: Json, names: Names) -> Json:
    """A completion whose calls of these tools are what they were."""
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
    """The text of a call's arguments; a model that was not strict may have called it by another name, or by none."""
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
    """Makes such calls of the functions in a stream: a freeform text is told as it comes, all else at its end."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._inputs: dict[tuple[Any, Any], _FreeformInput | _WholeArguments] = {}
        """By the index of the choice and that of the call; those of functions are not among them."""

    def of(self, chunk: Json) -> Json:
        """The chunk with its calls as they were; what was held back of them stands where their choice ends."""
        choices = []
        for choice in chunk.get("choices") or ():
            delta, index = choice.get("delta") or {}, choice.get("index")
            calls = [
                piece for n, each in enumerate(delta.get("tool_calls") or ()) for piece in self._call(index, n, each)
            ]
            if choice.get("finish_reason"):
                calls += [rest for key in [*self._inputs] if key[0] == index for rest in self._rest(key)]
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
    """The arguments of a call that is told at its end."""

    def __init__(self, call_id: Any, kind: str) -> None:
        self.call_id = call_id
        self._kind = kind
        self._said: list[str] = []

    def begun(self, piece: Json, function: Json) -> Json:
        """The first piece of the call."""
        self.add(function.get("arguments"))
        return {**piece, "function": {**function, "arguments": ""}, TYPED: self._kind}

    def piece(self, text: str) -> Json:
        """A piece with that text."""
        return {"function": {"arguments": text}}

    def add(self, piece: Any) -> str:
        """More of the arguments; nothing can be told by now."""
        self._said.append(_text(piece))
        return ""

    def rest(self) -> str:
        """All of them when the call is over."""
        return arguments_of(self._kind, "".join(self._said))


def _text(piece: Any) -> str:
    return piece if isinstance(piece, str) else json.dumps(piece) if piece else ""


class _FreeformInput:
    """The text in the arguments of a call, which come in pieces."""

    def __init__(self, call_id: Any) -> None:
        self.call_id = call_id
        self._said = ""
        """What has not been told."""
        self._has_begun = False

    def begun(self, piece: Json, function: Json) -> Json:
        """The first piece of the call."""
        kept = {name: value for name, value in piece.items() if name != "function"}
        said = {"name": function["name"], INPUT: self.add(function.get("arguments"))}
        return {**kept, "type": "custom", "custom": said}

    def piece(self, text: str) -> Json:
        """A piece with that text."""
        return {"custom": {INPUT: text}}

    def add(self, piece: Any) -> str:
        """More of the arguments; returns what can be told by now."""
        self._said += _text(piece)
        if not self._has_begun:
            begins = BEGINS.match(self._said)
            if begins is None:
                return ""
            self._said, self._has_begun = self._said[begins.end() :], True
        found = CHARACTERS.match(self._said)
        whole = found[0] if found is not None else ""
        half = HALF.search(whole)
        end = half.start(1) if half else len(whole)
        told, self._said = self._said[:end], self._said[end:]
        return str(json.loads(f'"{told}"', strict=False))

    def rest(self) -> str:
        """What has not been told when the call is over."""
        if not self._has_begun:
            return input_of(self._said)
        half = HALF.match(self._said[:6])
        return str(json.loads(f'"{half[1]}"')) if half else ""
