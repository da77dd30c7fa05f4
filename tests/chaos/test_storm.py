"""`kill -9` again and again while many clients talk at once, in all the ways in which clients continue (§3.6, §3.7)."""

import pytest

from tests.chaos.storm import Storm
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres


@pytest.mark.chaos
async def test_eighty_kills_under_load_lose_double_or_halve_no_turn(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§3.6, §3.7: what was acknowledged is there once, whole, in its place and billed, by id, session or neither."""
    storm = Storm(
        [start_gateway({"storage": {"url": storage_url}, "server": {"log_level": "warning"}})],
        upstream,
        storage_url,
        seed=1,
    )
    await storm.run(80)
    assert storm.broken >= 40, "requests that a kill broke off"
    assert storm.acknowledged >= 240, "turns that are there to be lost"


@pytest.mark.chaos
async def test_sixty_kills_of_two_gateways_on_one_database_lose_double_or_halve_no_turn(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres
) -> None:
    """§3.7: clients of both share conversations; one is killed while the other goes on."""
    storage_url = postgres.new_database()
    gateways = [start_gateway({"storage": {"url": storage_url}, "server": {"log_level": "warning"}}) for _ in range(2)]
    storm = Storm(gateways, upstream, storage_url, seed=2)
    await storm.run(60)
    assert storm.broken >= 30, "requests that a kill broke off"
    assert storm.acknowledged >= 180, "turns that are there to be lost"
