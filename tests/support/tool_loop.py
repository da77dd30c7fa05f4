"""A tool loop as a chat's client sends it: a question, two calls' tools, results."""

import json
from typing import Any

from openai import OpenAI

from tests.support.answers import Json, assistant, bill_of, conversation_of, function_tool, tool_call, tool_result, user
from tests.support.mock_upstream import MockUpstream

result = tool_result
TOOLS: Any = [function_tool(name, parameters={"type": "object", "properties": {}}) for name in ("weather", "clock")]
ASK = user("What is the weather in Bern?")


def call(call_id: str, name: str = "weather", **arguments: Any) -> Json:
    return tool_call(call_id, name, json.dumps(arguments))


def calls(*wanted: Json, content: str | None = None) -> Json:
    return assistant(content, tool_calls=list(wanted))


LOOP = [ASK, calls(call("c1", city="Bern")), result("c1", "12 degrees, rain"), assistant("It rains in Bern.")]


class Talk:
    """One conversation by its id."""

    def __init__(self, client: OpenAI, upstream: MockUpstream) -> None:
        self.client, self.upstream = client, upstream
        self.id = ""

    def ask(self, *messages: Any, reply: Any = None, tools: Any = None, model: str = "gpt-4o", **more: Any) -> Any:
        """The answer to a chat; `reply` is the model's text or message."""
        if reply is not None:
            self.upstream.reply(**({"text": reply} if isinstance(reply, str) else {"message": reply}))
        options: Any = {"model": model, "messages": list(messages), **({"tools": tools} if tools else {})}
        named = {"conversation": self.id} if self.id else {}
        answer = self.client.chat.completions.create(**options, extra_body={**named, **more})
        self.id = conversation_of(answer)
        return answer

    def send(self, *messages: Any, tools: bool = True, **more: Any) -> Json:
        """The bill of a chat with the loop's tools, or without."""
        return bill_of(self.ask(*messages, tools=TOOLS if tools else None, **more))

    @property
    def forwarded(self) -> list[Json]:
        """What went up last."""
        return self.upstream.forwarded


def recalls(*arguments: Any, text: str | None = None) -> Json:
    """A reply that calls the tool, once with each of the arguments."""
    calls = [
        tool_call(f"call_{n}", "recall", given)
        for n, given in enumerate(each if isinstance(each, str) else json.dumps(each) for each in arguments)
    ]
    return {"message": assistant(text, tool_calls=calls)}
