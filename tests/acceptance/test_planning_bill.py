"""What planning costs is on the bill whatever becomes of the request, and has a ceiling (guarantee §5, §6)."""

import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.chaos.audit import rows
from tests.support.answers import Json, as_told, chat, http, raw_request, stored, used, user
from tests.support.books import PICO, PRICES, Books
from tests.support.documents import lamps, prose
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, Shown, decision, every, plan_of, role_of
from tests.support.mock_upstream import MockUpstream, count_prompt
from tests.support.process import wait_until
from tests.support.reply import Reply
from tests.support.schemas import sqlite_url

LONG = {"title": "Lamps", "content": lamps(60)}
ASKED: Json = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")], "attachments": [LONG]}
LEDGER = "SELECT request_id, status, estimated, total_cost_picousd FROM ledger"
CALLS = "SELECT request_id, purpose, prompt_cost_picousd, completion_cost_picousd, estimated FROM ledger_calls"


def test_s6_the_bills_are_what_the_provider_charged_planner_and_summarizer_included(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """Sixty requests at once, some of whose planners, summarizers and answers fail: to the last digit."""
    gateway = start_gateway({"context": {"planning": "auto"}, "storage": {"url": storage_url}})
    books, chance = Books(3), random.Random(4)

    def plan(artifacts: list[Shown]) -> Reply:
        kind = chance.choice(["plan", "plan", "plan", "prose", "refused"])
        if kind == "refused":
            return Reply(status=chance.choice([429, 500, 503]))
        strategy = chance.choice(["summarize", "rag_extract"])
        focus = f"focus {chance.randrange(4)}"
        made = plan_of(*(decision(a.artifact_id, strategy, summarization_focus=focus) for a in artifacts))
        return books.charge(models.planned[-1], made if kind == "plan" else Reply(text="No idea."))

    def summarize(text: str) -> Reply:
        if chance.random() < 0.2:
            return Reply(status=500)
        return books.charge(models.summarized[-1], Reply(text=f"Summary {chance.randrange(10**6)}"))

    def answer(body: Json) -> Reply:
        return Reply(status=500) if chance.random() < 0.1 else books.charge(body, Reply(text="Well."))

    upstream.handler = models = InternalModels(plan, summarize, answer)

    def send(number: int) -> int:
        document = {"title": f"Prose {number % 7}", "content": prose(number % 7, 3000)}
        with http(gateway) as client:
            return client.post("/chat/completions", json={**ASKED, "attachments": [document, LONG]}).status_code

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(send, range(60)))
    assert set(statuses) == {200, 500}
    wait_until(lambda: len(rows(storage_url, LEDGER)) == 60, "the last bill")
    ledger, calls = rows(storage_url, LEDGER), rows(storage_url, CALLS)
    assert not any(row["estimated"] for row in ledger)
    assert sum(int(row["total_cost_picousd"]) for row in ledger) == int(books.total / PICO)
    parts = sum(int(row["prompt_cost_picousd"]) + int(row["completion_cost_picousd"]) for row in calls)
    assert parts == int(books.total / PICO)
    assert len(calls) == len(models.planned) + len(models.summarized) + len(models.answered)
    assert len(models.summarized) > 2  # chance decides, and which thread draws first
    assert books.calls > 90


