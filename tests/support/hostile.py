"""JSON that no honest client sends."""

import gzip
import json
from typing import Any

import httpx

from tests.support.answers import (
    Json,
    assistant,
    function_tool,
    image_part,
    system,
    text_part,
    tool_call,
    tool_result,
    user,
)
from tests.support.messages import TOOL

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    " ",
    "x" * 10**5,
    "\0",
    "a\r\nb: c",
    "' OR 1=1 --",
    "../../etc/passwd",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"a": {"b": [1e308]}},
    {"\0": "\0"},
    {"id": {}, "type": [], "text": {}, "name": []},
    float(2**63),
]


def nothing_is_left(client: httpx.Client, answer: httpx.Response) -> bool:
    """Whether the refused request left neither turn nor bill."""
    return client.get(f"/chat/completions/{answer.headers['x-request-id']}").status_code == 404


def of(messages: bytes, more: bytes = b"") -> bytes:
    """A request of those messages, of chats as of Messages, with those further members."""
    return b'{"model":"gpt-4o","max_tokens":9,"messages":' + messages + more + b"}"


def shaped(content: bytes = b'"hello"', more: bytes = b"") -> bytes:
    """A request with that content."""
    return of(b'[{"role":"user","content":' + content + b"}]", more)


def many(number: int, piece: Any) -> bytes:
    """A list of that many."""
    return json.dumps([piece] * number).encode()


MEMBERS = json.dumps({f"k{i}": i for i in range(100_000)}).encode()


REFUSED = {
    "a list": b"[]",
    "a text": b'"hello"',
    "nothing": b"",
    "null": b"null",
    "white space": b" \n",
    "two documents": shaped() + shaped(),
    "rubbish behind": shaped() + b"x",
    "a byte order mark": b"\xef\xbb\xbf" + shaped(),
    "UTF-16": shaped().decode().encode("utf-16"),
    "UTF-32": shaped().decode().encode("utf-32"),
    "Latin-1": shaped('"é"'.encode("latin-1")),
    "overlong UTF-8": shaped(b'"\xc0\xaf"'),
    "a surrogate in UTF-8": shaped(b'"\xed\xa0\x80"'),
    "half a pair in the model": b'{"model":"\\ud800"}',
    "a control character": shaped(b'"a\nb"'),
    "a zero byte": shaped(b'"a\0b"'),
    "NaN": shaped(more=b',"temperature":NaN'),
    "Infinity": shaped(more=b',"temperature":-Infinity'),
    "1e400": shaped(more=b',"temperature":1e400'),
    "1E+999": shaped(more=b',"x":[1E+999]'),
    "5,000 digits": shaped(more=b',"seed":' + b"9" * 5_000),
    "a leading zero": shaped(more=b',"n":01'),
    "a trailing comma": shaped(more=b","),
    "single quotes": shaped(b"'hello'"),
    "a comment": b"/* a */" + shaped(),
    "100,000 lists": shaped(b"[" * 100_000 + b"]" * 100_000),
    "100,000 open lists": shaped(b"[" * 100_000),
    "100,000 objects": shaped(more=b',"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "300 lists": shaped(more=b',"x":' + b"[" * 300 + b"]" * 300),
    "1,000 lists in arguments": shaped(more=b',"tools":[{"function":{"parameters":' + b"[" * 900 + b"]" * 900 + b"}}]"),
    "a form": b"model=gpt-4o&messages=hello",
    "a multipart form": b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\ngpt-4o\r\n--x--\r\n',
    "gzip without saying so": gzip.compress(shaped()),
    "100,000 messages of nothing": of(many(100_000, None)),
    "100,000 members": MEMBERS,
    "100,000 attachments of nothing": shaped(more=b',"attachments":' + many(100_000, {})),
    "100,000 tools of nothing": shaped(more=b',"tools":' + many(100_000, 1)),
    "100,000 parts of nothing": shaped(many(100_000, {})),
    "50,000 results": of(many(50_000, {"role": "tool", "tool_call_id": "c", "content": ""})),
}
PICTURE, MARK = "data:image/png;base64,AAAA", {"cache_control": {"type": "ephemeral"}}
CHAT: Json = {
    "model": "gpt-4o",
    "messages": [
        {**system("be kind"), "name": "s"},
        user([text_part("look")], name="u"),
        assistant(None, tool_calls=[tool_call("c1", "f")], refusal=None),
        tool_result("c1", "found"),
        user(
            [
                text_part("hello"),
                image_part(PICTURE, detail="low"),
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"file_data": "data:text/plain;base64,aGVsbG8=", "filename": "a.txt"}},
            ]
        ),
    ],
    "stream": False, "stream_options": {"include_usage": True}, "store": True, "metadata": {"a": "b"},
    **dict.fromkeys(("n", "max_tokens", "max_completion_tokens", "temperature", "seed"), 1),
    "stop": ["x"], "logit_bias": {"1": 1}, "prediction": {"type": "content", "content": "x"},
    "tools": [function_tool("f", description="d", parameters={"type": "object"})],
    "functions": [{"name": "f", "parameters": {}}], "tool_choice": "auto", "modalities": ["text"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    "conversation": {"id": "conv_x"},
    "attachments": [{"content": "text", "title": "t", "source": "s", "attachment_type": "document"}],
    "context": {
        "mode": "auto", "planning": "never", "goal": "synthesis", "session": "s", "dry_run": False,
        "max_input_tokens": 1000, "models": {"context_planner": "gpt-4o-mini", "summarizer": "gpt-4o-mini"},
    },
    "user": "u", "safety_identifier": "s", "service_tier": "auto", "reasoning_effort": "low",
    "prompt_cache_key": "k", "unknown": {"a": [1]},
}  # fmt: skip
"""A chat with each field."""

BLOCKS = [
    text_part("hello"),
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
]
PAPER = {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
MESSAGES: Json = {
    **{name: CHAT[name] for name in ("model", "stream", "temperature", "store", "conversation", "service_tier")},
    "max_tokens": 100, "top_p": 1, "top_k": 3, "stop_sequences": ["x"], "metadata": {"user_id": "u"},
    "system": [text_part("hello", **MARK)],
    "messages": [
        user([*BLOCKS, PAPER, {"type": "search_result", "source": "s", "title": "t", "content": BLOCKS[:1]}]),
        assistant(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                text_part("hello", **MARK),
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
            ]
        ),
        user(
            [
                {"type": "tool_result", "tool_use_id": "t1", "content": BLOCKS, "is_error": True},
                text_part("hello", **MARK),
            ]
        ),
    ],
    "tools": [{**TOOL, **MARK, "strict": True}],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"},
    "context_management": {
        "edits": [
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 3000}},
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        ]
    },
    "mcp_servers": [], "container": "c", "attachments": [{"content": "text", "title": "t"}], "unknown": {"a": [1]},
    "context": {"mode": "auto", "max_input_tokens": 1000, "session": "s"},
}  # fmt: skip
"""The same of Anthropic's Messages."""
