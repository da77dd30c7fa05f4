"""What a model's provider answers is what the client gets, in every mode, plain and streamed (guarantee §1, §6)."""

import json
from typing import Any

import pytest

from tests.support.answers import Json, assistant, tool_call, tool_result, user
from tests.support.exact_json import MODES, ODD, Number, as_written, keys_in_order
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

OURS = {"id", "conversation", "response_metadata", "usage"}
"""What the gateway sets at the top of an answer or chunk."""

LOGPROBS = (
    b'{"content": [{"token": "\\u00e9", "logprob": -0.0, "bytes": [195, 169], "top_logprobs": '
    b'[{"token": " ", "logprob": -9999.0, "bytes": null}]}], "refusal": []}'
)
MESSAGES = {
    "text": b'{"role": "assistant", "content": "", "refusal": null, "annotations": [], "x": %b}' % ODD,
    "refusal": b'{"role": "assistant", "content": null, "refusal": "No."}',
    "reasoning": b'{"role": "assistant", "content": "so", "reasoning_content": "a", "reasoning": "b", '
    b'"reasoning_details": [{"type": "reasoning.text", "text": "c", "signature": "c2ln", "index": 0}]}',
    "thinking": b'{"role": "assistant", "content": "so", "thinking_blocks": '
    b'[{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "x"}]}',
    "parts": b'{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "x", "y": 1.0}]}',
    "audio": b'{"role": "assistant", "content": null, "audio": '
    b'{"id": "audio_1", "data": "AAAA", "expires_at": 1.0, "transcript": ""}}',
    "images": b'{"role": "assistant", "content": "", "images": '
    b'[{"type": "image_url", "image_url": {"url": "data:,"}}]}',
    "citations": b'{"role": "assistant", "content": "so", "annotations": '
    b'[{"type": "url_citation", "url_citation": {"url": "u", "title": "", "start_index": 0}}], "citations": ["u"]}',
    "calls": b'{"role": "assistant", "content": null, "tool_calls": ['
    b'{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\\"x\\":  1.0}"}, '
    b'"extra_content": {"google": {"thought_signature": "c2ln"}}}, '
    b'{"id": "b", "type": "function", "function": {"name": "f", "arguments": ""}}, '
    b'{"id": "c", "type": "custom", "custom": {"name": "g", "input": "  go\\n"}}]}',
    "function of old": b'{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}',
    "no role": b'{"content": "so"}',
}
ANSWER = (
    b'{"id": "up-1", "object": "chat.completion", "created": 1.0, "model": "gpt-4o-2024-08-06", "x_top": %(odd)b, '
    b'"system_fingerprint": null, "service_tier": "default", "provider": "", "citations": [], "choices": ['
    b'{"index": 0, "message": %(message)b, "logprobs": %(logprobs)b, "finish_reason": "stop", "x_choice": %(odd)b}, '
    b'{"index": 1, "message": %(message)b, "finish_reason": "content_filter", "native_finish_reason": "SAFETY"}], '
    b'"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "x_usage": %(odd)b, '
    b'"completion_tokens_details": {"reasoning_tokens": 0, "x": null}}}'
)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("mode", MODES)
def test_s1_an_answer_comes_down_as_written(
    one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, name: str
) -> None:
    """Every message of every choice, known fields and unknown, numbers and key order; and so it is stored."""
    raw = ANSWER % {b"odd": ODD, b"message": MESSAGES[name], b"logprobs": LOGPROBS}
    upstream.reply(body=raw)
    body = {"model": "gpt-4o", "messages": [user("hi")], "n": 2, "context": {"mode": mode}}
    answer = one_gateway.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    got, meant = as_written(answer.content), as_written(raw)
    for each in meant["choices"]:
        each["message"].setdefault("role", "assistant")  # one that has none can be sent again, too
    expected = {k: v for k, v in meant.items() if k not in OURS}
    assert {k: v for k, v in got.items() if k not in OURS} == expected
    assert keys_in_order(got["choices"]) == keys_in_order(meant["choices"])
    assert {k: v for k, v in got["usage"].items() if k not in ("cost", "cost_details")} == meant["usage"]
    added = {"response_metadata"} if mode == "off" else {"response_metadata", "conversation"}
    assert set(got) - set(meant) == added
    if mode != "off":
        found = as_written(one_gateway.get(f"/chat/completions/{got['id']}").content)
        assert found["choices"] == meant["choices"]


def chunk(choices: bytes, rest: bytes = b"") -> bytes:
    return b'{"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2", %b"choices": [%b]}' % (
        rest,
        choices,
    )


def delta(body: bytes, index: int = 0, finish: bytes = b"null", rest: bytes = b"") -> bytes:
    return b'{"index": %d, "delta": %b, "finish_reason": %b%b}' % (index, body, finish, rest)


