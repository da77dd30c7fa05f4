"""What the summary cache adds to a request under faults, for long (guarantee §5).

`SUMMARY_CACHE_REQUESTS` is how many requests each fault gets (60).
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import pytest

from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.proxies import DelayingProxy
from tests.support.summary_faults import KEYS, SummaryTraffic, poison
from tests.support.valkey import ValkeyProcess

pytestmark = pytest.mark.chaos
REQUESTS = int(os.environ.get("SUMMARY_CACHE_REQUESTS", "60"))
MAX_ADDED_MS = 50.0
PLANNING = {"context": {"planning": "auto"}, "auth": KEYS}
FAULTS = ("none", "killed", "hung", "slow", "very slow", "flushed", "rubbish", "swap", "type")
DELAYS = {"slow": 0.1, "very slow": 1.0}


@contextmanager
def failing(fault: str, valkey: ValkeyProcess, proxy: DelayingProxy) -> Iterator[Callable[[], object]]:
    """While it fails; what is called before each request, for faults that have to be made again and again."""
    again: Callable[[], object] = lambda: None  # noqa: E731 - each fault has its own
    match fault:
        case "killed":
            valkey.kill9()
        case "hung":
            valkey.pause()
        case "slow" | "very slow":
            proxy.seconds = DELAYS[fault]
        case "flushed":
            again = valkey.flush
        case "rubbish" | "swap" | "type":
            again = lambda: poison(valkey, fault)  # noqa: E731
    try:
        yield again
    finally:
        proxy.seconds = 0
        if fault == "killed":
            valkey.start()
        elif fault == "hung":
            valkey.resume()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_adds_less_than_fifty_milliseconds(
    start_gateway: GatewayFactory,
    upstream: MockUpstream,
    chaos_valkey: ValkeyProcess,
    fault: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Beside a gateway whose cache is its memory, asked the same in turn: summaries that are missing, and others. As
    much again as two such gateways differ by is the machine's."""
    traffic, documents = SummaryTraffic(), itertools.count(1)
    upstream.handler = traffic.models
    with DelayingProxy(chaos_valkey.port) as proxy:
        gateways = [start_gateway({**PLANNING, "cache": {"url": proxy.url}})]
        gateways += [start_gateway(PLANNING), start_gateway(PLANNING)]
        added: dict[str, list[float]] = {"missing": [], "kept": []}
        apart: list[float] = []
        for gateway in gateways * 3:
            traffic.ask(gateway, 0)
        with failing(fault, chaos_valkey, proxy) as again:
            for number in range(REQUESTS):
                kind = ("missing", "kept")[number % 2]
                document = next(documents) if kind == "missing" else 0
                again()
                took = [traffic.ask(each, document, "ab"[number % 4 // 2])["plan_ms"] for each in gateways]
                added[kind].append(took[0] - took[1])
                apart.append(abs(took[2] - took[1]))
        traffic.check()
        for kind, values in added.items():
            record_property(f"{fault}: {kind}, added p50 ms", round(median(values), 1))
            print(f"{fault}: {kind}: added p50 {median(values):.1f} ms, most {max(values):.1f} ms")
        assert all(median(values) < MAX_ADDED_MS + median(apart) for values in added.values())
