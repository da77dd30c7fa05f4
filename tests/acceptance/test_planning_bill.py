"""What planning costs is on the bill whatever becomes of the request, and has a ceiling (guarantee §5, §6)."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.audit import rows
from tests.support.answers import Json, chat, raw_request, used, user
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.reply import Reply
from tests.support.schemas import sqlite_url

LONG = {"title": "Lamps", "content": lamps(60)}
ASKED: Json = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")], "attachments": [LONG]}
LEDGER = "SELECT request_id, status, estimated, total_cost_picousd FROM ledger"
CALLS = "SELECT request_id, purpose, prompt_cost_picousd, completion_cost_picousd, estimated FROM ledger_calls"


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