@pytest.fixture
def planning(start_gateway: GatewayFactory) -> GatewayProcess:
    return start_gateway({"context": {"planning": "auto"}})


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What holds replies back; opened at the end, so that the mock can stop."""
    made = threading.Event()
    yield made
    made.set()


@pytest.mark.parametrize("held", ["planner", "summarizer"])
def test_s6_a_client_that_leaves_while_its_context_is_planned_leaves_a_bill(
    planning: GatewayProcess, upstream: MockUpstream, gate: threading.Event, held: str
) -> None:
    """The internal call is cut off; its prompt is billed, estimated, and the primary model is never called."""
    upstream.handler = models = InternalModels(every("summarize"))
    if held == "planner":
        models.planner = lambda artifacts: Reply(text="{}", gate=gate)
    else:
        models.summarizer = lambda text: Reply(text="late", gate=gate)
    storage = sqlite_url(planning.directory)
    with socket.create_connection(("127.0.0.1", planning.port), timeout=10) as client:
        client.sendall(raw_request(ASKED))
        waiting = models.planned if held == "planner" else models.summarized
        wait_until(lambda: bool(waiting), f"the {held} to be asked")
    wait_until(lambda: bool(rows(storage, LEDGER)), "the bill")
    (row,) = rows(storage, LEDGER)
    assert (row["status"], bool(row["estimated"])) == ("failed", True)
    calls = {call["purpose"]: call for call in rows(storage, CALLS)}
    assert set(calls) == ({"planner"} if held == "planner" else {"planner", "summarizer"})
    assert calls[held]["estimated"]
    assert int(calls[held]["prompt_cost_picousd"]) > 0
    assert int(calls[held]["completion_cost_picousd"]) == 0
    assert models.answered == []


LIMITS: list[tuple[Json, str]] = [
    ({"planning_max_tokens": 500}, "planner_over_token_ceiling"),
    ({"planning_max_cost": 0.0001}, "planner_over_cost_ceiling"),
    ({"planning_max_seconds": 0.3}, "planner_over_time_ceiling"),
]


@pytest.mark.parametrize(("limits", "reason"), LIMITS, ids=[reason for _, reason in LIMITS])
def test_s5_the_context_stage_has_a_ceiling(
    start_gateway: GatewayFactory, upstream: MockUpstream, limits: Json, reason: str
) -> None:
    """A call that could exceed what is left is not made; what takes too long is cut off, and billed."""
    gateway = start_gateway({"context": {"planning": "auto", **limits}})
    upstream.handler = models = InternalModels(lambda artifacts: Reply(text="{}", delay_first=5))
    answer = chat(gateway, **ASKED)
    assert used(answer)["fallback_reason"] == reason
    cut_off = "seconds" in str(limits)
    assert len(models.planned) == cut_off
    assert (used(answer)["planning_cost"]["planner_cost"] > 0) == cut_off
    assert answer["response_metadata"]["timings_ms"]["plan"] < 3000


def test_s5_a_summary_that_could_exceed_what_is_left_is_not_made(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """The plan is followed all the same."""
    gateway = start_gateway({"context": {"planning": "auto", "planning_max_tokens": 5000}})
    upstream.handler = models = InternalModels(every("summarize"))
    answer = chat(gateway, **ASKED)
    assert (len(models.planned), len(models.summarized)) == (1, 0)
    assert used(answer)["fallback_reason"] == "summarizer_over_token_ceiling"
    assert used(answer)["llm_planning_used"] is True


def test_s6_an_internal_model_without_a_price_makes_the_sum_null_and_never_0(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    local = {"model": "openai/nobodys-model", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    listed = [
        {
            "model_name": "small",
            "litellm_params": {**local, "model": "openai/small"},
            "model_info": dict(SMALL_MODEL_INFO),
        }
    ]
    listed.append({"model_name": "local", "litellm_params": local})
    gateway = start_gateway({"model_list": listed, "context": {"planning": "auto", "planner_model": "local"}})
    upstream.handler = InternalModels(every("rag_extract"))
    answer = chat(gateway, **ASKED)
    bill, details = answer["response_metadata"], answer["usage"]["cost_details"]
    assert used(answer)["llm_planning_used"] is True
    assert (bill["cost"]["priced"], bill["cost"]["total_cost"], bill["cost"]["planning_cost"]) == (False, None, None)
    assert used(answer)["planning_cost"] == {"planner_cost": None, "summarizer_cost": 0, "total_cost": None}
    assert (answer["usage"]["cost"], details["planner_cost"]) == (None, None)
    assert details["upstream_inference_cost"] == bill["cost"]["prompt_cost"] + bill["cost"]["completion_cost"] > 0
    assert as_told(stored(gateway, answer["id"])["response_metadata"]) == bill


def test_s6_the_usage_of_internal_models_is_what_they_reported(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.handler = models = InternalModels(every("summarize"))
    answer = chat(planning, **ASKED)
    assert role_of(models.planned[0]) == "planner"
    told: dict[str, Any] = used(answer)["planning_usage"]
    assert told["planner"]["prompt_tokens"] == count_prompt(models.planned[0])
    assert told["summarizer"]["prompt_tokens"] == count_prompt(models.summarized[0])
    assert told["summarizer"]["completion_tokens"] == len(["A", "short", "summary."])
    assert answer["usage"]["prompt_tokens"] == count_prompt(models.answered[0]), "the primary model's alone"


WORDS = 400
STREAMED = [{"id": "c", "choices": [{"index": 0, "delta": {"content": "lamp "}}]}] * WORDS
"""An answer that comes as a stream, which nobody asked for."""


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"text": "lamp " * WORDS, "cut_after": 1500}, "planner_failed"),
        ({"text": "lamp " * WORDS, "stall_after": 1500}, "planner_timeout"),
        ({"chunks": STREAMED, "cut_after": 275}, "planner_failed"),
        ({"chunks": STREAMED, "stall_after": 275}, "planner_timeout"),
    ],
)
def test_s5_of_a_plan_that_breaks_off_or_is_late_what_came_is_billed(
    start_gateway: GatewayFactory, upstream: MockUpstream, reply: Json, reason: str
) -> None:
    gateway = start_gateway({"context": {"planning": "auto", "planner_timeout": 2}})
    upstream.handler = models = InternalModels(lambda artifacts: Reply(**reply))
    assert used(chat(gateway, **ASKED))["fallback_reason"] == reason
    (call,) = [each for each in rows(sqlite_url(gateway.directory), CALLS) if each["purpose"] == "planner"]
    assert call["estimated"]
    assert int(call["prompt_cost_picousd"]) > 0
    tokens = int(call["completion_cost_picousd"]) * PICO / PRICES["gpt-4o-mini"][1]
    assert 250 < tokens < 300  # a word is five of the bytes that came
    assert len(models.planned) == 1
