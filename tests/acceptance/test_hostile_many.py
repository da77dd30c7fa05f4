"""Requests of very many messages or parts stop nobody else (guarantee §7: bad input is a 4xx, and never worse)."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess

Messages = list[dict[str, Any]]
PROBE = """
import http.client, os, sys, threading, time

def worked():
    with open(f"/proc/{sys.argv[2]}/stat") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set())).start()
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
client.connect()
print("ready", flush=True)
longest = 0.0
while not told.is_set():
    began, before = time.monotonic(), worked()
    client.request("GET", "/health/live")
    client.getresponse().read()
    longest = max(longest, min(time.monotonic() - began, worked() - before))
    time.sleep(0.005)
print(longest)
"""
"""Asks again and again, and says how long the gateway let it wait for what it did itself meanwhile: a wait in which
the machine did something else is not the gateway's."""
READINGS = 15
"""Others wait at most as long as it takes to parse the request's JSON so many times, by this processor: it is up to 5,
and was 30 to 50."""


def images() -> Messages:
    """One message of 25,000 pictures."""
    image: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    return [{"role": "user", "content": 25_000 * [image]}]


def systems() -> Messages:
    """50,000 system messages."""
    return [*({"role": "system", "content": f"be {n}"} for n in range(50_000)), {"role": "user", "content": "hi"}]


def turns() -> Messages:
    """50,000 messages that take turns."""
    return [{"role": ("user", "assistant")[n % 2], "content": f"hi {n}"} for n in range(50_001)]


def results() -> Messages:
    """10,000 results of tools."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    step: Messages = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    return [{"role": "user", "content": "go"}, *(10_000 * step)]


@pytest.fixture(scope="module")
def sqlite_gateway(module_start_gateway: GatewayFactory) -> GatewayProcess:
    """One gateway, which takes however many messages."""
    return module_start_gateway({"server": {"max_messages": 100_000}})


@pytest.mark.parametrize("messages", [images, systems, turns, results])
@pytest.mark.parametrize(
    "asked", [{"context": {"dry_run": True}}, {"store": False}, {}], ids=["dry", "passing", "stored"]
)
def test_s7_a_request_of_very_many_pieces_stops_nobody_else(
    sqlite_gateway: GatewayProcess, messages: Callable[[], Messages], asked: dict[str, Any]
) -> None:
    """Others wait a few tenths of a second for the parsing at most."""
    body = json.dumps({"model": "gpt-4o", "messages": messages(), **asked}).encode()
    with subprocess.Popen(
        [sys.executable, "-c", PROBE, str(sqlite_gateway.port), str(sqlite_gateway.pid)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as probe:
        assert probe.stdout is not None
        try:
            assert probe.stdout.readline() == "ready\n"
            headers = {"authorization": "Bearer sk-x", "content-type": "application/json"}
            url = f"{sqlite_gateway.base_url}/chat/completions"
            answer = httpx.post(url, content=body, headers=headers, timeout=60, trust_env=False)
        finally:
            said, _ = probe.communicate(timeout=60)
        longest = float(said)
    assert answer.status_code in (200, 400), answer.text[:300]
    began = time.process_time()
    json.loads(body)
    assert longest < READINGS * (time.process_time() - began)


@pytest.mark.parametrize(
    ("path", "named", "asked"),
    [
        ("chat/completions", "messages", {"messages": turns()}),
        ("chat/completions", "input", {"input": turns()}),
        ("responses", "input", {"input": turns()}),
        ("messages", "messages", {"messages": turns(), "max_tokens": 9}),
    ],
    ids=["chat", "other words", "responses", "messages"],
)
def test_s12_16_more_messages_than_may_come_at_once(
    one_gateway: GatewayProcess, path: str, named: str, asked: dict[str, Any]
) -> None:
    """Stored in one go they would let others wait; whoever sends them is told the bound, and who sets it."""
    body = {"model": "gpt-4o", **asked}
    headers = {"authorization": "Bearer sk-x"}
    url = f"{one_gateway.base_url}/{path}"
    answer = httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)
    error = answer.json()["error"]
    assert (answer.status_code, error.get("param", named)) == (400, named)
    for said in (f"{named} must be at most 20000", "server.max_messages", "50001"):
        assert said in error["message"]
