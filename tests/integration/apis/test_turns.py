"""A window of turns, and the summary in it, as clients of each API see it (guarantee §3.11)."""

from functools import partial

import httpx
import pytest

from tests.support.answers import Json, assistant, ok, user
from tests.support.edges import EDGES, PATHS, Edge, common, heard, said_by
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, plan_of
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until

CLASSIC = {"MAX_CONVERSATION_LENGTH": "15", "SUMMARIZATION_ENABLED": "true", "SUMMARIZATION_THRESHOLD": "0.70"}
MEMORY = "<conversation_memory"
BOUND_BY_FIVE = (1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3)
"""Turns that are forwarded at each turn."""


@pytest.fixture
def models(upstream: MockUpstream) -> InternalModels:
    """A summarizer that tells how often it was asked."""
    found = InternalModels(lambda _: plan_of(), lambda _: Reply(text=f"Told in short {len(found.summarized)}."))
    upstream.handler = found
    return found


def asked(number: int) -> Json:
    found: Json = user(f"Question {number}: what of lamp {number}?")
    return found


def turns_of(messages: list[Json]) -> list[int]:
    """The numbers of the turns that were forwarded as messages."""
    said = [str(m["content"]) for m in messages if m["role"] == "user" and not str(m["content"]).startswith(MEMORY)]
    return [int(text.rpartition("Question ")[2].partition(":")[0]) for text in said]


def memory_of(messages: list[Json]) -> str:
    return "".join(str(m["content"]) for m in messages if str(m["content"]).startswith(MEMORY))


def talk(gateway: GatewayProcess, models: InternalModels, turns: int) -> list[list[Json]]:
    """What was forwarded at each turn of a classic conversation, whose client waits for summaries under way."""
    with gateway.http() as client:
        client.base_url = httpx.URL(f"{gateway.url}/api/v1")
        for number in range(1, turns + 1):
            body = {"message": asked(number)["content"], "conversation_id": "conv-1"}
            answer = ok(client.post("/chat", json=body))
            if models.summarized and models.summarizer("").status == 200:
                name = answer["response_metadata"]["conversation_id"]
                found = f"{gateway.base_url}/conversations/{name}/context"
                wait_until(partial(_is_stored, client, found, models), "the summary is stored")
    return [body["messages"] for body in models.answered]


def _is_stored(client: httpx.Client, window: str, models: InternalModels) -> bool:
    return len(client.get(window).json()["segments"]) == len(models.summarized)


@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
def test_s3_11_by_its_classic_names(start_gateway: GatewayFactory, storage_url: str, models: InternalModels) -> None:
    """At 70 per cent of the bound the oldest 40 per cent are told by a summary, which each later turn shows: none is
    paid that is not shown. Between passes what is forwarded begins as before."""
    gateway = start_gateway({"storage": {"url": storage_url}}, CLASSIC)
    forwarded = talk(gateway, models, 30)
    first = next(n for n, messages in enumerate(forwarded) if memory_of(messages))
    assert turns_of(forwarded[10]) == list(range(1, 12))
    assert 11 <= first <= 13
    assert turns_of(forwarded[first]) == list(range(5, first + 2))
    assert "Told in short 1." in memory_of(forwarded[first])
    assert 'turns="1-4"' in memory_of(forwarded[first])
    assert max(len(turns_of(messages)) for messages in forwarded) <= 15
    assert all(turns_of(each) == list(range(turns_of(each)[0], n + 1)) for n, each in enumerate(forwarded, 1))
    last = memory_of(forwarded[-1])
    assert len(models.summarized) >= 4
    assert all(f"Told in short {n}." in last for n in range(1, len(models.summarized)))
    passes = [n for n in range(1, 30) if forwarded[n][: len(forwarded[n - 1])] != forwarded[n - 1]]
    assert len(passes) <= len(models.summarized)


@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
def test_s3_11_without_a_summary_turns_leave_at_the_bound(
    start_gateway: GatewayFactory, storage_url: str, models: InternalModels
) -> None:
    models.summarizer = lambda _: Reply(status=500)
    forwarded = talk(start_gateway({"storage": {"url": storage_url}}, CLASSIC), models, 24)
    assert [len(turns_of(messages)) for messages in forwarded] == [*range(1, 16), *range(9, 16), 9, 10]
    assert not any(map(memory_of, forwarded))
    assert len(models.summarized) == 1


@pytest.mark.in_turn("mode")
@pytest.mark.parametrize("mode", ["auto", "simple", "off"])
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("edge", EDGES)
def test_s3_11_in_each_api_and_without_storage(
    bounded: GatewayProcess, models: InternalModels, edge: Edge, store: bool, mode: str
) -> None:
    """A client that sends all of it again; also by a model of unknown window. Mode `off` forwards all."""
    said: list[Json] = []
    before: list[Json] = []
    passes, bill = 0, Json()
    model = "bench" if mode == "simple" else "small"
    for number in range(1, 13):
        said.append(asked(number))
        body = {"model": model, "messages": said, "store": store, "context": {"mode": mode}}
        answer = ok(bounded.post(PATHS[edge], json=said_by(edge, common(body))))
        told = heard(edge, answer)
        said.append(assistant(told.message["content"]))
        bill = told.bill["context_utilization"]
        messages = models.answered[-1]["messages"]
        passes += messages[: len(before)] != before
        before = messages
        turns = turns_of(messages)
        assert turns == list(range(turns[0], number + 1))
        assert len(turns) == (number if mode == "off" else BOUND_BY_FIVE[number - 1])
    if mode != "off":
        assert passes == 3
        assert (bill["left_by"], bill["strategy"], bill["messages_excluded"]) == ("max_turns", "simple", 18)


@pytest.mark.parametrize("says", ["It hangs in the hall, as it did last year. " * 3, "Yes."])
@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
def test_s3_11_who_sends_all_again_reads_the_summary_or_pays_for_none(
    start_gateway: GatewayFactory, storage_url: str, models: InternalModels, says: str
) -> None:
    """Short answers do not show that a conversation is the client's own (§3.2): then nothing stored is put in front."""
    gateway = start_gateway({"storage": {"url": storage_url}}, CLASSIC)
    models.primary = lambda _: Reply(text=says)
    said: list[Json] = []
    with gateway.http() as client:
        for number in range(1, 15):
            said.append(asked(number))
            answer = ok(client.post("/chat/completions", json={"model": "small", "messages": said}))
            said.append(assistant(says))
            name = answer["conversation"]["id"]
            if models.summarized:
                found = f"{gateway.base_url}/conversations/{name}/context"
                wait_until(partial(_is_stored, client, found, models), "the summary is stored")
    last = models.answered[-1]["messages"]
    assert bool(models.summarized) == bool(memory_of(last)) == (len(says) > 100)
    assert turns_of(last)[0] == (5 if memory_of(last) else 1)


bounded = shared_gateway({"conversation": {"max_turns": 5}})
"""At most five turns."""
