"""The mock upstream, through the SDK that real clients use: what tests say about the gateway rests on it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import PATIENCE

HELLO: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello there, mock"},
]


@pytest.fixture
def mock() -> Iterator[MockUpstream]:
    with MockUpstream() as server:
        yield server


@pytest.fixture
def client(mock: MockUpstream) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=mock.base_url, api_key="sk-test", max_retries=0, timeout=5) as sdk:
        yield sdk


@pytest.fixture
def http(mock: MockUpstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mock.base_url, timeout=5) as raw:
        yield raw


def stream(client: openai.OpenAI, **more: Any) -> list[ChatCompletionChunk]:
    options: dict[str, Any] = {"model": "gpt-4o", "messages": HELLO, "stream": True} | more
    return list(client.chat.completions.create(**options))


def text_of(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


@pytest.mark.long
def test_a_plain_answer_echoes_with_honest_usage_and_is_recorded(mock: MockUpstream, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="gpt-4o", messages=HELLO)
    assert answer.choices[0].message.content == "echo: Hello there, mock"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        5,
        4,
        9,
    )
    record = mock.last
    assert (record.method, record.path) == ("POST", "/v1/chat/completions")
    assert record.headers["authorization"] == "Bearer sk-test"
    assert record.body == json.loads(record.raw) == {"model": "gpt-4o", "messages": HELLO}
    assert record.done.wait(PATIENCE)
    assert not record.disconnected.is_set()
    assert mock.requests == mock.chats == [record]
    assert mock.violations == []


def test_a_stream_has_role_pieces_finish_and_usage_only_if_asked(client: openai.OpenAI) -> None:
    chunks = stream(client)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == "echo: Hello there, mock"
    assert len(chunks) == 6
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    counted = stream(client, stream_options={"include_usage": True})
    assert counted[-1].choices == []
    assert counted[-1].usage
    assert counted[-1].usage.total_tokens == 9
    assert text_of(counted) == text_of(chunks)


@pytest.mark.parametrize("streamed", [False, True])
def test_several_choices(mock: MockUpstream, client: openai.OpenAI, streamed: bool) -> None:
    mock.reply(text="one  two\n three ")
    if streamed:
        chunks = stream(client, n=2)
        texts = [text_of(chunks, index) for index in range(2)]
    else:
        answer = client.chat.completions.create(model="gpt-4o", messages=HELLO, n=2)
        texts = [choice.message.content or "" for choice in answer.choices]
    assert texts == ["one  two\n three ", "one  two\n three  [choice 1]"]


def test_parallel_tool_calls_plain_and_streamed_in_fragments(mock: MockUpstream, client: openai.OpenAI) -> None:
    calls = [("search", {"query": "größe ✓"}), ("fetch", {"url": "https://example.org/a/long/path"})]
    mock.reply(tool_calls=calls)
    answer = client.chat.completions.create(model="gpt-4o", messages=HELLO)
    assert answer.choices[0].finish_reason == "tool_calls"
    plain = answer.choices[0].message.tool_calls or []
    assert [(c.function.name, json.loads(c.function.arguments)) for c in plain if c.type == "function"] == calls

    mock.reply(tool_calls=calls)
    gathered: dict[int, list[str]] = {}
    for chunk in stream(client):
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function
            entry = gathered.setdefault(call.index, [call.id or "", call.function.name or "", ""])
            entry[2] += call.function.arguments or ""
    assert [(name, json.loads(arguments)) for _, name, arguments in gathered.values()] == calls
    assert len({call_id for call_id, _, _ in gathered.values()} | {call.id for call in plain}) == 4


def test_raw_messages_keep_unknown_fields_in_both_forms(mock: MockUpstream, http: httpx.Client) -> None:
    message = {
        "role": "assistant",
        "content": "42",
        "reasoning_content": "six times seven",
        "x_blocks": [1, 2],
    }
    mock.reply(message=message, usage=None, extra={"service_tier": "flex"})
    answer = http.post("/chat/completions", json={"model": "m", "messages": HELLO}).json()
    assert answer["choices"][0]["message"] == message
    assert answer["service_tier"] == "flex"
    assert "usage" not in answer
    mock.reply(message=message)
    lines = http.post("/chat/completions", json={"model": "m", "messages": HELLO, "stream": True}).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines[:-2]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "six times seven"
    assert {"x_blocks": [1, 2]} in deltas


def test_scripted_statuses_bodies_and_headers(mock: MockUpstream, client: openai.OpenAI, http: httpx.Client) -> None:
    mock.reply(status=429, headers={"Retry-After": "7"})
    with pytest.raises(openai.RateLimitError) as limited:
        stream(client)
    assert limited.value.response.headers["retry-after"] == "7"
    mock.reply(status=503, body=b"<html>down</html>", content_type="text/html")
    answer = http.post("/chat/completions", json={"model": "m", "messages": HELLO})
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (
        503,
        "text/html",
        "<html>down</html>",
    )
    mock.reply(raw_sse=b": ping\n\ndata: [DONE]\n\n")
    assert stream(client) == []
    mock.reply(chunks=[{"error": {"message": "late"}}], send_done=False)
    with pytest.raises(openai.APIError, match="late"):
        stream(client)
    mock.handler = lambda record: Reply(text=record.body["model"].upper()) if record.body["model"] == "x" else None
    assert text_of(stream(client, model="x")) == "X"
    assert text_of(stream(client)).startswith("echo")


def test_bytes_split_anywhere_are_the_same_stream(mock: MockUpstream, client: openai.OpenAI) -> None:
    mock.reply(text="größer ✓ 🙂 done", split_bytes=3)
    assert text_of(stream(client)) == "größer ✓ 🙂 done"


def test_modes(mock: MockUpstream, client: openai.OpenAI) -> None:
    mock.reply(text="kept")
    mock.refuse_stream_options = True
    with pytest.raises(openai.BadRequestError) as refused:
        stream(client, stream_options={"include_usage": True})
    assert refused.value.param == "stream_options"
    assert text_of(stream(client)) == "kept"
    mock.context_limit = 4
    with pytest.raises(openai.BadRequestError) as long:
        stream(client)
    assert long.value.code == "context_length_exceeded"
    mock.clear()
    assert not mock.requests
    assert text_of(stream(client)).startswith("echo")


def test_other_endpoints(mock: MockUpstream, client: openai.OpenAI, http: httpx.Client) -> None:
    assert [model.id for model in client.models.list()] == ["gpt-4o", "gpt-4o-mini", "small"]
    packed = client.embeddings.create(model="e", input=["a cat", "the cat", "42"]).data
    plain = http.post("/embeddings", json={"model": "e", "input": "a cat"}).json()["data"][0]["embedding"]
    assert packed[0].embedding == pytest.approx(plain)

    def near(one: int, other: int) -> float:
        return sum(x * y for x, y in zip(packed[one].embedding, packed[other].embedding, strict=True))

    assert near(0, 1) > near(0, 2)
    mock.files["file-1"] = b"\x00\x01"
    assert client.files.content("file-1").content == b"\x00\x01"
    with pytest.raises(openai.NotFoundError):
        client.files.content("file-2")
    mock.routes["POST /v1/responses"] = lambda record: Reply(json={"id": "resp_1", "echo": record.body})
    assert http.post("/responses?a=1", json={"x": 1}).json()["echo"] == {"x": 1}
    assert mock.requests[-1].query == "a=1"


def test_a_handler_that_fails_is_no_silent_500(mock: MockUpstream, client: openai.OpenAI) -> None:
    mock.handler = lambda record: Reply(text=record.body["no such field"])
    with pytest.raises(openai.InternalServerError, match="no such field"):
        stream(client)
    assert mock.violations == ["POST /v1/chat/completions: the mock failed: KeyError('no such field')"]
