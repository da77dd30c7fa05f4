"""§13.1: the page, the commands, the API and the audit add up to the same digit, on both storages."""

import asyncio
import csv
import io
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from openai import OpenAI

from gateway.billing.cost import ledger_figures, price_call
from gateway.billing.metadata import amended
from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.turn import LedgerEntry, TurnCommit
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.store import ConversationStore
from tests.support.answers import exact, usage_of, user
from tests.support.command import gateway_command
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.random_bills import CHEAP, random_entry, with_turn
from tests.support.web_page import PageClient, checked

ALICE, BOB, BOSS = "sk-gateway-alice", "sk-gateway-bob", "sk-gateway-boss"
KEYS = [
    {"key": ALICE, "tenant": "alice", "roles": ["user", "viewer"]},
    {"key": BOB, "tenant": "bob", "name": "Bob's"},
    {"key": BOSS, "tenant": "boss", "roles": ["admin"]},
]
GROUPS = ("day", "model", "tenant", "user", "agent")
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
TIMES = [TODAY - timedelta(days=5, minutes=minutes) for minutes in (0, 1, 59, 60, 1439, 1440, 4321)]
SUMMARY = price_call("summarizer", "s", {"prompt_tokens": 5, "completion_tokens": 2}, CHEAP)
TOLD = 6
"""Bills with a turn; the first two got a summary later."""
Figures = dict[str, dict[str, tuple[str, ...]]]
"""By group and name: requests, cost, planning cost, what leaving out saved, and what was saved net."""


