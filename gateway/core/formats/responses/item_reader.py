"""Reads items of Responses and of the Conversations API as chat messages. By hand: see ADR 17. Names of tools in a
namespace, which Codex uses for its agents and for MCP servers, are joined to one name in a chat."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from gateway.core import errors
from gateway.core.jsons import Json
from gateway.core.types.chat import a_pin
from gateway.core.types.items import (
    LOCAL_SHELL,
    OUTPUT,
    PATCH,
    SHELL,
    TYPED,
    TYPED_CALLS,
    arguments_of,
    is_own_call,
    nested_annotation,
    rest_of,
    result_text,
)

NAMESPACE = "namespace"
"""The type of a group of tools, and the field of a call that names its group."""
NAMESPACE_SEPARATOR = "__"
MAX_FUNCTION_NAME_CHARS = 64
"""Maximum characters of a function's name in a chat."""
NAME_DIGEST_CHARS = 8


def joined(namespace: str, name: str) -> str:
    """Joins namespace and name. A name too long for a chat ends with a digest of the whole, so that it is stable."""
    whole = f"{namespace}{NAMESPACE_SEPARATOR}{name}"
    if len(whole) <= MAX_FUNCTION_NAME_CHARS:
        return whole
    digest = sha256(whole.encode()).hexdigest()[:NAME_DIGEST_CHARS]
    return f"{whole[: MAX_FUNCTION_NAME_CHARS - NAME_DIGEST_CHARS - 1]}_{digest}"


def names_apart(tools: Any) -> dict[str, Json]:
    """Maps the joined name of each tool in a namespace to `name` and `namespace`. `tools` were read before."""
    return {
        joined(group["name"], tool["name"]): {"name": tool["name"], NAMESPACE: group["name"]}
        for group in tools or ()
        if group.get("type") == NAMESPACE
        for tool in group["tools"]
    }


# Content parts of items, as a client sends them, converted to those of chat messages.

Part = dict[str, Any]
INPUT_TEXT_TYPES = ("input_text", "text")
BY_REFERENCE = {"input_image": "file_id", "input_file": "file_url"}
"""Fields that refer to content which only an upstream that speaks Responses can get, unless it is stored here."""
OUTPUT_TEXT_TYPES = ("output_text", *INPUT_TEXT_TYPES)


def input_content(content: Any, where: str, needs: list[str] | None = None) -> str | list[Part]:
    """Converts the content of a user's or system message; a single plain text becomes a string, which every provider
    accepts.
    Raises InvalidRequest: as `chat_content`."""
    found = chat_content(content, where, needs)
    if len(found) == 1 and isinstance(found[0], dict) and found[0].keys() == {"type", "text"}:
        return str(found[0]["text"])
    return found


def chat_content(content: Any, where: str, needs: list[str] | None = None) -> str | list[Part]:
    """Converts the content of any item but an assistant's to that of a chat message.
    `needs`: receives the paths of parts that no chat can hold, which are then retained verbatim.
    Raises InvalidRequest: it is no content, or holds what no chat message can; names the field."""
    if isinstance(content, str):
        return content
    return [_chat_part(part, f"{where}[{index}]", needs) for index, part in _listed(content, where)]


def answer_content(
    content: Any, where: str, *, may_be_empty: bool, read_other: Callable[[str, str], None]
) -> dict[str, Any]:
    """Converts the content of an assistant's item to `content`, `refusal` and `annotations` of a chat message.

    A single text becomes a string, which every provider accepts; refusals are a field of their own.
    `read_other`: receives the type and the path of a part that is neither.
    Raises InvalidRequest: it is no content; names the field."""
    if isinstance(content, str):
        return {"content": content}
    if content == [] and may_be_empty:
        return {"content": None}
    parts: list[Part] = []
    annotations: list[Any] = []
    refusal = ""
    for index, part in _listed(content, where):
        name = f"{where}[{index}]"
        kind = _kind(part, name)
        if kind == "refusal":
            refusal += _text(part, "refusal", name)
        elif kind in OUTPUT_TEXT_TYPES:
            annotations += map(nested_annotation, objects(part.get("annotations") or [], f"{name}.annotations"))
            parts.append(_chat_text(part, name, ("annotations", "logprobs")))
        else:
            read_other(kind, name)
    is_plain = len(parts) == 1 and len(parts[0]) == 2
    body = {"content": parts[0]["text"] if is_plain else parts or None, "refusal": refusal, "annotations": annotations}
    return {name: value for name, value in body.items() if value or name == "content"}


