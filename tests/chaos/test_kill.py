"""`kill -9` between any two moments of a turn, while many clients talk in all the ways in which clients continue
(guarantee §3.6, §3.7), and what is billed of it (§6.10)."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.chaos.audit import broken_rules, rows
from tests.chaos.storm import MOMENTS, Storm
from tests.support.answers import user
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels, Shown, every
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.relayed import completion_events
from tests.support.reply import Reply

QUIET = {"log_level": "warning"}


@pytest.mark.parametrize("kills", [len(MOMENTS), pytest.param(80, marks=pytest.mark.chaos)])
async def test_s3_6_kills_under_load_lose_double_or_halve_no_turn(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, kills: int
) -> None:
    """§3.6, §3.7: what was acknowledged is there once, whole, in its place and billed, by id, session or neither."""
    gateway = start_gateway({"storage": {"url": storage_url}, "server": QUIET})
    await kept_through(kills, Storm([gateway], upstream, storage_url, seed=1))


@pytest.mark.chaos
async def test_s3_7_kills_of_two_gateways_on_one_database_lose_double_or_halve_no_turn(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres
) -> None:
    """§3.7: clients of both share conversations; one is killed while the other goes on."""
    storage_url = postgres.new_database()
    gateways = [start_gateway({"storage": {"url": storage_url}, "server": QUIET}) for _ in range(2)]
    await kept_through(60, Storm(gateways, upstream, storage_url, seed=2))


async def kept_through(kills: int, storm: Storm) -> None:
    await storm.run(kills)
    assert storm.broken >= kills // 2, "requests that a kill broke off"
    assert storm.acknowledged >= 3 * kills, "turns that are there to be lost"


def twelve() -> list[tuple[str, dict[str, Any]]]:
    """Streams through each API, stored and not."""
    chat = {"model": "gpt-4o", "messages": [user("hello")], "stream": True}
    response = {"model": "gpt-4o", "input": "hello", "stream": True}
    kinds = [
        ("/chat/completions", chat),
        ("/chat/completions", {**chat, "store": False, "user": "ann"}),
        ("/chat/completions", {**chat, "context": {"mode": "off"}}),
        ("/responses", response),
        ("/messages", {**chat, "max_tokens": 9}),
        ("/responses", {**response, "store": False}),
    ]
    return kinds * 2


def test_s6_10_twelve_streams_of_a_killed_process_leave_twelve_bills(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§6.10: each once, estimated and in the sums, by the next process that looks; a request that was refused leaves
    none, and what was answered has its own bill."""
    gateway = start_gateway({"storage": {"url": storage_url}})
    begun = threading.Barrier(13)

    def ask(path: str, body: dict[str, Any]) -> None:
        with gateway.http() as client, client.stream("POST", path, json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            begun.wait(20)
            for _ in lines:
                pass

    gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": [user("done")]}).raise_for_status()
    assert gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": []}).status_code == 400
    for _ in range(12):
        upstream.reply(text="a b c d e f", stall_after=2)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(ask, path, body) for path, body in twelve()]
        begun.wait(20)
        gateway.kill9()
        upstream.release()
        assert all(isinstance(each.exception(20), httpx.TransportError) for each in asked)
    killed = "SELECT * FROM ledger WHERE error_code = 'process_killed'"
    assert not rows(storage_url, killed)
    gateway.start()
    wait_until(lambda: len(rows(storage_url, killed)) == 12, "twelve bills")
    bills = rows(storage_url, killed)
    for bill in bills:
        assert (bill["status"], bool(bill["estimated"]), bill["completion_tokens"]) == ("failed", True, 0)
        assert bill["prompt_tokens"] > 0
        assert bill["total_cost_picousd"] > 0
    assert [bill["endpoint"] for bill in bills].count("responses") == 4
    assert [bill["end_user"] for bill in bills if bill["end_user"]] == ["ann", "ann"]
    assert not rows(storage_url, "SELECT * FROM open_calls")
    assert broken_rules(storage_url) == {}
    (ledger,) = rows(storage_url, "SELECT SUM(total_cost_picousd) AS sum, COUNT(*) AS number FROM ledger")
    (days,) = rows(storage_url, "SELECT SUM(cost_picousd) AS sum FROM usage_days")
    assert (ledger["number"], ledger["sum"]) == (13, days["sum"])


