"""OpenAI's SDK over a network that loses answers: with an `Idempotency-Key` its retries are charged and stored once."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import bill_of, conversation_of, stored_of, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.proxies import LossyProxy


@pytest.fixture
def network(gateway: GatewayProcess) -> Iterator[LossyProxy]:
    """What lies between client and gateway."""
    with LossyProxy(gateway.port) as proxy:
        yield proxy


@pytest.fixture
def sdk(network: LossyProxy) -> Iterator[OpenAI]:
    """A client as people have it: it tries twice more by itself."""
    with OpenAI(base_url=network.base_url, api_key="sk-test", timeout=20) as client:
        yield client


def asking(text: str, **more: Any) -> Any:
    return {"model": "small", "messages": [user(text)], **more}


def test_s3_a_lost_answer_is_given_again(network: LossyProxy, sdk: OpenAI, upstream: MockUpstream,
                                         gateway: GatewayProcess) -> None:  # fmt: skip
    """The first answer is lost on its way, and the second: the SDK's third try brings it."""
    network.lose = 2
    headers = {"Idempotency-Key": "a lost answer"}
    answer = sdk.chat.completions.with_raw_response.create(**asking("lost"), extra_headers=headers)
    assert answer.http_request.headers["x-stainless-retry-count"] == "2"
    assert answer.headers["idempotent-replayed"] == "true"
    parsed = answer.parse()
    assert parsed.id.encode() in network.lost[0]
    assert len(upstream.chats) == 1
    assert [each["id"] for each in stored_of(gateway, conversation_of(parsed))] == [parsed.id]


def test_s3_a_lost_stream_is_given_again(network: LossyProxy, sdk: OpenAI, upstream: MockUpstream) -> None:
    """Streams are replayed as streams."""
    upstream.reply(text="one two three")
    network.lose = 1
    more: Any = {"stream_options": {"include_usage": True}, "extra_headers": {"Idempotency-Key": "a lost stream"}}
    chunks = list(sdk.chat.completions.create(**asking("stream"), stream=True, **more))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two three"
    assert chunks[0].id.encode() in network.lost[0]
    assert bill_of(chunks[-1])["cost"]["total_cost"] > 0
    assert len(upstream.chats) == 1
