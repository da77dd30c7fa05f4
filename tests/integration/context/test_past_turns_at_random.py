"""Random conversations: what is told to be exactly what was forwarded is that, equal as JSON (guarantee §11.11)."""

import random
from typing import Any

import pytest

from tests.integration.context.test_tool_loop import TOOLS, call, calls, result
from tests.support.answers import Json, assistant, user
from tests.support.documents import lamps, prose
from tests.support.gateway_process import GatewayProcess
from tests.support.marks import some_or_all
from tests.support.mock_upstream import MockUpstream
from tests.support.replaying import chat, turn, turns
from tests.support.team import Team

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
