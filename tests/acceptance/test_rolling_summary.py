"""Summaries of old turns (guarantee §11.8): when they are made, who pays, what of them is kept and deleted."""

from itertools import pairwise

import pytest

from tests.support.answers import Json
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, plan_of
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.summaries import Chat

SUMMARY: Json = {"context": {"memory": "summary", "planning": "never"}}


@pytest.fixture
def models(upstream: MockUpstream) -> InternalModels:
    """A summarizer that tells how often it was asked."""
    models = InternalModels(lambda _: plan_of(), lambda text: Reply(text=f"Summary {len(models.summarized)}."))
    upstream.handler = models
    return models


@pytest.fixture
def gateway(start_gateway: GatewayFactory, storage_url: str) -> GatewayProcess:
    return start_gateway({**SUMMARY, "storage": {"url": storage_url}})


@pytest.fixture
def talk(gateway: GatewayProcess, models: InternalModels, make_client: ClientFactory) -> Chat:
    return Chat(gateway, models, make_client(gateway))


def told(number: int) -> str:
    """A twentieth of the window."""
    return f"Fact {number}: " + f"lamp {number} hangs in room {number}. " * 20


def test_s11_8_a_chat_ten_times_longer_than_its_window(talk: Chat) -> None:
    """Segments one behind the other, of turns that are neither the latest nor covered yet; each paid once, on the bill
    of the turn behind which it was made."""
    turns = 150
    for number in range(turns):
        talk.say(told(number))
    talk.settle()
    segments = talk.segments()
    assert len(segments) > 10
    assert [each.text for each in segments] == [f"Summary {n}." for n in range(1, len(segments) + 1)]
    assert segments[0].first == 0
    assert all(later.first == earlier.last + 1 for earlier, later in pairwise(segments))
    assert 2 * turns - 60 < segments[-1].last < 2 * turns - 2
    shown = [body["messages"][1]["content"] for body in talk.models.summarized]
    covered = [sum(f"Fact {number}:" in text for text in shown) for number in range(turns)]
    assert covered == [1] * ((segments[-1].last + 1) // 2) + [0] * (turns - (segments[-1].last + 1) // 2)
    assert talk.billed() == len(shown) == len(segments)
    assert talk.check_bills() > 0
