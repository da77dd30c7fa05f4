"""Three replicas behind a balancer, each replaced by the next version in its turn, while clients stream (§12.15)."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, assistant, stored_of, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mixed_requests import configured_models
from tests.support.mock_upstream import MockUpstream, Record
from tests.support.next_version import NEXT, next_sources
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.provider_account import PICO, PRICES, picodollars
from tests.support.proxies import Balancer
from tests.support.reply import Reply
from tests.support.valkey import Valkey

CLIENTS = 9
GRACE = 60.0
MODELS = ("plain", "cached", "uneven")
LEDGER = "SELECT request_id, status, estimated, total_cost_picousd FROM ledger"


class Provider:
    """Answers slowly in streams, quickly otherwise, and keeps its own account of what that costs."""

    def __init__(self) -> None:
        self.charged = 0
        self._number = 0
        self._lock = threading.Lock()

    def reply(self, record: Record) -> Reply:
        asked = record.body["messages"][-1]["content"]
        with self._lock:
            self._number += 1
            usage = {"prompt_tokens": 100 + self._number, "completion_tokens": 10 + self._number % 7}
            usage["total_tokens"] = sum(usage.values())
            self.charged += sum(picodollars(PRICES[record.body["model"].removeprefix("own-")], usage))
        return Reply(text=answer_to(asked), usage=usage, chunk_delay=0.04 if record.body.get("stream") else 0.0)


def answer_to(asked: str) -> str:
    return " ".join([f"re {asked}:", *(f"word {number}" for number in range(12))])


@dataclass
class Client:
    """One user of the official SDK as it comes: two retries of its own, no more."""

    name: str
    base_url: str
    said: list[Json] = field(default_factory=list)
    conversation: str = ""
    streamed: int = 0
    cost: Decimal = Decimal()
    seen: list[int] = field(default_factory=list)
    """Statuses of answers, also of those that the SDK tries again."""

    def run(self, over: threading.Event) -> None:
        """Asks until it is over, and is told everything to its end, or it raises."""
        with (
            httpx.Client(trust_env=False, event_hooks={"response": [self._saw]}) as plain,
            OpenAI(base_url=self.base_url, api_key="sk-test", http_client=plain) as client,
        ):
            number = 0
            while not over.is_set():
                self._turn(client, number)
                number += 1

    def _saw(self, answer: httpx.Response) -> None:
        self.seen.append(answer.status_code)

    def _turn(self, client: OpenAI, number: int) -> None:
        question = user(f"{self.name} asks {number}")
        body: Any = {"model": MODELS[number % len(MODELS)], "messages": [question]}
        more = {"context": {"session": self.name}}
        if number % 4 == 3:
            whole = client.chat.completions.create(**body, extra_body=more)
            text, last = whole.choices[0].message.content or "", whole
        else:
            text = ""
            for last in client.chat.completions.create(**body, stream=True, extra_body=more):
                for choice in last.choices:
                    text += choice.delta.content or ""
            self.streamed += 1
        if text != answer_to(question["content"]):
            raise AssertionError(f"cut, doubled or another's: {text!r}")
        told = (last.model_extra or {})["response_metadata"]
        self.conversation = told["conversation_id"]
        self.cost += Decimal(str(told["cost"]["total_cost"]))
        self.said += [question, assistant(text)]


@pytest.mark.chaos
def test_s12_15_a_rolling_upgrade_cuts_no_stream(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres, valkey: Valkey, tmp_path: Path
) -> None:
    """Every stream comes to its end, every acknowledged turn is there once, no client meets an error that its SDK does
    not mend by itself, and the bills are what the provider reckons."""
    url, provider, over = postgres.new_database(), Provider(), threading.Event()
    upstream.handler = provider.reply
    config: Json = {
        "model_list": configured_models(upstream),
        "storage": {"url": url},
        "cache": {"url": valkey.url},
        "server": {"shutdown_grace": GRACE, "log_format": "json"},
    }
    old = [start_gateway(config) for _ in range(3)]
    upgraded = {"PYTHONPATH": str(next_sources(tmp_path / "next")), "GATEWAY_STORAGE_AUTO_MIGRATE": "false"}
    with Balancer([each.port for each in old]) as balancer, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [Client(f"client {number}", balancer.base_url) for number in range(CLIENTS)]
        running = [pool.submit(each.run, over) for each in clients]
        try:
            wait_until(lambda: all(each.streamed for each in clients), "each client's first stream")
            migrate(old[0], upgraded)
            new = [replaced(each, start_gateway, config, upgraded, balancer) for each in old]
            told = [each.streamed for each in clients]
            wait_until(
                lambda: (
                    all(each.streamed > before for each, before in zip(clients, told, strict=True))
                    or any(each.done() for each in running)
                ),
                "a stream of each client by new replicas alone",
            )
        finally:
            over.set()
        for each in running:
            each.result(60)

    assert {status for each in clients for status in each.seen} <= {200, 503}
    for client in clients:
        stored = [each["choices"][0]["message"]["content"] for each in stored_of(new[0], client.conversation)]
        assert sorted(stored) == sorted(each["content"] for each in client.said[1::2]), "once each"
        last = [chat.body["messages"] for chat in upstream.chats if chat.body["messages"][-1] == client.said[-2]]
        assert last == [client.said[:-1]], "the last request had all that was acknowledged, in order"
    assert broken_rules(url) == {}
    ledger = rows(url, LEDGER)
    assert [row for row in ledger if row["status"] != "complete" or row["estimated"]] == []
    assert len(ledger) == len(upstream.chats) == sum(len(each.said) // 2 for each in clients)
    assert sum(row["total_cost_picousd"] for row in ledger) == provider.charged
    assert sum(each.cost for each in clients) * PICO == provider.charged, "what clients were told"
    assert all("Traceback" not in each.log_text() for each in (*old, *new))


def migrate(gateway: GatewayProcess, env: dict[str, str]) -> None:
    """The next version's `gateway migrate`, while replicas of this one serve."""
    command = [sys.executable, "-m", "gateway", "migrate", "--config", str(gateway.config_path)]
    done = subprocess.run(
        command, env=gateway.env | env, cwd=gateway.directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    url = (gateway.config or {})["storage"]["url"]
    assert rows(url, "SELECT version_num FROM alembic_version") == [{"version_num": NEXT}]


def replaced(
    gateway: GatewayProcess, start: GatewayFactory, config: Json, env: dict[str, str], balancer: Balancer
) -> GatewayProcess:
    """SIGTERM in the middle of streams, without a word to the balancer before; then a new process in its place."""
    wait_until(lambda: in_flight(gateway) >= 2, "streams through the replica")
    assert gateway.terminate(timeout=GRACE + 30) == 0
    (ending,) = [line for line in gateway.log_lines() if line["event"] == "shutting_down"]
    assert ending["running"] >= 1, "there was something to be cut"
    assert [line for line in gateway.log_lines() if line["event"] == "requests_cut"] == []
    new = start(config, env)
    balancer.ports = [new.port if port == gateway.port else port for port in balancer.ports]
    return new


def in_flight(gateway: GatewayProcess) -> float:
    """What autoscaling goes by."""
    text = httpx.get(f"{gateway.url}/metrics", trust_env=False).text
    (line,) = [line for line in text.splitlines() if line.startswith("gateway_requests_in_flight ")]
    return float(line.split()[1])
