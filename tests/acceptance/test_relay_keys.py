"""What is relayed with an operator's key, and whose key goes where (guarantee §1, §8)."""

from typing import Any

import pytest

from tests.support.factory import GatewayFactory
from tests.support.process import ProcessError


@pytest.mark.parametrize("wrong", ["FETCH /v1/files", "../files", "/v1/files/..", "POST https://x/v1", "a//b", "", 7])
def test_s9_a_relay_line_that_is_none(start_gateway: GatewayFactory, wrong: Any) -> None:
    """What could not be meant is an error at start that names file and path."""
    gateway = start_gateway({"server": {"relay": ["POST batches", wrong]}}, start=False)
    with pytest.raises(ProcessError):
        gateway.start()
    assert "server.relay[1]" in gateway.log_text()