def sse(chunks: list[bytes]) -> bytes:
    return b"".join(b"data: " + each + b"\n\n" for each in [*chunks, b"[DONE]"])


EXTRA = b'"system_fingerprint": null, "service_tier": "default", "obfuscation": "aB3", "x_top": %b, ' % ODD
CALLS = [
    b'{"role": "assistant", "content": null, "tool_calls": [{"index": 0, "id": "a", "type": "function", '
    b'"function": {"name": "f", "arguments": ""}}, {"index": 1, "id": "b", "type": "function", '
    b'"function": {"name": "g", "arguments": ""}, "extra_content": {"google": {"thought_signature": "c2ln"}}}]}',
    b'{"tool_calls": [{"index": 1, "function": {"arguments": "{\\"y\\":"}}]}',
    b'{"tool_calls": [{"index": 0, "function": {"arguments": "{\\"x\\":  1"}}]}',
    b'{"tool_calls": [{"index": 0, "function": {"arguments": ".0}"}}, {"index": 1, "function": {"arguments": " 2}"}}]}',
]
STREAMS: dict[str, list[bytes]] = {
    "unknown fields everywhere": [
        chunk(delta(b'{"role": "assistant", "content": "", "x": %b}' % ODD), EXTRA),
        chunk(delta(b'{"content": "a"}', rest=b', "logprobs": %b, "x": %b' % (LOGPROBS, ODD)), EXTRA),
        chunk(delta(b"{}", finish=b'"stop"', rest=b', "native_finish_reason": "STOP", "logprobs": null'), EXTRA),
    ],
    "interleaved choices": [
        chunk(delta(b'{"role": "assistant", "content": "a"}')),
        chunk(delta(b'{"role": "assistant", "content": "b"}', 1)),
        chunk(delta(b'{"content": "2"}', 1) + b", " + delta(b'{"content": "1"}', 0)),
        chunk(delta(b"{}", 1, b'"length"')),
        chunk(delta(b'{"content": "!"}', 0)),
        chunk(delta(b"{}", 0, b'"stop"')),
    ],
    "parallel calls in fragments": [*(chunk(delta(call)) for call in CALLS), chunk(delta(b"{}", 0, b'"tool_calls"'))],
    "a function of old": [
        chunk(delta(b'{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": ""}}')),
        chunk(delta(b'{"function_call": {"arguments": "{ }"}}')),
        chunk(delta(b"{}", 0, b'"function_call"')),
    ],
    "reasoning before text": [
        chunk(delta(b'{"role": "assistant", "content": null, "reasoning_content": ""}')),
        chunk(delta(b'{"reasoning_content": "be", "reasoning": "be", "content": null}')),
        chunk(delta(b'{"reasoning_content": "cause", "reasoning_details": [{"type": "x", "index": 0}]}')),
        chunk(delta(b'{"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}')),
        chunk(delta(b'{"content": "so"}')),
        chunk(delta(b'{"content": ""}', 0, b'"stop"')),
    ],
    "a refusal": [
        chunk(delta(b'{"role": "assistant", "content": null, "refusal": "N"}')),
        chunk(delta(b'{"refusal": "o."}')),
        chunk(delta(b"{}", 0, b'"stop"')),
    ],
    "audio": [
        chunk(delta(b'{"role": "assistant", "audio": {"id": "audio_1"}}')),
        chunk(delta(b'{"audio": {"transcript": "ye"}}')),
        chunk(delta(b'{"audio": {"data": "AAAA"}}')),
        chunk(delta(b'{"audio": {"expires_at": 1.0}}')),
        chunk(delta(b"{}", 0, b'"stop"')),
    ],
    "everything in one chunk": [chunk(delta(b'{"role": "assistant", "content": "all"}', 0, b'"stop"'))],
    "no role, and text on the finish chunk": [
        chunk(delta(b'{"content": "a"}')),
        chunk(delta(b'{"content": "b"}', 0, b'"stop"')),
    ],
    "null deltas": [
        chunk(b'{"index": 0, "delta": null, "finish_reason": null}'),
        chunk(delta(b'{"content": "a"}')),
        chunk(delta(b"{}", 0, b'"stop"')),
    ],
}
USAGE = b'{"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2", "choices": [], "usage": %b}'
COUNTED = b'{"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "x_usage": {"y": 1.0}}'


