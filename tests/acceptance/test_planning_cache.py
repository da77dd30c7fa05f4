"""Summaries that are paid for once: by whom, for whom, and how long (guarantee §5)."""

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.support.answers import Json, chat, raw_request, user
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, Shown, every
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.reply import Reply
from tests.support.valkey import Valkey

SUMMARY = "Sixty lamps, all of them kept."
KEYS = {"auth": {"keys": [{"key": "sk-tenant-a", "tenant": "a"}, {"key": "sk-tenant-b", "tenant": "b"}]}}
PLANNING: Json = {"context": {"planning": "auto"}}


@pytest.fixture
def models(upstream: MockUpstream) -> InternalModels:
    """A planner that has everything summarized, and a summarizer that does."""
    made = InternalModels(every("summarize", summarization_focus="lamps"), lambda text: Reply(text=SUMMARY))
    upstream.handler = made
    return made


def ask(gateway: GatewayProcess, number: int = 60, token: str = "sk-tenant-a", **body: Any) -> Json:
    """About a document of so many lamps: other lamps are another document."""
    document = {"title": "Lamps", "content": lamps(number)}
    asked = {"model": "small", "messages": [user("What is kept?")], "attachments": [document], **body}
    return chat(gateway, key=token, **asked)


def differently(times: int) -> list[list[Json]]:
    """The question in so many words that each has a plan of its own: equal plans at once are asked for once."""
    return [[user(f"What is kept, for the {number}th time?")] for number in range(times)]


def stats(answer: Json) -> tuple[int, int]:
    """Hits and misses."""
    found = answer["response_metadata"]["context_utilization"]["cache_stats"]
    return found["hits"], found["misses"]


def delete(gateway: GatewayProcess, answer: Json, token: str = "sk-tenant-a") -> None:
    assert gateway.delete(f"/conversations/{answer['conversation']['id']}", key=token).status_code == 200


@pytest.fixture(params=["memory", "valkey"])
def start_planning(
    request: pytest.FixtureRequest, start_gateway: GatewayFactory, upstream: MockUpstream
) -> Callable[..., GatewayProcess]:
    """Starts a gateway that plans, on each kind of cache."""

    def start(**more: Any) -> GatewayProcess:
        cache: Json = {}
        if request.param == "valkey":
            server: Valkey = request.getfixturevalue("valkey")
            cache = {"cache": {"url": server.url, "timeout": 2.0}}
        return start_gateway({**PLANNING, **KEYS, **cache, **more})

    return start


def test_s2_store_false_neither_reads_nor_leaves_a_summary_in_any_cache(
    start_planning: Callable[..., GatewayProcess], models: InternalModels
) -> None:
    gateway = start_planning()
    assert [stats(ask(gateway, store=False)) for _ in range(2)] == [(0, 1), (0, 1)]
    assert stats(ask(gateway)) == (0, 1)
    assert stats(ask(gateway, store=False)) == (0, 1)
    assert stats(ask(gateway)) == (1, 0)


def test_s5_deleting_the_last_conversation_that_holds_an_artifact_deletes_its_summaries(
    start_planning: Callable[..., GatewayProcess], models: InternalModels
) -> None:
    gateway = start_planning()
    first, second = ask(gateway), ask(gateway)
    delete(gateway, first)
    third = ask(gateway)
    assert stats(third) == (1, 0), "the second conversation holds it still"
    delete(gateway, second)
    delete(gateway, third)
    assert stats(ask(gateway)) == (0, 1)
    assert len(models.summarized) == 2


@pytest.fixture(scope="module")
def module_two(module_start_gateway: GatewayFactory, session_valkey: Valkey) -> list[GatewayProcess]:
    config = {**PLANNING, **KEYS, "cache": {"url": session_valkey.url, "timeout": 10.0}}
    one = module_start_gateway(config)
    assert one.config is not None
    return [one, module_start_gateway({**config, "storage": one.config["storage"]})]