@dataclass
class Books:
    """A gateway, and the tenants' bills in its ledger."""

    gateway: GatewayProcess
    entries: list[LedgerEntry]

    def run(self, *arguments: str) -> str:
        """A command with the gateway's own configuration, while it runs."""
        options = ("--config", str(self.gateway.config_path))
        done = gateway_command(arguments[0], *options, *arguments[1:], directory=self.gateway.directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def books(module_storage_url: str, module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Books:
    """Random bills, two conversations, an amended bill, a deleted conversation, and an answer of a moment ago."""
    gateway = module_start_gateway({"auth": {"keys": KEYS}, "storage": {"url": module_storage_url}})
    chance = random.Random(11)
    entries = [random_entry(chance, ["alice", "bob"], TIMES) for _ in range(120)]
    told = [random_entry(chance, ["alice"], TIMES) for _ in range(TOLD)]
    asyncio.run(write(module_storage_url, entries, told))
    assert gateway.delete("/conversations/conv_deleted", key=ALICE).status_code == 200
    module_upstream.reply(text="hi", usage=usage_of(1000, 10, prompt_tokens_details={"cached_tokens": 600}))
    body = {"model": "small", "messages": [user("hello")], "user": "carol"}
    assert gateway.post("/chat/completions", json=body, key=ALICE).status_code == 200
    return Books(gateway, entries + told)


async def write(url: str, entries: list[LedgerEntry], told: list[LedgerEntry]) -> None:
    """As another process of the gateway."""
    transactions = open_transactions(StorageSettings(url=url))
    store = ConversationStore(transactions, SystemClock())
    for entry in entries:
        await store.commit(TurnCommit(entry))
    for number, entry in enumerate(told):
        name = "conv_deleted" if number % 2 else "conv_kept"
        await store.commit(with_turn(replace(entry, status="complete"), name, created=number < 2))
    for entry, name in ((told[0], "conv_kept"), (told[1], "conv_deleted")):
        await store.add_summary("alice", name, entry.request_id, None, lambda bill: amended(bill, (SUMMARY,)))
    await transactions.close()


def audited(text: str) -> Figures:
    """What `gateway audit` prints of each group."""
    found: Figures = {}
    for table in text.split("\n\n"):
        lines = table.splitlines()
        titles = re.split(r"  +", lines[0].strip())
        if titles[0] not in GROUPS:
            continue
        for line in lines[1:]:
            name, *cells = re.split(r"  +", line.strip())
            row = dict(zip(titles[1:], cells, strict=True))
            saved = row.get("saved USD", "0.000000000000")
            net = row.get("net saving USD", "0.000000000000")
            found.setdefault(titles[0], {})[name] = (row["requests"], row["cost USD"], row["planning USD"], saved, net)
    return found


def told(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a row of figures by name, worded as the audit words them."""

    def money(value: Any, unpriced: int) -> str:
        if value in (None, ""):
            return "unknown"
        return f"{'>=' if unpriced else ''}{Decimal(value):.12f}"

    cost = money(row["cost"], int(row["unpriced"]))
    planning = money(row["planning_cost"], int(row["planning_unpriced"]))
    net = money(row["net_saving"], 0)
    return str(row["requests"]), cost, planning, f"{Decimal(row['saved']):.12f}", net


def by_group(rows: list[dict[str, str]]) -> Figures:
    """The lines of a CSV."""
    found: Figures = {}
    for row in rows:
        found.setdefault(row["by"], {})[row[row["by"]] or "(none)"] = told(row)
    return found


def test_s13_1_page_commands_api_and_audit_are_equal_to_the_last_digit(
    books: Books, make_client: ClientFactory
) -> None:
    printed = books.run("audit", "--by", ",".join(GROUPS))
    expected = audited(printed)
    assert set(expected) == set(GROUPS)
    assert "are the ledger's" in printed
    assert any(cost.startswith(">=") for _, cost, *_ in expected["day"].values())
    assert any(saved != "0.000000000000" for *_, saved, _ in expected["day"].values())
    assert any(net.startswith("-") for *_, net in expected["day"].values())

    listed = csv.DictReader(io.StringIO(books.run("costs", "--csv", "--by", ",".join(GROUPS)), newline=""))
    assert by_group(list(listed)) == expected
    told_as_json = exact(books.run("costs", "--json", "--by", ",".join(GROUPS)))
    for table in told_as_json["tables"]:
        (group,) = table["by"]
        assert {row[group] or "(none)": told(row) for row in table["rows"]} == expected[group]

    with PageClient(books.gateway.url) as browser:
        assert browser.log_in(BOSS).status_code == 303
        for group in GROUPS:
            answer = browser.get(f"/ui/costs.csv?by={group}&period=all")
            assert answer.headers["content-disposition"] == f'attachment; filename="costs-by-{group}-all.csv"'
            assert by_group(list(csv.DictReader(io.StringIO(answer.text, newline="")))) == {group: expected[group]}
            page = browser.page(f"/ui/costs?by={group}&period=all")
            for name, (_, cost, *_, net) in expected[group].items():
                assert name in page.text
                assert cost == "unknown" or Decimal(cost.removeprefix(">=")) in page.amounts
                assert net == "unknown" or Decimal(net) in page.amounts

    check_api(make_client(books.gateway, BOSS, admin_api_key=BOSS), expected["day"])


def test_s13_13_net_savings_by_any_group_are_the_sum_of_the_bills(books: Books) -> None:
    """The command says what adding up the bills gives, losses in front, and what is measured of both groups."""
    first = len(books.entries) - TOLD
    bills = [amended(each, (SUMMARY,)) if 0 <= n - first < 2 else each for n, each in enumerate(books.entries)]
    figures = [ledger_figures(each.metadata, each.calls) for each in bills]
    nets = [*(figure.net_saving for figure in figures), Decimal(0)]
    known = [net for net in nets if net is not None]
    assert {net < 0 for net in known} == {True, False}
    for by in ("day", "model", "key", "conversation", "tenant", "day+model"):
        found = exact(books.run("savings", "--json", "--by", by))
        total = found["total"]
        assert (Decimal(total["net_saving"]), total["metered"]) == (sum(known), len(known)), by
        assert total["unmetered"] == len(nets) - len(known)
        rows = found["tables"][0]["rows"]
        limited = exact(books.run("savings", "--json", "--by", by, "--limit", "1"))["tables"][0]["rows"]
        assert limited == (rows[-1:] if "day" in by else rows[:1]), by
        told = [Decimal(row["net_saving"]) for row in rows if row["net_saving"] is not None]
        assert sum(told) == sum(known)
        assert "day" in by or told == sorted(told), "the largest loss in front"
    for side, held_out in (("direct", True), ("economised", False)):
        costs = [each.known_cost or Decimal(0) for each in figures if each.held_out is held_out]
        average = sum(costs, Decimal(0)) / len(costs)
        assert found["compared"][side]["requests"] == len(costs)
        assert abs(Decimal(found["compared"][side]["cost_per_request"]) - average) < Decimal("1e-11")
    printed = books.run("savings", "--by", "day", "--limit", "1")
    last = books.run("savings", "--csv", "--by", "day", "--limit", "1").splitlines()[1].split(",")[1]
    assert printed.splitlines()[1].startswith(last), "the latest day in each form"
    lines = books.run("savings", "--csv", "--by", "tenant").splitlines()
    assert lines[0].startswith("by,tenant,net_saving,ratio,")
    printed = books.run("savings", "--by", "tenant")
    assert f" {sum(known):.12f}" in printed
    assert "measured, of each request: direct" in printed


def check_api(admin: OpenAI, expected: dict[str, tuple[str, ...]]) -> None:
    """A bucket a day has the audit's cost."""
    start = int((TODAY - timedelta(days=30)).timestamp())
    answer = admin.admin.organization.usage.with_raw_response.costs(start_time=start, limit=60)
    found = {
        datetime.fromtimestamp(bucket["start_time"], UTC).date().isoformat(): result["amount"]["value"]
        for bucket in exact(answer.text)["data"]
        for result in bucket["results"]
    }
    assert {day: f"{Decimal(cost):.12f}" for day, cost in found.items()} == {
        day: cost.removeprefix(">=") for day, (_, cost, *_) in expected.items()
    }


def test_s13_1_by_conversation_the_ledger_tells_of_deleted_ones_too(books: Books) -> None:
    table = json.loads(books.run("costs", "--json", "--by", "conversation", "--tenant", "alice"))["tables"][0]
    found = {row["conversation"]: row["requests"] for row in table["rows"]}
    assert (found["conv_kept"], found["conv_deleted"]) == (3, 3)


def rows_of_days(books: Books) -> list[Any]:
    """Each day with each model."""
    table = json.loads(books.run("costs", "--json", "--by", "day+model"))["tables"][0]
    assert table["by"] == ["day", "model"]
    return list(table["rows"])


def test_s13_1_a_long_time_by_conversation_shows_them_as_a_whole(books: Books) -> None:
    total = json.loads(books.run("costs", "--json", "--by", "model"))["total"]
    with PageClient(books.gateway.url) as browser:
        browser.log_in(BOSS)
        for period in ("7d", "all"):
            page = browser.page(f"/ui/costs?by=conversation&period={period}")
            assert "conv_kept" in page.text
            assert ("conv_deleted" in page.text) == (period == "7d"), "the ledger tells of it, its sums are gone"
    told = page.text.rpartition("Total")[2]
    assert f"\n{total['requests']}\n" in told, "the total is of the ledger, deleted conversations included"


def test_s13_1_tables_are_plain_in_a_pipe_and_combine_groups(books: Books) -> None:
    printed = books.run("costs", "--by", "day+model,tenant", "--limit", "1")
    assert "\x1b" not in printed
    first, second = (part.splitlines() for part in printed.split("\n\n"))
    assert re.split(r"  +", first[0])[:3] == ["day", "model", "requests"]
    assert [line.split()[0] for line in first[2:]] == [f"({len(rows_of_days(books)) - 1}", "total"]
    assert first[1].split()[0] == max(row["day"] for row in rows_of_days(books)), "the latest day"
    assert [line.split()[0] for line in second[2:]] == ["(1", "total"]
    done = gateway_command("costs", "--by", "colour", directory=books.gateway.directory)
    assert (done.returncode, "no group" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["costs", "savings"])
def test_s13_1_without_a_group_there_is_the_total_alone(books: Books, command: str) -> None:
    table = books.run(command, "--by", ",").split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["total"]


@pytest.mark.parametrize(
    "option", [("--model", "gpt-4o"), ("--economy", "auto"), ("--unstored",), ("--cache-lifetime", "1h")]
)
def test_s13_13_what_is_of_replays_alone_is_refused_for_stored_requests(books: Books, option: tuple[str, ...]) -> None:
    """`--model` would else seem to choose the requests that are summed."""
    done = gateway_command("savings", *option, directory=books.gateway.directory)
    assert (done.returncode, f"{option[0]} is of --replay" in done.stderr) == (2, True)


def test_s13_1_a_viewer_sees_the_costs_of_its_tenant_alone(books: Books) -> None:
    with PageClient(books.gateway.url) as browser:
        browser.log_in(ALICE)
        page = browser.page("/ui/costs?by=user&period=all")
        assert "by=tenant" not in " ".join(page.links)
        assert browser.get("/ui/costs?by=tenant").status_code == 400
        rows = list(csv.DictReader(io.StringIO(browser.get("/ui/costs.csv?by=model&period=all").text, newline="")))
        expected = books.run("costs", "--csv", "--by", "model", "--tenant", "alice")
        assert by_group(rows) == by_group(list(csv.DictReader(io.StringIO(expected, newline=""))))
        for by in ("day", "key", "user", "conversation", "agent", "project", "endpoint", "model"):
            for period in ("7d", "30d", "365d", "all"):
                checked(browser.get(f"/ui/costs?by={by}&period={period}"))
        for query in ("by=colour", "period=1d"):
            assert browser.get(f"/ui/costs?{query}").status_code == 400
