"""An agent's session: turns of several tool steps with long results, and what the model was forwarded at each step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import httpx

from tests.support.answers import assistant, function_tool, tool_result, user
from tests.support.documents import keeper, prose
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.sse import chunks_of, messages_of

Json = dict[str, Any]
How = Literal["id", "session", "resend", "resend_by_id"]
HOWS: tuple[How, ...] = ("id", "session", "resend", "resend_by_id")
TOOLS: list[Json] = [function_tool("search", parameters={"type": "object", "properties": {}})]


@dataclass
class AgentSession:
    """One conversation. The client keeps all of it in `said`; `how` is what it sends of it, and under which name.

    `forwarded` are the messages of every request as they reached the model, `bills` the `context_utilization` of each.
    """

    upstream: MockUpstream
    gateways: Sequence[GatewayProcess]
    how: How = "id"
    stream: bool = False
    model: str = "small"
    name: str = "session"
    system: str | None = None
    context: Json = field(default_factory=dict)
    said: list[Json] = field(default_factory=list)
    forwarded: list[list[Json]] = field(default_factory=list)
    bills: list[Json] = field(default_factory=list)
    usages: list[Json] = field(default_factory=list)
    conversation: str | None = None
    calls: int = 0

    def turn(self, question: str, results: Sequence[str], answer: str, **more: Any) -> None:
        """A question, one tool step for each of the results, and the answer. `more` goes into the first request."""
        new = [user(question)]
        for result in results:
            self.calls += 1
            arguments = json.dumps({"query": question, "page": self.calls})
            function = {"name": "search", "arguments": arguments}
            call: Json = {"id": f"call_{self.name}_{self.calls}", "type": "function", "function": function}
            self.upstream.reply(message=assistant(None, tool_calls=[call]))
            self.ask(new, **more)
            more = {}
            new = [tool_result(call["id"], result)]
        self.upstream.reply(text=answer)
        self.ask(new, **more)

    def ask(self, new: list[Json], **more: Any) -> Json:
        """One request with new messages, after which the client has those and the answer."""
        whole = self.how.startswith("resend")
        body: Json = {"model": self.model, "messages": [*self.said, *new] if whole else list(new), "tools": TOOLS}
        if self.system is not None:
            body["messages"].insert(0, {"role": "system", "content": self.system})
        context = dict(self.context)
        if self.how == "session":
            context["session"] = self.name
        elif self.how != "resend" and self.conversation is not None:
            body["conversation"] = self.conversation
        gateway = self.gateways[len(self.forwarded) % len(self.gateways)]
        answer = self._post(gateway, {**body, "context": context, "stream": self.stream, **more})
        if self.conversation not in (None, answer["conversation"]["id"]):
            raise AssertionError(f"{answer['conversation']} is another conversation than {self.conversation}")
        self.conversation = answer["conversation"]["id"]
        self.forwarded.append(self.upstream.last.body["messages"])
        self.bills.append(answer["response_metadata"]["context_utilization"])
        self.usages.append(answer["usage"])
        message = {k: v for k, v in answer["choices"][0]["message"].items() if v is not None or k == "content"}
        self.said += [*new, message]
        return answer

    def _post(self, gateway: GatewayProcess, body: Json) -> Json:
        headers = {"authorization": "Bearer sk-test"}
        with httpx.Client(base_url=gateway.base_url, headers=headers, trust_env=False, timeout=60) as client:
            answer = client.post("/chat/completions", json=body)
        if answer.status_code != 200:
            raise AssertionError(f"{answer.status_code}: {answer.text[:500]}")
        if not body["stream"]:
            found: Json = answer.json()
            return found
        return _joined(chunks_of(answer.content))


def _joined(chunks: list[Json]) -> Json:
    """A stream's chunks as the one answer that they are."""
    last = chunks[-1]
    usage: Json = next((chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")), {})
    named = {key: last[key] for key in ("conversation", "response_metadata")}
    return {"choices": [{"message": messages_of(chunks)[0]}], "usage": usage, **named}


def prefix(before: Sequence[Json], after: Sequence[Json]) -> int:
    """How many messages at the beginning of both are equal as JSON."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count


def breaks(forwarded: Sequence[Sequence[Json]]) -> list[int]:
    """The requests (by index) that do not begin with all messages of the one before: where something left."""
    pairs = pairwise(forwarded)
    return [n for n, (before, after) in enumerate(pairs, 1) if prefix(before, after) < len(before)]


def runs(broken: list[int], count: int) -> list[int]:
    """How many requests in a row were append-only, between those that were not."""
    ends = [0, *broken, count]
    return [after - before for before, after in pairwise(ends)]


def talk(session: AgentSession, turns: range, words: int = 150, steps: int = 2) -> None:
    """Turns with a few tool steps, whose results are long."""
    for turn in turns:
        results = [f"{keeper(10 * turn + step)} {prose(100 * turn + step, words)}" for step in range(steps)]
        question = f"{session.name}: who keeps lamp {10 * turn}? {prose(turn, 10)}"
        session.turn(question, results, f"It is {keeper(10 * turn)}")


def filled(session: AgentSession) -> AgentSession:
    """The session once something has had to leave, and not all room has been taken again."""
    turn = 0
    while not breaks(session.forwarded):
        talk(session, range(turn, turn + 1), words=120, steps=1)
        turn += 1
    return session


def begins_with(after: Sequence[Json], before: Sequence[Json]) -> bool:
    """Whether all messages of a request stand at the beginning of another."""
    return prefix(before, after) == len(before)
