"""Cohere through litellm, which sends its requests over connections of its own."""

import json

import pytest

from gateway.core.errors import UpstreamAuth, UpstreamError, UpstreamRefused
from tests.integration.litellm_calls import complete, deployment, streamed
from tests.support.http_server import Answer
from tests.support.mock_upstream import MockUpstream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "kind"), [(400, UpstreamRefused), (401, UpstreamAuth), (429, UpstreamRefused)])
async def test_s7_a_refusal_keeps_its_status(
    listening: MockUpstream, status: int, kind: type[UpstreamError], stream: bool
) -> None:
    """§7: it was told as a connection that was cut."""
    headers = (("content-type", "application/json"), ("retry-after", "3"))
    refusal = Answer(status, headers, [json.dumps({"message": "Not like this."}).encode()])
    listening.wires.append(lambda _: refusal)
    cohere = deployment("cohere_chat/command-r", api_base=f"{listening.url}/v2/chat")
    with pytest.raises(kind) as caught:
        await (streamed if stream else complete)(cohere)
    if isinstance(caught.value, UpstreamRefused):
        assert (caught.value.status, caught.value.headers["retry-after"]) == (status, "3")
        assert caught.value.message == "Not like this."