@pytest.fixture
def two(module_two: list[GatewayProcess], valkey: Valkey) -> list[GatewayProcess]:
    """Gateways with one cache, empty, and one storage, whose secret is in the cache's keys."""
    return module_two


def test_s5_two_processes_that_need_one_summary_at_once_pay_once(
    two: list[GatewayProcess], models: InternalModels
) -> None:
    """Twenty requests."""
    gate = threading.Event()
    models.summarizer = lambda text: Reply(text=SUMMARY, gate=gate)
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(ask, two[n % 2], messages=each) for n, each in enumerate(differently(20))]
        try:
            wait_until(lambda: bool(models.summarized) and len(models.planned) == 20, "all are planned")
        finally:
            gate.set()
        answers = [each.result() for each in asked]
    assert len(models.summarized) == 1
    assert sorted(map(stats, answers)) == [(0, 1), *[(1, 0)] * 19]


@pytest.mark.in_turn("store")
@pytest.mark.parametrize("answered", [True, False], ids=["planned", "rubbish"])
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
def test_s5_equal_plans_at_once_are_asked_for_once(
    two: list[GatewayProcess], upstream: MockUpstream, processes: int, store: bool, answered: bool
) -> None:
    """The others wait, and their bills say so. Without being stored nothing is in a cache that processes share. A plan
    that is asked for later is asked for anew."""
    plan, gate = every("rag_extract", extraction_query="keeper"), threading.Event()

    def planner(artifacts: list[Shown]) -> Reply:
        return replace(plan(artifacts) if answered else Reply(text="I cannot."), gate=gate)

    upstream.handler = models = InternalModels(planner)
    gateways = two[:processes]
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, gateways[number % processes], store=store) for number in range(6)]
        try:
            wait_until(lambda: sum(map(in_flight, set(gateways))) >= 6, "all of them")
            time.sleep(1)
        finally:
            gate.set()
        answers = [each.result()["response_metadata"]["context_utilization"] for each in asked]
    payers = len(models.planned)
    assert payers == (1 if store else processes) or (not answered and payers <= processes)
    assert [each["llm_planning_used"] for each in answers] == [answered] * 6
    calls = sorted(each["planning_usage"]["planner"].get("calls", 0) for each in answers)
    assert calls == [*[0] * (6 - payers), *[1] * payers]
    if answered:
        assert ask(gateways[0])["response_metadata"]["context_utilization"]["planning_usage"]["planner"]["calls"] == 1


def in_flight(gateway: GatewayProcess) -> int:
    found = gateway.get(f"http://127.0.0.1:{gateway.port}/metrics", key="sk-tenant-a").text
    return sum(int(float(each)) for each in re.findall(r"^gateway_requests_in_flight (\S+)$", found, re.MULTILINE))


def test_s5_what_was_summarized_for_a_client_that_left_is_forgotten(
    start_gateway: GatewayFactory, valkey: Valkey, models: InternalModels
) -> None:
    """No conversation holds its content: nothing could delete the summary that was finished before it left."""
    gateway, gate = start_gateway({**PLANNING, **KEYS, "cache": {"url": valkey.url, "timeout": 2.0}}), threading.Event()
    models.summarizer = lambda text: Reply(text=SUMMARY) if "Name7x" in text else Reply(text="late", gate=gate)
    documents = [{"title": "Lamps", "content": lamps(60)}, {"title": "Tides", "content": prose(3, 2500)}]
    asked = {"model": "small", "messages": [user("What is kept?")], "attachments": documents}
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
        client.sendall(raw_request(asked, "sk-tenant-a"))
        wait_until(lambda: len(models.summarized) == 2 and bool(kept(valkey)), "the first of two summaries")
    wait_until(lambda: not kept(valkey), "the summary to be forgotten")
    gate.set()
    assert models.answered == []


def kept(valkey: Valkey) -> list[str]:
    """The keys of summaries; claims are none."""
    keys = valkey.keys()
    return [key for key in keys if "summary:" in key and not key.endswith(":claim")]
