"""Past turns of a conversation (guarantee §11): what each was sent, why, and what it cost, rebuilt from what is stored
and never invented. At random, too: what is told to be exactly what was forwarded is that, equal as JSON (§11.11)."""

import random
import threading
from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, assistant, exact, user
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.marks import some_or_all
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.replaying import chat, refused, turn, turns
from tests.support.team import Team, claude
from tests.support.tool_loop import ASK, TOOLS, call, calls, result


def test_s11_11_each_turn_tells_what_it_was_sent_why_and_what_it_cost(team: Team) -> None:
    """§11: the forwarded messages of every step, equal as JSON; totals equal their parts to the last digit."""
    system = {"role": "system", "content": "Be brief."}
    team.upstream.reply(text="Hello!")
    first = chat(team, system, user("Hi"))
    sent = [team.sent]
    team.upstream.reply(message=calls(call("c1", city="Bern")))
    asked = chat(team, ASK, tools=TOOLS)
    sent.append(team.sent)
    team.upstream.reply(text="Rain.")
    told = chat(team, result("c1", "12 degrees, rain"), tools=TOOLS)
    sent.append(team.sent)

    found = turn(team, 2)
    assert [each["sent"] for each in found["requests"]] == sent[1:]
    assert all(each["sent_is_exact"] and each["reason"] is None for each in found["requests"])
    assert [each["completion_id"] for each in found["requests"]] == [asked["id"], told["id"]]
    costs = [each["usage"]["cost"] for each in (asked, told)]
    assert found["cost"]["total_cost"] == sum(costs)
    assert [each["cost"]["total_cost"] for each in found["requests"]] == costs
    assert [each["role"] for each in found["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert found["requests"][1]["why"]["artifacts"][0]["strategy"] == "include_full"
    assert (found["number"], found["status"], found["models"]) == (2, "complete", ["gpt-4o"])

    assert turn(team, 1)["requests"][0]["sent"] == sent[0]
    listed = turns(team)
    assert [each["number"] for each in listed] == [1, 2]
    assert listed[0]["cost"]["total_cost"] == first["usage"]["cost"]
    assert turns(team, order="desc", limit="1")[0]["id"] == listed[1]["id"]
    assert turns(team, after=listed[0]["id"]) == listed[1:]
    total = exact(team.client.get(f"/conversations/{team.conversation}").text)["totals"]["cost"]["total_cost"]
    assert sum(each["cost"]["total_cost"] for each in listed) == total > 0


def test_s11_11_what_left_the_window_is_not_in_what_was_sent(team: Team) -> None:
    """§11: by the frames of then, also for turns before the window moved, and for documents that were reduced."""
    sent = []
    for number in range(12):
        team.upstream.reply(text=f"answer {number} " + "word " * 150)
        chat(team, user(f"question {number} " + "word " * 150), model="small", max_tokens=100)
        sent.append(team.sent)
    chat(
        team,
        user("And the lamp?"),
        model="small",
        max_tokens=100,
        attachments=[{"content": "\n\n".join(map(lamps, range(40))), "title": "L"}],
    )
    sent.append(team.sent)
    assert len(sent[-1]) < 2 * len(sent) - 1
    for number, messages in enumerate(sent, 1):
        found = turn(team, number)["requests"][0]
        assert found["sent"] == messages, number
        assert found["sent_is_exact"], number
    why = turn(team, len(sent))["requests"][0]["why"]
    assert why["window"]["messages_excluded"] > 0
    assert [each["source"] for each in why["artifacts"] if each["source"].startswith("attachment:")]


def test_s11_11_what_cannot_be_told_is_not_invented(team: Team) -> None:
    """§11: sections of agents and their instructions are not stored; answers that a client brought were paid for
    elsewhere; what was deleted is gone."""
    team.upstream.reply(text="Yes.")
    chat(team, user("Old"), assistant("I said so."), user("Really?"))
    brought, own = turn(team, 1), turn(team, 2)
    assert brought["requests"] == []
    assert brought["status"] == "complete"
    assert own["requests"][0]["sent"] == team.sent
    team.ask({"id": "max", "instruction": "Be brief."}, user("Hi"))
    found = turn(team, 3)["requests"][0]
    assert (found["sent_is_exact"], found["reason"]) == (False, "agent_words_not_stored")
    assert found["sent"] == team.sent[1:]
    assert found["agent"] == {"id": "max", "type": "chat"}
    team.ask(claude("sarah"), user("Hi again"))
    found = turn(team, 4)["requests"][0]
    assert (found["sent"], found["sent_is_exact"], found["reason"]) == (None, False, "agent_words_not_stored")
    assert found["cost"]["total_cost"] > 0
    team.ask("sarah", user("Plainly"))
    assert turn(team, 5)["requests"][0]["sent"] == team.sent
    items = team.items()
    team.client.delete(f"/conversations/{team.conversation}/items/{items[0]['id']}")
    found = turn(team, 4)["requests"][0]
    assert (found["sent_is_exact"], found["reason"]) == (False, "item_deleted_since")


def test_s11_11_a_request_that_was_not_managed_says_so(team: Team) -> None:
    """§11: in mode `off` nothing was counted, so nothing shows that it is exact."""
    chat(team, user("Hi"))
    chat(team, user("Again"), context={"mode": "off"})
    found = turn(team, 2)["requests"][0]
    assert (found["sent"], found["sent_is_exact"], found["reason"]) == (team.sent, False, "not_managed")


def test_s11_11_requests_at_once_were_sent_what_they_saw(team: Team) -> None:
    """§11: one that was committed in between is not in what the other was sent."""
    chat(team, user("Hi"))
    late: list[Json] = []

    def slowly(record: Any) -> Reply:
        return Reply(text="slow", delay_first=1.0) if "slow" in str(record.body["messages"][-1]) else Reply(text="fast")

    team.upstream.handler = slowly
    body = {"model": "gpt-4o", "messages": [user("slow one")], "conversation": team.conversation}
    thread = threading.Thread(target=lambda: late.append(team.client.post("/chat/completions", json=body).json()))
    thread.start()
    team.upstream.wait_for_chats(2)
    chat(team, user("fast one"))
    thread.join()
    last = turn(team, 3)["requests"][0]
    assert [each["content"] for each in last["sent"]][-1] == "slow one"
    assert len(last["sent"]) == 3
    assert last["sent_is_exact"]
    assert len(turn(team, 2)["requests"][0]["sent"]) == 3


def test_s11_11_a_plan_tells_its_reasons(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11: what the planner said of each artifact, from the stored completion."""
    gateway = start_gateway({"context": {"planning": "always"}})
    upstream.handler = InternalModels(every("rag_extract", extraction_query="warranty"))
    team = Team(gateway, upstream)
    with team.client:
        document = "\n\n".join(map(lamps, range(60)))
        chat(team, user("Which lamp?"), attachments=[{"content": document, "title": "Lamps"}])
        request = turn(team, 1)["requests"][0]
    why = request["why"]
    assert (why["planning_reason"], why["llm_planning_used"]) == ("forced", True)
    assert why["artifacts"][0]["planned"]["strategy"] == "rag_extract"
    assert why["artifacts"][0]["planned"]["extraction_query"] == "warranty"
    assert why["plan"]["reasoning"]
    assert [each["purpose"] for each in request["calls"]] == ["primary", "planner"]
    parts = [each["prompt_cost"] + each["completion_cost"] for each in request["calls"]]
    assert request["cost"]["total_cost"] == sum(parts, Decimal(0))


@pytest.mark.parametrize(
    ("path", "status", "code", "param"),
    [
        ("/turns/0", 404, "turn_not_found", "number"),
        ("/turns/3", 404, "turn_not_found", "number"),
        ("/turns/first", 404, "turn_not_found", "number"),
        ("/turns/99999999999999999999", 404, "turn_not_found", "number"),
        ("/turns?after=msg_1", 404, "item_not_found", "after"),
        ("/turns?limit=0", 400, "invalid_value", "limit"),
    ],
)
def test_s11_11_turns_that_are_not_there(team: Team, path: str, status: int, code: str, param: str) -> None:
    """§11: a 4xx names what is wrong; another tenant's conversation is not there either."""
    chat(team, user("Hi"))
    chat(team, user("Again"))
    refused(team.client.get(f"/conversations/{team.conversation}{path}"), status, code, param)
    answer = team.gateway.get(f"/conversations/{team.conversation}/turns/1", key="sk-somebody-else")
    refused(answer, 404, "conversation_not_found", "conversation_id")
    empty = team.client.post("/conversations", json={}).json()["id"]
    refused(team.client.get(f"/conversations/{empty}/turns/1"), 404, "turn_not_found", "number")
    assert team.client.get(f"/conversations/{empty}/turns").json()["data"] == []


REQUESTS = 30


class Talk:
    """A client that goes on in every way there is, and remembers what the model was sent for each request."""

    def __init__(self, team: Team, seed: int) -> None:
        self.team, self.random = team, random.Random(seed)
        self.shown: list[Json] = []
        self.whole: list[Json] = []
        """The same with the steps of tools."""
        self.sent: dict[str, list[Json]] = {}

    def step(self, number: int) -> None:
        ways: list[Any] = [self.delta, self.delta, self.resend, self.unnamed, self.tools, self.tools, self.document]
        self.random.choice([*ways, self.edit, self.all_of_it, self.off])(
            f"question {number} {prose(number, self.random.choice((3, 40, 400)))}"
        )

    def ask(self, *messages: Json, reply: Json | None = None, **fields: Any) -> Json:
        self.team.upstream.reply(message=reply or assistant(prose(self.random.randrange(1000), 30)))
        model = self.random.choice(("small", "small", "gpt-4o"))
        if self.team.conversation is None:
            fields.pop("conversation", None)
        answer = chat(self.team, *messages, model=model, max_tokens=100, **fields)
        self.sent[answer["response_metadata"]["request_id"]] = self.team.sent
        found: Json = answer["choices"][0]["message"]
        return found

    def said(self, question: str, answer: Json) -> None:
        new = [user(question), assistant(answer["content"])]
        self.shown += new
        self.whole += new

    def delta(self, question: str) -> None:
        self.said(question, self.ask(user(question), **self.random.choice(({}, {"tools": TOOLS}))))

    def off(self, question: str) -> None:
        if self.team.conversation is not None:  # else nothing of it is stored
            self.said(question, self.ask(user(question), context={"mode": "off"}))

    def all_of_it(self, question: str) -> None:
        self.said(question, self.ask(*self.whole, user(question), tools=TOOLS))

    def resend(self, question: str) -> None:
        self.said(question, self.ask(*self.shown, user(question)))

    def unnamed(self, question: str) -> None:
        self.team.conversation = None
        self.resend(question)

    def document(self, question: str) -> None:
        document = "\n\n".join(map(lamps, range(self.random.choice((2, 60)))))
        self.said(question, self.ask(user(question), attachments=[{"content": document, "title": "Lamps"}]))

    def edit(self, question: str) -> None:
        if len(self.shown) > 2:
            del self.shown[-2:]
            self.resend(question)
            self.whole = list(self.shown)

    def tools(self, question: str) -> None:
        name = f"c{self.random.randrange(10**6)}"
        asked, told = calls(call(name, city="Bern")), result(name, prose(7, self.random.choice((5, 50, 900))))
        before = self.random.choice(([], self.shown, self.whole))
        self.ask(*before, user(question), reply=asked, tools=TOOLS)
        answer = self.ask(*before, *((user(question), asked) if before else ()), told, tools=TOOLS)
        self.said(question, answer)
        self.whole[-1:-1] = [asked, told]


@pytest.mark.parametrize("seed", some_or_all(range(20), (0,)))
def test_s11_11_what_is_told_to_be_exact_is(gateway: GatewayProcess, upstream: MockUpstream, seed: int) -> None:
    """§11: whatever the client resends, edits or leaves out, whatever leaves the window, with two models."""
    team = Team(gateway, upstream)
    with team.client:
        talk = Talk(team, seed)
        for number in range(REQUESTS):
            talk.step(number)
        exact, others = 0, []
        for known in turns(team, limit="100"):
            for request in turn(team, known["number"])["requests"]:
                if request["sent_is_exact"]:
                    assert request["sent"] == talk.sent[request["request_id"]], (known["number"], request["request_id"])
                    exact += 1
                elif request["reason"] != "not_managed":
                    others.append(request["reason"])
        assert exact > 3 * len(others), others
