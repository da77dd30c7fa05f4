"""Anthropic's prompt cache is made use of, though clients of OpenAI's protocol do not know of it (guarantee §4 I7)."""

import json
from typing import Any

import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import Json, http, user
from tests.support.anthropic_cache import PromptCache
from tests.support.documents import prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider

SYSTEM = {"role": "system", "content": prose(1, 1500)}
TOOLS: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def gateway(start_gateway: GatewayFactory, provider: MockProvider) -> GatewayProcess:
    provider.cache = PromptCache()
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.url, "api_key": "sk-ant"}
    return start_gateway({"model_list": [{"model_name": "claude", "litellm_params": params}]})


def ask(gateway: GatewayProcess, *messages: Json, **body: Any) -> Json:
    with http(gateway) as client:
        answer = client.post("/chat/completions", json={"model": "claude", "messages": messages, **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def cached(answer: Json) -> tuple[int, int]:
    """Tokens read from the cache, and written to it."""
    details = answer["usage"]["prompt_tokens_details"]
    return details["cached_tokens"], answer["usage"]["cache_creation_input_tokens"]


def marks(provider: MockProvider) -> int:
    return json.dumps(provider.calls[-1].body).count('"cache_control"')


def test_s4_i7_a_request_reads_what_the_one_before_wrote(gateway: GatewayProcess, provider: MockProvider) -> None:
    """A session of deltas, then a tool loop: each request reads all that the one before sent."""
    session = {"context": {"session": "s"}, "tools": TOOLS}
    first = ask(gateway, SYSTEM, user("Who keeps lamp 1?"), **session)
    assert cached(first)[0] == 0
    assert cached(first)[1] > 1000
    sent = first["usage"]["prompt_tokens"]
    for number in range(2, 5):
        answer = ask(gateway, user(f"And lamp {number}? {prose(number, 200)}"), **session)
        read, written = cached(answer)
        assert read == sent, "all that was written before is read"
        assert 0 < written < 500
        assert marks(provider) == 3
        sent = read + written
    provider.reply(wire.message(wire.tool_use("toolu_1", "look"), stop="tool_use", spent=wire.usage(1, 1)))
    calling = ask(gateway, user("Look."), **session)
    provider.cache = provider.cache or PromptCache()
    provider.cache.usage(provider.calls[-1].body)  # as the answer that was queued would have said
    (call,) = calling["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": prose(9, 300)}
    read, written = cached(ask(gateway, result, **session))
    assert read > sent
    assert 300 < written < 1000


def test_s4_i7_a_plain_loop_that_sends_everything_again(gateway: GatewayProcess, provider: MockProvider) -> None:
    """The ordinary client's loop; what is stored and given back bears no mark."""
    messages: list[Json] = [SYSTEM, user("Who keeps lamp 1?")]
    sent = 0
    for number in range(2, 5):
        answer = ask(gateway, *messages)
        read, written = cached(answer)
        assert read == sent
        assert written > 0
        sent = read + written
        assert "cache_control" not in json.dumps(answer)
        messages += [answer["choices"][0]["message"], user(f"And lamp {number}?")]
    dry = ask(gateway, *messages, context={"dry_run": True})
    assert "cache_control" not in json.dumps(dry)
    assert [m["content"] for m in dry["messages"]] == [m["content"] for m in messages]


def test_s4_i7_the_clients_own_marks_are_the_only_ones(gateway: GatewayProcess, provider: MockProvider) -> None:
    part = {"type": "text", "text": SYSTEM["content"], "cache_control": {"type": "ephemeral"}}
    ask(gateway, {"role": "system", "content": [part]}, user(prose(2, 1500)))
    assert marks(provider) == 1
    ask(gateway, SYSTEM, user("one"), context={"mode": "off"})
    assert marks(provider) == 0, "a plain proxy"


def test_s4_i7_what_nobody_goes_on_with_is_not_written(gateway: GatewayProcess, provider: MockProvider) -> None:
    """A request that stands alone pays for no more than its system message."""
    ask(gateway, SYSTEM, user(prose(2, 1500)), store=False)
    assert marks(provider) == 1
    ask(gateway, user("short"), store=False)
    assert marks(provider) == 0
