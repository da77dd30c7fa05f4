"""What the documentation of the LiteLLM proxy teaches, with the same YAML (guarantee §12.14)."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from openai.types.chat import ChatCompletion

from tests.support.answers import Json, http, user
from tests.support.command import gateway_command
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.litellm_examples import EXAMPLES, example
from tests.support.mock_upstream import MockUpstream, Record, Reply

MASTER, HOUSE = "sk-master-1234", "sk-of-the-house"
PRICES = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
OVERFLOW = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
POLICY = {"error": {"message": "Blocked.", "type": "invalid_request_error", "code": "content_policy_violation"}}
Serve = Callable[..., GatewayProcess]


def environment(upstream: MockUpstream) -> dict[str, str]:
    places = {f"UP_{place.upper()}": f"{upstream.url}/{place}/v1" for place in "abc"}
    return {**places, "HOUSE_KEY": HOUSE, "LITELLM_MASTER_KEY": MASTER}


@pytest.fixture
def serve(start_gateway: GatewayFactory, upstream: MockUpstream) -> Serve:
    """Serves an example; its upstreams answer with their letter unless told otherwise by `place=Reply(…)`."""

    def start(name: str, *, prices: bool = False, **replies: Reply | Callable[[Record], Reply]) -> GatewayProcess:
        for place in "abc":
            upstream.routes[f"POST /{place}/v1/chat/completions"] = replies.get(place, Reply(text=place))
        config = example(name)
        for entry in config["model_list"] if prices else ():
            entry["litellm_params"] |= PRICES
        return start_gateway(config, environment(upstream))

    return start


DEAR = Reply(text="a", usage={"prompt_tokens": 9_000, "completion_tokens": 2_000})
"""More than a budget of these examples has left behind it."""


@pytest.fixture
def ask(make_client: ClientFactory) -> Callable[..., str | None]:
    """One question of its own; returns who answered."""
    number = iter(range(10_000))

    def question(gateway: GatewayProcess, model: str, **fields: Any) -> str | None:
        client = make_client(gateway, MASTER, max_retries=0)
        messages: Any = [user(f"question {next(number)}")]
        answer: ChatCompletion = client.chat.completions.create(model=model, messages=messages, **fields)
        return answer.choices[0].message.content

    return question


def asked(upstream: MockUpstream) -> Counter[str]:
    return Counter(record.path.split("/")[1] for record in upstream.chats)


@pytest.mark.parametrize("name", ["load balancing", "reliability", "new keys"])
def test_s12_14_check_tells_what_becomes_of_an_example_and_writes_ours(
    listening: MockUpstream, tmp_path: Path, name: str
) -> None:
    path, ours, env = tmp_path / "litellm.yaml", tmp_path / "ours.yaml", environment(listening)
    path.write_text(EXAMPLES[name])
    for place in "abc":
        listening.routes[f"GET /{place}/v1/models"] = Reply(json={"object": "list", "data": []})
    done = gateway_command("check", "--config", str(path), directory=tmp_path, env=env)
    for section, values in example(name).items():
        for setting in values if section.endswith("_settings") else ():
            assert f"{section}.{setting}: " in done.stdout
    made = gateway_command(
        "check", "--from-litellm", str(path), "--output", str(ours), directory=tmp_path, env={"HOUSE_KEY": HOUSE}
    )
    assert made.returncode == 0, made.stderr
    assert not {*yaml.safe_load(ours.read_text())} - {"auth", "upstream", "routing", "limits", "model_list"}
    checked = gateway_command("check", "--config", str(ours), directory=tmp_path, env=env)
    assert checked.returncode == done.returncode == 0, checked.stdout
    alone = gateway_command("check", "--config", str(ours), "--output", "x", directory=tmp_path, env=env)
    assert (alone.returncode, alone.stderr.strip()) == (2, "--output is for --from-litellm")
    assert not any(HOUSE in text for text in (ours.read_text(), made.stdout, made.stderr, checked.stdout))


def test_s12_14_aliases_wildcards_and_the_master_key(
    serve: Serve, ask: Callable[..., str | None], make_client: ClientFactory
) -> None:
    gateway = serve("aliases")
    assert [ask(gateway, model) for model in ("gpt-4", "gpt-3.5-turbo", "small")] == ["a", "b", "a"]
    gateway = serve("wildcards")
    assert [ask(gateway, model) for model in ("best", "house/x", "anything")] == ["a", "a", "b"]
    gateway = serve("the proxy's budget")
    with pytest.raises(openai.AuthenticationError):
        make_client(gateway, "sk-another-key").models.list()
    assert {each.id for each in make_client(gateway, MASTER).models.list()} == {"small", "large"}


# Keys


def test_s12_14_the_master_key_makes_keys(serve: Serve, make_client: ClientFactory) -> None:
    """As docs/litellm.md shows it, in the place of `/key/generate`."""
    gateway = serve("the proxy's budget")
    (body,) = re.findall(r"-d '(\{.*\})'$", (REPOSITORY / "docs/litellm.md").read_text(), re.MULTILINE)
    with http(gateway, MASTER) as admin:
        made = admin.post("/gateway/keys", content=body.replace("gpt-*", "sm*"))
        assert made.is_success, made.text
    client = make_client(gateway, made.json()["key"])
    messages: Any = [user("hello")]
    assert client.chat.completions.create(model="small", messages=messages).choices[0].message.content == "a"
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="large", messages=messages)


# Several deployments


def test_s12_14_weights(serve: Serve, ask: Callable[..., str | None], upstream: MockUpstream) -> None:
    gateway = serve("weights")
    for _ in range(100):
        ask(gateway, "small")
    found = asked(upstream)
    assert found["a"] > 2 * found["b"] > 0


def test_s12_14_order(serve: Serve, ask: Callable[..., str | None], upstream: MockUpstream) -> None:
    gateway = serve("order")
    assert {ask(gateway, "small") for _ in range(10)} == {"a"}
    upstream.routes["POST /a/v1/chat/completions"] = Reply(status=500)
    assert {ask(gateway, "small") for _ in range(5)} == {"b"}


def test_s12_14_load_balancing(serve: Serve, ask: Callable[..., str | None], upstream: MockUpstream) -> None:
    """By the alias, too, and with one of three down."""
    gateway = serve("load balancing")
    assert {ask(gateway, "gpt-4") for _ in range(15)} | {ask(gateway, "small") for _ in range(15)} > {"c"}
    upstream.routes["POST /c/v1/chat/completions"] = Reply(status=503)
    assert {ask(gateway, "small") for _ in range(5)} <= {"a", "b"}


# Other models, and another try


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("fallbacks", Reply(status=500)),
        ("default fallbacks", Reply(status=500)),
        ("fallbacks of all", Reply(status=500)),
        ("context window", Reply(status=400, json=OVERFLOW)),
        ("content policy", Reply(status=400, json=POLICY)),
    ],
)
def test_s12_14_fallbacks(serve: Serve, ask: Callable[..., str | None], name: str, failure: Reply) -> None:
    gateway = serve(name, a=failure)
    assert ask(gateway, "small") == "b"
    assert ask(gateway, "large") == "b"


def test_s12_14_a_failure_of_another_kind_does_not_fall_back(serve: Serve, ask: Callable[..., str | None]) -> None:
    gateway = serve("content policy", a=Reply(status=400, json={"error": {"message": "no", "code": "bad"}}))
    with pytest.raises(openai.BadRequestError):
        ask(gateway, "small")


def test_s12_14_retries(serve: Serve, ask: Callable[..., str | None], upstream: MockUpstream) -> None:
    """`num_retries: 2`: two more tries, not three."""
    failures = iter([Reply(status=500), Reply(status=503)])
    gateway = serve("retries", a=lambda _: next(failures, Reply(text="at last")))
    assert ask(gateway, "small") == "at last"
    assert asked(upstream)["a"] == 3
    upstream.requests.clear()
    upstream.routes["POST /b/v1/chat/completions"] = Reply(status=500)
    with pytest.raises(openai.InternalServerError):
        ask(gateway, "large")
    assert asked(upstream)["b"] == 3


def test_s12_14_a_kind_of_error_that_is_not_tried_again(
    serve: Serve, ask: Callable[..., str | None], upstream: MockUpstream
) -> None:
    """`RateLimitErrorRetries: 0`."""
    gateway = serve("retry policy", a=Reply(status=429))
    with pytest.raises(openai.RateLimitError):
        ask(gateway, "small")
    assert asked(upstream)["a"] == 1


# Budgets and limits


def test_s12_14_the_proxys_budget(serve: Serve, ask: Callable[..., str | None]) -> None:
    gateway = serve("the proxy's budget", prices=True, a=DEAR)
    assert ask(gateway, "small") == "a"
    with pytest.raises(openai.RateLimitError) as refused:
        ask(gateway, "large")
    assert refused.value.code == "budget_exceeded"


@pytest.mark.parametrize("name", ["providers' budgets", "deployments' budgets"])
def test_s12_14_a_budget_of_one_model(serve: Serve, ask: Callable[..., str | None], name: str) -> None:
    gateway = serve(name, prices=True, a=DEAR)
    ask(gateway, "small")
    with pytest.raises(openai.RateLimitError) as refused:
        ask(gateway, "small")
    assert refused.value.code == "budget_exceeded"


def test_s12_14_end_users(serve: Serve, ask: Callable[..., str | None]) -> None:
    gateway = serve("end users", prices=True, a=DEAR)
    assert ask(gateway, "small", user="ada") == "a"
    with pytest.raises(openai.RateLimitError):
        ask(gateway, "small", user="ada")
    assert ask(gateway, "small", user="bob") == "a"


def test_s12_14_limits_of_new_keys(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Of a key in the configuration that has none of its own, too."""
    upstream.routes["POST /a/v1/chat/completions"] = Reply(text="a")
    keys: list[Json] = [
        {"key": "sk-of-ada-1", "tenant": "ada"},
        {"key": "sk-of-bob-1", "tenant": "bob", "limits": {"rpm": 7}},
    ]
    gateway = start_gateway({**example("new keys"), "auth": {"keys": keys}}, environment(upstream))
    found = []
    for each in keys:
        client = make_client(gateway, each["key"], max_retries=0)
        messages: Any = [user("hello")]
        raw = client.chat.completions.with_raw_response.create(model="small", messages=messages)
        found.append(raw.headers["x-ratelimit-limit-requests"])
    assert found == ["60", "7"]
