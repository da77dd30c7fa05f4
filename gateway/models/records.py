"""Conversations as they are listed, and pages of their items (contract §3.5, §8)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


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
