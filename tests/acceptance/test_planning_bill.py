"""What planning costs is on the bill whatever becomes of the request, and has a ceiling (guarantee §5, §6)."""

import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.chaos.audit import rows
from tests.support.answers import Json, chat, http, raw_request, used, user
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, Shown, decision, every, plan_of
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.reply import Reply, count_usage
from tests.support.schemas import sqlite_url

PRICES = {"small": (Decimal("0.000001"), Decimal("0.000002")), "gpt-4o-mini": (Decimal("1.5e-7"), Decimal("6e-7"))}


PICO = Decimal("1e-12")


class Books:
    """What the provider reckons for each call that it answered, by its own count, reported or not."""

    def __init__(self, seed: int) -> None:
        self.total = Decimal(0)
        self.calls = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def charge(self, body: Json, reply: Reply) -> Reply:
        """The reply, with a usage of odd figures that is written down."""
        prompt, completion = self._random.randrange(1, 99_999), self._random.randrange(1, 9_999)
        rates = PRICES[body["model"]]
        with self._lock:
            self.calls += 1
            self.total += (prompt * rates[0]).quantize(PICO) + (completion * rates[1]).quantize(PICO)
        reply.usage = count_usage(prompt, completion)
        return reply


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
