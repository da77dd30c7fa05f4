"""Runs functions marked as scenarios and prints a line of JSON for each: shared by all Python clients.

This file and its neighbours run in the clients' environments, where only the client is installed.
"""

import asyncio
import inspect
import json
import os
import time
import traceback
import urllib.request

BASE_URL = os.environ["OPENAI_BASE_URL"]
MODEL = "gpt-4o-mini"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
                "additionalProperties": False,
            },
        },
    }
    for name, argument in (("weather", "city"), ("clock", "zone"))
]
_found = []


def scenario(function):
    """Mark `function()`, plain or async, as a scenario: what it returns goes to the test as JSON."""
    _found.append(function)
    return function


def user(text):
    return {"role": "user", "content": text}


def seconds_until_cancelled(prompt, limit=5.0):
    """How long until the model saw that the stream asked for with `prompt` is cancelled; `limit` if it never did."""
    began = time.monotonic()
    while time.monotonic() - began < limit:
        with urllib.request.urlopen(os.environ["MOCK_URL"] + "/gone") as answer:
            if prompt in json.load(answer):
                return time.monotonic() - began
        time.sleep(0.02)
    return limit


def main():
    """Run all scenarios in the order of their definition."""
    for function in _found:
        try:
            result = function()
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
            entry = {"scenario": function.__name__, "result": result}
        except Exception:  # a scenario may raise anything; the test that asks for it shows it
            entry = {"scenario": function.__name__, "error": traceback.format_exc()}
        print(json.dumps(entry), flush=True)


async def _awaited(result):
    return await result
