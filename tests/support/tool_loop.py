"""A tool loop as a chat's client sends it: a question, two calls' tools, results."""

import json
from typing import Any

from tests.support.answers import Json, assistant, user

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "clock")
]
ASK = user("What is the weather in Bern?")


def call(call_id: str, name: str = "weather", **arguments: Any) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def calls(*wanted: Json, content: str | None = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(wanted)}


def result(call_id: str, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


LOOP = [ASK, calls(call("c1", city="Bern")), result("c1", "12 degrees, rain"), assistant("It rains in Bern.")]


def recalls(*arguments: Any, text: str | None = None) -> Json:
    """A reply that calls the tool, once with each of the arguments."""
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "recall", "arguments": given}}
        for n, given in enumerate(each if isinstance(each, str) else json.dumps(each) for each in arguments)
    ]
    return {"message": {"role": "assistant", "content": text, "tool_calls": calls}}
