"""Budgets and limits as clients meet them (guarantee §12.3, §12.4)."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.support.answers import user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until, within_a_minute

ASK: Any = [user("hello")]
KEYS: dict[str, Any] = {
    "slow": {"limits": {"rpm": 2}},
    "wordy": {"limits": {"tpm": 1000}},
    "single": {"limits": {"concurrent": 1}},
    "spent": {"budgets": [{"usd": "0.2", "period": "day"}]},
    "poor": {"budgets": [{"usd": "0.01", "period": "day"}], "limits": {"rpm": 2}},
    "warned": {"budgets": [{"usd": "0.000001", "period": "month", "hard": False}]},
    "embed": {"budgets": [{"usd": "0.0000013", "period": "total"}], "limits": {"rpm": 500}},
    "again": {"limits": {"rpm": 1}},
    "dry": {"limits": {"tpm": 1}},
    "free": {},
    "pictures": {},
    "unpriced": {"budgets": [{"usd": 1}]},
    "planned": {"budgets": [{"usd": 1}], "limits": {"rpm": 100, "tpm": 1000000, "concurrent": 50}},
}
MODELS = ("gpt-4o", "bench", "text-embedding-3-small")
WARNING = "x-gateway-budget-warning"


def key(name: str) -> str:
    return f"gw-{name}-key"


@pytest.fixture(scope="module", params=["memory", "postgres", "valkey"])
def module_limited(
    module_start_gateway: GatewayFactory, module_upstream: MockUpstream, request: pytest.FixtureRequest
) -> GatewayProcess:
    keys = [{"key": key(name), "tenant": name, **said} for name, said in KEYS.items()]
    config: dict[str, Any] = {"auth": {"keys": keys}, "limits": {"users": {"busy": {"limits": {"rpm": 1}}}}}
    served = {"api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    config["model_list"] = [
        *({"model_name": name, "litellm_params": {"model": f"openai/{name}", **served}} for name in MODELS)
    ]
    if request.param == "postgres":
        config["storage"] = {"url": request.getfixturevalue("postgres").new_database()}
    elif request.param == "valkey":
        server = request.getfixturevalue("session_valkey")
        server.flush()
        config["cache"] = {"url": server.url, "timeout": 1.0}
    return module_start_gateway(config)


@pytest.fixture
def limited(module_limited: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """With keys of limits and budgets, counted in memory, in PostgreSQL and in Valkey. Each test has a key of its own:
    what was counted stays."""
    return module_limited


def test_s12_4_requests_within_a_minute(
    limited: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """The official SDK's `RateLimitError`, its headers as OpenAI's; nothing goes up."""
    within_a_minute()
    client = make_client(limited, key("slow"), max_retries=0)
    first = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASK)
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-reset-requests"]
    stream = client.chat.completions.create(model="gpt-4o", messages=ASK, stream=True)
    assert stream.response.headers["x-ratelimit-remaining-requests"] == "0"
    list(stream)
    asked = len(upstream.chats)
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    error = caught.value
    assert (error.code, error.type) == ("rate_limit_exceeded", "requests")
    assert 1 <= int(error.response.headers["retry-after"]) <= 120
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert len(upstream.chats) == asked
    with limited.http(key("slow")) as other:  # what asks no model is not counted
        assert other.get("/models").status_code == 200
        assert other.get("/chat/completions?limit=1").status_code == 200


def test_s12_4_the_same_in_anthropics_words(limited: GatewayProcess) -> None:
    client = anthropic.Anthropic(base_url=limited.url, api_key=key("again"), max_retries=0)
    ask: Any = {"model": "gpt-4o", "max_tokens": 5, "messages": ASK}

    def ask_often() -> None:
        for _ in range(3):  # one more may pass where a minute begins between two
            client.messages.create(**ask)

    with pytest.raises(anthropic.RateLimitError) as caught:
        ask_often()
    body: Any = caught.value.body
    assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert int(caught.value.response.headers["retry-after"]) >= 1
    client.close()


def test_s12_4_tokens_are_charged_before_and_corrected_after(
    limited: GatewayProcess, make_client: ClientFactory
) -> None:
    client = make_client(limited, key("wordy"), max_retries=0)
    first = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASK, max_tokens=500)
    assert first.headers["x-ratelimit-limit-tokens"] == "1000"
    assert 300 < int(first.headers["x-ratelimit-remaining-tokens"]) < 500
    for _ in range(3):  # as they used a few tokens only, there is room again
        client.chat.completions.create(model="gpt-4o", messages=ASK, max_tokens=500)
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK, max_tokens=2000)
    assert caught.value.type == "tokens"
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_s12_4_requests_at_once(limited: GatewayProcess, upstream: MockUpstream) -> None:
    """One runs, the next is refused; when the first is over, or its client has left, there is room."""
    upstream.reply(text="one two three four", stall_after=2)
    async with openai.AsyncOpenAI(base_url=limited.base_url, api_key=key("single"), max_retries=0) as client:
        async with client.chat.completions.with_streaming_response.create(model="gpt-4o", messages=ASK, stream=True):
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model="gpt-4o", messages=ASK)
            assert "at once" in caught.value.message
        upstream.release()
        for attempt in range(100):
            try:
                await client.chat.completions.create(model="gpt-4o", messages=ASK)
                break
            except openai.RateLimitError:
                assert attempt < 99


def test_s12_3_a_used_up_budget(limited: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory) -> None:
    """Once it is used up there is a 429 that names budget, sum and time, until the period ends."""
    client = make_client(limited, key("spent"), max_retries=0)
    dear = {"prompt_tokens": 100_000, "completion_tokens": 1, "total_tokens": 100_001}
    upstream.reply(usage=dear)
    client.chat.completions.create(model="gpt-4o", messages=ASK)
    asked = len(upstream.chats)
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=ASK, stream=stream)
        error = caught.value
        assert (error.code, error.type) == ("budget_exceeded", "insufficient_quota")
        assert "this key of 0.2 USD per day is used up until" in error.message
        assert 1 <= int(error.response.headers["retry-after"]) <= 86400
    assert len(upstream.chats) == asked


def test_s12_4_what_a_budget_refuses_does_not_count(limited: GatewayProcess, upstream: MockUpstream) -> None:
    """Neither what is too dear, nor what comes once the budget is used up: a limit may be shared with others."""
    with limited.http(key("poor")) as client:

        def asked(most: int) -> Any:
            return client.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK, "max_tokens": most})

        codes = [asked(5000).json()["error"]["code"] for _ in range(3)]
        upstream.reply(text="dear", usage={"prompt_tokens": 10, "completion_tokens": 5000, "total_tokens": 5010})
        assert asked(5).status_code == 200
        codes += [asked(5).json()["error"]["code"] for _ in range(3)]
    assert codes == ["budget_exceeded"] * 6


def test_s12_3_a_soft_budget_warns(limited: GatewayProcess, make_client: ClientFactory) -> None:
    client = make_client(limited, key("warned"))
    first = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASK)
    assert WARNING not in first.headers
    for stream in (False, True):
        found = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASK, stream=stream)
        assert found.headers[WARNING].startswith("key: 0.0000")
        assert "of 0.000001 USD per month; resets " in found.headers[WARNING]
    body: Any = client.chat.completions.create(model="gpt-4o", messages=ASK).model_dump()
    assert "budget_exceeded_soft" in body["response_metadata"]["context_utilization"]["warnings"]


def test_s12_3_relayed_calls_count(limited: GatewayProcess, make_client: ClientFactory) -> None:
    """Their cost is on the ledger, and a used up budget refuses them."""
    client = make_client(limited, key("embed"), max_retries=0)
    first = client.embeddings.with_raw_response.create(model="text-embedding-3-small", input="hello " * 50)
    assert first.headers["x-ratelimit-limit-requests"] == "500"
    refused: list[openai.RateLimitError] = []

    def is_refused() -> bool:
        try:
            client.embeddings.create(model="text-embedding-3-small", input="hello " * 50)
        except openai.RateLimitError as error:
            refused.append(error)
        return bool(refused)

    wait_until(is_refused, "the bill of a relayed call", interval=0.1)  # it is made behind the answer
    assert refused[0].code == "budget_exceeded"


def test_s12_4_a_user_that_a_relayed_form_names_has_its_limits(limited: GatewayProcess, upstream: MockUpstream) -> None:
    """As the one that a JSON body names."""
    upstream.routes["POST /v1/images/edits"] = Reply(json={"created": 1, "data": []})
    form, files = {"model": "gpt-4o", "prompt": "a hat", "user": "busy"}, {"image": ("a.png", b"x")}
    with limited.http(key("pictures")) as client:
        answers = [client.post("/images/edits", data=form, files=files) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert "this user" in answers[1].json()["error"]["message"]


def test_s12_4_a_dry_run_has_no_tokens(limited: GatewayProcess) -> None:
    with limited.http(key("dry")) as client:
        body = {"model": "gpt-4o", "messages": ASK}
        assert client.post("/chat/completions", json={**body, "context": {"dry_run": True}}).status_code == 200
        assert client.post("/chat/completions", json=body).status_code == 429


def test_s12_4_a_user_has_limits_of_its_own_and_a_stored_answer_costs_nothing(
    limited: GatewayProcess, make_client: ClientFactory
) -> None:
    client = make_client(limited, key("free"), max_retries=0)
    ask: Any = {"model": "gpt-4o", "messages": ASK, "user": "busy"}
    first, again = (client.chat.completions.create(**ask, extra_headers={"Idempotency-Key": "k1"}) for _ in range(2))
    assert first.id == again.id
    with pytest.raises(openai.RateLimitError, match="this user"):
        client.chat.completions.create(**ask)
    headers = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASK).headers
    assert not [name for name in headers if name.startswith("x-ratelimit")]


def test_s12_3_a_model_without_a_price_is_not_counted(limited: GatewayProcess, make_client: ClientFactory) -> None:
    body: Any = make_client(limited, key("unpriced")).chat.completions.create(model="bench", messages=ASK).model_dump()
    assert "budget_not_counted" in body["response_metadata"]["context_utilization"]["warnings"]


def test_limits_that_are_far_change_no_answer(limited: GatewayProcess, make_client: ClientFactory) -> None:
    found: Any = make_client(limited, key("planned")).chat.completions.with_raw_response.create(
        model="gpt-4o", messages=ASK
    )
    assert not found.parse().model_dump()["response_metadata"]["context_utilization"]["warnings"]
    counts = httpx.get(f"{limited.url}/metrics").text
    assert "gateway_limits_unavailable_total 0.0" in counts
