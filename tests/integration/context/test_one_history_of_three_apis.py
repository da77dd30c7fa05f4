"""One history told by one API, or by another at each step: one conversation, one bill, one export (guarantee §10)."""

import json
import random
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, exact, function_tool, system, tool_call, tool_result, usage_of, user
from tests.support.documents import prose
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.gateway_process import GatewayProcess
from tests.support.marks import some_or_all
from tests.support.mock_upstream import MockUpstream

TOOL = function_tool("look", parameters={"type": "object", "properties": {}})
CALL = tool_call("call_0", "look")
SYSTEM = system("Be brief.")
BUDGET = 800
"""Old turns and results have to leave a window of it."""
IDS = re.compile(r"\b(?:conv|msg|req|art|chatcmpl|resp|step|re|att|sum)[_-][0-9A-Za-z]{12,}(?:-[0-9a-f]+)?")
UNEQUAL = (
    *(
        "created_at",
        "updated_at",
        "exported_at",
        "called_at",
        "answered_at",
        "timings_ms",
        "upstream_id",
        "duration_ms",
    ),
    "asked",
)
"""Times and names; and what a response repeats of its own request."""
Steps = list[tuple[list[Json], Json]]
"""What a client adds at each step, and what the model answers."""


def script(seed: int) -> Steps:
    """Turns with tool steps between, the same for the same seed."""
    dice, steps = random.Random(seed), []
    for number in range(4):
        words = dice.choice((5, 60)) if number else 400  # the first alone takes over half of the window
        new: list[Json] = [user(f"Question {number}: {prose(number + seed, words)}")]
        for step in range(dice.choice((0, 1, 2))):
            calls = [tool_call(f"call_{number}_{step}_{n}", "look") for n in range(dice.choice((1, 2)))]
            said = dice.choice((None, "I look."))
            steps.append((new, assistant(said, tool_calls=calls)))
            new = [_result(call, prose(dice.randrange(99), dice.choice((20, 400)))) for call in calls]
        steps.append((new, assistant(prose(dice.randrange(99), 60))))
    return steps


def _result(call: Json, text: str) -> Json:
    return tool_result(call["id"], text)


class Teller:
    """A client that tells a history, as a tenant of its own."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, tenant: str) -> None:
        self._upstream = upstream
        self._at = gateway.base_url
        self.options: Any = {"headers": {"authorization": f"Bearer sk-{tenant}"}, "timeout": 30, "trust_env": False}
        self.sent: list[list[Json]] = []
        self.heard: list[Heard] = []

    def tell(self, steps: Steps, way: Sequence[Edge], *, resends: bool) -> None:
        view: list[Json] = []
        named: Json = {}
        for number, (new, answer) in enumerate(steps):
            self._upstream.reply(message=answer, usage=usage_of(100 + number, 10))
            messages = [SYSTEM, *view, *new] if resends or not view else new
            body: Json = {"model": "small", "messages": messages, "tools": [TOOL], **({} if resends else named)}
            body["context"] = {"max_input_tokens": BUDGET}
            found = self.ask(way[number], body)
            assert found.message == answer
            view += [*new, found.message]
            named = {"conversation": found.conversation}
        assert len({each.conversation for each in self.heard}) == 1

    def ask(self, edge: Edge, body: Json) -> Heard:
        """One request."""
        answer = httpx.post(f"{self._at}/{PATHS[edge]}", json=said_by(edge, common(body)), **self.options)
        assert answer.status_code == 200, answer.text
        self.sent.append((self._upstream.last.body or {})["messages"])
        self.heard.append(heard(edge, exact(answer.text)))
        return self.heard[-1]

    def total(self) -> Decimal:
        """What all answers cost, as they said."""
        return sum((each.bill["cost"]["total_cost"] for each in self.heard), Decimal(0))

    def listed(self) -> list[Any]:
        """What each of its conversation's stored completions cost."""
        asked = {"conversation": self.heard[0].conversation, "limit": 100}
        page = httpx.get(f"{self._at}/chat/completions", params=asked, **self.options)
        return [each["response_metadata"]["cost"]["total_cost"] for each in exact(page.text)["data"]]

    def exported(self) -> Json:
        """Its conversation, but for ids and times."""
        told = httpx.get(f"{self._at}/conversations/{self.heard[0].conversation}/export", **self.options)
        names: dict[str, str] = {}
        text = IDS.sub(lambda found: names.setdefault(found[0], f"id {len(names)}"), told.text)
        found: Json = json.loads(text, object_hook=lambda each: {k: v for k, v in each.items() if k not in UNEQUAL})
        return found


@pytest.mark.in_turn("resends")
@pytest.mark.parametrize("resends", [False, True], ids=["by id", "resent"])
@pytest.mark.parametrize("seed", some_or_all(range(9), (0,)))
def test_s10_1_one_history_whichever_api_tells_it(
    gateway: GatewayProcess, upstream: MockUpstream, seed: int, resends: bool
) -> None:
    """§10.7: the same is forwarded at each step, costs the same, and is exported as the same."""
    steps = script(seed)
    dice = random.Random(seed)
    ways: dict[str, list[Edge]] = {edge: [edge] * len(steps) for edge in EDGES}
    ways["mixed"] = [dice.choice(EDGES) for _ in steps]
    tellers: list[Teller] = []
    for name, way in ways.items():
        teller = Teller(gateway, upstream, f"{name}-{seed}-{resends}")
        teller.tell(steps, way, resends=resends)
        tellers.append(teller)
    first, *others = tellers
    assert any(each.bill["context_utilization"]["messages_excluded"] for each in first.heard), "nothing has left"
    for other in others:
        assert other.sent == first.sent
        assert other.total() == first.total() == sum(other.listed())
        assert len(other.listed()) == len(steps)
        assert other.exported() == first.exported()


@pytest.mark.parametrize("edge", EDGES)
def test_s10_1_a_failed_result_goes_up_the_same_by_each_api(
    gateway: GatewayProcess, upstream: MockUpstream, edge: Edge
) -> None:
    """Only Anthropic's API has a field that says that a call failed: a chat's model reads it in the text."""
    said = [user("Which lamp is lit?"), assistant(None, tool_calls=[CALL])]
    failed = {"type": "tool_result", "tool_use_id": CALL["id"], "content": "no such lamp", "is_error": True}
    body = said_by("messages", common({"model": "small", "messages": said, "tools": [TOOL]}))
    body["messages"].append(user([failed]))
    teller = Teller(gateway, upstream, f"failed-{edge}")
    upstream.reply(text="None is.")
    answer = httpx.post(f"{gateway.base_url}/{PATHS['messages']}", json=body, **teller.options)
    told = {"conversation": heard("messages", exact(answer.text)).conversation, "tools": [TOOL]}
    teller.ask(edge, {"model": "small", "messages": [user("And now?")], **told})
    result = tool_result(CALL["id"], "Error: no such lamp")
    assert upstream.chats[-2].body["messages"] == [*said, result]
    assert teller.sent[-1] == [*said, result, assistant("None is."), user("And now?")]
