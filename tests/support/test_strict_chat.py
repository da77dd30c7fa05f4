"""The mock's strictness: each thing that a strict provider refuses is refused, and remembered."""

import re
from typing import Any

import httpx
import pytest

from tests.support.factory import merged
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_chat import violations

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "c2"}]}
ANSWERS = [{"role": "tool", "tool_call_id": name, "content": "42"} for name in ("c2", "c1")]


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


@pytest.mark.parametrize(
    "body",
    [
        chat(USER),
        chat(USER, CALLS, *ANSWERS),
        chat(USER, CALLS, *ANSWERS, CALLS, *ANSWERS, {"role": "assistant", "content": "done"}),
        chat({"role": "developer", "content": [{"type": "text", "text": "x"}]}, USER, metadata={"a": "b"}),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}),
        chat(USER, {"role": "assistant", "refusal": "no"}, USER, stream=True, stream_options={}),
        chat(USER, {"role": "assistant", "content": "", "reasoning_content": "x"}, USER, n=None, tools=None),
    ],
)
def test_valid(body: Any) -> None:
    assert violations(body) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "not a JSON object"),
        (chat(), "non-empty array"),
        (chat(USER, model=""), "'model'"),
        (chat(USER, conversation="conv_1"), "conversation"),
        (chat(USER, attachments=[]), "attachments"),
        (chat(USER, context={}), "context"),
        (chat(USER | {"attachments": []}), r"messages\[0\]: unknown field"),
        (chat(USER, stream_options={"include_usage": True}), "only allowed when 'stream'"),
        (chat(USER, max_tokens=0), "max_tokens"),
        (chat(USER, max_tokens=1, max_completion_tokens=1), "at the same time"),
        (chat(USER, tools=[]), "'tools'"),
        (chat(USER, tool_choice="auto"), "tool_choice"),
        (chat({"role": "user", "content": "\ud83d"}), "Unicode"),
        (chat({"role": "robot", "content": "x"}), "unknown role"),
        (chat({"role": "user", "content": None}), "'content' is missing"),
        (chat({"role": "user", "content": []}), "empty array"),
        (chat(USER, {"role": "assistant", "audio": {"id": "audio_1", "data": "AAAA"}}), "'id' alone"),
        (chat({"role": "user", "content": {"a": 1}}), "string or an array"),
        (chat({"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}), "'refusal' is not one of"),
        (chat({"role": "tool", "tool_call_id": "c1", "content": [USER]}), "None is not one of text"),
        (chat({"role": "user", "content": [{"type": "text"}]}), "'text' must be a string"),
        (chat(USER, {"role": "assistant"}), "'content' is missing"),
        (chat(USER, {"role": "assistant", "content": "x", "tool_calls": []}), "non-empty array"),
        (chat(USER, CALLS), "without an answer at the end: .* c1, .* c2"),
        (chat(USER, CALLS, ANSWERS[0], USER), r"messages\[3\]: calls without an answer before it: .* c1"),
        (chat(USER, *ANSWERS), r"messages\[1\]: .* must follow"),
        (chat(USER, CALLS, *ANSWERS, ANSWERS[0]), r"messages\[4\]: .* must follow"),
        (chat(USER, CALLS, *ANSWERS, USER, ANSWERS[0]), r"messages\[5\]: .* must follow"),
        (chat(USER, CALLS | {"tool_calls": [CALL, CALL]}), "unique"),
        (chat(USER, CALLS | {"tool_calls": [merged(CALL, {"function": {"name": "a b"}})]}), "does not match"),
        (chat(USER, CALLS | {"tool_calls": [merged(CALL, {"function": {"arguments": {}}})]}), "must be a string"),
        (chat(USER, CALLS | {"tool_calls": [{"id": "c1"}]}), "neither a function call"),
    ],
)
def test_invalid(body: Any, says: str) -> None:
    found = violations(body)
    assert any(re.search(says, line) for line in found), found


def test_the_mock_refuses_and_remembers() -> None:
    with MockUpstream() as mock, httpx.Client(base_url=mock.base_url) as http:
        answer = http.post("/chat/completions", json=chat(USER, context={}))
        assert answer.status_code == 400
        assert mock.violations == ["Unrecognized request argument supplied: context"]
        assert answer.json()["error"]["message"] == mock.violations[0]
        mock.strict = False
        assert http.post("/chat/completions", json=chat(USER, context={})).status_code == 200


def test_merged_overrides() -> None:
    base = {"a": {"b": 1, "c": 2}, "list": [1]}
    assert merged(base, {"a": {"b": None, "d": 3}, "list": [2]}) == {"a": {"c": 2, "d": 3}, "list": [2]}
    assert base == {"a": {"b": 1, "c": 2}, "list": [1]}
