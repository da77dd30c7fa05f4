"""Answers of upstreams have limits of size, whole and streamed: memory is nobody's to fill."""

from collections.abc import AsyncIterator

import pytest

from gateway.errors import UpstreamInvalidResponse
from gateway.models.exchange import Deployment
from gateway.models.upstream import UpstreamRequest
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai import answers
from gateway.upstream.openai.chat import HttpUpstream
from tests.support.mock_upstream import MockUpstream

LIMIT = 5000
WORDS = "word " * 400


@pytest.fixture
async def called(upstream: MockUpstream) -> AsyncIterator[tuple[HttpUpstream, Deployment]]:
    pool = ConnectionPool(5)
    yield HttpUpstream(pool), Deployment("m", "m", "openai/m", upstream.base_url, "sk-test", operator_key=True)
    await pool.aclose()


async def told(called: tuple[HttpUpstream, Deployment]) -> int:
    """Chunks of a streamed answer."""
    http, deployment = called
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with http.stream(deployment, UpstreamRequest(body)) as stream:
        return sum([len(batch) async for batch in stream.batches()])


async def test_s7_a_stream_without_end_is_given_up(
    called: tuple[HttpUpstream, Deployment], upstream: MockUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.reply(text=WORDS)
    assert await told(called) > 100
    monkeypatch.setattr(answers, "MAX_STREAM_BYTES", LIMIT)
    upstream.reply(text=WORDS)
    with pytest.raises(UpstreamInvalidResponse, match="exceeds 5000 bytes"):
        await told(called)
    assert upstream.in_flight <= 1
