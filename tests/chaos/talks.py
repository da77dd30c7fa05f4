"""Conversations as their clients know them, in each of the ways in which clients continue one."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.chaos.told import Told

Json = dict[str, Any]
SYSTEM: Json = {"role": "system", "content": "Answer in words."}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]


@dataclass(frozen=True)
class Style:
    """How a client continues its conversation. `at_once`: how many requests may run on it at the same time."""

    named: Literal["id", "session"] | None
    resends: bool
    tools: bool = False
    at_once: int = 1


STYLES = (
    Style("id", resends=False, at_once=3),
    Style("session", resends=False, at_once=3),
    Style("session", resends=False, tools=True),
    Style("id", resends=True, at_once=3),
    Style("id", resends=True, tools=True),
    Style("session", resends=True, tools=True, at_once=2),
    Style("session", resends=True),
    Style(None, resends=True, at_once=2),
    Style(None, resends=True),
    Style(None, resends=True, tools=True),
)


@dataclass
class Acknowledged:
    """A request that its client was told is done: what it brought, what it was sent with, and its answers."""

    told: Told
    new: list[Json]
    before: list[Json]
    """What it continued, as far as its client knows."""
    answers: list[Json]


@dataclass
class Talk:
    """One conversation. `history` is what its client would send again: what it was told of, and its own words."""

    style: Style
    session: str
    conversation_id: str | None = None
    history: list[Json] = field(default_factory=list)
    done: list[Acknowledged] = field(default_factory=list)
    using: int = 0
    begun: bool = False
    broken: int = 0
    """Requests that a kill broke off: nobody was told what became of them."""

    @property
    def shifts(self) -> bool:
        """Whether a turn may be appended behind others than its client saw (§3.7)."""
        return self.style.at_once > 1

    @property
    def diverges(self) -> bool:
        """Whether clients that resend are at it at once."""
        return self.style.resends and self.style.at_once > 1

    @property
    def free(self) -> bool:
        """Whether another turn may begin; what a conversation is continued by must be there before several do."""
        named = self.conversation_id is not None or self.style.named == "session"
        known = bool(self.history) if self.style.resends else named
        return self.using < (self.style.at_once if known else 1)

    @property
    def over(self) -> bool:
        """Whether it is not continued any more: it is long, or its client, who would send it again, knows nothing of
        it, as its first turn broke off."""
        lost = self.style.resends and self.begun and not self.history
        return not self.using and (len(self.done) >= 14 or lost)

    def body(self, new: list[Json], before: list[Json], chance: random.Random) -> Json:
        """The body of a request with these new messages."""
        sent = [*before, *new] if self.style.resends else new
        body: Json = {"model": "gpt-4o", "messages": [SYSTEM, *sent] if self.style.resends else sent}
        if self.style.tools:
            body["tools"] = TOOLS
        elif chance.random() < 0.25:
            body["n"] = 2
        if chance.random() < 0.5:
            body["stream"] = True
        if self.style.named == "session":
            body["context"] = {"session": self.session}
        elif self.style.named == "id" and self.conversation_id:
            body["conversation"] = self.conversation_id
        return body


@dataclass
class Talks:
    """All conversations; clients take turns on those that are open."""

    chance: random.Random
    open_ones: int = 10
    all: list[Talk] = field(default_factory=list)
    _open: list[Talk] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _styles: Iterator[Style] = field(default_factory=lambda: itertools.cycle(STYLES))

    def question(self) -> Json:
        """A question that nobody has asked before."""
        return {"role": "user", "content": f"question-{next(self._numbers)}-asked"}

    def result(self, call: Json) -> Json:
        """The result of a tool call."""
        return {"role": "tool", "tool_call_id": call["id"], "content": f"result-{next(self._numbers)}-found"}

    def take(self) -> Talk:
        """One that is free; long ones are closed, and new ones opened for them."""
        self._open = [talk for talk in self._open if not talk.over]
        while len(self._open) < self.open_ones or not any(talk.free for talk in self._open):
            talk = Talk(next(self._styles), f"session {len(self.all)}")
            self.all.append(talk)
            self._open.append(talk)
        return self.chance.choice([talk for talk in self._open if talk.free])
