"""What one request leaves behind: its messages, its answers and its bill, committed as a whole (guarantee §3.6)."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from gateway.models.artifacts import Artifact
from gateway.models.bill import PICO, CallCost
from gateway.models.chain import START, ChainDigest, ChainKey
from gateway.models.conversation import ConversationMessage
from gateway.models.frames import NewFrame

# Requests that are to be answered once: which one it is, who answers it, and what is known of it elsewhere.


ClaimState = Literal["running", "done", "contested"]


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Which request it is, by keyed digests: what was said in it cannot be had from them.

    `named`: its client gave it an `Idempotency-Key`, of which `key` is the digest; else `key` is that of the request
    itself, and `repeated` says that an SDK sends it once more.
    """

    tenant: str
    key: bytes
    body: bytes
    named: bool
    repeated: bool = False

    @property
    def place(self) -> tuple[str, bytes]:
        """Where it is looked for."""
        return self.tenant, self.key


@dataclass(slots=True, eq=False)
class Claim:
    """The right to answer a request. It becomes the answer's record in the transaction that commits its turn.

    `kept` is how long the record counts from then on. `shared`: the claim itself stands in the storage, where other
    processes see it. `contested`: the same request came once more while this one ran, so that nobody can tell any
    more whose the answer is.
    """

    identity: RequestIdentity
    request_id: str
    process: str
    created_at: datetime
    kept: timedelta
    shared: bool = False
    contested: bool = False
    settling: asyncio.Future[None] | None = field(default=None, repr=False)

    async def settle(self, commit: Coroutine[Any, Any, None]) -> None:
        """Awaits the commit that settles it, and knows how that ended even if the caller is cancelled meanwhile."""
        task = self.settling = asyncio.ensure_future(commit)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    @property
    def settled(self) -> bool:
        """Whether a commit has made it a record, or has let it go."""
        task = self.settling
        return task is not None and task.done() and not task.cancelled() and task.exception() is None


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """What the storage knows of a request. `valid`: it has not expired, and who holds it is alive."""

    state: ClaimState
    request_id: str
    body: bytes
    created_at: datetime
    valid: bool


TurnStatus = Literal["complete", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """One choice of the answer as it will be remembered, with the tool steps that led to it.

    `mark` is that of the chain that ends with it as its client sees it, `forms` those of the other ways in which its
    client may send it again (after a prefill, guarantee §3.4).
    """

    message: ConversationMessage
    choice: int
    reasoning_events: list[dict[str, Any]] = field(default_factory=list)
    mark: ChainDigest = START
    forms: tuple[ChainDigest, ...] = ()


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
    base: ChainDigest = START
    marks: tuple[ChainDigest, ...] = ()
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


# The ledger as it is read again: which rows, and each row with the figures that its columns repeat.


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
