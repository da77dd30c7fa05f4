"""Two gateways with one Valkey that fails in mid-run: every answer comes, with its own summary (guarantee §5)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.proxies import DelayingProxy
from tests.support.reply import Reply
from tests.support.summary_faults import KEYS, SummaryTraffic, poison
from tests.support.valkey import Valkey, ValkeyProcess

Break = Callable[[ValkeyProcess, DelayingProxy], object]
FAULTS: dict[str, Break] = {
    "killed": lambda valkey, proxy: valkey.kill9(),
    "hung": lambda valkey, proxy: valkey.pause(),
    "slow": lambda valkey, proxy: setattr(proxy, "seconds", 1.5),
    "flushed": lambda valkey, proxy: valkey.flush(),
    "rubbish": lambda valkey, proxy: poison(valkey, "rubbish"),
    "swapped": lambda valkey, proxy: poison(valkey, "swap"),
    "of another type": lambda valkey, proxy: poison(valkey, "type"),
}


OFTEN = ("killed",)
"""A cache that is away; the others are `make chaos`'s."""


@pytest.mark.parametrize("fault", [pytest.param(f, marks=() if f in OFTEN else pytest.mark.chaos) for f in FAULTS])
def test_s5_a_cache_that_fails_in_mid_run_costs_misses_alone(
    start_gateway: GatewayFactory, upstream: MockUpstream, chaos_valkey: ValkeyProcess, fault: str
) -> None:
    traffic = SummaryTraffic()
    upstream.handler = traffic.models
    with DelayingProxy(chaos_valkey.port) as proxy:
        gateways = two(start_gateway, proxy.url, timeout=1.0)
        for tenant in "ab":
            found = traffic.ask_at_once(gateways, 1, 4, tenant)
            assert sorted(each["cache_stats"]["hits"] for each in found) == [0, 1, 1, 1]
        assert traffic.summaries_of(1) == 2, "one of each tenant"
        FAULTS[fault](chaos_valkey, proxy)
        proxy.take_commands()
        after = [traffic.ask(gateways[n % 2], document, "ab"[n % 2]) for n in range(4) for document in (1, 2 + n)]
        traffic.check()
        commands = proxy.take_commands()
        if fault in ("killed", "hung", "slow"):
            assert all(each["cache_stats"] == {"hits": 0, "misses": 1} for each in after)
            assert commands <= len(gateways), "one request of each waits for it, and no other"
        else:
            assert sum(each["cache_stats"]["hits"] for each in after) == 2, "what was lost is made anew, once a tenant"


def two(start_gateway: GatewayFactory, url: str, timeout: float = 2.0) -> list[GatewayProcess]:
    """Gateways with one storage (its secret is in the cache's keys) and one cache."""
    config = {"context": {"planning": "auto"}, "auth": KEYS, "cache": {"url": url, "timeout": timeout}}
    one = start_gateway(config)
    assert one.config is not None
    return [one, start_gateway({**config, "storage": one.config["storage"]})]


@pytest.mark.chaos
def test_s5_when_a_payers_process_is_killed_another_pays_within_seconds(
    start_gateway: GatewayFactory, upstream: MockUpstream, valkey: Valkey
) -> None:
    traffic, never = SummaryTraffic(), threading.Event()
    upstream.handler = traffic.models
    made = traffic.models.summarizer
    first = iter([Reply(text="Summary 99 of document 99", gate=never)])
    traffic.models.summarizer = lambda text: next(first, None) or made(text)
    gateways = two(start_gateway, valkey.url)
    with ThreadPoolExecutor(4) as pool:
        payer = pool.submit(traffic.ask, gateways[0], 1)
        wait_until(lambda: bool(traffic.models.summarized), "the payer's call")
        waiting = [pool.submit(traffic.ask, gateways[1], 1, said=f"Again {n}.") for n in range(3)]
        wait_until(lambda: len(traffic.models.planned) == 4, "the others' plans")
        gateways[0].kill9()
        found = [each.result(20) for each in waiting]
        never.set()
        assert isinstance(payer.exception(10), httpx.TransportError)
    assert sorted(each["cache_stats"]["hits"] for each in found) == [0, 1, 1]
    assert traffic.summaries_of(1) == 2
    traffic.check()
