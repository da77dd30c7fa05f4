"""Tool steps as they stand in messages: calls and their results, as tools make them, and as functions did before
there were tools (`function_call`, role `function`)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import NO_DOCUMENTS
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage, parts_of

RESULT_ROLES = ("tool", "function")
TOOL_CALL_FIELDS = ("tool_calls", "function_call")
SERVER_CALL = "srvtoolu_"
"""How the ids of calls begin that Anthropic answers itself: other gateways hand them to clients as theirs."""


def calls_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that an assistant's message makes; empty for any other. That of a function has no id."""
    calls = [call for call in body.get("tool_calls") or () if isinstance(call, dict)]
    function = body.get("function_call")
    return [*calls, {"function": function}] if isinstance(function, dict) else calls


def turn_starts(roles: Iterable[str]) -> list[int]:
    """Finds the messages of a conversation that begin its turns, by their roles alone, as indexes in order.

    A user's message begins one, unless it stands behind the results of a tool loop that goes on: agents put reminders,
    skills and what a person says meanwhile there (guarantee §4 I4).
    """
    starts: list[int] = []
    in_loop = False
    for index, role in enumerate(roles):
        if role == "user" and not in_loop:
            starts.append(index)
        in_loop = in_loop_after(role, before=in_loop)
    return starts


def in_loop_after(role: str, *, before: bool) -> bool:
    """Whether a user's message behind one of that role stands in a tool loop.
    `before`: whether it would have stood in one without that message."""
    return before if role == "user" or role in INSTRUCTION_ROLES else role in RESULT_ROLES


def text_of(content: object, documents: Mapping[int, str] = NO_DOCUMENTS) -> str:
    """The text of a tool message's content; other parts than texts are passed over.
    `documents`: what those of its parts say that are documents, by their numbers."""
    if isinstance(content, str):
        return content
    texts = (
        documents.get(number, part.get("text", ""))
        for number, part in enumerate(parts_of(content))
        if isinstance(part, dict) and (part.get("type") == "text" or number in documents)
    )
    return "\n".join(map(str, texts))


def without_calls(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an assistant said beside its calls."""
    return {name: value for name, value in body.items() if name not in TOOL_CALL_FIELDS}


def server_calls(messages: Sequence[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The calls without a result that Anthropic answered itself, by the places of their messages."""
    found: dict[int, list[dict[str, Any]]] = {}
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls and (own := [call for call in calls if str(call.get("id")).startswith(SERVER_CALL)]):
            results = takewhile(lambda each: each["role"] == "tool", islice(messages, index + 1, None))
            answered = {each.get("tool_call_id") for each in results}
            found[index] = [call for call in own if call["id"] not in answered]
    return {index: calls for index, calls in found.items() if calls}


def without_some(body: Mapping[str, Any], left_out: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A message without these of its calls."""
    calls = [call for call in body["tool_calls"] if call not in left_out]
    return {**body, "tool_calls": calls} if calls else {**without_calls(body), "content": body.get("content") or ""}


def take_call(calls: list[dict[str, Any]], result: Mapping[str, Any]) -> dict[str, Any]:
    """The call that a result answers, taken out of `calls`: where ids are repeated, their order counts (§3.3). A
    function's result names the function. Empty if there is none."""
    for number, call in enumerate(calls):
        if _answers(result, call):
            return calls.pop(number)
    return {}


def asked(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the tool that was called, and the arguments as they were written."""
    function, custom = call.get("function") or {}, call.get("custom") or {}
    arguments = function.get("arguments") or custom.get("input") or ""
    return str(function.get("name") or custom.get("name") or "tool"), str(arguments)


def tool_of(result: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    """The name of the tool whose result this is, to that call."""
    return str(result.get("name") or asked(call)[0])


def result_of(result: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """A tool's result, to that call: artifact id, text, the tool's name and the arguments."""
    text = text_of(result.get("content"))
    return artifact_id(text), text, tool_of(result, call), asked(call)[1]


def _answers(result: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    if result.get("role") == "function":
        return "id" not in call and (call.get("function") or {}).get("name") == result.get("name")
    return str(call.get("id")) == str(result.get("tool_call_id"))


def open_step(messages: Sequence[ConversationMessage]) -> tuple[ConversationMessage, ...]:
    """The last message that is no tool's result, and the results that follow it: its calls may still be answered."""
    start = len(messages)
    while start and messages[start - 1].role in RESULT_ROLES:
        start -= 1
    return tuple(messages[max(0, start - 1) :])
