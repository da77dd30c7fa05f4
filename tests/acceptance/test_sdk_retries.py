"""OpenAI's SDK over a network that loses answers: with an `Idempotency-Key` its retries are charged and stored once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import bill_of, conversation_of, stored_of, user
from tests.support.factory import ClientFactory
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


def test_s3_without_a_key_a_retry_is_a_request(network: LossyProxy, sdk: OpenAI, upstream: MockUpstream,
                                               gateway: GatewayProcess) -> None:  # fmt: skip
    """Nothing says which request it repeats, so it is answered anew; the lost answer stays stored, on its own bill."""
    upstream.reply(text="Eleven.")
    upstream.reply(text="Noon.")
    network.lose = 1
    answer: Any = sdk.chat.completions.create(**asking("no key"))
    assert answer.choices[0].message.content == "Noon."
    assert answer.id.encode() not in network.lost[0]
    assert len(upstream.chats) == 2
    goes_on = {"messages": [user("no key"), {"role": "assistant", "content": "Noon."}, user("and then?")]}
    again: Any = sdk.chat.completions.create(**asking("") | goes_on)
    assert conversation_of(again) == conversation_of(answer)
    assert len(stored_of(gateway, conversation_of(answer))) == 2


def test_s3_identical_requests_are_answered_each(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Two people who say the same are answered each for himself, one after the other and at once."""
    create: Any = make_client(gateway).chat.completions.create
    gate = threading.Event()
    upstream.handler = lambda _: None
    one, two = create(**asking("same")), create(**asking("same"))
    assert one.id != two.id
    for _ in range(2):
        upstream.reply(text="Noon.", gate=gate)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(create, **asking("same")) for _ in range(2)]
        upstream.wait_for_chats(4)
        gate.set()
    ids = {conversation_of(each) for each in (one, two, *(done.result() for done in both))}
    assert len(ids) == 4
    assert len(upstream.chats) == 4


def test_s3_a_retry_after_a_failure_runs(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """An upstream that fails once: the SDK's retry calls it again, with a key too."""
    client = make_client(gateway, max_retries=2)
    upstream.reply(status=500)
    answer = client.chat.completions.create(**asking("failing"), extra_headers={"Idempotency-Key": "failing"})
    assert len(upstream.chats) == 2
    assert len(stored_of(gateway, conversation_of(answer))) == 1


def test_s3_6_a_stream_whose_client_lost_patience_is_cut_off_and_its_retry_runs(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§3.6: the upstream call of an abandoned stream is cancelled; its key is free again."""
    upstream.reply(text="Late.", gate=threading.Event())
    upstream.reply(text="Noon.")
    headers = {"Idempotency-Key": "patience"}
    with OpenAI(base_url=gateway.base_url, api_key="sk-test", timeout=1.0, max_retries=3) as client:
        answer: Any = client.chat.completions.create(**asking("patience"), stream=True, extra_headers=headers)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in answer) == "Noon."
    assert len(upstream.chats) == 2
