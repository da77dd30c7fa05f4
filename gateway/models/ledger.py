"""The ledger as it is read again: which rows, and each row with the figures that its columns repeat."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gateway.models.metadata import PICO
from gateway.models.turn import LedgerEntry, StoredCompletion

LARGEST_KEPT = (2**63 - 1) * PICO
"""The most USD that a column holds; the exact figure of a larger cost stands in the `response_metadata` alone."""


@dataclass(frozen=True, slots=True)
class LedgerQuery:
    """Which rows: from `since` on, before `until` (both in UTC), of one model, tenant or conversation."""

    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    tenant: str | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row with its calls. `entry.metadata` holds numbers as they are written; {} where it cannot be read."""

    entry: LedgerEntry
    prompt_tokens: int
    completion_tokens: int
    total_cost: Decimal | None
    estimated: bool


@dataclass(frozen=True, slots=True)
class CompletionQuery:
    """A page of a tenant's stored completions: those of a conversation, a model, with such metadata.

    `after` is the id (`chatcmpl-…` or `req_…`) of the last one seen, in the order of the pages.
    """

    conversation_id: str | None = None
    model: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    limit: int = 20
    after: str | None = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class CompletionPage:
    """What a query found, and whether there is more behind it."""

    found: tuple[StoredCompletion, ...]
    has_more: bool
