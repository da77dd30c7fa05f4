"""Libraries on top of the SDKs, and clients of their own making: nothing breaks, and each one's bill is found."""

from typing import Any

import pytest

from tests.compat.running import Results, run_node, run_python
from tests.compat.scripted import CALLS, COST, FORECAST, SEA, TRIP, USAGE
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.compat

CANCELLED_WITHIN = 2.0
TOKENS = USAGE["total_tokens"]
DIMENSIONS = 64
ATTACHED = ["attachment:0:Contract"]


def _python(environment: str, script: str) -> Any:
    @pytest.fixture(scope="module")
    def results(compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> Results:
        return run_python(environment, script, compat_gateway, scripted_upstream)

    return results


def _javascript(script: str) -> Any:
    @pytest.fixture(scope="module")
    def results(compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> Results:
        return run_node(script, compat_gateway, scripted_upstream)

    return results


langchain = _python("langchain", "langchain_chat")
litellm = _python("litellm", "litellm_client")
instructor = _python("frameworks", "instructor_client")
llama_index = _python("frameworks", "llama_index_client")
pydantic_ai = _python("pydantic-ai", "pydantic_ai_client")
ai_sdk = _javascript("ai_sdk")
langchain_js = _javascript("langchain_js")


def _called(found: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, arguments) for name, arguments in found["calls"]]


@pytest.mark.parametrize("client", ["langchain", "litellm", "llama_index", "pydantic_ai", "langchain_js"])
def test_s6_what_clients_choke_on_stays_here(request: pytest.FixtureRequest, client: str) -> None:
    """§6: no named event, no chunk without choices, whatever the upstream sends."""
    assert request.getfixturevalue(client)["odd_stream"] == SEA


@pytest.mark.parametrize("provider", ["openai", "compatible"])
def test_s6_nor_does_the_ai_sdk(ai_sdk: Results, provider: str) -> None:
    """§6: the same for both of its providers."""
    assert ai_sdk[f"{provider}.odd_stream"] == {"text": SEA, "errors": 0}


def test_s6_langchain_finds_its_bill(langchain: Results) -> None:
    """§6: cost in `token_usage` and in the headers; a stream's by its request id."""
    plain = langchain["plain"]
    assert plain == {
        "text": SEA,
        "cost": COST,
        "header_cost": COST,
        "total": COST,
        "conversation": "conv_",
        "tokens": TOKENS,
    }
    assert langchain["stream"] == {"text": SEA, "merged": SEA, "finish": "stop", "total": COST}
    assert langchain["stream_with_usage"] == {"text": SEA, "tokens": TOKENS, "total": COST}


def test_s1_langchain_loses_nothing(langchain: Results) -> None:
    """§1: tool loops plain and streamed, structured output, embeddings through the relay."""
    for name in ("tool_loop", "tool_loop_streamed"):
        assert _called(langchain[name]) == CALLS
        assert langchain[name]["text"] == FORECAST
    assert langchain["structured"] == {"parsed": TRIP, "cost": COST, "streamed": TRIP}
    assert langchain["embeddings"] == DIMENSIONS


def test_s3_langchain_continues(langchain: Results) -> None:
    """§3.1, §2: `extra_body` and headers."""
    assert langchain["conversation"] == {"same": True, "session": True, "attached": ATTACHED}


def test_s7_langchain_raises_and_cancels(langchain: Results) -> None:
    """§7, §3.6: error classes of the SDK beneath; a closed stream cancels the upstream."""
    assert langchain["errors"] == {
        "bad": ["BadRequestError", "code_400"],
        "busy": ["RateLimitError", "code_429"],
        "unknown": ["NotFoundError", "conversation_not_found"],
        "in_stream": ["APIError", "server_error"],
        "cut": ["APIError", "upstream_interrupted"],
    }
    assert langchain["abort"] < CANCELLED_WITHIN
    found = langchain["asynchronous"]
    assert found.pop("cancelled") < CANCELLED_WITHIN
    assert found == {"cost": COST, "text": SEA, "ended": "on_chat_model_end"}


def test_s6_litellm_finds_its_bill(litellm: Results) -> None:
    """§6: `response_metadata` on the answer and on the finish chunk; `usage.cost` on the usage chunk."""
    plain = {"text": SEA, "cost": COST, "total": COST, "header_cost": COST, "conversation": True}
    assert litellm["plain"] == plain
    assert litellm["stream"] == {"text": SEA, "total": COST, "built": SEA}
    assert litellm["stream_with_usage"] == {"text": SEA, "total": COST, "cost": COST, "built_cost": COST}


def test_s1_litellm_loses_nothing(litellm: Results) -> None:
    """§1: tool loops plain and streamed, structured output, embeddings through the relay."""
    for name in ("tool_loop", "tool_loop_streamed"):
        assert [name for name, _ in litellm[name]["calls"]] == [name for name, _ in CALLS]
        assert litellm[name]["text"] == FORECAST
    assert litellm["structured"] == TRIP
    assert litellm["embeddings"] == DIMENSIONS


def test_s3_litellm_continues(litellm: Results) -> None:
    """§3.1, §2: `extra_body` and headers."""
    assert litellm["conversation"] == {"same": True, "attached": ATTACHED}


def test_s7_litellm_raises_and_cancels(litellm: Results) -> None:
    """§7, §3.6: LiteLLM's own classes, by status; a broken stream raises; a closed one cancels the upstream."""
    statuses = {name: status for name, (_, status) in litellm["errors"].items()}
    assert statuses == {"bad": 400, "busy": 429, "unknown": 404, "stranger": 401, "in_stream": 500, "cut": 500}
    assert litellm["errors"]["busy"][0] == "RateLimitError"
    assert litellm["errors"]["stranger"][0] == "AuthenticationError"
    found = litellm["asynchronous"]
    assert found.pop("cancelled") < CANCELLED_WITHIN
    assert found == {"total": COST, "text": SEA, "streamed_total": COST}


@pytest.mark.parametrize("provider", ["openai", "compatible"])
def test_s6_the_ai_sdk_finds_its_bill(ai_sdk: Results, provider: str) -> None:
    """§6: headers and look-up in both providers; `usage.raw.cost` and an extractor in the compatible one."""
    own = COST if provider == "compatible" else None
    assert ai_sdk[f"{provider}.plain"] == {
        "text": SEA,
        "header_cost": COST,
        "total": COST,
        "tokens": TOKENS,
        "cost": own,
        "extracted": own,
    }
    assert ai_sdk[f"{provider}.stream"] == {
        "text": SEA,
        "total": COST,
        "looked_up": COST,
        "tokens": TOKENS,
        "finish": "stop",
        "extracted": own,
        "errors": 0,
    }


@pytest.mark.parametrize("provider", ["openai", "compatible"])
def test_s1_the_ai_sdk_loses_nothing(ai_sdk: Results, provider: str) -> None:
    """§1: tool loops of its own, structured output; reasoning where the provider knows it."""
    for name in ("tool_loop", "tool_loop_streamed"):
        found = ai_sdk[f"{provider}.{name}"]
        assert _called(found) == CALLS
        assert (found["text"], found["steps"]) == (FORECAST, 2)
    assert ai_sdk[f"{provider}.structured"] == {"parsed": TRIP, "streamed": TRIP}
    thought = "Water, so wide." if provider == "compatible" else None
    assert ai_sdk[f"{provider}.reasoning"] == {"text": SEA, "reasoning": thought}
    assert ai_sdk["embeddings"] == [DIMENSIONS, DIMENSIONS]
    assert ai_sdk["responses"] == SEA


@pytest.mark.parametrize("provider", ["openai", "compatible"])
def test_s3_the_ai_sdk_continues(ai_sdk: Results, provider: str) -> None:
    """§3.1: by header in both; §2: `providerOptions` become body fields in the compatible provider alone."""
    attached = ATTACHED if provider == "compatible" else None
    assert ai_sdk[f"{provider}.conversation"] == {"same": True, "attached": attached}


@pytest.mark.parametrize("provider", ["openai", "compatible"])
def test_s7_the_ai_sdk_raises_retries_and_cancels(ai_sdk: Results, provider: str) -> None:
    """§7, §3.6: status and code reach its error class; a broken stream has an error part; an abort cancels."""
    assert ai_sdk[f"{provider}.errors"] == {
        "bad": ["AI_APICallError", 400, "code_400"],
        "busy": ["AI_APICallError", 429, "code_429"],
        "unknown": ["AI_APICallError", 404, "conversation_not_found"],
        "in_stream": 1,
        "cut": 1,
    }
    assert ai_sdk[f"{provider}.retries"] == SEA
    assert ai_sdk[f"{provider}.abort"] < CANCELLED_WITHIN


def test_s6_langchain_js(langchain_js: Results) -> None:
    """§6: `response_metadata.usage.cost`, plain and streamed; the whole bill in the raw answer; §3.1, §7, §3.6."""
    expected = {"text": SEA, "cost": COST, "total": COST, "tokens": TOKENS}
    assert langchain_js["plain"] == expected
    assert langchain_js["stream"] == expected
    for name in ("tool_loop", "tool_loop_streamed"):
        assert _called(langchain_js[name]) == CALLS
        assert langchain_js[name]["text"] == FORECAST
    assert langchain_js["structured"] == TRIP
    assert langchain_js["conversation"] is True
    assert langchain_js["errors"] == {
        "bad": [400, "code_400"],
        "busy": [429, "code_429"],
        "in_stream": [None, "server_error"],
        "cut": [None, "upstream_interrupted"],
    }
    assert langchain_js["embeddings"] == DIMENSIONS
    assert langchain_js["abort"] < CANCELLED_WITHIN


def test_s6_instructor(instructor: Results) -> None:
    """§6: the raw answer hangs on the typed one; §3.1."""
    assert instructor["plain"] == {"parsed": TRIP, "cost": COST, "total": COST, "on_the_model": COST}
    assert instructor["stream"] == TRIP
    assert instructor["conversation"] is True


def test_s6_llama_index(llama_index: Results) -> None:
    """§6: `raw` of the answer and of the last part; §1, §3.1, §7, §3.6."""
    assert llama_index["plain"] == {"text": SEA, "cost": COST, "total": COST, "conversation": "conv_"}
    assert llama_index["stream"] == {"text": SEA, "total": COST}
    assert llama_index["tools"] == [[list(call) for call in CALLS]] * 2
    assert llama_index["conversation"] is True
    errors = {"bad": ["BadRequestError", "code_400"], "in_stream": ["APIError", "server_error"]}
    assert llama_index["errors"] == errors
    assert llama_index["asynchronous"]["total"] == COST
    assert llama_index["asynchronous"]["cancelled"] < CANCELLED_WITHIN


def test_s6_pydantic_ai(pydantic_ai: Results) -> None:
    """§6: the answer's id is kept, so that its bill can be looked up; §1, §3.1, §7."""
    assert pydantic_ai["plain"] == pydantic_ai["stream"] == {"text": SEA, "total": COST}
    assert _called(pydantic_ai["tool_loop"]) == CALLS
    assert pydantic_ai["tool_loop"]["text"] == FORECAST
    assert pydantic_ai["structured"] == TRIP
    assert pydantic_ai["conversation"] is True
    assert pydantic_ai["errors"] == 400
