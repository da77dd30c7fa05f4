"""Lists of conversations, and pages of their items (guarantee §3.5, §8)."""

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
    system messages; `request` is the id that its request had at its origin."""

    message: ConversationMessage
    name: str
    parent: int | None
    instructions: int | None
    request: str
    choice: int | None
    restored: bool | None


@record
class ImportedAttachment:
    """A document of the conversation; `document` holds its title, source, label and content."""

    number: int
    artifact_id: str
    document: dict[str, Any]
    created_at: datetime
    said: bytes | None


@record
class ImportedConversation:
    """A conversation in the form of an export. `head` is an index into the messages; `in_force` one into the
    instructions. `requests` are bills and completions by their original ids, for information."""

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
    """The result of an import: a new conversation, and the session names that were already taken."""

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
    """A conversation's window after the latest answered request: its bill, with the records of unchanged artifacts, and
    how many turns began before the forwarded messages (None if unknown). `latest` None: no request was answered.
    `segments` are the summaries of old turns, oldest first; `things` counts the remembered things."""

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
    """Retention of the key that begins it."""


@record
class RecordQuery:
    """Selects a page of a tenant's conversations, in the order in which they began.

    The `_until` times are exclusive. `after` is the id of the last conversation seen.
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
    """Selects a page of a list; `after` is the id of the last one seen."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True


@record
class AttachmentRecord:
    """An attached document with its number in the conversation and its client's `attachment_type`. `index`: that of a
    large document; `part`: the first character, if its content is a part of its text. `file_id`: the gateway's file
    from which it was read."""

    document: Artifact
    number: int
    kind: str
    created_at: datetime
    index: LargeIndex | None = None
    part: int | None = None
    file_id: str | None = None


@record
class TextPart:
    """The wanted stretch of a document's text: its first character, and the number of characters; None: all that is
    stored."""

    offset: int = 0
    limit: int | None = None


WHOLE_TEXT = TextPart()
