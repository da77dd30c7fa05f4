"""A tool loop as a chat's client sends it: a question, two calls' tools, results."""

import json
from typing import Any

from tests.support.answers import Json, assistant, function_tool, tool_call, tool_result, user

TOOLS: Any = [function_tool(name, parameters={"type": "object", "properties": {}}) for name in ("weather", "clock")]
ASK = user("What is the weather in Bern?")


def call(call_id: str, name: str = "weather", **arguments: Any) -> Json:
    return tool_call(call_id, name, json.dumps(arguments))


def calls(*wanted: Json, content: str | None = None) -> Json:
    return assistant(content, tool_calls=list(wanted))


def result(call_id: str, content: str) -> Json:
    return tool_result(call_id, content)


LOOP = [ASK, calls(call("c1", city="Bern")), result("c1", "12 degrees, rain"), assistant("It rains in Bern.")]


def recalls(*arguments: Any, text: str | None = None) -> Json:
    """A reply that calls the tool, once with each of the arguments."""
    calls = [
        tool_call(f"call_{n}", "recall", given)
        for n, given in enumerate(each if isinstance(each, str) else json.dumps(each) for each in arguments)
    ]
    return {"message": assistant(text, tool_calls=calls)}