KINDS = ("planner", "summarizer", "primary")
"""Whose call is out, the others before it answered."""
RELAYED = ("embeddings", "completions", "images/generations")


def of_kind(kind: str, stored: bool) -> dict[str, Any]:
    """A request of which a planner is asked, about a document of its own."""
    name = f"{kind} {stored}"
    document = {"title": name, "content": f"{name}\n\n{lamps(60)}"}
    return {
        "model": "small",
        "messages": [user(f"Who is the keeper of lamp 41? {name}")],
        "attachments": [document],
        "user": name,
        "store": stored,
    }


@pytest.mark.chaos
def test_s6_10_internal_and_relayed_calls_of_a_killed_process_are_billed(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§6.10: a planner's call, a summarizer's, the primary's behind a plan, stored or not, and relayed calls, whole and
    streamed: each request has one bill, with its user, and with what had been asked of whom."""
    gateway, gate = start_gateway({"storage": {"url": storage_url}, "context": {"planning": "auto"}}), threading.Event()

    def out(text: str) -> Reply:
        return Reply(text=text, gate=gate)

    def plan(artifacts: list[Shown]) -> Reply:
        kind = artifacts[0].source.rpartition(":")[2].split()[0]
        answers = {"planner": lambda _: out("{}"), "summarizer": every("summarize"), "primary": every("rag_extract")}
        return answers[kind](artifacts)

    upstream.handler = InternalModels(plan, summarizer=out, primary=lambda _: out("answer"))
    for path in RELAYED:
        upstream.routes[f"POST /v1/{path}"] = Reply(json={"data": []}, gate=gate)
    upstream.routes["POST /v1/completions"] = Reply(raw_sse=completion_events(), stall_after=9)
    fields = {"model": "gpt-4o", "input": "some words", "prompt": "some words"}
    asked = [("/chat/completions", of_kind(kind, stored)) for kind in KINDS for stored in (True, False)]
    asked += [(f"/{path}", {**fields, "stream": path == "completions"}) for path in RELAYED]

    def ask(path: str, body: dict[str, Any]) -> None:
        gateway.post(path, json=body)

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = [pool.submit(ask, path, body) for path, body in asked]
        planned = 2 * (len(KINDS) - 1)  # at first all that are out may be planners' calls
        chats = 2 * len(KINDS) + planned
        wait_until(lambda: upstream.in_flight == len(asked) and len(upstream.chats) == chats, "a call of each")
        gateway.kill9()
        gate.set()
        upstream.release()
        assert all(isinstance(each.exception(20), httpx.TransportError) for each in answers)
    gateway.start()
    killed = "SELECT * FROM ledger WHERE error_code = 'process_killed'"
    wait_until(lambda: len(rows(storage_url, killed)) == len(asked), "a bill of each")
    calls = rows(
        storage_url,
        "SELECT l.end_user, l.endpoint, c.* FROM ledger l JOIN ledger_calls c ON c.request_id = l.request_id"
        " WHERE l.error_code = 'process_killed' ORDER BY l.end_user, l.endpoint, c.number",
    )
    found: dict[str, list[tuple[str, bool]]] = {}
    for call in calls:
        usage = json.loads(call["usage"])
        answered = (call["purpose"], usage["completion_tokens"] > 0)
        found.setdefault(call["end_user"] or call["endpoint"], []).append(answered)
        assert call["estimated"], call
        assert usage["prompt_tokens"] > 0, call
        assert call["prompt_cost_picousd"] > 0, call
    whole = {name: [("planner", True), (name, False)] for name in KINDS[1:]} | {"planner": [("planner", False)]}
    expected = {f"{kind} {stored}": whole[kind] for kind in KINDS for stored in (True, False)}
    assert found == expected | {key: [("primary", False)] for key in ("embeddings", "completions", "images")}
    assert not rows(storage_url, "SELECT * FROM open_calls")
    assert broken_rules(storage_url) == {}
    (ledger,) = rows(storage_url, "SELECT SUM(total_cost_picousd) AS sum FROM ledger")
    (days,) = rows(storage_url, "SELECT SUM(cost_picousd) AS sum FROM usage_days")
    assert ledger["sum"] == days["sum"]