def _chat_part(part: Any, where: str, needs: list[str] | None) -> Part:
    kind = _kind(part, where)
    reference = BY_REFERENCE.get(kind)
    if needs is not None and reference is not None and part.get(reference) is not None:
        is_one = kind != "input_image" or part.get("image_url") is None
        needs.append(f"{where}.{reference}" if is_one else where)
        return dict(part)
    if kind not in _PARTS:
        raise errors.invalid(f"{where}.type", f"must be one of {', '.join(_PARTS)}")
    return _PARTS[kind](part, where)


def _chat_text(part: Part, where: str, dropped: tuple[str, ...] = ()) -> Part:
    return {"type": "text", "text": _text(part, "text", where), **rest_of(part, "type", "text", *dropped)}


def _chat_image(part: Part, where: str) -> Part:
    if part.get("image_url") is None and part.get("file_id") is not None:
        return {"type": "input_image", "file_id": _text(part, "file_id", where), **rest_of(part, "type", "file_id")}
    image = {"url": _text(part, "image_url", where)}
    if part.get("detail") is not None:
        image["detail"] = _text(part, "detail", where)
    return {"type": "image_url", "image_url": image, **rest_of(part, "type", "image_url", "file_id", "detail")}


def _chat_file(part: Part, where: str) -> Part:
    if part.get("file_url") is not None:
        raise errors.invalid(f"{where}.file_url", "is not supported: no URL is fetched; send file_id or file_data")
    names = ("file_id", "file_data", "filename", "detail")
    file = {name: _text(part, name, where) for name in names if part.get(name) is not None}
    if "file_id" not in file and "file_data" not in file:
        raise errors.invalid(where, "needs file_id or file_data")
    return {"type": "file", "file": file, **rest_of(part, "type", "file_url", *names)}


def _chat_audio(part: Part, where: str) -> Part:
    if not isinstance(part.get("input_audio"), dict):
        raise errors.invalid(f"{where}.input_audio", "must be an object")
    return part


_PARTS: dict[str, Callable[[Part, str], Part]] = {
    **dict.fromkeys(INPUT_TEXT_TYPES, _chat_text),
    "input_image": _chat_image,
    "input_file": _chat_file,
    "input_audio": _chat_audio,
}


def _listed(content: Any, where: str) -> list[tuple[int, Any]]:
    if not isinstance(content, list) or not content:
        raise errors.invalid(where, "must be a string or a list of at least one part")
    return list(enumerate(content))


