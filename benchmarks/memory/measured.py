"""Gateways under the sessions that the figures are of."""

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks import servers
from benchmarks.memory.figures import Figure, Json, faster, hit_rate, overhead, saved
from benchmarks.traffic import MODEL
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

CONVERSATIONS, TURNS = 10, 12
"""Of the repeated session."""
MESSAGES, WORDS, ASKED = 400, 120, 40
"""Of the long conversation: what is in it before it is asked about, and how often that is."""
CHATS = 300
SAID = ("Hello there", "Create a workflow", "Find the invoices", "Rename the second", "Explain the slowest step")
SIZES = {"general": 80, "creation": 340, "search": 300, "modification": 260, "analysis": 220}
"""Words of guidance by mode; core, tools and error handling have some 300 together, as in the design."""


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """All figures, each as soon as it is there."""
    with MockUpstream() as upstream:
        start = GatewayFactory(upstream, folder)
        try:
            yield from hit_rates(upstream, start)
            yield profiles(start)
        finally:
            start.close()
    with servers.mock(folder) as mock:
        yield path_cache(mock, folder, quick=quick)
        yield storing(mock, folder, quick=quick)


def hit_rates(upstream: MockUpstream, start: GatewayFactory) -> list[Figure]:
    """The same session in ten conversations: a document is asked about, then the talk goes on."""
    gateway = start({"context": {"planning": "auto"}})
    upstream.handler = InternalModels(every("summarize"))
    document = {"title": "Lamps", "content": lamps(60)}
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        before = kept(gateway)
        for _ in range(CONVERSATIONS):
            conversation: str | None = None
            for turn in range(TURNS):
                more = {"attachments": [document]} if not turn else {"conversation": conversation}
                said = "Which lamps are kept?" if not turn else f"And what of lamp {turn}?"
                conversation = ask(client, said, model="small", **more)["conversation"]["id"]
        after = kept(gateway)
    paths = hit_rate(before["memory"]["paths"], after["memory"]["paths"])
    summaries = hit_rate(before["caches"]["summaries"], after["caches"]["summaries"])
    detail = f"one session of {TURNS} turns in {CONVERSATIONS} conversations"
    return [
        Figure("hit rate: conversations in memory", paths, 0.8, "above", detail),
        Figure("hit rate: summaries of documents", summaries, 0.8, "above", detail),
    ]


def profiles(start: GatewayFactory) -> Figure:
    """One message of each mode: the system message that stands in front, beside one with the guidance of all."""
    modes = {name: prose(number, words) for number, (name, words) in enumerate(SIZES.items())}
    parts = {"core": prose(11, 80), "tools": prose(12, 120), "error_handling": prose(13, 100)}
    gateway = start({"prompt_profiles": {**parts, "modes": modes}})
    found = []
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        for said in SAID:
            bill = ask(client, said, model="gpt-4o")["response_metadata"]
            found.append(bill["context_utilization"]["profile"])
    sizes = sorted(each["tokens"] for each in found)
    whole = found[0]["tokens"] + found[0]["saved_tokens"]
    detail = f"{sizes[0]} to {sizes[-1]} tokens by mode, {whole} with all modes"
    return Figure("tokens saved by prompt profiles", saved(found), 0.4, "above", detail)


def path_cache(mock: servers.Server, folder: Path, *, quick: bool) -> Figure:
    """A long conversation goes on by its id: the time until its messages are there, with and without a kept path."""
    times = {}
    for name, size in (("kept", 128 * 2**20), ("not kept", 1)):
        with gateway(mock, folder / name.replace(" ", "-"), {"cache": {"conversation_bytes": size}}) as running:
            times[name] = rebuilds(running, ASKED // 2 if quick else ASKED)
    detail = f"{MESSAGES} messages: {median(times['kept']):.1f} ms, {median(times['not kept']):.1f} ms without"
    share = faster(times["kept"], times["not kept"])
    return Figure("context fetched faster from memory", share, 0.5, "above", detail, timed=True)


def rebuilds(running: GatewayProcess, asked: int) -> list[float]:
    """Milliseconds in which each request had its history, as its bill says."""
    with httpx.Client(base_url=running.base_url, trust_env=False, timeout=60) as client:
        conversation = client.post("/conversations", json={}).json()["id"]
        said = [
            {"type": "message", "role": ("user", "assistant")[n % 2], "content": prose(n, WORDS)}
            for n in range(MESSAGES)
        ]
        for first in range(0, MESSAGES, 20):
            items = said[first : first + 20]
            client.post(f"/conversations/{conversation}/items", json={"items": items}).raise_for_status()
        bills = [ask(client, f"Question {n}", model=MODEL, conversation=conversation) for n in range(asked)]
    return [bill["response_metadata"]["timings_ms"]["rebuild"] for bill in bills[2:]]


def storing(mock: servers.Server, folder: Path, *, quick: bool) -> Figure:
    """Chats of 1 KB one after the other, stored and not, in turn: what a client waits for the gateway."""
    count = CHATS // 3 if quick else CHATS
    with gateway(mock, folder / "storing", {}) as running:
        ways = {"on": (running.port, {"store": True}), "off": (running.port, {"store": False}), "trip": (mock.port, {})}
        times: dict[str, list[float]] = {name: [] for name in ways}
        connections = {name: http.client.HTTPConnection("127.0.0.1", port) for name, (port, _) in ways.items()}
        for number in range(count + 20):
            for name, (_, more) in ways.items():
                seconds = one_chat(connections[name], f"{number} {prose(number, 150)}", more)
                if number >= 20:  # until all is loaded
                    times[name].append(seconds)
        for connection in connections.values():
            connection.close()
    share = overhead(times["on"], times["off"], times["trip"])
    detail = ", ".join(f"{name} {1000 * median(found):.2f} ms" for name, found in times.items())
    return Figure("overhead of storing", share, 2.0, "below", f"SQLite, synced: {detail}", timed=True)


def one_chat(connection: http.client.HTTPConnection, said: str, more: Json) -> float:
    """Seconds until a chat is answered as a whole."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": said}], **more}
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    seconds = time.perf_counter() - began
    if answer.status != 200:
        raise RuntimeError(f"a chat was answered with {answer.status}")
    return seconds


def ask(client: httpx.Client, said: str, **fields: Any) -> Json:
    """The answer to a message."""
    messages: Sequence[Json] = [{"role": "user", "content": said}]
    answer = client.post("/chat/completions", json={"messages": messages, **fields})
    answer.raise_for_status()
    found: Json = answer.json()
    return found


def kept(gateway: GatewayProcess) -> Json:
    """The gateway's own statistics."""
    found: Json = httpx.get(f"{gateway.url}/health/ready?details=1", trust_env=False).json()["details"]
    return found


@contextmanager
def gateway(mock: servers.Server, folder: Path, more: Json) -> Iterator[GatewayProcess]:
    """A gateway before the mock, with what differs from the benchmark's configuration."""
    folder.mkdir()
    with GatewayProcess({**servers.gateway_config(mock.port, True), **more}, directory=folder) as running:
        yield running
