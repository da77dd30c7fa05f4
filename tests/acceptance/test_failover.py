"""§12.6, §12.7: other tries and other models, before anything of an answer has gone to the client."""

from collections.abc import Iterator

import pytest

from tests.support.answers import Json
from tests.support.documents import prompt_tokens
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.failing_over import APIS, RESTING, ask, bill_of, entry, failing, is_whole
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream


@pytest.fixture(scope="module")
def module_elsewhere() -> Iterator[MockUpstream]:
    with MockUpstream() as mock:
        yield mock


@pytest.fixture
def elsewhere(module_elsewhere: MockUpstream) -> MockUpstream:
    """Another provider."""
    module_elsewhere.clear()
    return module_elsewhere


@pytest.fixture(scope="module")
def module_claude() -> Iterator[MockProvider]:
    with MockProvider() as server:
        yield server


@pytest.fixture
def claude(module_claude: MockProvider) -> MockProvider:
    """Anthropic."""
    module_claude.clear()
    return module_claude


@pytest.fixture(scope="module")
def module_failing_over(
    module_start_gateway: GatewayFactory,
    module_upstream: MockUpstream,
    module_elsewhere: MockUpstream,
    module_claude: MockProvider,
) -> GatewayProcess:
    here, there = module_upstream.base_url, module_elsewhere.base_url
    small = entry("tiny", "tiny", here)
    small["model_info"] = dict(SMALL_MODEL_INFO)
    return module_start_gateway(
        {
            "model_list": [
                entry("twins", "twin-a", here, order=1, timeout=0.5),
                entry("twins", "twin-b", here, order=2),
                entry("lone", "lone", here),
                entry("other", "other", there),
                entry("strict", "strict", here),
                entry("open", "open", here),
                {
                    "model_name": "claude",
                    "litellm_params": {
                        "model": "anthropic/claude-sonnet-4-5",
                        "api_base": module_claude.url,
                        "api_key": "sk-ant",
                    },
                },
                small,
            ],
            "routing": {
                **RESTING,
                "fallbacks": {"lone": ["nobody", "other"], "other": "tiny", "claude": "other", "open": "claude"},
                "context_window_fallbacks": {"tiny": "other"},
                "content_policy_fallbacks": {"strict": "other"},
            },
        }
    )


@pytest.fixture
def failing_over(
    module_failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> GatewayProcess:
    """Retries as they are by default, and models that answer for others."""
    upstream.count_prompt = elsewhere.count_prompt = prompt_tokens
    return module_failing_over


FAILURES = [
    pytest.param({"status": 500}, 1, id="500"),
    pytest.param({"status": 429, "headers": {"retry-after": "30"}}, 1, id="429"),
    pytest.param({"status": 401}, 1, id="the operator's key"),
    pytest.param({"cut_after": -1}, 2, id="cut before the first byte"),
    pytest.param({"raw_sse": b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'}, 1, id="error event"),
    pytest.param({"raw_sse": b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\n'}, 1, id="given up"),
    pytest.param({"finish_reason": "error", "text": ""}, 1, id="a finish reason"),
    pytest.param({"body": b"<html>oops</html>"}, 1, id="broken"),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "asked"), FAILURES)
def test_s12_6_the_next_deployment_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, api: str, stream: bool, script: Json, asked: int
) -> None:
    """A connection that was cut is tried once more by itself, as ever."""
    failing(upstream, "twin-a", **script)
    answer = ask(failing_over, "twins", api, stream=stream)
    assert answer.status_code == 200, answer.text
    assert is_whole(answer)
    assert [len(upstream.chats_of(name)) for name in ("twin-a", "twin-b")] == [asked, 1]
    bill = bill_of(failing_over, answer)
    assert (bill["model"], bill["routing_path"]) == ("twins", ["twins", "openai/twin-a", "openai/twin-b"])
    assert "idempotency-key" not in upstream.chats_of("twin-b")[0].headers
    assert "x-gateway-model" not in answer.headers


@pytest.mark.parametrize("api", APIS)
def test_s12_7_a_provider_of_another_api_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, claude: MockProvider, api: str
) -> None:
    failing(upstream, "open", status=500)
    answer = ask(failing_over, "open", api)
    assert (answer.status_code, answer.headers["x-gateway-model"]) == (200, "claude"), answer.text
    assert len(claude.calls) == 1
    assert "ok" in answer.text
