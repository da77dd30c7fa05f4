"""Replays: turns of a conversation that are run anew on a branch of it (guarantee §11.18)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.core.types.turn import LedgerEntry

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayChanges:
    """What a replay changes of the requests that it makes again. `model`: the model of all; None: each request's own.
    `agents`: fields of agents by their ids. `parameters` are further fields of each request, `context` is its
    `context`."""

    model: str | None = None
    agents: Mapping[str, Json] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    context: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        return {
            "model": self.model,
            "agents": dict(self.agents),
            "parameters": dict(self.parameters),
            "context": self.context,
        }


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """A replay of the turns `from_turn` to `to_turn` of the branch that ends with `source_id`. The last message of what
    is done is `at_id`, of request number `request` (from 0) of turn number `turn` (from 1); all three are None before
    that. `asked` are the changes that were asked for."""

    replay_id: str
    conversation_id: str
    source_id: str
    from_turn: int
    to_turn: int
    asked: ReplayChanges
    at_id: str | None = None
    turn: int | None = None
    request: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReplayedRequest:
    """A request that is made again: the messages that it brings, system messages included, and who is asked. `model` is
    None where nobody answered it here. `agent` is the chat's own field. `until`: when its answer was committed."""

    messages: tuple[Json, ...]
    model: str | None
    agent: Json | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class ReplayedResult:
    """A stored result, by the call that it answered: the tool's name and the arguments."""

    name: str
    arguments: Any
    body: Json


@dataclass(frozen=True, slots=True)
class TurnToReplay:
    """A turn with the requests that are made again. Steps of tool loops are not among these: `results` answer the calls
    that the model makes again. `before` is the message before the turn on its own branch."""

    number: int
    asks: tuple[ReplayedRequest, ...]
    results: tuple[ReplayedResult, ...]
    before: str | None

    @property
    def has_tools(self) -> bool:
        return bool(self.results)


@dataclass(frozen=True, slots=True)
class ReplayBegun:
    """The first model has begun to answer."""


@dataclass(frozen=True, slots=True)
class ReplayText:
    """A piece of an answer."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class ReplayTurnEnd:
    """What became of a turn: its requests so far, the last answer, and the calls that nobody can answer here."""

    turn: int
    status: Literal["complete", "needs_tool", "failed"]
    requests: tuple[LedgerEntry, ...] = ()
    message: Json | None = None
    calls: tuple[Json, ...] = ()


ReplayEvent = ReplayBegun | ReplayText | ReplayTurnEnd
