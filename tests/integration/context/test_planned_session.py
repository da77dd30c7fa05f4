"""Ten turns of an agent whose contexts are planned: each bill, and all of them, are what the provider charged."""

from decimal import Decimal

import pytest

from benchmarks.session.talk import owner, turns
from tests.chaos.audit import rows
from tests.support.agent_session import AgentSession
from tests.support.answers import Json, http
from tests.support.books import PICO, Books
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels, Shown, decision, plan_of
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

CALLS = "SELECT purpose, estimated, prompt_cost_picousd + completion_cost_picousd AS cost FROM ledger_calls"
REFUSED_EVERY = 5


class Script:
    """Plays planner, summarizer and the agent's model, in the session's order, and writes down what each is charged."""

    def __init__(self) -> None:
        self.books = Books(11)
        self.said: list[Reply] = []
        self.models = InternalModels(self.plan, self.summarize, self.answer)

    def plan(self, artifacts: list[Shown]) -> Reply:
        """Now and then refused, or prose that is paid for all the same; else half summaries, half extracts."""
        asked = len(self.models.planned)
        if asked % REFUSED_EVERY == 0:
            return Reply(status=503)
        ways = ("summarize", "rag_extract")
        made = plan_of(*(decision(a.artifact_id, ways[n % 2], n + 1) for n, a in enumerate(artifacts)))
        return self.books.charge(self.models.planned[-1], Reply(text="Hm.") if asked % REFUSED_EVERY == 1 else made)

    def summarize(self, text: str) -> Reply:
        """A summary as short as one can be."""
        return self.books.charge(self.models.summarized[-1], Reply(text="Berths and their captains."))

    def answer(self, body: Json) -> Reply:
        """What the session says next."""
        return self.books.charge(body, self.said.pop(0))


@pytest.mark.in_turn("stream")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_s6_the_audit_of_a_planned_session_is_what_the_provider_charged(
    start_gateway: GatewayFactory,
    upstream: MockUpstream,
    storage_url: str,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    """To the last digit, planner and summarizer included, failed and worthless plans among them (§6)."""
    script = Script()
    upstream.handler = script.models
    monkeypatch.setattr(upstream, "reply", lambda **said: script.said.append(Reply(**said)))
    gateway = start_gateway({"context": {"planning": "auto"}, "storage": {"url": storage_url}})
    session = AgentSession(upstream, [gateway], stream=stream, context={"planning": "always"})
    for turn in turns(10, chars=3000):
        session.turn(turn.question, turn.results, turn.answer)
    told = session.bills
    assert {"planner_failed", "planner_answer_no_json", None} <= {bill["fallback_reason"] for bill in told}
    assert sum(bill["llm_planning_used"] for bill in told) >= 10
    with http(gateway) as client:
        audit = client.get("/chat/completions", params={"conversation": session.conversation, "limit": 100}).json()
    bills = [row["response_metadata"] for row in audit["data"]]
    assert len(bills) == len(session.forwarded) == 30
    assert sum(Decimal(str(bill["cost"]["total_cost"])) for bill in bills) == script.books.total
    calls = rows(storage_url, CALLS)
    assert not any(call["estimated"] for call in calls)
    assert sum(int(call["cost"]) for call in calls) == int(script.books.total / PICO)
    by_purpose = {purpose: sum(call["purpose"] == purpose for call in calls) for purpose in ("planner", "summarizer")}
    assert by_purpose == {"planner": len(script.models.planned), "summarizer": len(script.models.summarized)}
    assert min(by_purpose.values()) > 3
    last = "\n".join(str(message.get("content")) for message in session.forwarded[-1])
    assert owner(18) in last
