"""Whether the kill loop notices what it is there to notice: gateways that are wrong on purpose (`broken.py`)."""

import pytest

from tests.chaos.storm import Storm
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

FOUND = {
    # Whichever look meets the lost turn first: the audit, or the next request of a client that goes on from it, which
    # may bring the result of a tool call that is not there.
    "acknowledged before the commit": (
        "without a bill|misses|the way to|conversation_not_found|tool_call_unknown|instead of conv_"
    ),
    "bill and turn apart": "an answered bill without its|misses something of",
    "links apart": "no link leads to",
    "recognition apart": "nothing is left of",
}
MOST = 40


@pytest.mark.chaos
@pytest.mark.parametrize("kind", FOUND)
async def test_a_gateway_that_is_wrong_between_two_moments_is_found_out(
    start_gateway: GatewayFactory, upstream: MockUpstream, kind: str
) -> None:
    """§3.6: turn and bill in one transaction, and that before the acknowledgement; the test must be able to fail."""
    gateway = start_gateway({"server": {"log_level": "warning"}}, {"BROKEN": kind}, start=False)
    gateway.program = ("-m", "tests.chaos.broken")
    gateway.start()
    storm = Storm([gateway], upstream, str((gateway.config or {})["storage"]["url"]), seed=3)
    with pytest.raises(AssertionError, match=FOUND[kind]):
        await storm.run(MOST)
