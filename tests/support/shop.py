"""A gateway that has answered requests of every kind, and what they cost by a reckoning of its own."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from subprocess import CompletedProcess

import pytest

from tests.support.answers import Json, exact, usage_of, user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

ASK = [user("hello there")]


ALICE, BOB = "sk-gateway-alice", "sk-gateway-bob"


MODELS: dict[str, Json] = {
    "plain": {"input_cost_per_token": "3.7e-07", "output_cost_per_token": "1.1e-06"},
    "unpriced": {},
    "tiered": {
        "input_cost_per_token": "1e-06",
        "output_cost_per_token": "2e-06",
        "cache_read_input_token_cost": "1e-07",
        "cache_creation_input_token_cost": "1.25e-06",
        "input_cost_per_token_above_200k_tokens": "3e-06",
        "cache_read_input_token_cost_above_200k_tokens": "3e-07",
        "output_cost_per_token_above_200k_tokens": "5e-06",
        "input_cost_per_token_priority": "7e-06",
    },
    "dear": {"input_cost_per_token": "12345678.123456789012", "output_cost_per_token": 0},
}


CACHED = usage_of(1000, 10, prompt_tokens_details={"cached_tokens": 600, "cache_creation_tokens": 100})


ABOVE = usage_of(300_000, 10, prompt_tokens_details={"cached_tokens": 100_000})


@dataclass
class Shop:
    """A gateway that has answered requests of every kind, and what they cost by our own reckoning."""

    gateway: GatewayProcess
    answers: dict[str, Json]
    expected: dict[str, Decimal | None]

    def audit(self, *options: str) -> CompletedProcess[str]:
        """`gateway audit` with the gateway's own configuration, while it runs."""
        directory = self.gateway.directory
        return gateway_command("audit", "--config", str(self.gateway.config_path), *options, directory=directory)

    def rows(self, *options: str) -> list[dict[str, str]]:
        """The same as CSV, which must balance."""
        done = self.audit("--csv", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return list(csv.DictReader(io.StringIO(done.stdout, newline="")))


@pytest.fixture(scope="module")
def shop(
    module_upstream: MockUpstream,
    module_storage_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> Iterator[Shop]:
    """One request of each kind, once on each kind of storage."""
    factory = GatewayFactory(module_upstream, tmp_path_factory.mktemp("shop"), module_storage_url, fork_server)
    params = {"api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}-of-ours", **params}, "model_info": info}
        for name, info in MODELS.items()
    ]
    keys = [{"key": ALICE, "tenant": "alice"}, {"key": BOB, "tenant": "bob"}]
    gateway = factory({"model_list": models, "auth": {"keys": keys}, "upstream": {"idle": 5}})
    yield Shop(gateway, *ask_for_everything(gateway, module_upstream))
    factory.close()


def ask_for_everything(
    gateway: GatewayProcess, upstream: MockUpstream
) -> tuple[dict[str, Json], dict[str, Decimal | None]]:
    """Plain, streamed, failed, cut, abandoned, unpriced, cached, tiered, not stored, dear."""
    upstream.clear()
    answers: dict[str, Json] = {}
    cases: list[tuple[str, str, Json, Json]] = [
        ("plain", ALICE, usage_of(1001, 3), {"model": "plain", "user": "ann"}),
        ("cached", ALICE, CACHED, {"model": "tiered", "safety_identifier": "ann"}),
        ("above", BOB, ABOVE, {"model": "tiered"}),
        ("unpriced", BOB, usage_of(7, 5), {"model": "unpriced"}),
        ("dear", BOB, usage_of(1, 1), {"model": "dear"}),
        ("not stored", ALICE, usage_of(11, 2), {"model": "plain", "store": False}),
    ]
    for name, key, usage, body in cases:
        upstream.reply(text="x", usage=usage)
        answer = gateway.post("/chat/completions", json={"messages": ASK, **body}, key=key)
        assert answer.status_code == 200, answer.text
        answers[name] = exact(answer.text)
    upstream.reply(text="x", usage=usage_of(100, 1), extra={"service_tier": "priority"})
    with gateway.http(ALICE) as client:
        asked = {"model": "tiered", "messages": ASK, "stream": True}
        assert client.post("/chat/completions", json=asked).text.endswith("data: [DONE]\n\n")
        upstream.reply(text="one two three", cut_after=3)
        client.post("/chat/completions", json={"model": "plain", "messages": ASK, "stream": True})
        upstream.reply(status=500)
        assert client.post("/chat/completions", json={"model": "plain", "messages": ASK}).status_code == 500
        upstream.reply(text="one two three", stall_after=3)
        with client.stream("POST", "/chat/completions", json={"model": "plain", "messages": ASK, "stream": True}) as s:
            next(s.iter_lines())
    wait_until(lambda: upstream.in_flight == 0, "the abandoned call's end")
    expected = {
        "plain": 1001 * Decimal("3.7e-07") + 3 * Decimal("1.1e-06"),
        "cached": 300 * Decimal("1e-06") + 600 * Decimal("1e-07") + 100 * Decimal("1.25e-06") + 10 * Decimal("2e-06"),
        "above": 200_000 * Decimal("3e-06") + 100_000 * Decimal("3e-07") + 10 * Decimal("5e-06"),
        "unpriced": None,
        "dear": Decimal("12345678.123456789012"),
        "not stored": 11 * Decimal("3.7e-07") + 2 * Decimal("1.1e-06"),
    }
    return answers, expected
