"""Turns of a stored conversation as they are looked at again, what a tenant's past is searched for (guarantee §10.12),
and replays: turns that are run anew on a branch (guarantee §11.18)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage, PromptFrame
from gateway.core.types.memory import MemoryEntity
from gateway.core.types.records import RequestSpending
from gateway.core.types.report_lists import ConversationLine
from gateway.core.types.turn import LedgerEntry, StoredCompletion


@dataclass(frozen=True, slots=True)
class PathMessage:
    """A message of a branch with the request that stored it. `choice` is the number of an answer, None of what a client
    sent; `instructions` is the digest of the system messages in force."""

    message: ConversationMessage
    request_id: str
    choice: int | None
    instructions: str | None

    @property
    def is_answer(self) -> bool:
        """Whether a model answered this here; else its client brought it."""
        return self.choice is not None

    @property
    def committed_at(self) -> datetime | None:
        """When an answer was committed; of what a client sent, when its request arrived."""
        return self.message.created_at


@dataclass(frozen=True, slots=True)
class ConversationPath:
    """A branch from its first message on, with the system messages that its messages name by their digests.
    `forgotten_at`: when an item of the conversation was last deleted."""

    conversation_id: str
    messages: tuple[PathMessage, ...]
    instructions: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    forgotten_at: datetime | None = None

    def instructions_of(self, message: PathMessage) -> tuple[dict[str, Any], ...]:
        """The system messages in force at a message."""
        return self.instructions.get(message.instructions or "", ())


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A request of a past turn: the messages that it brought, and the answer (None: there is none on the branch).
    `before` is how many messages of the branch stand before those that it brought."""

    request_id: str
    before: int
    brought: tuple[PathMessage, ...]
    answer: PathMessage | None


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn of a branch; `number` counts from 1."""

    number: int
    requests: tuple[PastRequest, ...]

    @property
    def messages(self) -> tuple[PathMessage, ...]:
        """All of it, in order."""
        found: list[PathMessage] = []
        for request in self.requests:
            found += request.brought
            found += [request.answer] if request.answer is not None else []
        return tuple(found)

    @property
    def answered(self) -> tuple[PastRequest, ...]:
        """The requests that a model answered here."""
        return tuple(request for request in self.requests if request.answer is not None)


@dataclass(frozen=True, slots=True)
class PastBill:
    """What is stored of a request beside its messages: bill, plan, and the sums of its cost."""

    completion: StoredCompletion
    spent: RequestSpending


@dataclass(frozen=True, slots=True)
class TurnDetails:
    """What is looked up of one turn: the bills of its requests by their ids, and what each model had been sent of the
    branch by then where the messages do not say it."""

    bills: Mapping[str, PastBill]
    frames: Mapping[str, PromptFrame | None]


INSTRUCTION, MEMORY = "instruction", "memory"
"""Names of forwarded messages that are no messages of the branch."""


@dataclass(frozen=True, slots=True)
class SentMessages:
    """What a request forwarded, rebuilt from what is stored. `reason` says why it is not exact, or why it cannot be
    told at all (`messages` is None). `names` are the ids of the messages; `INSTRUCTION` of a system message that stands
    apart from the branch, `MEMORY` of the memory message."""

    messages: list[dict[str, Any]] | None
    reason: str | None = None
    names: tuple[str | None, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class ConversationTexts:
    """What was read of a conversation: messages of its current branch, oldest first, and attached documents.

    Attributes:
        size: bytes of the messages and characters of the documents, together.
        complete: nothing was left unread because of its size.
    """

    messages: tuple[ConversationMessage, ...]
    documents: tuple[Artifact, ...]
    size: int
    complete: bool


@dataclass(frozen=True, slots=True)
class PastExcerpt:
    """A passage that a search found.

    Attributes:
        speaker: the role of whoever said it, an agent's name, or `tool` or `document`.
        artifact_id: of the tool result or document that it is in; None of what was said.
        title: the tool's name or the document's title.
    """

    speaker: str
    text: str
    artifact_id: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class FoundConversation:
    """A conversation with the passages that bear on the query, the best first."""

    line: ConversationLine
    excerpts: tuple[PastExcerpt, ...]


@dataclass(frozen=True, slots=True)
class FoundPast:
    """The conversations that bear on a query, the best first, and the things that it names.

    Attributes:
        searched: how many conversations were read, and `size` of what.
        complete: there was no more to read.
    """

    conversations: Sequence[FoundConversation]
    things: Sequence[MemoryEntity]
    searched: int
    size: int
    complete: bool


@dataclass(frozen=True, slots=True)
class ArtifactExtract:
    """What is shown of an artifact: characters `start` to `end` of it, or with `passages` those that a question calls
    for; where neither leaves anything out, all of it."""

    artifact: Artifact
    conversation_id: str
    text: str
    start: int
    end: int
    passages: bool

    @property
    def complete(self) -> bool:
        """Whether it is the artifact as it is."""
        return not self.passages and self.start == 0 and self.end == self.of

    @property
    def of(self) -> int:
        """Characters that it has."""
        return self.artifact.size_chars if self.artifact.is_excerpt else len(self.artifact.content)


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
