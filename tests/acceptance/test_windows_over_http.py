"""A window over HTTP, by each API and on each kind of storage: what the tests of contexts show in this process comes
over the wire, in bodies and headers (guarantee §4, §5, §11.12)."""

from typing import Any

import httpx
import pytest

from tests.support.answers import Json, http, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

BUDGET = 1500
QUESTION = user("Who is the keeper of lamp 41?")
DOCUMENTS = [{"title": "Lamps", "content": lamps(60)}, {"title": "Tides", "content": prose(3, 1500)}]


class Client:
    """Asks by one API; `told` are the headers of its last answer."""

    def __init__(self, gateway: GatewayProcess, edge: Edge, tenant: str) -> None:
        self._gateway, self._edge, self._tenant = gateway, edge, f"sk-{tenant}-{edge}"
        self.told = httpx.Headers()

    def ask(self, *messages: Any, headers: Json | None = None, **body: Any) -> Heard:
        asked = said_by(self._edge, common({"model": "small", "messages": list(messages), **body}))
        with http(self._gateway, self._tenant) as client:
            answer = client.post(PATHS[self._edge], json=asked, headers=headers)
        assert answer.status_code == 200, answer.text
        self.told = answer.headers
        return heard(self._edge, answer.json())


@pytest.mark.parametrize("edge", EDGES)
def test_s4_what_is_reduced_found_and_frozen_is_told_by_each_api(
    gateway: GatewayProcess, upstream: MockUpstream, edge: Edge
) -> None:
    """§4 I1, I4, I6, I7: within the budget of a header; the bill names each document; the next question begins with
    what was forwarded, and finds what was left out."""
    client = Client(gateway, edge, "reduced")
    limit = {"X-Context-Max-Input-Tokens": str(BUDGET)}
    first = client.ask(QUESTION, headers=limit, attachments=DOCUMENTS)
    told, sent = first.bill["context_utilization"], upstream.last.body
    assert prompt_tokens(sent) <= told["tokens_used"] <= told["budget_tokens"] == BUDGET
    assert keeper(41) in text_of(sent)
    assert [each["source"] for each in told["artifacts_processed"]] == ["attachment:0:Lamps", "attachment:1:Tides"]
    assert told["artifacts_processed"][0]["strategy"] == "rag_extract"
    assert client.told["x-conversation-id"] == first.conversation
    later = client.ask(user("And of lamp 7?"), conversation=first.conversation)
    assert upstream.last.body["messages"][: len(sent["messages"])] == sent["messages"]
    assert keeper(7) in text_of(upstream.last.body)
    assert later.conversation == first.conversation


@pytest.mark.parametrize("edge", EDGES)
def test_s5_a_plan_and_its_price_are_told_by_each_api(
    gateway: GatewayProcess, upstream: MockUpstream, edge: Edge
) -> None:
    """§5: who planned, why, for how much; what the answer cost with it is in a header, too."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    client = Client(gateway, edge, "planned")
    answer = client.ask(QUESTION, attachments=DOCUMENTS, context={"planning": "always", "max_input_tokens": BUDGET})
    told = answer.bill["context_utilization"]
    assert (told["planning_reason"], told["llm_planning_used"], len(models.planned)) == ("forced", True, 1)
    assert told["planning_usage"]["planner"]["calls"] == 1
    assert 0 < answer.bill["cost"]["planning_cost"] < answer.bill["cost"]["total_cost"]
    assert float(client.told["x-gateway-response-cost"]) == pytest.approx(answer.bill["cost"]["total_cost"])


@pytest.mark.parametrize("edge", EDGES[:2])
def test_s11_12_a_pin_is_taken(gateway: GatewayProcess, upstream: MockUpstream, edge: Edge) -> None:
    """§11.12: it stands in every window, and the bill counts it; Messages has no words for it."""
    client = Client(gateway, edge, "pins")
    answer = client.ask({**user("The lamp burns oil of rape."), "pinned": True})
    for turn in range(6):
        said = user(f"{turn}: {prose(turn, 400)}")
        answer = client.ask(said, conversation=answer.conversation, context={"max_input_tokens": BUDGET})
    assert "The lamp burns oil of rape." in str(upstream.last.body["messages"][0]["content"])
    assert answer.bill["context_utilization"]["memory"]["pinned"] == 1
    assert answer.bill["context_utilization"]["messages_excluded"] > 0
