"""Conversations as they are listed, and pages of their items (guarantee §3.5, §8)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.memory import MemoryEntity, SummarySegment
from gateway.core.types.places import LargeIndex
from gateway.core.types.turn import LedgerEntry

EXPORT_KIND = "conversation.export"
EXPORT_VERSION = 1
Instructions = tuple[dict[str, Any], ...]


@record
class ImportedMessage:
    """A message with its place in the tree: `parent` is an index into the messages, `instructions` one into the
    system messages; `request` is the id that its request had where it came from."""

    message: ConversationMessage
    name: str
    parent: int | None
    instructions: int | None
    request: str
    choice: int | None
    restored: bool | None


@record
class ImportedAttachment:
    """A document of the conversation; `document` is what its title, source, label and content are."""

    number: int
    artifact_id: str
    document: dict[str, Any]
    created_at: datetime
    said: bytes | None


@record
class ImportedConversation:
    """A conversation as an export holds it. `head` is an index into the messages; `in_force` one into the instructions.
    `requests` are bills and completions by the ids that they had, for information."""

    created_at: datetime
    metadata: dict[str, str] | None
    head: int | None
    in_force: int | None
    team_task: str | None
    sessions: tuple[str, ...]
    instructions: tuple[Instructions, ...]
    messages: tuple[ImportedMessage, ...]
    attachments: tuple[ImportedAttachment, ...]
    requests: dict[str, dict[str, Any]]
    things: tuple[MemoryEntity, ...] = ()


@record
class ImportResult:
    """What became of it: a new conversation, and the session names that were taken already."""

    conversation_id: str
    taken_names: tuple[str, ...] = ()


@record
class ConversationRecord:
    """A conversation without its messages."""

    conversation_id: str
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, str]
    session: str | None = None
    team_task: str | None = None


@record
class WindowRecord:
    """What the latest answered request left of a conversation's window: its bill, with the artifacts that stand, and
    how many turns began before what was forwarded (None where that cannot be told). `latest` is None where none was
    answered. `segments` are the summaries of old turns, oldest first; `things` counts what is remembered."""

    latest: LedgerEntry | None = None
    turns_excluded: int | None = 0
    segments: tuple[SummarySegment, ...] = ()
    things: int = 0


@record
class NewConversation:
    """A conversation to begin, with its first messages."""

    conversation_id: str
    metadata: dict[str, str]
    messages: Sequence[ConversationMessage] = ()
    team_task: str | None = None
    retention_days: float | None = None
    """Of the key that begins it."""


@record
class RecordQuery:
    """A page of a tenant's conversations, in the order in which they began.

    Times are from and until, the latter not included. `after` is the id of the last one seen.
    """

    limit: int = 20
    after: str | None = None
    newest_first: bool = True
    created_from: datetime | None = None
    created_until: datetime | None = None
    updated_from: datetime | None = None
    updated_until: datetime | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    session: str | None = None


@record
class ItemQuery:
    """A page of a conversation's items; `after` is the id of the last one seen."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True


@record
class AttachmentRecord:
    """An attached document with its number in the conversation and its client's `attachment_type`. `index` of a large
    one; `part` where its content is a part of its text: where that begins. `file_id`: the file of our own that it was
    read from."""

    document: Artifact
    number: int
    kind: str
    created_at: datetime
    index: LargeIndex | None = None
    part: int | None = None
    file_id: str | None = None


@record
class TextPart:
    """The stretch of a document's text that is wanted: its first character, and how many; None: what is there of it."""

    offset: int = 0
    limit: int | None = None


WHOLE_TEXT = TextPart()
