"""The SDKs of Responses and Messages, and what defaults to Responses: their users see a chat's answers and its bill."""

from typing import Any

import pytest

from tests.compat.running import Results, run_node, run_python
from tests.compat.scripted import CALLS, COST, FORECAST, SEA, TRIP, USAGE
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.compat

OPENAI = ["openai-3", "openai-2", "node:openai", "node:openai-6"]
ANTHROPIC = ["anthropic", "node:@anthropic-ai/sdk"]
BILL = {"cost": COST, "total": COST, "conversation": "conv_", "tokens": USAGE["total_tokens"]}


def _run(client: str, python: str, javascript: str, gateway: GatewayProcess, upstream: MockUpstream) -> Results:
    if client.startswith("node:"):
        return run_node(javascript, gateway, upstream, client.removeprefix("node:"))
    return run_python(client, python, gateway, upstream)


@pytest.fixture(scope="module", params=OPENAI)
def openai(request: pytest.FixtureRequest, compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> Results:
    """What a user of `client.responses` saw."""
    return _run(request.param, "openai_responses", "openai_responses", compat_gateway, scripted_upstream)


@pytest.fixture(scope="module", params=ANTHROPIC)
def anthropic(
    request: pytest.FixtureRequest, compat_gateway: GatewayProcess, scripted_upstream: MockUpstream
) -> Results:
    """What a user of `client.messages` saw."""
    return _run(request.param, "anthropic_sdk", "anthropic_sdk", compat_gateway, scripted_upstream)


def _called(found: Any) -> list[tuple[str, Any]]:
    return [(name, arguments) for name, arguments in found["calls"]]


def test_s10_1_openais_sdks_see_a_response_with_its_bill(openai: Results) -> None:
    """§10, §6: `create`, and the helper of streams, which keeps the bill of the last event."""
    assert openai["plain"] == {"text": SEA, **BILL}
    assert openai["stream_helper"] == {"text": SEA, "deltas": SEA, **BILL}
    if "looked_up" in openai:
        assert openai["looked_up"] == COST


def test_s10_1_openais_sdks_call_tools_and_parse(openai: Results) -> None:
    """§10: calls and results as items, in one conversation; `parse` with pydantic and zod."""
    found = openai["tool_loop"]
    assert _called(found) == CALLS
    assert found == {"calls": found["calls"], "text": FORECAST, **BILL, "same": True}
    assert openai["parsed"] == TRIP


def test_s10_7_anthropics_sdks_see_a_message_with_its_bill(anthropic: Results) -> None:
    """§10, §6: `create`, and the helper of streams, whose `message_delta` has the bill."""
    assert anthropic["plain"] == {"text": SEA, **BILL}
    assert anthropic["stream_helper"] == {"text": SEA, "deltas": SEA, "cost": COST, "total": COST}
    assert anthropic["counted"] > 0
    if "unknown" in anthropic:
        assert anthropic["unknown"] == "not_found_error"


def test_s10_7_anthropics_sdks_call_tools(anthropic: Results) -> None:
    """§10: calls and results as blocks, in one conversation."""
    found = anthropic["tool_loop"]
    assert _called(found) == CALLS
    assert found == {"calls": found["calls"], "text": FORECAST, **BILL, "same": True}


def test_s10_1_openais_agents(compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> None:
    """§10: a run with tools and a second one of the same session; a streamed run."""
    found = run_python("agents", "openai_agents", compat_gateway, scripted_upstream)["session"]
    assert sorted(_called(found)) == sorted(CALLS)
    assert (found["outputs"], found["kept"], found["last"]) == ([FORECAST, SEA, SEA], 8, "response.completed")


def test_s10_1_pydantic_ai(compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> None:
    """§10: its Responses model; the bill by the id that it keeps."""
    found = run_python("pydantic-ai", "pydantic_ai_responses", compat_gateway, scripted_upstream)
    assert found["plain"] == {"text": SEA, "total": COST}
    assert found["streamed"] == SEA
    assert sorted(_called(found["tool_loop"])) == sorted(CALLS)
    assert found["tool_loop"]["text"] == FORECAST
    assert found["parsed"] == TRIP


def test_s10_1_the_ai_sdk(compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> None:
    """§10: its default for OpenAI; the cost by a header."""
    found = run_node("ai_sdk_responses", compat_gateway, scripted_upstream)
    assert found["plain"] == {"text": SEA, "cost": COST}
    assert found["streamed"] == SEA
    assert _called(found["tool_loop"]) == CALLS
    assert found["tool_loop"]["text"] == FORECAST
    assert found["parsed"] == TRIP
