"""Past turns of a stored conversation for inspection, outlines: its messages without their content (guarantee §13.9),
searches of a tenant's past (§10.12), and replays: turns that are run again on a branch (§11.18)."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.artifacts import Artifact
from gateway.core.types.bill import CostSums
from gateway.core.types.conversation import ConversationMessage, PromptFrame
from gateway.core.types.memory import SummarySegment
from gateway.core.types.turn import LedgerEntry, StoredCompletion


@record
class TurnTotal:
    """What one turn used, all requests of its tool loop together; `number` counts from 1, over all branches. `status`
    is that of its last request."""

    number: int
    request_ids: tuple[str, ...]
    status: str
    created_at: datetime
    spent: CostSums


@record
class ConversationTotals:
    """What a conversation has used so far: the number of turns, the total, the latest turns, and the total of each
    agent; requests that named none are under None."""

    turns: int
    spent: CostSums
    latest: tuple[TurnTotal, ...]
    by_agent: Mapping[str | None, CostSums]


@record
class PathMessage:
    """A message of a branch with the request that stored it. `choice` is the number of an answer, None for a client's
    message; `instructions` is the digest of the system messages in force."""

    message: ConversationMessage
    request_id: str
    choice: int | None
    instructions: str | None

    @property
    def is_answer(self) -> bool:
        """Whether a model gave it as an answer here; else the client sent it."""
        return self.choice is not None

    @property
    def committed_at(self) -> datetime | None:
        """When the answer was committed; for a client's message, when its request arrived."""
        return self.message.created_at


@record
class ConversationPath:
    """A branch from its first message on, with the system messages to which its messages refer by digest.
    `forgotten_at`: when an item of the conversation was last deleted."""

    conversation_id: str
    messages: tuple[PathMessage, ...]
    instructions: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    forgotten_at: datetime | None = None

    def instructions_of(self, message: PathMessage) -> tuple[dict[str, Any], ...]:
        """Returns the system messages in force at a message."""
        return self.instructions.get(message.instructions or "", ())


@record
class PastRequest:
    """A request of a past turn: the messages that it added, and the answer (None: there is none on the branch).
    `before` is the number of messages of the branch before those that it added."""

    request_id: str
    before: int
    brought: tuple[PathMessage, ...]
    answer: PathMessage | None


@record
class PastTurn:
    """A turn of a branch; `number` counts from 1."""

    number: int
    requests: tuple[PastRequest, ...]

    @property
    def messages(self) -> tuple[PathMessage, ...]:
        """All its messages, in order."""
        found: list[PathMessage] = []
        for request in self.requests:
            found += request.brought
            found += [request.answer] if request.answer is not None else []
        return tuple(found)

    @property
    def answered(self) -> tuple[PastRequest, ...]:
        """The requests that a model answered here."""
        return tuple(request for request in self.requests if request.answer is not None)


@record
class PastBill:
    """The stored data of a request beside its messages: bill, plan, and the sums of its cost."""

    completion: StoredCompletion
    spent: CostSums


@record
class TurnDetails:
    """Details of one turn: the bills of its requests by their ids, and the frame of each model on the branch at that
    time, if it differs from the messages."""

    bills: Mapping[str, PastBill]
    frames: Mapping[str, PromptFrame | None]


@record
class OutlinedMessage:
    """A message of any branch. `choice` is the number of an answer, None for a client's message. `call_id` of a tool
    result is the message with its call."""

    message_id: str
    parent_id: str | None
    role: str
    status: str
    request_id: str
    choice: int | None
    agent: str | None
    number: int
    created_at: datetime
    call_id: str | None = None
    instructions: str | None = None


@record
class OutlinedReplay:
    """A replay of turns, and the last message done so far; None: nothing yet."""

    replay_id: str
    from_turn: int
    to_turn: int
    at_id: str | None


@record
class ConversationOutline:
    """All messages of a conversation, oldest first, and its other stored data. `is_whole` is False if it has more
    messages than are read. `head_id` ends the current branch."""

    conversation_id: str
    tenant: str
    head_id: str | None
    created_at: datetime
    updated_at: datetime
    messages: Sequence[OutlinedMessage]
    is_whole: bool = True
    forgotten_at: datetime | None = None
    session: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    team_task: str | None = None
    pinned: frozenset[str] = frozenset()
    segments: tuple[SummarySegment, ...] = ()
    replays: tuple[OutlinedReplay, ...] = ()
    sums: CostSums = field(default_factory=CostSums)


@record
class OutlinedPage:
    """The data of the turns on one page: bills by request, beginnings of user messages by message, and, if requested,
    bodies by message; of those in `cut` only the beginning."""

    bills: Mapping[str, LedgerEntry]
    texts: Mapping[str, str]
    bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()


INSTRUCTION, MEMORY = "instruction", "memory"
"""Names of forwarded messages that are not messages of the branch."""


@record
class SentMessages:
    """What a request forwarded, rebuilt from the storage. `reason` states why it is not exact, or why it cannot be
    rebuilt at all (`messages` is None). `names` are the ids of the messages; `INSTRUCTION` for a system message that is
    not on the branch, `MEMORY` for the memory message."""

    messages: list[dict[str, Any]] | None
    reason: str | None = None
    names: tuple[str | None, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.reason is None


@record
class ConversationTexts:
    """Texts read from a conversation: messages of its current branch, oldest first, and attached documents.

    Attributes:
        size: bytes of the messages and characters of the documents, together.
        complete: nothing was skipped because of its size.
    """

    messages: tuple[ConversationMessage, ...]
    documents: tuple[Artifact, ...]
    size: int
    complete: bool


@record
class ReplayChanges:
    """What a replay changes in the requests that it repeats. `model`: the model of all; None: each request's own.
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


SPOILT = "Items were deleted since this replay began: begin it anew."


@record
class ReplayRun:
    """A replay of the turns `from_turn` to `to_turn` of the branch that ends with `source_id`. `at_id` is the last
    message done so far, of request number `request` (from 0) of turn number `turn` (from 1); all three are None at
    first. `asked` are the requested changes."""

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
