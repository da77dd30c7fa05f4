"""The summary cache under faults, for long: calls, answers and what it adds to a request (guarantee §5).

`SUMMARY_CACHE_REQUESTS` is how many requests each fault gets (60).
"""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.proxies import DelayingProxy
from tests.support.summary_faults import KEYS, SummaryTraffic, poison
from tests.support.valkey import ValkeyProcess

pytestmark = pytest.mark.chaos
REQUESTS = int(os.environ.get("SUMMARY_CACHE_REQUESTS", "60"))
MAX_ADDED_MS = 50.0
BURST = 20
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


def test_twenty_requests_at_once_on_two_gateways_pay_once_however_often(
    start_gateway: GatewayFactory, upstream: MockUpstream, chaos_valkey: ValkeyProcess
) -> None:
    traffic = SummaryTraffic()
    upstream.handler = traffic.models
    one = start_gateway({**PLANNING, "cache": {"url": chaos_valkey.url, "timeout": 2.0}})
    assert one.config is not None
    gateways = [one, start_gateway(one.config)]
    for document, tenant in itertools.product(range(max(2, REQUESTS // BURST)), "ab"):
        before = traffic.summaries_of(document)
        found = traffic.ask_at_once(gateways, document, BURST, tenant)
        assert traffic.summaries_of(document) == before + 1
        assert sum(each["cache_stats"]["misses"] for each in found) == 1
        assert sum(each["cache_stats"]["hits"] for each in found) == BURST - 1
    traffic.check()


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


def test_faults_that_come_and_go_at_random_cost_no_answer_and_mix_no_two(
    start_gateway: GatewayFactory, upstream: MockUpstream, chaos_valkey: ValkeyProcess
) -> None:
    rng = random.Random(11)
    traffic = SummaryTraffic()
    upstream.handler = traffic.models
    with DelayingProxy(chaos_valkey.port) as proxy:
        one = start_gateway({**PLANNING, "cache": {"url": proxy.url}})
        assert one.config is not None
        gateways = [one, start_gateway(one.config)]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(max(4, REQUESTS // 6)):
                asked = [pool.submit(traffic.ask, *some_request(rng, gateways)) for _ in range(8)]
                with failing(rng.choice(FAULTS), chaos_valkey, proxy) as again:
                    asked += [pool.submit(traffic.ask, *some_request(rng, gateways)) for _ in range(16)]
                    again()
                    for each in asked:
                        each.result(60)
        traffic.check()


def some_request(rng: random.Random, gateways: list[GatewayProcess]) -> tuple[GatewayProcess, int, str]:
    """Of one of twelve documents, by one of two tenants."""
    return rng.choice(gateways), rng.randrange(12), rng.choice("ab")
