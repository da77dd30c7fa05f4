"""Answers of upstreams have limits of size, whole and streamed: memory is nobody's to fill."""

from collections.abc import AsyncIterator

import pytest

from gateway.core.errors import UpstreamInvalidResponse
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.http import answers
from gateway.upstream.http.answers import HttpUpstream
from gateway.upstream.http_client import ConnectionPool
from tests.support.mock_upstream import MockUpstream

LIMIT = 5000
WORDS = "word " * 400


@pytest.fixture
async def called(upstream: MockUpstream) -> AsyncIterator[tuple[HttpUpstream, ModelDeployment]]:
    pool = ConnectionPool(5)
    yield HttpUpstream(pool), ModelDeployment("m", "m", "openai/m", upstream.base_url, "sk-test", operator_key=True)
    await pool.aclose()


async def told(called: tuple[HttpUpstream, ModelDeployment]) -> int:
    """Chunks of a streamed answer."""
    http, deployment = called
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with http.stream(deployment, UpstreamRequest(body)) as stream:
        return sum([len(batch) async for batch in stream.batches()])


async def test_s7_a_stream_without_end_is_given_up(
    called: tuple[HttpUpstream, ModelDeployment], upstream: MockUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.reply(text=WORDS)
    assert await told(called) > 100
    monkeypatch.setattr(answers, "MAX_STREAM_BYTES", LIMIT)
    upstream.reply(text=WORDS)
    with pytest.raises(UpstreamInvalidResponse, match="exceeds 5000 bytes"):
        await told(called)
    assert upstream.in_flight <= 1
