"""Conversations as the steps see them: messages with their reasoning, and where a request continues."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.models.artifacts import Artifact

INSTRUCTION_ROLES = ("system", "developer")
INLINE_MESSAGES = 1000
"""Work on more messages than this is done in a thread: streams of other requests must not wait for it."""


@dataclass(frozen=True, slots=True)
class ReasoningStepRecord:
    """One tool step of an assistant's answer: call, arguments, result and timing (contract, Terms)."""

    step: int
    tool: str
    tool_call_id: str
    arguments: str
    result: Any = None
    called_at: datetime | None = None
    answered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message with its reasoning context preserved.

    `body` is the OpenAI message as it was first sent. `rendered` is what was forwarded in its place, when that was
    not the same (a block was put at its head), and `standing` names the artifacts that stand in it in full. `origin`
    is who made an answer, None where that is not known.
    """

    role: str
    body: dict[str, Any]
    reasoning_steps: tuple[ReasoningStepRecord, ...] = ()
    sequence_number: int | None = None
    message_id: str | None = None
    status: str = "complete"
    digest: str = ""
    rendered: dict[str, Any] | None = None
    standing: tuple[str, ...] = ()
    created_at: datetime | None = None
    instructions_digest: str | None = None
    origin: str | None = None

    @property
    def content(self) -> Any:
        return self.body.get("content")

    def stored_as(self, message_id: str, created_at: datetime) -> "ConversationMessage":
        """A new message under its id; by hand, since `dataclasses.replace` costs ten times as much."""
        return ConversationMessage(
            self.role,
            self.body,
            sequence_number=self.sequence_number,
            message_id=message_id,
            digest=self.digest,
            created_at=created_at,
        )


@dataclass(frozen=True, slots=True)
class ConversationRef:
    """How a request names its conversation; at most one of both is set (an id outranks a session)."""

    conversation_id: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """What a request needs of a stored conversation: the path that ends at its head, oldest message first, and for a
    resend those of its other branches. `instructions` are system messages by the digest that messages name."""

    conversation_id: str
    head_id: str | None
    path: tuple[ConversationMessage, ...] = ()
    instructions: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    attachments: tuple[Artifact, ...] = ()
    branches: tuple[tuple[ConversationMessage, ...], ...] = ()

    @property
    def unread(self) -> int:
        """How many messages of the path are older than what was read."""
        return (self.path[0].sequence_number or 0) if self.path else 0


@dataclass(frozen=True, slots=True)
class History:
    """The conversation of one request, rebuilt (contract §3).

    `messages` are all but the leading system messages, oldest first: `stored` of them come from the store, the rest
    are new. The new ones hang on `parent_id`; `at_head` says that this was the conversation's latest message.
    """

    conversation_id: str | None
    created: bool
    instructions: tuple[dict[str, Any], ...]
    messages: tuple[ConversationMessage, ...]
    stored: int = 0
    parent_id: str | None = None
    at_head: bool = True
    session: str | None = None
    attachments: tuple[Artifact, ...] = ()
    restored: int = 0
    unread: int = 0

    @property
    def new_messages(self) -> tuple[ConversationMessage, ...]:
        return self.messages[self.stored :]


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that may enter the model's window for one request. `current` is the index of the message that begins
    the turn under way; `placed` artifacts stand in messages, `artifacts` are the attached ones."""

    conversation_history: tuple[ConversationMessage, ...]
    current: int
    placed: tuple[Artifact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def all_artifacts(self) -> tuple[Artifact, ...]:
        """Artifacts of historical messages and of the current steps, then the attached ones."""
        return self.placed + self.artifacts
