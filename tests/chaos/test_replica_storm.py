"""Three replicas on one PostgreSQL and one Valkey, while everything around them fails in turn (guarantee §12)."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.replica_checks import Balance, Kill, check_budgets, check_turns
from tests.chaos.replica_clients import STYLES, Clients, Turn, Watched, watch
from tests.chaos.replica_upstreams import PAIR, PLANNER, SPARE, Upstreams
from tests.support.answers import ok
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.postgres import Postgres
from tests.support.provider_account import PICO
from tests.support.valkey import ValkeyProcess

ROOT = "gw-root-key-of-the-storm"
WARMING, CALM, PHASE = 4.0, 25.0, 6.0
"""Seconds."""
WITHIN = 5.0
"""Seconds in which a revocation holds everywhere."""
NOTICED = 0.3
"""Seconds after which the balancer has noticed that a replica is gone."""
BUDGETS = ("0.006", "0.012", "0.024")
RPM = 20
PACED = 12
"""Clients that wait for answers and go on."""
A, B = "pair-a", "pair-b"
PHASES: tuple[tuple[dict[str, str], str], ...] = (
    ({A: "down"}, "kill 0"),
    ({B: "500"}, "flush"),
    ({A: "429"}, "kill 1"),
    ({A: "slow"}, "revoke"),
    ({B: "cut"}, "cache"),
    ({A: "500", B: "500"}, "kill 2"),
    ({PLANNER: "slow"}, ""),
    ({A: "torn", B: "torn", PLANNER: "500"}, "kill 0"),
    ({SPARE: "down"}, ""),
)
"""Who is unwell how, and what happens meanwhile; the others are well."""


class World:
    """The replicas, what they stand on, and the keys that were made for the storm."""

    def __init__(
        self, gateways: list[GatewayProcess], upstreams: Upstreams, valkey: ValkeyProcess, storage_url: str
    ) -> None:
        self.gateways, self.upstreams, self.valkey, self.storage_url = gateways, upstreams, valkey, storage_url
        self.kills: list[Kill] = []
        self.forgot: list[tuple[float, float]] = []
        """When the cache was flushed, or down."""
        self.clients = Clients(7)
        for gateway in gateways:
            self.clients.balancer.up[gateway.url] = gateway.port
        self.usual = [self.made(tenant=f"t{number}", limits=PLENTY)["key"] for number in range(3)]
        self.poor = [self.made(tenant="poor", budgets=[{"usd": usd, "period": "total"}]) for usd in BUDGETS]
        self.limited = self.made(tenant="limited", limits={"rpm": RPM, "concurrent": 3})["key"]
        self.ending = [self.made(tenant="ending") for _ in range(3)]
        self.revoked_at = 0.0

    def made(self, **fields: Any) -> Any:
        """A new key of the tenant."""
        return self._asked("POST", self.gateways[0], "", fields)

    def _asked(self, method: str, gateway: GatewayProcess, path: str, body: Any = None) -> Any:
        return ok(gateway.request(method, f"/gateway/keys{path}", json=body, key=ROOT))

    async def kill(self, number: int) -> None:
        """Kills a replica and puts another in its place."""
        gateway, up = self.gateways[number], self.clients.balancer.up
        gateway.kill9()
        self.kills.append(Kill(str(number), time.monotonic()))
        await asyncio.sleep(NOTICED)
        del up[gateway.url]
        await asyncio.to_thread(gateway.start)
        up[gateway.url] = gateway.port

    async def happens(self, what: str) -> None:
        """One of the events of `PHASES`."""
        await asyncio.sleep(PHASE / 4)
        match what.split():
            case ["kill", number]:
                await self.kill(int(number))
            case ["flush"]:
                await asyncio.to_thread(self.valkey.flush)
                self.forgot.append((time.monotonic(), time.monotonic()))
            case ["cache"]:
                began = time.monotonic()
                self.valkey.kill9()
                await asyncio.sleep(PHASE / 4)
                await asyncio.to_thread(self.valkey.start)
                self.forgot.append((began, time.monotonic()))
            case ["revoke"]:
                for key in self.ending:
                    await asyncio.to_thread(self._asked, "DELETE", self.gateways[0], f"/{key['id']}")
                self.revoked_at = time.monotonic()


PLENTY = {"rpm": 100_000, "tpm": 10_000_000, "concurrent": 100}


@pytest.fixture
def world(start_gateway: GatewayFactory, postgres: Postgres, chaos_valkey: ValkeyProcess) -> Iterator[World]:
    storage_url = postgres.new_database()
    with Upstreams(11) as upstreams:
        gateways = [
            start_gateway(
                {
                    "model_list": upstreams.model_list(str(number)),
                    "auth": {"mode": "keys", "keys": [{"key": ROOT, "tenant": "ops", "roles": ["admin"]}]},
                    "storage": {"url": storage_url},
                    "cache": {"url": chaos_valkey.url},
                    "routing": {"fallbacks": {PAIR: SPARE}, "cooldown": 2, "cooldown_max": 8},
                    "context": {"planning": "auto", "planner_timeout": 0.5, "summarizer_timeout": 0.5},
                    "server": {"log_level": "warning"},
                    "upstream": None,
                }
            )
            for number in range(3)
        ]
        yield World(gateways, upstreams, chaos_valkey, storage_url)


@pytest.mark.chaos
async def test_s12_a_storm_over_three_replicas(world: World, record_property: Any) -> None:
    """Nothing that was acknowledged is lost, budgets hold, the ledger and the providers' account are equal, revoked
    keys are refused, and answers are nearly as quick as in calm weather."""
    clients, seen = world.clients, list[Watched]()
    ending = [key["key"] for key in world.ending]
    is_over = lambda: clients.over  # noqa: E731
    async with asyncio.TaskGroup() as tasks:
        for number in range(PACED):
            key, style = world.usual[number % 3], STYLES[number % len(STYLES)]
            tasks.create_task(clients.talk(key, style, pause=0.15))
        for key in [each["key"] for each in world.poor for _ in range(2)] + [world.limited] * 2:
            tasks.create_task(clients.hammer(world.usual[0], key, pause=0.3))
        tasks.create_task(watch(world.gateways, ending, is_over, seen))
        await asyncio.sleep(WARMING)
        warm = marked(clients)
        await asyncio.sleep(CALM)
        calm = marked(clients) - warm
        clients.is_stormy = True
        for moods, event in PHASES:
            for name in (A, B, SPARE, PLANNER):
                world.upstreams.turn(name, moods.get(name, "well"))
            ends = time.monotonic() + PHASE
            await world.happens(event)
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
        clients.over = True
    await clients.close()
    for name in (A, B, SPARE, PLANNER):
        world.upstreams.turn(name, "well")
    await asyncio.sleep(2)  # bills of streams that broke are written behind
    stormy = marked(clients) - warm - calm
    report = figures(calm, stormy)
    report["refused"] = {kind: dict(count) for kind, count in named(world, clients.refused).items()}
    report["turns"] = check_turns(world.storage_url, clients.talks)
    balance = Balance(world.storage_url, world.upstreams.calls, world.kills, world.upstreams.stops)
    balance.check()
    report["balance"] = dict(balance.report)
    budgets = {key["id"]: round(float(usd) * PICO) for key, usd in zip(world.poor, BUDGETS, strict=True)}
    report["budgets"] = check_budgets(world.storage_url, budgets)
    check_audit(world.gateways[0])
    check_revoked(seen, world.revoked_at)
    check_limited(world)
    print(report)
    record_property("storm", report)
    assert report["storm p99"] <= 2 * report["calm p99"], report


class Marked(dict[str, Turn]):
    """Turns by request."""

    def __sub__(self, other: "Marked") -> "Marked":
        return Marked({name: turn for name, turn in self.items() if name not in other})


def marked(clients: Clients) -> Marked:
    """All that was answered so far to those who wait for answers."""
    talks = [talk for talk in clients.talks if talk.turns]
    return Marked({turn.request_id: turn for talk in talks for turn in talk.turns})


def figures(calm: Marked, stormy: Marked) -> dict[str, Any]:
    """How long answers took."""
    report: dict[str, Any] = {"calm answers": len(calm), "storm answers": len(stormy)}
    for weather, turns in (("calm", calm), ("storm", stormy)):
        for what in ("seconds", "whole_seconds"):
            cuts = statistics.quantiles([getattr(turn, what) for turn in turns.values()], n=1000)
            name = weather if what == "seconds" else f"{weather} with all tries"
            report |= {f"{name} p50": cuts[499], f"{name} p99": cuts[989]}
    return report


def named(world: World, refused: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """By kinds of keys."""
    found: dict[str, Counter[str]] = {"usual": Counter(), "poor": Counter(), "limited": Counter()}
    kinds = {**dict.fromkeys(world.usual, "usual"), world.limited: "limited"}
    for key, count in refused.items():
        found[kinds.get(key, "poor")] += count
    return found


def check_audit(gateway: GatewayProcess) -> None:
    """Bills, calls and sums add up."""
    done = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == 0, done.stdout + done.stderr


def check_revoked(seen: list[Watched], revoked_at: float) -> None:
    """They counted before, and nowhere five seconds after."""
    before = {each.status for each in seen if each.at < revoked_at - 1}
    after = [each for each in seen if each.at > revoked_at + WITHIN]
    assert before == {200}
    assert {each.status for each in after} == {401}
    assert len({each.replica for each in after}) == 3


def check_limited(world: World) -> None:
    """Within any minute as many as may be, and once more for each time that the cache forgot; beside those whose bills
    say that nobody could count them."""
    counted, forgot = sorted(world.clients.counted[world.limited]), world.forgot
    for number, at in enumerate(counted):
        within = sum(other < at + 60 for other in counted[number:])
        times = sum(at <= end and began < at + 60 for began, end in forgot)
        assert within <= RPM * (1 + times), (at, within, forgot)
    assert world.clients.refused[world.limited]["rate_limit_exceeded"] > 0
