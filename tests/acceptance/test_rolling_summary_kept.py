"""What is kept of summaries, with two gateways, deletions and ends at the wrong moment (guarantee §11.13)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.answers import Json
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, plan_of
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.page_examples import ROOT, block, run
from tests.support.process import free_port, wait_until
from tests.support.summaries import SUMMARY, Chat, told
from tests.support.valkey import Valkey


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Set, the summarizer answers."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def models(upstream: MockUpstream, held: threading.Event) -> InternalModels:
    found = InternalModels(lambda _: plan_of(), lambda _: Reply(text=f"Summary {len(found.summarized)}.", gate=held))
    upstream.handler = found
    return found


@pytest.fixture
def gateways(start_gateway: GatewayFactory, storage_url: str) -> list[GatewayProcess]:
    """Two on one storage, with a cache each."""
    return [start_gateway({**SUMMARY, "storage": {"url": storage_url}}) for _ in range(2)]


@pytest.fixture
def talk(gateways: list[GatewayProcess], models: InternalModels, make_client: ClientFactory) -> Chat:
    return Chat(gateways[0], models, make_client(gateways[0]))


def until_asked(talk: Chat, number: int = 1) -> None:
    """Talks until the summarizer has been asked so often."""
    for turn in range(200):
        if len(talk.models.summarized) >= number:
            return
        talk.say(told(turn))


def items(talk: Chat) -> list[Json]:
    found: list[Json] = talk.gateway.get(f"/conversations/{talk.conversation}/items?order=asc&limit=100").json()["data"]
    return found


def delete_item(talk: Chat, item: Json) -> None:
    assert talk.gateway.delete(f"/conversations/{talk.conversation}/items/{item['id']}").status_code == 200


def test_s11_13_a_deleted_item_takes_its_segment_and_the_later_ones_along(talk: Chat, held: threading.Event) -> None:
    held.set()
    talk.fill(3)
    talk.settle()
    first, second, *_ = talk.segments()
    assert len(talk.segments()) >= 3
    path = items(talk)
    delete_item(talk, path[second.first + 1])
    assert talk.segments() == [first]
    talk.say(told(500))
    talk.asked(len(talk.models.summarized))
    delete_item(talk, path[0])
    assert [each for each in talk.segments() if each.last <= second.last] == []


def test_s11_13_a_deleted_conversation_leaves_no_summary(talk: Chat, held: threading.Event) -> None:
    """Neither one that it had nor one that is being made; the anonymous bill has what that cost."""
    until_asked(talk)
    answer = max(talk.answers, key=lambda each: each.created)
    with talk.gateway.http() as client:
        bills = [bill["id"] for bill in talk.bills()]
        assert client.delete(f"/conversations/{talk.conversation}").status_code == 200
        held.set()

        def billed() -> bool:
            found = [client.get(f"/chat/completions/{name}").json() for name in bills]
            return any(each["response_metadata"]["cost"]["planning_cost"] > 0 for each in found)

        wait_until(billed, "the bill")
    assert talk.segments() == []
    assert answer.id in bills


def test_s11_13_an_end_waits_for_a_summary(talk: Chat, held: threading.Event) -> None:
    until_asked(talk)
    release = threading.Timer(1.0, held.set)
    release.start()
    talk.settle()
    assert [each.text for each in talk.segments()] == ["Summary 1."]
    assert talk.billed() == 1


@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
@pytest.mark.chaos
def test_s11_13_an_end_does_not_wait_for_ever(talk: Chat, held: threading.Event) -> None:
    """What was asked is billed by the gateway's count."""
    until_asked(talk)
    talk.settle()
    assert talk.segments() == []
    (bill,) = [each for each in talk.bills() if each["response_metadata"]["cost"]["planning_cost"]]
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert talk.check_bills() > 0


def test_the_example_of_the_page(
    start_gateway: GatewayFactory, models: InternalModels, held: threading.Event, tmp_path: Path
) -> None:
    """It runs as it stands there, but for the port, with the configuration above it."""
    held.set()
    page = (ROOT / "docs/rolling-summary.md").read_text()
    configured = yaml.safe_load(block(page, "An example", "yaml"))
    gateway = start_gateway(configured)
    code = block(page, "An example", "python")
    printed = run(code, gateway, tmp_path).splitlines()
    assert len(printed) == 13
    assert all(line.startswith(("{} 0", "{'prompt_tokens'")) for line in printed)
    wait_until(lambda: len(models.summarized) == 1, "the summarizer is asked once")


@pytest.mark.chaos
def test_s11_13_two_replicas_with_one_cache_ask_once(
    start_gateway: GatewayFactory,
    storage_url: str,
    valkey: Valkey,
    models: InternalModels,
    make_client: ClientFactory,
    held: threading.Event,
) -> None:
    """While one makes a summary the other does not; one that failed is not tried again by the other either."""
    shared = {**SUMMARY, "storage": {"url": storage_url}, "cache": {"url": valkey.url, "timeout": 2.0}}
    first, second = (start_gateway(shared) for _ in range(2))
    talk = Chat(first, models, make_client(first))
    until_asked(talk)
    talk.client = make_client(second)
    for number in range(3):
        talk.say(told(number))
    second.terminate()
    assert len(models.summarized) == 1
    models.summarizer = lambda _: Reply(status=500)
    held.set()
    talk.asked(1)
    talk.client = make_client(first)
    until_asked(talk, 2)
    second.start()
    talk.client = make_client(second)
    for number in range(3):
        talk.say(told(number))
    second.terminate()
    assert len(models.summarized) == 2


@pytest.mark.chaos
def test_s3_7_one_gateway_without_its_cache_asks_once(
    start_gateway: GatewayFactory, models: InternalModels, make_client: ClientFactory
) -> None:
    """Of several summaries of the same turns one would be shown, and all would be paid for."""
    gateway = start_gateway({**SUMMARY, "cache": {"url": f"redis://127.0.0.1:{free_port()}/0"}})
    talk = Chat(gateway, models, make_client(gateway))
    until_asked(talk)
    for number in range(3):
        talk.say(told(number))
    gateway.terminate()
    assert len(models.summarized) == 1
