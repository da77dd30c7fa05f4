"""An SDK's own retry is answered from its first try, over a network that loses answers: charged and stored once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.support.answers import bill_of, conversation_of, http, stored_of, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.proxies import LossyProxy

Json = dict[str, Any]


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


def send(gateway: GatewayProcess, body: Json, retry: int, **headers: str) -> httpx.Response:
    """A request as an SDK sends it at its `retry`th retry."""
    with http(gateway) as client:
        counted = {"x-stainless-retry-count": str(retry), **headers}
        return client.post("/chat/completions", json=body, headers=counted)


def test_s3_a_lost_answer_is_given_again(network: LossyProxy, sdk: OpenAI, upstream: MockUpstream,
                                         gateway: GatewayProcess) -> None:  # fmt: skip
    """The first answer is lost on its way, and the second: the SDK's third try brings it."""
    network.lose = 2
    answer = sdk.chat.completions.with_raw_response.create(**asking("lost"))
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
    chunks = list(sdk.chat.completions.create(**asking("stream"), stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two three"
    assert chunks[0].id.encode() in network.lost[0]
    assert bill_of(chunks[-1])["cost"]["total_cost"] > 0
    assert len(upstream.chats) == 1


def test_s3_identical_requests_are_no_retries(
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


def test_s3_a_retry_gets_the_latest(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The same request sent anew takes the place of the earlier one; a retry repeats the latest."""
    first, second = send(gateway, asking("anew"), 0), send(gateway, asking("anew"), 0)
    retry = send(gateway, asking("anew"), 1)
    assert retry.json() == second.json() != first.json()
    assert len(upstream.chats) == 2


def test_s3_whose_answer_it_is_must_be_known(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Two clients that sent the same at the same time: a retry could be either's, so it runs itself."""
    gate = threading.Event()
    for _ in range(2):
        upstream.reply(text="Noon.", gate=gate)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(send, gateway, asking("twins"), 0) for _ in range(2)]
        upstream.wait_for_chats(2)
        gate.set()
    retries = [send(gateway, asking("twins"), 1) for _ in range(2)]
    ids = {answer.json()["id"] for answer in (*(done.result() for done in both), *retries)}
    assert len(ids) == 4


@pytest.mark.parametrize(
    "other",
    [{"user-agent": "Another/1.0"}, {"x-stainless-lang": "js"}, {"x-conversation-id": ""}, {"x-context-mode": "simple"},
     {"x-forwarded-for": "192.0.2.9, 10.0.0.1"}, {"authorization": "Bearer sk-another"}],
)  # fmt: skip
def test_s3_another_clients_retry(gateway: GatewayProcess, upstream: MockUpstream, other: dict[str, str]) -> None:
    """A retry by another client, tenant, or of what is asked otherwise, is nobody's here: it runs. An empty header
    says nothing."""
    name = next(iter(other))
    first = send(gateway, asking(f"other {name}"), 0)
    retry = send(gateway, asking(f"other {name}"), 1, **other)
    assert ("idempotent-replayed" in retry.headers) is (other[name] == "")
    assert (retry.json()["id"] == first.json()["id"]) is (other[name] == "")


def test_s3_a_retry_without_a_first_runs(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The first never reached us."""
    answer = send(gateway, asking("never seen"), 1)
    assert "idempotent-replayed" not in answer.headers
    assert send(gateway, asking("never seen"), 2).json() == answer.json()
    assert len(upstream.chats) == 1


def test_s3_a_retry_after_a_failure_runs(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """An upstream that fails once: the SDK's retry calls it again, although an earlier request was answered."""
    client = make_client(gateway, max_retries=2)
    create: Any = client.chat.completions.create
    earlier = create(**asking("failing"))
    upstream.reply(status=500)
    answer = create(**asking("failing"))
    assert answer.id != earlier.id
    assert len(upstream.chats) == 3
    assert len(stored_of(gateway, conversation_of(answer))) >= 1


def test_s3_a_retry_waits_for_its_first(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Twenty retries while the first runs: all are answered from it."""
    gate = threading.Event()
    upstream.reply(text="Noon.", gate=gate)
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(send, gateway, asking("waiting"), 0)
        upstream.wait_for_chats(1)
        retries = [pool.submit(send, gateway, asking("waiting"), 1) for _ in range(20)]
        gate.set()
    answer = first.result().json()
    assert all(done.result().json() == answer for done in retries)
    assert len(upstream.chats) == 1


def test_s3_one_of_the_waiting_runs_if_the_first_failed(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Twenty retries at once make one call."""
    gate, second = threading.Event(), threading.Event()
    upstream.reply(status=500, gate=gate)
    upstream.reply(text="Noon.", gate=second)
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(send, gateway, asking("failed first"), 0)
        upstream.wait_for_chats(1)
        retries = [pool.submit(send, gateway, asking("failed first"), 1) for _ in range(20)]
        gate.set()
        upstream.wait_for_chats(2)
        second.set()
    assert first.result().status_code == 500
    assert len({done.result().json()["id"] for done in retries}) == 1
    assert len(upstream.chats) == 2


def test_s3_a_client_that_lost_patience(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """An SDK that hangs up and asks again is answered from its first try: one call, one bill, one turn."""
    gate = threading.Event()
    upstream.reply(text="Noon.", gate=gate)
    before = gateway.log_tail().count("client_disconnected")
    with (
        OpenAI(base_url=gateway.base_url, api_key="sk-test", timeout=1.0, max_retries=3) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(lambda: client.chat.completions.with_raw_response.create(**asking("patience")))
        wait_until(lambda: gateway.log_tail().count("client_disconnected") > before, 10, "the client to hang up")
        gate.set()
        answer = asked.result()
    assert answer.headers["idempotent-replayed"] == "true"
    assert len(upstream.chats) == 1
    assert [each["id"] for each in stored_of(gateway, conversation_of(answer.parse()))] == [answer.parse().id]


def test_s3_6_an_abandoned_stream_is_cut_and_its_retry_runs(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§3.6: the upstream call of an abandoned stream is cancelled, whoever asked."""
    upstream.reply(text="Noon.", gate=threading.Event())
    with OpenAI(base_url=gateway.base_url, api_key="sk-test", timeout=1.0, max_retries=1) as client:
        chunks = list(client.chat.completions.create(**asking("stream patience"), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert len(upstream.chats) == 2


def test_s2_unkept_answers_are_not_given_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`store: false`: nothing is kept that could be; the retry waits while the first runs, and runs itself."""
    body = asking("secret", store=False)
    gate = threading.Event()
    upstream.reply(text="Noon.", gate=gate)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(send, gateway, body, 0)
        upstream.wait_for_chats(1)
        retry = pool.submit(send, gateway, body, 1)
        with pytest.raises(TimeoutError):
            retry.result(timeout=0.3)
        assert len(upstream.chats) == 1
        gate.set()
    assert first.result().json()["id"] != retry.result().json()["id"]
    assert len(upstream.chats) == 2


@pytest.mark.parametrize("count", ["", "x", "-1"])
def test_s3_counts_that_are_none(gateway: GatewayProcess, upstream: MockUpstream, count: str) -> None:
    """Who does not count tries is answered each time."""
    with http(gateway) as client:
        headers = {"x-stainless-retry-count": count}
        answers = [client.post("/chat/completions", json=asking("odd"), headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(upstream.chats) == 2
