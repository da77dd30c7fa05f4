"""The first request of a process beside its later ones: reduced, of a stream that is left, and through litellm.

Run by `make bench`, or alone by `python -m benchmarks.first`. A fresh process for each figure: asked once it is warm,
and asked at the moment when it is ready. A later request is the median of five.
"""

import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

Json = dict[str, Any]
Ask = Callable[[httpx.Client, GatewayProcess, int], float]
"""Asks for the n-th time; returns the seconds that are measured."""
LATER = 5
POLL_SECONDS = 0.002


def _document(number: int) -> str:
    lines = (
        f"# Part {n}\n\nThe keeper of lamp {number}-{n} is called Name{n * 7}, since {1900 + n % 90}."
        for n in range(900)
    )
    return "\n\n".join(lines)


def reduced(client: httpx.Client, gateway: GatewayProcess, number: int) -> float:
    """A document of 60 KB that nobody has seen before, in a window of 3,000 tokens."""
    body = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": f"Who keeps lamp {number}-77?"}],
        "attachments": [{"content": _document(number), "title": "Lamps"}],
        "context": {"max_input_tokens": 3000, "planning": "never"},
    }
    began = time.perf_counter()
    client.post("/chat/completions", json=body).raise_for_status()
    return time.perf_counter() - began


def left(client: httpx.Client, gateway: GatewayProcess, number: int) -> float:
    """From a client's leaving a stream to the bill of it on the ledger."""
    body = {"model": "gpt-4o-mini", "stream": True, "messages": [{"role": "user", "content": f"Question {number}?"}]}
    with client.stream("POST", "/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        for _ in range(6):
            next(lines)
    began = time.perf_counter()
    wait_until(lambda: _bills(gateway) > number, "the bill")
    return time.perf_counter() - began


def through_litellm(client: httpx.Client, gateway: GatewayProcess, number: int) -> float:
    """A short chat with a model of Anthropic's."""
    body = {"model": "claude", "messages": [{"role": "user", "content": f"Question {number}?"}]}
    began = time.perf_counter()
    client.post("/chat/completions", json=body).raise_for_status()
    return time.perf_counter() - began


CASES: dict[str, Ask] = {"reduced": reduced, "left": left, "through_litellm": through_litellm}


def measure() -> Json:
    """By case: seconds of the first and of later requests, how many times as long the first takes; memory; and how
    long a request waits at most while the process is warmed up."""
    return {name: {"warm": _measured(name, warm=True), "at_once": _measured(name, warm=False)} for name in CASES}


def _measured(name: str, *, warm: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    with _upstreams(name) as config, GatewayProcess(config) as gateway:
        found["ready_mb"] = round(gateway.rss_mb(), 1)
        if warm:
            found["waited_at_most_ms"] = round(1000 * _watched(gateway), 1)
            found["warm_mb"] = round(gateway.rss_mb(), 1)
        headers = {"authorization": "Bearer sk-bench"}
        with httpx.Client(base_url=gateway.base_url, headers=headers, trust_env=False, timeout=60) as client:
            first, *later = [CASES[name](client, gateway, number) for number in range(1 + LATER)]
    usual = statistics.median(later)
    return {**found, "first_s": round(first, 3), "later_s": round(usual, 3), "first_to_later": round(first / usual, 1)}


@contextmanager
def _upstreams(name: str) -> Iterator[Json]:
    """The configuration of a case: a model of Anthropic's, or nothing but where the default upstream is."""
    with MockUpstream() as upstream:
        MockProvider(upstream)
        for _ in range(1 + LATER if name == "left" else 0):
            upstream.reply(text="one two three four five " * 40, chunk_delay=0.02, usage=None)
        served = {"model": "anthropic/claude-sonnet-4-5", "api_base": upstream.url, "api_key": "sk-bench"}
        models = {"model_list": [{"model_name": "claude", "litellm_params": served}]}
        yield {"upstream": {"api_base": upstream.base_url}, **(models if name == "through_litellm" else {})}


def _bills(gateway: GatewayProcess) -> int:
    with sqlite3.connect(gateway.directory / "context-gateway.db") as storage:
        found: int = storage.execute("SELECT count(*) FROM ledger").fetchone()[0]
    return found


def _watched(gateway: GatewayProcess) -> float:
    """Waits until the process is warm; returns the longest that a request took meanwhile."""
    longest = 0.0

    def watch() -> None:
        wait_until(lambda: any(line.get("event") == "warm" for line in gateway.log_lines()), "warm")

    watching = threading.Thread(target=watch)
    watching.start()
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=60) as client:
        while watching.is_alive():
            began = time.perf_counter()
            client.get("/health/live")
            longest = max(longest, time.perf_counter() - began)
            time.sleep(POLL_SECONDS)
    return longest


def table(found: Json) -> str:
    """The figures for a person, a line a case."""
    lines = []
    for name, moments in found.items():
        warm, cold = moments["warm"], moments["at_once"]
        text = f"first {name} request: {warm['first_s']} s, later {warm['later_s']} s, {warm['first_to_later']} times;"
        text += (
            f" at the moment of readiness {cold['first_s']} s; {warm['ready_mb']} MB ready, {warm['warm_mb']} MB warm;"
        )
        lines.append(f"{text} while it warms up others wait {warm['waited_at_most_ms']} ms at most")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(measure()))
