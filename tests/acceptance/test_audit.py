"""`gateway audit` after real requests: every row added up again, on both storages (guarantee §6)."""

import csv
import io
import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.answers import exact
from tests.support.command import config_file, gateway_command
from tests.support.gateway_process import GatewayProcess
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.shop import BOB, Shop, shop

__all__ = ["shop"]

NOTHING = "0.000000000000"


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
    found = shop.gateway.get(f"/chat/completions/{answer['id']}", key=BOB)
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
