"""Conversations as they are listed, and pages of their items (guarantee §3.5, §8)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gateway.models.conversation import ConversationMessage

KIND = "conversation.export"
VERSION = 1
Instructions = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
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
    events: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class ImportedAttachment:
    """A document of the conversation; `document` is what its title, source, label and content are."""

    number: int
    artifact_id: str
    document: dict[str, Any]
    created_at: datetime
    said: bytes | None


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """A conversation as an export holds it. `head` is an index into the messages; `in_force` one into the instructions.
    `requests` are bills and completions by the ids that they had, for information."""

    created_at: datetime
    metadata: dict[str, str] | None
    head: int | None
    in_force: int | None
    sessions: tuple[str, ...]
    instructions: tuple[Instructions, ...]
    messages: tuple[ImportedMessage, ...]
    attachments: tuple[ImportedAttachment, ...]
    requests: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of it: a new conversation, and the session names that were taken already."""

    conversation_id: str
    taken_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A conversation without its messages."""

    conversation_id: str
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, str]
    session: str | None = None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class RecordPage:
    """What a query found, and whether there is more behind it."""

    found: tuple[ConversationRecord, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """A page of a conversation's items; `after` is the id of the last one seen."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Items in OpenAI's shape, and whether there are more behind them."""

    items: tuple[dict[str, Any], ...]
    has_more: bool
