"""Tool steps in messages: calls and their results, of tools, and of the functions that preceded them (`function_call`,
role `function`)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import NO_DOCUMENTS
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage

RESULT_ROLES = ("tool", "function")
TOOL_CALL_FIELDS = ("tool_calls", "function_call")
SERVER_CALL = "srvtoolu_"
"""Prefix of the ids of calls that Anthropic answers itself; other gateways return them to clients as ordinary calls."""


def calls_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lists the calls that an assistant's message makes; empty for any other. A `function_call` has no id."""
    calls = [call for call in body.get("tool_calls") or () if isinstance(call, dict)]
    function = body.get("function_call")
    return [*calls, {"function": function}] if isinstance(function, dict) else calls


def turn_starts(roles: Iterable[str]) -> list[int]:
    """Finds the messages that begin the turns of a conversation, by their roles alone, as indexes in order.

    A user message begins a turn, unless it follows the results of a tool loop that continues: agents put reminders,
    skills and interjections of a person there (guarantee §4 I4).
    """
    by_index = [*roles]
    starts: list[int] = []
    in_loop, seen = False, 0
    for _ in range(by_index.count("user")):  # few, in an agent's session
        index = by_index.index("user", seen)
        before = index - 1
        while before >= seen and by_index[before] in INSTRUCTION_ROLES:
            before -= 1
        if before >= seen:
            in_loop = by_index[before] in RESULT_ROLES
        seen = index + 1
        if not in_loop:
            starts.append(index)
    return starts


def in_loop_after(role: str, *, before: bool) -> bool:
    """Returns whether a user message after one of that role is in a tool loop.
    `before`: whether it would be in one without that message."""
    return before if role == "user" or role in INSTRUCTION_ROLES else role in RESULT_ROLES


def text_of(content: object, documents: Mapping[int, str] = NO_DOCUMENTS) -> str:
    """Returns the text of a tool message's content; parts that are not text are skipped.
    `documents`: texts of the parts that are documents, by part number."""
    if isinstance(content, str):
        return content
    texts = (
        documents.get(number, part.get("text", ""))
        for number, part in enumerate(parts_of(content))
        if isinstance(part, dict) and (part.get("type") == "text" or number in documents)
    )
    return "\n".join(map(str, texts))


def without_calls(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an assistant's message without its calls."""
    return {name: value for name, value in body.items() if name not in TOOL_CALL_FIELDS}


def server_calls(messages: Sequence[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Finds the calls without a result that Anthropic answered itself, by the indexes of their messages."""
    found: dict[int, list[dict[str, Any]]] = {}
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls and (own := [call for call in calls if str(call.get("id")).startswith(SERVER_CALL)]):
            results = takewhile(lambda each: each["role"] == "tool", islice(messages, index + 1, None))
            answered = {each.get("tool_call_id") for each in results}
            found[index] = [call for call in own if call["id"] not in answered]
    return {index: calls for index, calls in found.items() if calls}


def without_some(body: Mapping[str, Any], left_out: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns a message without the calls `left_out`."""
    calls = [call for call in body["tool_calls"] if call not in left_out]
    return {**body, "tool_calls": calls} if calls else {**without_calls(body), "content": body.get("content") or ""}


def take_call(calls: list[dict[str, Any]], result: Mapping[str, Any]) -> dict[str, Any]:
    """Removes from `calls` the call that a result answers and returns it: the first of several with the same id (§3.3).
    A function's result names the function. Empty if there is none."""
    for number, call in enumerate(calls):
        if _answers(result, call):
            return calls.pop(number)
    return {}


def asked(call: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the name of the called tool, and the arguments as they were written."""
    function, custom = call.get("function") or {}, call.get("custom") or {}
    arguments = function.get("arguments") or custom.get("input") or ""
    return str(function.get("name") or custom.get("name") or "tool"), str(arguments)


def tool_of(result: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the name of the tool that gave a result to a call, and the arguments as they were written."""
    name, arguments = asked(call)
    return str(result.get("name") or name), arguments


def result_of(result: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Returns artifact id and text of a result to a call, the tool's name and the arguments."""
    text = text_of(result.get("content"))
    return artifact_id(text), text, *tool_of(result, call)


def _answers(result: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    if result.get("role") == "function":
        return "id" not in call and (call.get("function") or {}).get("name") == result.get("name")
    return str(call.get("id")) == str(result.get("tool_call_id"))


def open_step(messages: Sequence[ConversationMessage]) -> tuple[ConversationMessage, ...]:
    """Returns the last message that is not a tool result, and the results after it: its calls may still be answered."""
    start = len(messages)
    while start and messages[start - 1].role in RESULT_ROLES:
        start -= 1
    return tuple(messages[max(0, start - 1) :])
