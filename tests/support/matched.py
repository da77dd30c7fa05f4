"""Tool calls of conversations that go on without a name."""

from tests.support.answers import Json

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


LONG = "word " * 50
"""More than 200 characters of assistant text: what the client left out comes back."""


def call(*ids: str, content: str | None = None) -> Json:
    function = {"name": "look", "arguments": "{}"}
    made = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": content, "tool_calls": made}
