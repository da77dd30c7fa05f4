"""`kill -9` between any two moments of a turn, on each storage (guarantee §3.6)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.chaos.audit import broken_rules, rows
from tests.chaos.kill_loop import MOMENTS, KillLoop
from tests.support.answers import http, user
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

MANY = 30


@pytest.mark.parametrize("kills", [len(MOMENTS), pytest.param(MANY, marks=pytest.mark.chaos)])
def test_s3_6_kills_lose_no_acknowledged_turn_and_leave_no_half_or_doubled_one(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, kills: int
) -> None:
    """§3.6: at least once at each moment: before the call, while the model answers, around the commit, after it."""
    loop = KillLoop(start_gateway({"storage": {"url": storage_url}}), upstream, storage_url, seed=kills)
    loop.run(kills)
    assert loop.acknowledged >= max(1, kills // 6), "kills after the acknowledgement"
    assert loop.acknowledged + loop.kept + loop.lost <= kills
    if kills == MANY:
        assert loop.lost >= kills // 4, "kills before the commit"


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
        with http(gateway) as client, client.stream("POST", path, json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            begun.wait(20)
            for _ in lines:
                pass

    with http(gateway) as client:
        client.post("/chat/completions", json={"model": "gpt-4o", "messages": [user("done")]}).raise_for_status()
        assert client.post("/chat/completions", json={"model": "gpt-4o", "messages": []}).status_code == 400
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
