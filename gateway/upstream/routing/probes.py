"""Asks deployments that rest whether they are there again (`routing.probe`; guarantee §12.8).

A probe costs nothing, unlike a request that fails. It shows that a server is there, not that a model answers: that is
for the next request to find out.
"""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from gateway.core.instrumentation import logs
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.openai.resources import ProbeResult, probed, reach
from gateway.upstream.routing.health import HealthWatch

Reach = Callable[[ModelDeployment], Awaitable[ProbeResult]]
log = logs.get_logger("gateway.routing")


async def probe_over_http(health: HealthWatch, client: httpx.AsyncClient, seconds: float) -> None:
    """Does `probe` with the server of each deployment."""
    await probe(health, lambda deployment: reach(client, deployment), seconds)


async def probe(health: HealthWatch, asked: Reach, seconds: float) -> None:
    """One probe of each deployment that rests, all at once. One that is not reached rests on until the probe after the
    next; one that has no list of models is left alone.
    `seconds`: until the next."""
    resting = [watch.deployment for watch, rests in health.watched() if rests]
    await asyncio.gather(*(_probe(health, each, asked, seconds) for each in resting))


async def _probe(health: HealthWatch, deployment: ModelDeployment, asked: Reach, seconds: float) -> None:
    place = probed(deployment)
    if place is None:
        return
    try:
        problem = (await asked(place)).problem
    except Exception as error:  # noqa: BLE001 - a probe is worth nothing: requests go on without
        problem = type(error).__name__
    health.probed(deployment.id, reached=problem is None, wait=2 * seconds)
    log.info("deployment_probed", deployment=deployment.id, reached=problem is None)
