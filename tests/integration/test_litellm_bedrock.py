"""Bedrock's Converse API through litellm: signed requests, AWS' event stream; and how quiet litellm is kept."""

import asyncio
import binascii
import json
import logging
import re
import struct
import threading
from typing import Any

import httpx
import pytest
import respx

from gateway.core.errors import UpstreamAuth, UpstreamInterrupted, UpstreamOverflow
from gateway.core.types.chat import ModelFacts
from gateway.pipeline.payload import wants_breakpoints, with_breakpoints
from tests.integration.litellm_calls import TOOLS, Json, as_stream, complete, deployment, sent, streamed
from tests.support.answers import assistant, tool_call, tool_result, user

URL = r"https://bedrock-runtime\.eu-central-1\.amazonaws\.com/model/amazon\.nova-pro-v1%3A0/converse(-stream)?"
KEYS = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMI-EXAMPLE"}
USAGE = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 21, "cacheReadInputTokens": 3, "cacheWriteInputTokens": 2}
EVENTS: list[tuple[str, Json]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hel"}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "lo"}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("messageStop", {"stopReason": "end_turn"}),
    ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}),
]


def frame(kind: str, payload: Json) -> bytes:
    """One message of AWS' event stream encoding."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(n)]) + n.encode() + b"\x07" + struct.pack(">H", len(v)) + v.encode() for n, v in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    prelude += struct.pack(">I", binascii.crc32(prelude))
    return prelude + headers + body + struct.pack(">I", binascii.crc32(prelude + headers + body))


def nova() -> Any:
    return deployment("bedrock/amazon.nova-pro-v1:0", api_key=None, aws_region_name="eu-central-1", **KEYS)


@pytest.fixture
def provider() -> Any:
    """Bedrock; whatever else is asked for fails."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(url__regex=URL)


def mock(provider: respx.Route, stream: bool, events: int = len(EVENTS)) -> Any:
    if stream:
        frames = [frame(*event) for event in EVENTS[:events]]
        provider.mock(as_stream(frames, "application/vnd.amazon.eventstream"))
        return streamed
    message = {"role": "assistant", "content": [{"text": "Hello"}]}
    provider.mock(httpx.Response(200, json={"output": {"message": message}, "stopReason": "end_turn", "usage": USAGE}))
    return complete


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_s6_text_and_usage(provider: respx.Route, stream: bool) -> None:
    """§1, §6: signed with the operator's credentials; cached tokens are part of the prompt once."""
    answer = await mock(provider, stream)(nova())
    choice, usage = answer if stream else (answer.body["choices"][0], answer.body["usage"])
    assert choice["message"] == {"role": "assistant", "content": "Hello"}
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (16, 5)
    details = usage["prompt_tokens_details"]
    assert (details["cached_tokens"], details["cache_creation_tokens"]) == (3, 2)
    authorization = provider.calls.last.request.headers["authorization"]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/")


@pytest.mark.parametrize("usage", [{}, {"usage": {"inputTokens": 11}}])
async def test_s6_an_answer_without_all_of_its_usage_is_one(provider: respx.Route, usage: Json) -> None:
    message = {"role": "assistant", "content": [{"text": "Hello"}]}
    provider.mock(httpx.Response(200, json={"output": {"message": message}, "stopReason": "end_turn", **usage}))
    found = (await complete(nova())).body
    assert found["choices"][0]["message"]["content"] == "Hello"
    assert found["usage"]["prompt_tokens"] == (11 if usage else 0)


async def test_s12_7_ids_of_other_providers_are_as_bedrock_takes_them(provider: respx.Route) -> None:
    """It refuses colons, as Kimi's ids have, and ids beyond 64 characters."""
    ids = ["functions.weather:0", "x" * 99]
    said = [assistant(None, tool_calls=[tool_call(name, "weather") for name in ids])]
    said += [tool_result(name, f"{number} degrees") for number, name in enumerate(ids)]
    await mock(provider, stream=False)(nova(), user("What is the weather?"), *said, tools=TOOLS)
    _, answer, results = sent(provider)["messages"]
    called = [block["toolUse"]["toolUseId"] for block in answer["content"]]
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in called)
    assert [block["toolResult"]["toolUseId"] for block in results["content"] if "toolResult" in block] == called


async def test_s7_a_stream_that_breaks_off(provider: respx.Route) -> None:
    """§7: a dead stream never ends cleanly."""
    with pytest.raises(UpstreamInterrupted):
        await mock(provider, True, events=3)(nova())


@pytest.mark.parametrize("stream", [False, True])
async def test_s7_errors(provider: respx.Route, stream: bool) -> None:
    """§7: overflow and refused credentials, in AWS' own shape."""
    call = streamed if stream else complete
    provider.mock(httpx.Response(400, json={"message": "Input is too long for requested model."}))
    with pytest.raises(UpstreamOverflow):
        await call(nova())
    provider.mock(httpx.Response(403, json={"message": "The security token included in the request is invalid."}))
    with pytest.raises(UpstreamAuth):
        await call(nova())


async def test_litellm_leaves_nothing_behind(provider: respx.Route, caplog: pytest.LogCaptureFixture) -> None:
    """No task, no thread but those of the pools, nothing logged: its accounting of calls is switched off."""
    caplog.set_level(logging.DEBUG)
    before = set(threading.enumerate())
    for _ in range(3):
        await mock(provider, True)(nova())
        await mock(provider, False)(nova())
    for _ in range(100):
        if asyncio.all_tasks() == {asyncio.current_task()}:
            break
        await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    pools = ("asyncio_", "aws-signing_", "AnyIO worker thread")
    assert [t.name for t in threading.enumerate() if t not in before and not t.name.startswith(pools)] == []
    assert [r for r in caplog.records if r.name.startswith(("LiteLLM", "boto", "openai"))] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_s4_i7_marks_become_cache_points(stream: bool) -> None:
    """§4 I7: behind the system messages, and behind results of tools and users' words."""
    at = deployment(
        "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", None, aws_region_name="eu-central-1", **KEYS
    )
    assert wants_breakpoints(at, ModelFacts("claude", supports_prompt_caching=True))
    long = "words " * 1000
    call = {"id": "tooluse_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "system", "content": long},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "tooluse_1", "content": "rain"},
    ]
    with respx.mock() as router:
        route = router.post(url__regex=r"https://bedrock-runtime\.eu-central-1\.amazonaws\.com/model/.*")
        marked = with_breakpoints(messages, {}, goes_on=True, translated=True)
        await mock(route, stream)(at, *marked, tools=TOOLS)
    body = json.loads(route.calls.last.request.content)
    point = {"cachePoint": {"type": "default"}}
    assert body["system"] == [{"text": long}, point]
    user, _, result = body["messages"]
    assert user["content"] == [{"text": "And now?"}, point]
    assert "toolResult" in result["content"][0]
    assert result["content"][1:] == [point]
