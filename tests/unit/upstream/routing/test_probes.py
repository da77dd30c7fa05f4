"""Deployments that rest are asked whether they are there again (guarantee §12.8)."""

from dataclasses import replace
from typing import Literal

import pytest

from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.errors import UpstreamUnreachable
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.resources import ProbeResult, probe
from gateway.upstream.routing.health import HealthWatch
from tests.support.hand_clock import HandClock

DOWN = UpstreamUnreachable("down")


def deployment(name: str, protocol: Literal["openai", "litellm"] = "openai") -> ModelDeployment:
    origin = "bedrock" if protocol == "litellm" else "openai"
    made = ModelDeployment("m", "m", "openai/m", f"http://{name}/v1", "sk", operator_key=True, id=name)
    return replace(made, protocol=protocol, origin=origin)


@pytest.fixture
def health() -> HealthWatch:
    """`well` answers; `a`, `b` and `cloud` rest for five seconds."""
    found = HealthWatch(RoutingSettings(), HandClock())
    found.began(deployment("well")).ended()
    for each in (deployment("a"), deployment("b"), deployment("cloud", "litellm")):
        for _ in range(3):
            found.began(each).ended(DOWN)
    return found


async def test_s12_8_what_is_reached_is_asked_by_a_request_and_what_is_not_rests_on(health: HealthWatch) -> None:
    asked = []

    async def reach(place: ModelDeployment) -> ProbeResult:
        asked.append(place.id)
        return ProbeResult(None if place.id == "a" else "down")

    await probe(health, reach, 30.0)
    assert asked == ["a", "b"], "only what rests and can be asked"
    assert {name: health.rests(name) for name in ("a", "b", "cloud")} == {"a": False, "b": True, "cloud": True}
    clock = health._clock
    assert isinstance(clock, HandClock)
    clock.seconds = 59.0
    assert health.rests("b")
    assert not health.rests("cloud")
    clock.seconds = 60.0
    assert not health.rests("b"), "a process whose probes have ended goes on without"


async def test_s12_8_a_probe_that_fails_in_any_way_is_one_that_did_not_reach(health: HealthWatch) -> None:
    async def reach(place: ModelDeployment) -> ProbeResult:
        raise ValueError("odd")

    await probe(health, reach, 30.0)
    assert health.rests("a")
