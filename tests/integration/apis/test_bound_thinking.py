"""Signed thoughts in chats through litellm, before a model that looks at signatures (guarantee §10.10)."""

import json
from typing import Any

import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import Json, http
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.signing_anthropic import SigningAnthropic
from tests.support.sse import chunks_of, messages_of

WINDOW = 3000
STEPS, LINES = 9, 40
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
ENABLED = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def house(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": module_upstream.url, "api_key": "sk-ant"}
    facts = {"max_input_tokens": WINDOW, "context_window": WINDOW}
    models = [{"model_name": "claude", "litellm_params": params, "model_info": facts}]
    gateway = module_start_gateway({"model_list": models})
    MockProvider(module_upstream)
    with http(gateway) as client:  # loads litellm
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
    with http(house) as client:
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
    body = {"model": "claude", "messages": messages, "tools": TOOLS, "max_tokens": 200, "thinking": ENABLED}
    response = client.post("/chat/completions", json={**body, "stream": streamed}, timeout=60)
    assert response.status_code == 200, response.text
    if not streamed:
        found: Json = response.json()["choices"][0]["message"]
    else:
        (found,) = messages_of(chunks_of(response.content))
    kept = ("role", "content", "tool_calls")
    return {name: found.get(name) for name in kept if found.get(name) or name == "content"}
