"""A ledger or a trail in SQLite that somebody has written to past the gateway: whatever it holds now, `gateway audit`
and `gateway trail verify` say what is wrong and end with 1 (guarantee §6). PostgreSQL refuses to keep this."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.billing.cost import with_figures
from gateway.cli import main
from gateway.core.clock import SystemClock
from gateway.core.types.turn import TurnCommit
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill
from tests.support.schemas import brought_up


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sqlite3.Connection:
    """One bill in the file that is the default; open to whoever knows SQL."""

    async def make() -> None:
        made = with_figures(replace(bill("t", None), request_id="req_1"))
        async with brought_up(f"sqlite:///{tmp_path / 'context-gateway.db'}") as transactions:
            await ConversationStore(transactions, SystemClock()).commit(TurnCommit(made))

    monkeypatch.chdir(tmp_path)
    asyncio.run(make())
    return sqlite3.connect(tmp_path / "context-gateway.db", isolation_level=None)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("ledger.total_cost_picousd", "'abc'"),
        ("ledger.total_cost_picousd", "1.5"),
        ("ledger.prompt_tokens", "x'ff00'"),
        ("ledger.created_at", "'abc'"),
        ("ledger.created_at", "'9999-12-31 23:59:59.999999'"),
        ("ledger.model", "x'ff00'"),
        ("ledger.net_saving_picousd", "'abc'"),
        ("ledger_calls.prompt_cost_picousd", "'abc'"),
        ("usage_days.day", "'2026-11-27x'"),
        ("usage_days.day", "-1"),
    ],
)
def test_s6_a_value_that_nobody_can_read_is_named(
    ledger: sqlite3.Connection, where: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, column = where.split(".")
    ledger.execute(f"UPDATE {table} SET {column} = {value}")
    ledger.close()
    assert main(["audit"]) == 1
    said = capsys.readouterr()
    assert f": {column}" in said.err
    assert table in said.err
    assert "balance" not in said.out


def test_s12_12_an_event_that_nobody_can_read_is_named(
    ledger: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "number, at, action, ok, details, previous_digest, digest"
    ledger.execute(f"INSERT INTO admin_events ({columns}) VALUES (1, '2026-11-27', 'x', 1, '{{}}', 'a', 'b')")
    ledger.close()
    assert main(["trail", "verify"]) == 1
    assert "admin_events 1: digest" in capsys.readouterr().err


def test_s6_calls_of_a_bill_that_is_gone_are_found(
    ledger: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever takes a bill out of the ledger and out of the sums of its day leaves its calls."""
    for table in ("ledger", "usage_days"):
        ledger.execute(f"DELETE FROM {table}")
    ledger.close()
    assert main(["audit"]) == 1
    assert "calls of requests that have no bill: req_1" in capsys.readouterr().out


def test_s9_an_argument_that_is_not_utf_8_is_named(
    ledger: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.close()
    assert main(["audit", "--tenant", "a\udcff"]) == 2
    assert "argument tenant: 'a\\udcff' is not UTF-8\n" in capsys.readouterr().err
