"""What the documentation of the LiteLLM proxy teaches, with the same YAML (guarantee §12.14).

`unit/core/config/test_litellm_routing.py` says what each example becomes; that this works is tested as ours."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from openai.types.chat import ChatCompletion

from tests.support.answers import user
from tests.support.command import gateway_command
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.litellm_examples import EXAMPLES, example
from tests.support.mock_upstream import MockUpstream, Reply

MASTER, HOUSE = "sk-master-1234", "sk-of-the-house"
Serve = Callable[..., GatewayProcess]


def environment(upstream: MockUpstream) -> dict[str, str]:
    places = {f"UP_{place.upper()}": f"{upstream.url}/{place}/v1" for place in "abc"}
    return {**places, "HOUSE_KEY": HOUSE, "LITELLM_MASTER_KEY": MASTER}


@pytest.fixture
def serve(start_gateway: GatewayFactory, upstream: MockUpstream) -> Serve:
    """Serves an example; its upstreams answer with their letter."""

    def start(name: str) -> GatewayProcess:
        for place in "abc":
            upstream.routes[f"POST /{place}/v1/chat/completions"] = Reply(text=place)
        return start_gateway(example(name), environment(upstream))

    return start


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


@pytest.mark.parametrize("name", ["load balancing", "reliability", "new keys"])
@pytest.mark.in_turn("name")
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


def test_s12_14_the_master_key_makes_keys(serve: Serve, make_client: ClientFactory) -> None:
    """As docs/litellm.md shows it, in the place of `/key/generate`."""
    gateway = serve("the proxy's budget")
    (body,) = re.findall(r"-d '(\{.*\})'$", (REPOSITORY / "docs/litellm.md").read_text(), re.MULTILINE)
    made = gateway.post("/gateway/keys", content=body.replace("gpt-*", "sm*"), key=MASTER)
    assert made.is_success, made.text
    client = make_client(gateway, made.json()["key"])
    messages: Any = [user("hello")]
    assert client.chat.completions.create(model="small", messages=messages).choices[0].message.content == "a"
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="large", messages=messages)
