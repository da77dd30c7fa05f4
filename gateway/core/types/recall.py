"""The tool `recall`, with which a model reads what its window leaves out, and its rounds within one request."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gateway.core.frozen_records import record

RECALL_TOOL = "recall"
Recall = Literal["auto", True, False]
"""Whether a model is to have the tool; `auto`: from the pass on that leaves something out, where its client's requests
have tools."""
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
"""One object: where it stands in a request, the gateway has put it there."""
UNFORCED = (None, "auto")
"""Values of `tool_choice` that leave the choice to the model."""


@record
class RecallRounds:
    """The rounds of one request: calls of the model that ended in a call of the tool, which was answered here.

    Attributes:
        room: tokens that they may add to the prompt, all together.
        left: how many rounds may follow.
        over: how many there were.
        messages: what they have added to the prompt: the model's calls and their results.
        closed: the tool is not offered any more.
    """

    room: int
    left: int
    over: int = 0
    messages: tuple[dict[str, Any], ...] = ()
    tokens: int = 0
    closed: bool = False

    def as_json(self, rounds: int) -> dict[str, int]:
        """What the bill tells of them, of which so many are priced."""
        return {"rounds": rounds, "tokens": self.tokens, "room": self.room}


def may_be_offered(forward: Mapping[str, Any], choices: int) -> bool:
    """Whether a request leaves room for one more tool: it has none of that name, forces and forbids none, wants one
    answer, and asks for no signed thoughts, which depend on what stands before them (guarantee §10)."""
    thinking = forward.get("thinking")
    thinks = isinstance(thinking, dict) and thinking.get("type") != "disabled"
    if choices > 1 or thinks or forward.get("functions") or forward.get("tool_choice") not in UNFORCED:
        return False
    tools = forward.get("tools") or ()
    return isinstance(tools, list | tuple) and not any(_name(tool) == RECALL_TOOL for tool in tools)


def with_recall(forward: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the tool behind the client's own."""
    return {**forward, "tools": [*(forward.get("tools") or ()), RECALL_DEFINITION]}


def without_recall(forward: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that has to do without from now on. Some providers want tools beside messages that have
    calls, so that the tool stays where it is the only one, and may not be called."""
    own = own_tools(forward)
    return {**forward, "tools": own} if own else {**forward, "tool_choice": "none"}


def never_offered(forward: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the client sent them."""
    own = own_tools(forward)
    return {**forward, "tools": own} if own else {name: value for name, value in forward.items() if name != "tools"}


def own_tools(forward: Mapping[str, Any]) -> list[Any]:
    """The tools that the client sent."""
    return [tool for tool in forward.get("tools") or () if tool is not RECALL_DEFINITION]


def recalls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of the tool in an answer."""
    return [call for call in message.get("tool_calls") or () if is_recall(call)]


def is_recall(call: Any) -> bool:
    """Whether a call is one of the tool."""
    return bool(_name(call) == RECALL_TOOL)


def without_recalls(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice as its client gets it: without calls of a tool that it does not know."""
    message = dict(choice["message"])
    own = [call for call in message["tool_calls"] if not is_recall(call)]
    if own:
        return {**choice, "message": {**message, "tool_calls": own}}
    del message["tool_calls"]
    message["content"] = message.get("content") or ""
    return {**choice, "message": message, "finish_reason": finish_of(choice.get("finish_reason"), own)}


def finish_of(reason: Any, own: Sequence[Any]) -> Any:
    """Why an answer ended, once calls of the tool are taken out of it."""
    return "stop" if reason == "tool_calls" and not own else reason


def _name(tool: Any) -> Any:
    """The name of a tool or of a call, whatever its kind."""
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function") or tool.get("custom")
    return inner.get("name") if isinstance(inner, dict) else tool.get("name")
