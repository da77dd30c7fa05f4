"""What one request leaves behind: its messages, its answers and its bill, committed as a whole (contract §3.6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.models.artifacts import Artifact
from gateway.models.chain import START, ChainKey, Mark
from gateway.models.claim import Claim
from gateway.models.conversation import ConversationMessage
from gateway.models.frames import NewFrame
from gateway.models.metadata import CallCost

TurnStatus = Literal["complete", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """One choice of the answer as it will be remembered, with the tool steps that led to it.

    `mark` is that of the chain that ends with it as its client sees it, `forms` those of the other ways in which its
    client may send it again (after a prefill, contract §3.4).
    """

    message: ConversationMessage
    choice: int
    reasoning_events: list[dict[str, Any]] = field(default_factory=list)
    mark: Mark = START
    forms: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The cost record of one request. It holds figures and references only and outlives its conversation."""

    request_id: str
    tenant: str
    conversation_id: str | None
    completion_id: str | None
    model: str
    status: TurnStatus
    stream: bool
    created_at: datetime
    metadata: dict[str, Any]
    calls: tuple[CallCost, ...]
    error_code: str | None = None
    document: bytes | None = None
    """`metadata` as JSON, where it has been written already."""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The part of a turn that holds content; absent with `store: false` and in mode `off`.

    `base` and `marks` are those of the chain as its client sees it, before and after each of the new messages.
    """

    conversation_id: str
    created: bool
    parent_id: str | None
    at_head: bool
    instructions: tuple[dict[str, Any], ...]
    new_messages: tuple[ConversationMessage, ...]
    answers: tuple[NewAnswer, ...]
    attachments: tuple[Artifact, ...] = ()
    completion: dict[str, Any] | None = None
    completion_metadata: dict[str, str] | None = None
    prefilled: bool = False
    cached: tuple[str, ...] = ()
    """Digests of contents of which the cache keeps something, until the last conversation that holds them is gone."""
    base: Mark = START
    marks: tuple[Mark, ...] = ()
    restored: bool = False
    unproven: bool = False
    counts: tuple[tuple[str, Mapping[str, int]], ...] = ()
    """Token counts of messages, by id, that were stored without."""
    frame: NewFrame | None = None


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """One transaction: turn and bill together, or the bill alone; what an answered request leaves in any case, and
    the claim that is settled by it."""

    ledger: LedgerEntry
    turn: StoredTurn | None = None
    chains: tuple[ChainKey, ...] = ()
    claim: Claim | None = None
    again: bool = False
    """It was tried before, and may be there: then what stands there stays."""


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """A bill looked up afterwards, with the answer's body if that was stored."""

    ledger: LedgerEntry
    completion: dict[str, Any] | None = None
    completion_metadata: dict[str, str] | None = None

    @property
    def whole(self) -> bool:
        """Whether its client can be given it again: nothing of it was left out or has been deleted since."""
        choices = (self.completion or {}).get("choices")
        return bool(choices) and all("role" in (choice.get("message") or {}) for choice in choices or ())
