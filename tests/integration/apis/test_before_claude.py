"""Chats of OpenAI's protocol before Claude: its prompt cache is made use of (guarantee §4 I7), a prompt leaves room for
the `max_tokens` that clients seldom name (§4 I1), and signed thoughts go back to models that look at them (§10.10)."""

import json
from typing import Any

import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import Json, ok, user
from tests.support.anthropic_cache import PromptCache
from tests.support.documents import prose, tokens
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.signing_anthropic import SigningAnthropic
from tests.support.sse import chunks_of, messages_of

SYSTEM = {"role": "system", "content": prose(1, 1500)}
TOOLS: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def gateway(start_gateway: GatewayFactory, provider: MockProvider) -> GatewayProcess:
    provider.cache = PromptCache()
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.url, "api_key": "sk-ant"}
    return start_gateway({"model_list": [{"model_name": "claude", "litellm_params": params}]})


def ask(gateway: GatewayProcess, *messages: Json, **body: Any) -> Json:
    return ok(gateway.post("/chat/completions", json={"model": "claude", "messages": messages, **body}, timeout=120))


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


def test_s7_a_part_that_the_model_cannot_take_is_named_as_the_client_sent_it(gateway: GatewayProcess) -> None:
    """Not by its place among what is forwarded."""
    wrong = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "hologram", "hologram": "y"}]}
    ask(gateway, user("one"), context={"session": "s"})
    for more, param in (({}, "messages[0].content[1]"), ({"context": {"session": "s"}}, "messages")):
        answer = gateway.post("/chat/completions", json={"model": "claude", "messages": [wrong], **more})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


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


WINDOW, LONGEST, RESERVED = 8000, 6000, 1000


@pytest.mark.parametrize(("words", "named"), [(10, None), (3000, None), (12_000, None), (10, 77)])
def test_s4_i1_prompt_and_answer_have_room_in_the_window(
    start_gateway: GatewayFactory, provider: MockProvider, words: int, named: int | None
) -> None:
    """However long the prompt: a short one leaves all that the model can write, one that fills the window what was
    reserved."""
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.url, "api_key": "sk-ant"}
    info = {"max_input_tokens": WINDOW, "max_output_tokens": LONGEST}
    claude = {"model_name": "claude", "litellm_params": params, "model_info": info}
    gateway = start_gateway({"model_list": [claude], "context": {"reserved_output_tokens": RESERVED}})
    provider.reply(wire.message(wire.text("Yes.")))
    paper = [{"title": "Tides", "content": prose(1, words)}]
    body: dict[str, Any] = {"model": "claude", "messages": [user("Which tide?")], "attachments": paper}
    if named:
        body["max_tokens"] = named
    answer = gateway.post("/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    sent = provider.calls[-1].body
    prompt = sum(tokens(part["text"]) for message in sent["messages"] for part in message["content"])
    assert prompt + sent["max_tokens"] <= WINDOW
    assert sent["max_tokens"] >= (named or RESERVED)
    if words == 10:
        assert sent["max_tokens"] == (named or LONGEST)


SMALL_WINDOW = 3000
STEPS, LINES = 9, 40
SEARCHING = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
ENABLED = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def house(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": module_upstream.url, "api_key": "sk-ant"}
    facts = {"max_input_tokens": SMALL_WINDOW, "context_window": SMALL_WINDOW}
    models = [{"model_name": "claude", "litellm_params": params, "model_info": facts}]
    gateway = module_start_gateway({"model_list": models})
    MockProvider(module_upstream)
    with gateway.http() as client:  # loads litellm
        client.post("/chat/completions", json={"model": "claude", "messages": [USER]}, timeout=120)
    return gateway


USER = {"role": "user", "content": "Which keeper signed the ledger?"}


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True])
def test_s10_10_a_tool_loop_that_does_not_fit(house: GatewayProcess, provider: MockProvider, streamed: bool) -> None:
    """§10.10: over a tool loop of several windows no request is refused, and thoughts go up again where they may."""
    model = SigningAnthropic()
    told: list[Json] = []
    provider.claude = lambda body: model.answer(body, *told)
    said: list[Json] = [USER]
    with house.http() as client:
        for step in range(STEPS):
            told[:] = [wire.text("Let me look."), wire.tool_use(f"toolu_{step}", "search", page=step)]
            said.append(_sent(client, said, streamed))
            page = "\n".join(f"Lamp {step}-{n} was lit by keeper number {step * LINES + n}." for n in range(LINES))
            said.append({"role": "tool", "tool_call_id": f"toolu_{step}", "content": page})
        told[:] = [wire.text("Keeper 12.")]
        assert _sent(client, said, streamed)["content"] == "Keeper 12."
    assert model.refused == []
    assert max(model.thoughts) > 1
    assert json.dumps(model.requests[-1]).count("was lit") < STEPS * LINES, "the loop is to exceed the window"


def _sent(client: Any, messages: list[Json], streamed: bool) -> Json:
    """The answer as a client of OpenAI's keeps it: without thoughts."""
    body = {"model": "claude", "messages": messages, "tools": SEARCHING, "max_tokens": 200, "thinking": ENABLED}
    response = client.post("/chat/completions", json={**body, "stream": streamed}, timeout=60)
    assert response.status_code == 200, response.text
    if not streamed:
        found: Json = response.json()["choices"][0]["message"]
    else:
        (found,) = messages_of(chunks_of(response.content))
    kept = ("role", "content", "tool_calls")
    return {name: found.get(name) for name in kept if found.get(name) or name == "content"}


def test_s4_i7_a_mark_for_the_whole_prompt_is_kept_through_a_router(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """A field of Messages alone: it was left out, and as the client had set one, no breakpoint was put in its place."""
    params = {"model": "openrouter/anthropic/claude-sonnet-4-5", "api_base": upstream.base_url, "api_key": "sk-or"}
    gateway = start_gateway({"model_list": [{"model_name": "claude", "litellm_params": params}]})
    hour = {"type": "ephemeral", "ttl": "1h"}
    body = {"model": "claude", "max_tokens": 50, "system": SYSTEM["content"], "messages": [user("Who keeps lamp 1?")]}
    assert gateway.post("/messages", json={**body, "cache_control": hour}).status_code == 200
    assert [each["content"][-1]["cache_control"] for each in upstream.forwarded] == [hour, hour]
