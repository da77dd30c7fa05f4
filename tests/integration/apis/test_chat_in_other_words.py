"""`POST /v1/chat/completions` with a body in the shape of Responses, as Cursor sends it (guarantee §10.3)."""

from typing import Any

from tests.support.answers import chat, read_stream, usage_of, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BODY: Any = {
    "model": "small",
    "input": [
        {"role": "system", "content": "You edit code."},
        {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a boat"},
    ],
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None}],
    "tool_choice": "auto",
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 50,
    "user": "u1",
    "stop": ["END"],
}


def test_s10_3_a_body_in_other_words_is_answered_as_a_chat(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What goes up is a chat, and what comes back a chat completion, or chunks; both are stored and go on as chats."""
    upstream.reply(text="seen", usage=usage_of(9, 2))
    found = chat(gateway, **BODY)
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["content"] == "seen"
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    sent = upstream.last.body
    assert sent["messages"] == [
        {"role": "system", "content": "You edit code."},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a boat"},
    ]
    assert sent["tools"] == [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    names = ("reasoning_effort", "verbosity", "max_completion_tokens", "user", "stop")
    assert [sent[name] for name in names] == ["low", "low", 50, "u1", ["END"]]
    assert not {"input", "reasoning", "text", "include", "max_output_tokens"} & sent.keys()
    upstream.reply(text="seen again", usage=usage_of(9, 2))
    streamed = read_stream(gateway, {**BODY, "stream_options": {"include_usage": True}})
    assert streamed.text == "seen again"
    assert streamed.chunks[-1]["usage"]["prompt_tokens"] == 9
    upstream.reply(text="yes", usage=usage_of(9, 2))
    on = chat(gateway, model="small", messages=[user("sure?")], conversation=found["conversation"])
    assert on["conversation"] == found["conversation"]


def test_s10_3_its_errors_name_its_own_fields(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [{}]}]}, "input[0].output[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0]"),
        ({"max_completion_tokens": 0, "max_output_tokens": None}, "max_completion_tokens"),
        ({"input": "more than fits " * 20, "context": {"max_input_tokens": 30}}, "input"),
    ]
    upstream.reply(text="known", usage=usage_of(1, 1))
    chat(one_gateway, **BODY)  # from here on it is known that the upstream has no responses
    for change, param in cases:
        answer = one_gateway.post("/chat/completions", json={**BODY, **change})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert len(upstream.chats) == 1
