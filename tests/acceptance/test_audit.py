"""`gateway audit` after real requests: every row added up again, on both storages (guarantee §6)."""

import csv
import io
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.answers import Json, exact, http, usage_of, user
from tests.support.command import config_file, gateway_command
from tests.support.factory import GatewayFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import wait_until

ASK = [user("hello there")]
NOTHING = "0.000000000000"
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
        with http(gateway, key) as client:
            answer = client.post("/chat/completions", json={"messages": ASK, **body})
        assert answer.status_code == 200, answer.text
        answers[name] = exact(answer.text)
    upstream.reply(text="x", usage=usage_of(100, 1), extra={"service_tier": "priority"})
    with http(gateway, ALICE) as client:
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


def test_s6_all_rows_balance(shop: Shop) -> None:
    """Every kind of request: exit code 0, totals by model and tenant, and the verdict."""
    wait_until(lambda: len(shop.rows()) == 10, "all bills")
    done = shop.audit()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2] == "all 10 rows balance"
    assert lines[-1].endswith("are the ledger's"), "the sums that reports are made of, too"
    assert not done.stderr
    unpriced = next(line.split() for line in lines if line.startswith("unpriced"))
    assert unpriced == ["unpriced", "1", "0", "0", "7", "5", "unknown", NOTHING, "1", "0"]
    bob = next(line.split() for line in lines if line.startswith("bob"))
    known = [shop.expected[name] for name in ("above", "dear")]
    assert bob == ["bob", "3", "0", "0", "300008", "16", f">={sum(c for c in known if c):.12f}", NOTHING, "1", "0"]
    assert next(line.split() for line in lines if line.startswith("total"))[1:4] == ["10", "2", "1"]


def test_s6_sums_by_day_and_user(shop: Shop) -> None:
    """The groups that were asked for, in their order, each adding up to the whole."""
    wait_until(lambda: len(shop.rows()) == 10, "all bills")
    lines = shop.audit("--by", "user,day").stdout.splitlines()
    titles = [line.split()[0] for line in lines if "requests" in line]
    assert titles[:2] == ["user", "day"]
    assert "model" not in titles
    ann = next(line.split() for line in lines if line.startswith("ann"))
    assert ann[1:7] == [
        "2",
        "0",
        "0",
        "2001",
        "13",
        f"{(shop.expected['plain'] or 0) + (shop.expected['cached'] or 0):.12f}",
    ]
    days = [line.split() for line in lines if line.startswith("20")]
    nobody = next(line.split() for line in lines if line.startswith("(none)"))
    assert sum(int(day[1]) for day in days) == int(ann[1]) + int(nobody[1]) == 10


def test_s6_csv_says_what_clients_were_told(shop: Shop) -> None:
    """One line a row, with the very figures of each answer's bill, in plain decimals."""
    found = {row["request_id"]: row for row in shop.rows()}
    for name, answer in shop.answers.items():
        bill = answer["response_metadata"]
        row = found[bill["request_id"]]
        total = shop.expected[name]
        assert bill["cost"]["total_cost"] == total, name
        assert row["total_cost"] == ("" if total is None else f"{total:.12f}"), name
        assert (row["completion_id"], row["prompt_tokens"]) == (answer["id"], str(bill["usage"]["prompt_tokens"]))
        assert (row["priced"], row["balanced"]) == ("false" if total is None else "true", "true")
        assert (row["status"], row["stream"], row["currency"]) == ("complete", "false", "USD")
    assert found[shop.answers["not stored"]["response_metadata"]["request_id"]]["conversation_id"] == ""
    streamed = [row for row in found.values() if row["stream"] == "true"]
    assert sorted(row["status"] for row in streamed) == ["complete", "partial", "partial"]
    assert sum(row["estimated"] == "true" for row in streamed) == 2
    assert next(row["prompt_cost"] for row in streamed if row["status"] == "complete") == "0.000700000000"


def test_s6_a_dear_answer_is_stored_as_it_was_told(shop: Shop) -> None:
    """More picodollars than 63 bits hold and more digits than a double has: the same figure everywhere."""
    answer = shop.answers["dear"]
    with http(shop.gateway, BOB) as client:
        found = client.get(f"/chat/completions/{answer['id']}")
    assert exact(found.text)["response_metadata"] == answer["response_metadata"]
    assert exact(found.text)["usage"]["cost"] == answer["usage"]["cost"] == Decimal("12345678.123456789012")


def test_s6_rows_are_chosen(shop: Shop) -> None:
    """By model, tenant, conversation and time."""
    conversation = shop.answers["plain"]["conversation"]["id"]
    assert {row["model"] for row in shop.rows("--model", "tiered")} == {"tiered"}
    assert len(shop.rows("--tenant", "bob")) == 3
    assert [row["conversation_id"] for row in shop.rows("--conversation", conversation)] == [conversation]
    assert len(shop.rows("--user", "ann")) == 2
    assert len(shop.rows("--since", "1h")) == 10
    assert len(shop.rows("--since", "yesterday")) == 10
    assert len(shop.rows("--since", "2026-01-01", "--until", "2999-01-01T00:00+02:00")) == 10
    assert shop.rows("--until", "2001-01-01") == []
    done = shop.audit("--tenant", "nobody")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no rows: nothing to balance")


def test_s6_a_tampered_row_is_found(shop: Shop, request: pytest.FixtureRequest) -> None:
    """One picodollar too many: exit code 1, and the row is named with both figures."""
    request_id = shop.answers["plain"]["response_metadata"]["request_id"]
    change = "UPDATE ledger_calls SET prompt_cost_picousd = prompt_cost_picousd {} 1 WHERE request_id = '{}'"
    execute(shop.gateway, request, change.format("+", request_id))
    try:
        done = shop.audit()
        assert done.returncode == 1
        assert "1 of 10 rows do not balance:" in done.stdout
        told = "calls[0].prompt_cost: stored 0.000370370001, adds up to 0.000370370000"
        assert done.stdout.splitlines()[-2] == f"  {request_id}  {told}"
        as_csv = shop.audit("--csv")
        assert as_csv.returncode == 1
        bad = [r for r in csv.DictReader(io.StringIO(as_csv.stdout, newline="")) if r["balanced"] != "true"]
        assert [row["request_id"] for row in bad] == [request_id]
        assert request_id in as_csv.stderr
    finally:
        execute(shop.gateway, request, change.format("-", request_id))


def execute(gateway: GatewayProcess, request: pytest.FixtureRequest, sql: str) -> None:
    """Changes the database past the gateway."""
    assert gateway.config is not None
    url = gateway.config["storage"]["url"]
    if not url.startswith("sqlite"):
        server: Postgres = request.getfixturevalue("postgres")
        server.query(url, sql)
        return
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
    with connection:
        connection.execute(sql)
    connection.close()


def test_s6_a_file_of_no_bytes_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    path.touch()
    config = config_file(tmp_path, f"storage: {{url: 'sqlite:///{path}'}}")
    done = gateway_command("audit", "--config", str(config), directory=tmp_path)
    assert (done.returncode, path.stat().st_size) == (1, 0)
    assert "0 bytes" in done.stderr