def events_of(raw: bytes) -> list[Any]:
    lines = raw.decode().removesuffix("\n\n").split("\n\n")
    assert lines[-1] == "data: [DONE]"
    return [as_written(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("mode", MODES)
def test_s1_a_stream_comes_down_as_written(
    one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, name: str, asked: bool
) -> None:
    """Chunk for chunk, in upstream's order, with the gateway's fields added where §6 puts them and nowhere else."""
    sent = STREAMS[name]
    upstream.reply(raw_sse=sse([*sent, USAGE % COUNTED]))
    choices = 2 if name == "interleaved choices" else 1
    body: Json = {"model": "gpt-4o", "messages": [user("hi")], "n": choices, "stream": True, "context": {"mode": mode}}
    body |= {"stream_options": {"include_usage": True}} if asked else {}
    answer = one_gateway.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    got = events_of(answer.content)
    meant = [as_written(each) for each in sent]
    if asked:
        last = got.pop()
        assert last["choices"] == []
        kept = {k: v for k, v in last["usage"].items() if k not in ("cost", "cost_details")}
        assert kept == as_written(COUNTED)
        assert last["response_metadata"]["usage"]["total_tokens"] == Number("11")
    bare = [{k: v for k, v in each.items() if k not in OURS} for each in got]
    assert bare == [{k: v for k, v in each.items() if k not in OURS} for each in meant]
    assert [keys_in_order(each["choices"]) for each in got] == [keys_in_order(each["choices"]) for each in meant]
    assert len({each["id"] for each in got}) == 1
    finishing = [n for n, each in enumerate(meant) if any(c["finish_reason"] for c in each["choices"])][-1]
    marked = {0, finishing}
    assert {n for n, each in enumerate(got) if "response_metadata" in each} == marked
    assert {n for n, each in enumerate(got) if "conversation" in each} == (set() if mode == "off" else marked)
    assert "cost" in got[finishing]["response_metadata"]


STORED: dict[str, Json] = {
    "parallel calls in fragments": {
        "tool_calls": [
            tool_call("a", "f", '{"x":  1.0}'),
            {
                "id": "b",
                "type": "function",
                "function": {"name": "g", "arguments": '{"y": 2}'},
                "extra_content": {"google": {"thought_signature": "c2ln"}},
            },
        ]
    },
    "reasoning before text": {
        "content": "so",
        "reasoning_content": "because",
        "reasoning": "be",
        "reasoning_details": [{"type": "x", "index": 0}],
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}],
    },
    "a refusal": {"refusal": "No."},
    "audio": {"audio": {"id": "audio_1", "transcript": "ye", "data": "AAAA", "expires_at": 1.0}},
    "a function of old": {"function_call": {"name": "f", "arguments": "{ }"}},
}


@pytest.mark.parametrize("name", STORED)
def test_s1_a_streamed_answer_is_kept_whole(one_gateway: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What a model needs back is put together from its fragments and stands in front of the next delta."""
    upstream.reply(raw_sse=sse([*STREAMS[name], USAGE % COUNTED]))
    body = {"model": "gpt-4o", "messages": [user("hi")], "stream": True}
    answer = one_gateway.post("/chat/completions", json=body)
    first = json.loads(answer.text.partition("\n\n")[0].removeprefix("data: "))
    found = one_gateway.get(f"/chat/completions/{first['id']}").json()
    results = [tool_result(call["id"], "r") for call in STORED[name].get("tool_calls", [])]
    if "function_call" in STORED[name]:
        results = [{"role": "function", "name": STORED[name]["function_call"]["name"], "content": "r"}]
    again = {"model": "gpt-4o", "messages": results or [user("more")], "conversation": first["conversation"]}
    assert one_gateway.post("/chat/completions", json=again).status_code == 200
    meant = {"role": "assistant", **STORED[name]}
    goes_up = assistant("ye") if name == "audio" else meant  # no upstream takes its own audio
    for message, whole in ((found["choices"][0]["message"], meant), (upstream.last.body["messages"][1], goes_up)):
        assert {k: v for k, v in message.items() if v is not None} == whole


DOWN = {"x-ratelimit-limit-requests": "5", "x-ratelimit-reset-tokens": "6m0s", "openai-organization": "o"}
DOWN |= {"openai-version": "2020-10-01", "openai-processing-ms": "7", "retry-after": "1", "retry-after-ms": "900"}
NOT_DOWN = {"set-cookie": "a=b", "server": "cloudflare", "x-internal": "1", "cf-ray": "x"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streamed", [False, True])
def test_s1_headers_come_down(one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, streamed: bool) -> None:
    """`x-ratelimit-*`, `openai-*` and `retry-after`, whatever their values; the rest is between the two servers."""
    upstream.reply(text="x", headers={**DOWN, **NOT_DOWN})
    body = {"model": "gpt-4o", "messages": [user("hi")], "stream": streamed, "context": {"mode": mode}}
    found = one_gateway.post("/chat/completions", json=body).headers
    assert {name: found[name] for name in DOWN} == DOWN
    assert not [name for name, value in NOT_DOWN.items() if found.get(name) == value]
    assert found["x-request-id"].startswith("req_")
    assert ("x-gateway-response-cost" in found) is not streamed
