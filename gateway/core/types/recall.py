"""The tool `recall`, by which a model reads what its window leaves out, and its rounds within one request."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gateway.core.frozen_records import record

RECALL_TOOL = "recall"
Recall = Literal["auto", True, False]
"""Whether a model gets the tool; `auto`: from the first pass that leaves something out, if the client's requests have
tools."""
AUTO: Recall = "auto"
RECALL_DEFINITION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": RECALL_TOOL,
        "description": (
            "Reads what is left out of this conversation: earlier messages, and documents and tool results of which"
            " only a summary, an extract or nothing is shown (their labels give an id, art_…). Call it when the answer"
            " needs something that is not shown."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "artifact_id": {"type": "string", "description": "The id of a document or tool result, to read it."},
                "question": {"type": "string", "description": "What to look for, in the words it may be told in."},
            },
        },
    },
}
"""A single object: by its identity the gateway recognises the tool that it added to a request."""
UNFORCED = (None, "auto")
"""Values of `tool_choice` that leave the choice to the model."""


@record
class RecallRounds:
    """The rounds of one request: model calls that ended in a call of the tool, which the gateway answered.

    Attributes:
        room: tokens that all rounds together may add to the prompt.
        left: how many rounds may follow.
        over: how many there were.
        messages: those added to the prompt: the model's calls and their results.
        closed: the tool is no longer offered.
    """

    room: int
    left: int
    over: int = 0
    messages: tuple[dict[str, Any], ...] = ()
    tokens: int = 0
    closed: bool = False

    def as_json(self, rounds: int) -> dict[str, int]:
        """Returns the bill's entry for the rounds. `rounds`: how many of them are priced."""
        return {"rounds": min(rounds, self.over), "tokens": self.tokens, "room": self.room}


def may_be_offered(forward: Mapping[str, Any], choices: int) -> bool:
    """Returns whether the tool may be added to a request: it has no tool of that name, neither forces nor forbids tool
    calls, and wants one answer."""
    if choices > 1 or forward.get("functions") or forward.get("tool_choice") not in UNFORCED:
        return False
    tools = forward.get("tools") or ()
    return isinstance(tools, list | tuple) and not any(_name(tool) == RECALL_TOOL for tool in tools)


def thinks(fields: Mapping[str, Any]) -> bool:
    """Returns whether fields of a request ask for signed reasoning."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def with_recall(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a request's fields with the tool added after the client's own tools."""
    return {**forward, "tools": [*(forward.get("tools") or ()), RECALL_DEFINITION]}


def without_recall(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a request that must do without the tool from now on. Some providers require tools beside
    messages with calls, so if it is the only one, it stays and `tool_choice` forbids its use."""
    is_alone = is_offered(forward) and not own_tools(forward)
    return {**forward, "tool_choice": "none"} if is_alone else never_offered(forward)


def never_offered(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a request's fields without the tool, as the client sent them."""
    own = own_tools(forward)
    return {**forward, "tools": own} if own else {name: value for name, value in forward.items() if name != "tools"}


def own_tools(forward: Mapping[str, Any]) -> list[Any]:
    """Lists the tools that the client sent."""
    return [tool for tool in forward.get("tools") or () if tool is not RECALL_DEFINITION]


def is_offered(forward: Mapping[str, Any]) -> bool:
    """Returns whether the tool is in a request's fields."""
    return any(tool is RECALL_DEFINITION for tool in forward.get("tools") or ())


def recalls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lists the calls of the tool in an answer."""
    return [call for call in message.get("tool_calls") or () if is_recall(call)]


def is_recall(call: Any) -> bool:
    """Returns whether a call is one of the tool `recall`."""
    return bool(_name(call) == RECALL_TOOL)


def without_recalls(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a choice without calls of the tool, which the client does not know."""
    message = dict(choice["message"])
    own = [call for call in message["tool_calls"] if not is_recall(call)]
    if own:
        return {**choice, "message": {**message, "tool_calls": own}}
    del message["tool_calls"]
    message["content"] = message.get("content") or ""
    return {**choice, "message": message, "finish_reason": finish_of(choice.get("finish_reason"), own)}


def finish_of(reason: Any, own: Sequence[Any]) -> Any:
    """Returns the finish reason of an answer after calls of the tool are removed; `own`: the calls that stay."""
    return "stop" if reason == "tool_calls" and not own else reason


def _name(tool: Any) -> Any:
    """Returns the name of a tool or of a call of any kind; None if there is none."""
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function") or tool.get("custom")
    return inner.get("name") if isinstance(inner, dict) else tool.get("name")
