"""Reads the items that a client adds to a conversation as chat messages. By hand: see ADR 17."""

from collections.abc import Callable
from typing import Any

from gateway.base.ids import new_id
from gateway.http.conversations.item_content import answer_content, chat_content, input_content
from gateway.http.fields import a_pin, invalid, missing
from gateway.models.chain import message_digest
from gateway.models.conversation import ConversationMessage

MAX_ITEMS = 20
"""OpenAI's limit for one request."""
ROLES = ("user", "assistant", "system", "developer")
STATUSES = ("completed", "incomplete", "in_progress")
Item = dict[str, Any]


def parse_items(value: Any) -> tuple[ConversationMessage, ...]:
    """The chat messages that `items` are, without ids.

    An assistant's reasoning, its text and the calls that follow are one message; so are several calls in a row.

    Raises:
        InvalidRequest: an item breaks a rule; names `items[i]…`.
    """
    if value is None:
        raise missing("items")
    if not isinstance(value, list):
        raise invalid("items", "must be a list")
    if len(value) > MAX_ITEMS:
        raise invalid("items", f"may hold {MAX_ITEMS} items at once")
    reader = _Reader()
    for index, item in enumerate(value):
        reader.read(item, f"items[{index}]")
    return reader.finished()


class _Reader:
    """Puts items together to messages, one after the other."""

    def __init__(self) -> None:
        self._found: list[tuple[dict[str, Any], str]] = []
        """Messages with their status."""
        self._pinned: set[int] = set()
        """Which of them are pinned."""
        self._answer: dict[str, Any] | None = None
        """The assistant's message, if it is the last one: calls that follow become part of it."""
        self._reasoning_texts: list[str] = []
        """Reasoning of which the message has not come yet."""
        self._reasoning_at = ""
        self._kinds: dict[str, Callable[[Item, str], None]] = {
            "message": self._message,
            "function_call": self._function_call,
            "function_call_output": self._output,
            "custom_tool_call": self._custom_call,
            "custom_tool_call_output": self._output,
            "reasoning": self._reasoning,
        }

    def read(self, item: Any, where: str) -> None:
        if not isinstance(item, dict):
            raise invalid(where, "must be an object")
        kind = item.get("type")
        if kind is None and "role" in item:
            kind = "message"
        if not isinstance(kind, str) or kind not in self._kinds:
            raise invalid(f"{where}.type", f"must be one of {', '.join(self._kinds)}: a chat can hold no other")
        if item.get("status") is not None and item["status"] not in STATUSES:
            raise invalid(f"{where}.status", f"must be one of {', '.join(STATUSES)}")
        pinned = a_pin(item.get("pinned", False), f"{where}.pinned")
        if pinned and kind == "reasoning":
            raise invalid(f"{where}.pinned", "is for messages, tool calls and their outputs")
        self._kinds[kind](item, where)
        if pinned:
            self._pinned.add(len(self._found) - 1)

    def finished(self) -> tuple[ConversationMessage, ...]:
        self._check_reasoning_used()
        return tuple(
            ConversationMessage(
                body["role"],
                body,
                message_id=new_id("msg_"),
                status=status,
                digest=message_digest(body),
                pinned=number in self._pinned,
            )
            for number, (body, status) in enumerate(self._found)
        )

    def _message(self, item: Item, where: str) -> None:
        role = item.get("role")
        if role not in ROLES:
            raise invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
        if item.get("content") is None:
            raise missing(f"{where}.content")
        name = {"name": _text(item, "name", where)} if item.get("name") is not None else {}
        if role == "assistant":
            partial = item.get("status") == "incomplete"
            answer = answer_content(item["content"], f"{where}.content", may_be_empty=partial)
            self._add_answer({**answer, **name}, "partial" if partial else "complete")
        else:
            self._add({"role": role, "content": input_content(item["content"], f"{where}.content"), **name})

    def _function_call(self, item: Item, where: str) -> None:
        function = {"name": _filled(item, "name", where), "arguments": _text(item, "arguments", where)}
        self._add_call({"id": _filled(item, "call_id", where), "type": "function", "function": function})

    def _custom_call(self, item: Item, where: str) -> None:
        custom = {"name": _filled(item, "name", where), "input": _text(item, "input", where)}
        self._add_call({"id": _filled(item, "call_id", where), "type": "custom", "custom": custom})

    def _add_call(self, call: dict[str, Any]) -> None:
        answer = self._answer
        if answer is None or self._reasoning_texts:
            answer = self._add_answer({"content": None}, "complete")
        answer.setdefault("tool_calls", []).append(call)

    def _output(self, item: Item, where: str) -> None:
        call_id = _filled(item, "call_id", where)
        if item.get("output") is None:
            raise missing(f"{where}.output")
        content = chat_content(item["output"], f"{where}.output")
        self._add({"role": "tool", "tool_call_id": call_id, "content": content})

    def _reasoning(self, item: Item, where: str) -> None:
        self._check_reasoning_used()
        content = item.get("content")
        if not isinstance(content, list) or not content:
            raise invalid(f"{where}.content", "must hold reasoning_text: a chat has no other form of thoughts")
        for index, part in enumerate(content):
            name = f"{where}.content[{index}]"
            if not isinstance(part, dict) or part.get("type") != "reasoning_text":
                raise invalid(f"{name}.type", "must be reasoning_text")
            self._reasoning_texts.append(_filled(part, "text", name))
        self._reasoning_at = where

    def _add_answer(self, content: dict[str, Any], status: str) -> dict[str, Any]:
        reasoning = {"reasoning_content": "\n\n".join(self._reasoning_texts)} if self._reasoning_texts else {}
        self._reasoning_texts = []
        self._answer = {"role": "assistant", **content, **reasoning}
        self._found.append((self._answer, status))
        return self._answer

    def _add(self, body: dict[str, Any]) -> None:
        self._check_reasoning_used()
        self._answer = None
        self._found.append((body, "complete"))

    def _check_reasoning_used(self) -> None:
        if self._reasoning_texts:
            raise invalid(self._reasoning_at, "must be followed by an assistant's message or a tool call")


def _text(item: Item, name: str, where: str) -> str:
    value = item.get(name)
    if value is None:
        raise missing(f"{where}.{name}")
    if not isinstance(value, str):
        raise invalid(f"{where}.{name}", "must be a string")
    return value


def _filled(item: Item, name: str, where: str) -> str:
    value = _text(item, name, where)
    if not value:
        raise invalid(f"{where}.{name}", "must not be empty")
    return value