def _kind(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise errors.invalid(where, "must be an object with a type")
    return str(part["type"])


def _text(part: Part, name: str, where: str) -> str:
    if not isinstance(part.get(name), str):
        raise errors.invalid(f"{where}.{name}", "must be a string")
    return str(part[name])


ITEM_ROLES = ("user", "assistant", "system", "developer")
ITEM_STATUSES = ("completed", "incomplete", "in_progress")
PATCHED = ("completed", "failed")
"""Statuses of the output of a patch."""
Item = dict[str, Any]


@dataclass(slots=True)
class ReadMessage:
    """A chat message, its status, whether it is pinned, and the path of the first item that it was read from. `stands`:
    that item was a compaction. `called`: the path of its first call. `agent`: who wrote it, if its item says so."""

    body: dict[str, Any]
    status: str
    where: str
    pinned: bool = False
    stands: bool = False
    called: str = ""
    agent: str | None = None


class ItemReader:
    """Merges items to messages, one after the other.

    An assistant's reasoning, its text and the calls that follow are one message; so are several calls in a row: a chat
    requires results right after the message with their calls.
    """

    def __init__(self) -> None:
        self.messages: list[ReadMessage] = []
        self.needs: list[str] | None = None
        """Receives the paths of what no chat can hold; None if that is refused."""
        self._answer: dict[str, Any] | None = None
        """The assistant's message, if it is the last one: calls that follow become part of it."""
        self._reasoning: list[Item] = []
        """Reasoning whose message has not come yet."""
        self._reasoning_at = ""
        self._call_ids: dict[str, str] = {}
        """Call ids by item id: the result of a local shell may name the item."""
        self._hosted: set[str] = set()
        """The ids of shell calls that the client does not run."""
        self._kinds: dict[str, Callable[[Item, str], None]] = {
            "message": self._message,
            "function_call": self._plain_call,
            "function_call_output": self._output,
            "custom_tool_call": self._plain_call,
            "custom_tool_call_output": self._output,
            "reasoning": self._thought,
            **dict.fromkeys(TYPED_CALLS, self._typed_call),
            **{kind + OUTPUT: self._typed_output for kind in TYPED_CALLS},
        }

    def read(self, item: Any, where: str) -> None:
        """Adds an item. Raises InvalidRequest: it breaks a rule; names the field, at or below `where`."""
        if not isinstance(item, dict):
            raise errors.invalid(where, "must be an object")
        kind = item.get("type")
        if kind is None and "role" in item:
            kind = "message"
        if not isinstance(kind, str):
            raise errors.invalid(f"{where}.type", "must be a string")
        if kind not in self._kinds or self._is_hosted(item, kind):
            self.read_other(item, kind, where)
            return
        statuses = PATCHED if kind == PATCH + OUTPUT else ITEM_STATUSES
        if item.get("status") is not None and item["status"] not in statuses:
            raise errors.invalid(f"{where}.status", f"must be one of {', '.join(statuses)}")
        pinned = a_pin(item.get("pinned", False), f"{where}.pinned")
        if pinned and kind == "reasoning":
            raise errors.invalid(f"{where}.pinned", "is for messages, tool calls and their outputs")
        self._kinds[kind](item, where)
        if pinned:
            self.messages[-1].pinned = True

    def read_other(self, item: Item, kind: str, where: str) -> None:
        """Raises InvalidRequest: no chat can hold this item."""
        raise errors.invalid(f"{where}.type", f"must be one of {', '.join(self._kinds)}: a chat can hold no other")

    def read_other_part(self, kind: str, where: str) -> None:
        """Raises InvalidRequest: this part of an answer is no text."""
        raise errors.invalid(f"{where}.type", f"must be one of {', '.join((*OUTPUT_TEXT_TYPES, 'refusal'))}")

    def end(self) -> None:
        """Ends the input. Raises InvalidRequest: no message or call follows the last reasoning."""
        if self._reasoning:
            raise errors.invalid(self._reasoning_at, "must be followed by an assistant's message or a tool call")

    def thoughts(self, items: list[Item], where: str) -> dict[str, Any]:
        """Converts reasoning items to fields of an assistant's message: their text, if it is readable, as a chat has no
        other form of thoughts. `where` is the path of the last."""
        texts = [text for item in items for text in reasoning_texts(item, where)]
        return {"reasoning_content": "\n\n".join(texts)} if texts else {}

    def _message(self, item: Item, where: str) -> None:
        role = item.get("role")
        if role not in ITEM_ROLES:
            raise errors.invalid(f"{where}.role", f"must be one of {', '.join(ITEM_ROLES)}")
        if item.get("content") is None:
            raise errors.missing(f"{where}.content")
        name = {"name": text_of(item, "name", where)} if item.get("name") is not None else {}
        if role == "assistant":
            partial = item.get("status") == "incomplete"
            may_be_empty = partial or self.needs is not None
            answer = answer_content(
                item["content"], f"{where}.content", may_be_empty=may_be_empty, read_other=self.read_other_part
            )
            self.add_words({**answer, **name}, item, "partial" if partial else "complete", where)
        else:
            content = input_content(item["content"], f"{where}.content", self.needs)
            self.add({"role": role, "content": content, **name}, where)

    def _plain_call(self, item: Item, where: str) -> None:
        kind, said = ("function", "arguments") if item["type"] == "function_call" else ("custom", "input")
        body = {"name": tool_name(item, where), said: text_of(item, said, where)}
        self._add_call({"id": filled(item, "call_id", where), "type": kind, kind: body}, where)

    def _typed_call(self, item: Item, where: str) -> None:
        kind, call_id = item["type"], filled(item, "call_id", where)
        typed = TYPED_CALLS[kind]
        if not isinstance(item.get(typed.holds), dict):
            raise errors.invalid(f"{where}.{typed.holds}", "must be an object")
        self._call_ids[str(item.get("id"))] = call_id
        function = {"name": typed.tool, "arguments": arguments_of(kind, item[typed.holds])}
        self._add_call({"id": call_id, "type": "function", "function": function, TYPED: kind}, where)

    def _typed_output(self, item: Item, where: str) -> None:
        kind = item["type"].removesuffix(OUTPUT)
        named = "id" if kind == LOCAL_SHELL and item.get("call_id") is None else "call_id"
        call_id = filled(item, named, where)
        output = item.get("output")
        if output is None and kind != PATCH:
            raise errors.missing(f"{where}.output")
        if kind == SHELL:
            objects(output, f"{where}.output")
        elif output is not None:
            text_of(item, "output", where)
        call_id = self._call_ids.get(call_id, call_id) if named == "id" else call_id
        self.add({"role": "tool", "tool_call_id": call_id, "content": result_text(kind, item)}, where)

    def _is_hosted(self, item: Item, kind: str) -> bool:
        """Returns whether an item belongs to a shell that the upstream runs."""
        if kind == SHELL and not is_own_call(item):
            self._hosted.add(str(item.get("call_id")))
            return True
        return kind == SHELL + OUTPUT and str(item.get("call_id")) in self._hosted

    def _add_call(self, call: dict[str, Any], where: str) -> None:
        answer = self.answer(where)
        answer.setdefault("tool_calls", []).append(call)
        self.messages[-1].called = self.messages[-1].called or where

    def answer(self, where: str) -> dict[str, Any]:
        """Returns the assistant's message that the next call belongs to."""
        if self._answer is None or self._reasoning:
            return self.add_answer({"content": None}, "complete", where)
        return self._answer

    def _output(self, item: Item, where: str) -> None:
        call_id = filled(item, "call_id", where)
        if item.get("output") is None:
            raise errors.missing(f"{where}.output")
        content = chat_content(item["output"], f"{where}.output", self.needs)
        self.add({"role": "tool", "tool_call_id": call_id, "content": content}, where)

    def _thought(self, item: Item, where: str) -> None:
        self._reasoning.append(item)
        self._reasoning_at = where
        self.thoughts([item], where)

    def add_words(self, content: dict[str, Any], item: Item, status: str, where: str) -> None:
        """Adds an assistant's text, given as fields of its message."""
        self.add_answer(content, status, where)

    def add_answer(self, content: dict[str, Any], status: str, where: str) -> dict[str, Any]:
        """Begins a new message of the assistant's, with the reasoning that came before it."""
        thoughts = self.taken_thoughts()
        self._answer = {"role": "assistant", **content, **thoughts}
        self.messages.append(ReadMessage(self._answer, status, where))
        return self._answer

    def taken_thoughts(self) -> dict[str, Any]:
        """Returns the pending reasoning as fields of its message, and clears it."""
        items = self.taken_items()
        return self.thoughts(items, self._reasoning_at) if items else {}

    def taken_items(self) -> list[Item]:
        """Returns the pending reasoning items, and clears them."""
        items, self._reasoning = self._reasoning, []
        return items

    def add(self, body: dict[str, Any], where: str) -> None:
        """Adds a message that is not the assistant's."""
        self.end()
        self._answer = None
        self.messages.append(ReadMessage(body, "complete", where))


def reasoning_texts(item: Item, where: str) -> list[str]:
    """Returns the texts of a reasoning item: its thoughts, else their summary unless the thoughts are sealed in it.
    Raises InvalidRequest: they are no list of objects."""
    for name, sealed in (("content", False), ("summary", bool(item.get("encrypted_content")))):
        parts = item.get(name)
        if parts is None:
            continue
        listed = objects(parts, f"{where}.{name}")
        texts = [part["text"] for part in listed if isinstance(part.get("text"), str) and part["text"]]
        if texts and not sealed:
            return texts
    return []


def objects(value: Any, where: str) -> list[Item]:
    """Returns a list of objects. Raises InvalidRequest: it is anything else."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise errors.invalid(where, "must be a list of objects")
    return value


def text_of(item: Item, name: str, where: str) -> str:
    """Returns a field that must be a string. Raises InvalidRequest: it is none."""
    value = item.get(name)
    if value is None:
        raise errors.missing(f"{where}.{name}")
    if not isinstance(value, str):
        raise errors.invalid(f"{where}.{name}", "must be a string")
    return value


def filled(item: Item, name: str, where: str) -> str:
    """Returns a field that must be a string and not empty. Raises InvalidRequest: it is not."""
    value = text_of(item, name, where)
    if not value:
        raise errors.invalid(f"{where}.{name}", "must not be empty")
    return value


def tool_name(item: Item, where: str) -> str:
    """Returns the tool's name of a call or choice in a chat's form. It may be empty: models forget names of calls, and
    the gateway accepts back what it handed out (guarantee §1.9)."""
    name = text_of(item, "name", where)
    return name if item.get(NAMESPACE) is None else joined(filled(item, NAMESPACE, where), name)
