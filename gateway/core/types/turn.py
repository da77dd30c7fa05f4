"""What one request leaves: turn, bill and claim, committed as a whole (guarantee §3.6) and read again."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from gateway.core.frozen_records import record
from gateway.core.ids import content_digest
from gateway.core.types.artifacts import Artifact
from gateway.core.types.bill import PICO, CallCost
from gateway.core.types.chain import CHAIN_START, ChainDigest, ChainKey
from gateway.core.types.conversation import BranchPoint, ConversationMessage, NewFrame
from gateway.core.types.memory import NotedThings

ClaimState = Literal["running", "done"]


@record
class RequestIdentity:
    """A request that is answered once, by keyed digests: its words cannot be had from them.

    `key` is the digest of its `Idempotency-Key`, `body` that of the body and of the headers that change what is asked.
    """

    tenant: str
    key: bytes
    body: bytes

    @property
    def place(self) -> tuple[str, bytes]:
        """The primary key of its claim."""
        return self.tenant, self.key


@dataclass(slots=True, eq=False)
class RequestClaim:
    """The right to answer a request. It becomes the answer's record in the transaction that commits its turn.

    `kept` is how long the record is valid from then on. `shared`: the claim is in the storage, where other processes
    see it.
    """

    identity: RequestIdentity
    request_id: str
    process: str
    created_at: datetime
    kept: timedelta
    shared: bool = False
    settling: asyncio.Future[None] | None = field(default=None, repr=False)

    async def settle(self, commit: Coroutine[Any, Any, None]) -> None:
        """Awaits the commit that settles it, also if the caller is cancelled meanwhile."""
        task = self.settling = asyncio.ensure_future(commit)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    @property
    def settled(self) -> bool:
        """Whether a commit has made it a record or released it."""
        task = self.settling
        return task is not None and task.done() and not task.cancelled() and task.exception() is None


@record
class ClaimRecord:
    """The stored claim of a request. `valid`: it has not expired, and the process that holds it is alive."""

    state: ClaimState
    request_id: str
    body: bytes
    created_at: datetime
    valid: bool


TurnStatus = Literal["complete", "partial", "failed"]


@record
class NewAnswer:
    """One choice of the answer as it is stored.

    `digest` is that of the chain that ends with it as its client sees it; `other_digests` are those of other forms in
    which the client may send it again (after a prefill, guarantee §3.4).
    """

    message: ConversationMessage
    choice: int
    digest: ChainDigest = CHAIN_START
    other_digests: tuple[ChainDigest, ...] = ()


@record
class LedgerFigures:
    """What a bill adds to sums beside its usage and its total: tokens that the primary model read from its prompt cache
    and wrote to it; USD of the calls that have a price (None: none has), of internal models, and saved by what was left
    out. `planning_unpriced` counts calls of internal models without a price. `direct_cost`: what the client's own
    request would have cost, `net_saving`: how much less was billed, below 0 where it was more; None: not known.
    `held_out`: its conversation goes direct (true) or is one of those that are compared with it; None: neither.
    `bounced_tokens`, `bounced_cost`: of results that were read again soon after they had been cut; what these cost is
    in the bill."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0
    known_cost: Decimal | None = None
    planning_cost: Decimal = Decimal(0)
    planning_unpriced: int = 0
    saved: Decimal = Decimal(0)
    direct_cost: Decimal | None = None
    net_saving: Decimal | None = None
    held_out: bool | None = None
    bounced_tokens: int = 0
    bounced_cost: Decimal = Decimal(0)


@record
class TryFailure:
    """A try of a model that failed. `at_ms`: after the request had come, `took_ms`: until it failed; None: not known.
    `status`: as its client would be told. `message`: what was said of it; None where that is not kept."""

    route: str
    at_ms: int | None
    took_ms: int | None
    status: int
    code: str | None
    message: str | None = None


@record
class RequestFailure:
    """How a request failed, and which tries did before one was answered. `status`: the HTTP status that its client got;
    None where an answer had begun, or the client had left. `message`: what ended it, in the upstream's own words where
    it had any: content, which goes with its conversation (None where no content is kept)."""

    status: int | None = None
    message: str | None = None
    tries: tuple[TryFailure, ...] = ()

    def without_words(self) -> "RequestFailure":
        """The same without what anybody said of it."""
        return RequestFailure(self.status, None, tuple(replace(each, message=None) for each in self.tries))


@record
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
    end_user: str | None = None
    """Whom the request named (`user`, else `safety_identifier`)."""
    agent: str | None = None
    """Who was to answer (guarantee §11.1)."""
    document: bytes | None = None
    """`metadata` as JSON, where it has been written already."""
    endpoint: str | None = None
    """Which API was asked; None for chat completions."""
    key_id: str | None = None
    """Of the key that asked."""
    project: str | None = None
    """Of that key."""
    figures: LedgerFigures | None = None
    """None: not known; then it is in no sums yet."""
    failure: RequestFailure | None = None
    """None: nothing failed."""

    @property
    def window_model(self) -> str:
        """The model that its context was made for last: the one that was asked for, or another that answered."""
        used = self.metadata.get("context_utilization")
        named = used.get("model_name") if isinstance(used, dict) else None
        return named if isinstance(named, str) else self.model


@record
class StoredTurn:
    """The part of a turn that holds content; absent with `store: false`, and in mode `off` without a name.

    `base` and `digests` are those of the chain as its client sees it: before the new messages, and after each.
    `branch_restores`: what the client does not send comes back in this branch from now on.
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
    completion_plan: dict[str, Any] | None = None
    """What the planner said of the artifacts and why: content, like the answer."""
    prefilled: bool = False
    cached: tuple[str, ...] = ()
    """Digests of contents that the cache keeps something of, until the last conversation that holds them is deleted."""
    base: ChainDigest = CHAIN_START
    digests: tuple[ChainDigest, ...] = ()
    branch_restores: bool = False
    unproven: bool = False
    open_step: tuple[ConversationMessage, ...] = ()
    """The stored message whose calls the first new messages may answer, and the results that followed it."""
    counts: tuple[tuple[str, Mapping[str, int]], ...] = ()
    """Token counts of messages, by id, that were stored without."""
    frame: NewFrame | None = None
    profile: str | None = None
    """The mode that the conversation has from now on, where prompt profiles are configured."""
    pins: tuple[str, ...] = ()
    """Messages that are pinned from now on."""
    things: NotedThings | None = None
    """What it says of things, where that is remembered (guarantee §11.15)."""
    branch: BranchPoint | None = None
    """Of a replay: the conversation's current branch stays, and the replay stands behind this turn from now on."""
    retention_days: float | None = None
    """Of the key that asks: the conversation is kept no longer than that from now on (guarantee §12.13)."""
    inherited: tuple[dict[str, Any], ...] = ()
    """Those of `instructions` that are the conversation's: the client did not send them."""
    forgotten_at: datetime | None = None
    """When something of the conversation had last been deleted as the request read it."""


@record
class TurnCommit:
    """One transaction: a bill, with its turn where content is stored; the keys of the chains that it answered; and the
    claim that it settles."""

    ledger: LedgerEntry
    turn: StoredTurn | None = None
    chains: tuple[ChainKey, ...] = ()
    claim: RequestClaim | None = None
    again: bool = False
    """It was tried before and may be stored: then the stored one stays."""


@record
class OpenCallRow:
    """A request that is about to ask a model. `facts` are what its bill would say, as JSON has it, None if it has asked
    nobody; `alive_until` is the heartbeat of its process, where one is due."""

    request_id: str
    process: str
    facts: dict[str, Any] | None = None
    alive_until: datetime | None = None


@record
class StoredCompletion:
    """A bill looked up afterwards, with the answer's body if that was stored. `asked`: `ChatRequest.asked`."""

    ledger: LedgerEntry
    completion: dict[str, Any] | None = None
    completion_metadata: dict[str, str] | None = None
    plan: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None
    cited: dict[str, Any] | None = None

    @property
    def whole(self) -> bool:
        """Whether its client can be given it again: nothing of it was left out or has been deleted since."""
        choices = (self.completion or {}).get("choices")
        return bool(choices) and all("role" in (choice.get("message") or {}) for choice in choices or ())


CITED_FIELDS = ("citations", "citations_dropped")
"""Beside a stored completion's plan, and on its bill: what the answer cites, and how many of the names in it were
dropped (guarantee §14.8)."""
ASKED = "asked"
"""The field of a stored completion's body that is `ChatRequest.asked`; no client is shown it."""
BROKE = "broke"
"""Its field with the error by which an answer broke off, as its client was told: `message`, `code`, `param`."""
OWN_INSTRUCTIONS = "instructions_digest"
"""Its field with the digest of the `instructions` of a response; the words stand among the system messages."""


def is_own(asked: Mapping[str, Any] | None, instructions: Sequence[dict[str, Any]]) -> bool:
    """Whether the first of these system messages is the `instructions` of a response that was asked for so."""
    digest = (asked or {}).get(OWN_INSTRUCTIONS)
    first = instructions[0].get("content") if instructions else None
    return isinstance(first, str) and digest is not None and content_digest(first) == digest


LARGEST_KEPT = (2**63 - 1) * PICO
"""The most USD that a column holds; the exact figure of a larger cost stands in the `response_metadata` alone."""


@record
class LedgerQuery:
    """Which rows: from `since` on, before `until` (both in UTC), of one model, tenant, conversation, user or agent."""

    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    tenant: str | None = None
    conversation_id: str | None = None
    end_user: str | None = None
    agent: str | None = None


@record
class LedgerRow:
    """A row with its calls. `entry.metadata` holds numbers as they are written; {} where it cannot be read."""

    entry: LedgerEntry
    prompt_tokens: int
    completion_tokens: int
    total_cost: Decimal | None
    estimated: bool

    @property
    def net_saving(self) -> Decimal | None:
        """As the ledger's column has it, by which reports add up; None where it is in no net saving."""
        return self.entry.figures.net_saving if self.entry.figures is not None else None


@record
class CompletionQuery:
    """A page of a tenant's stored completions: those of a conversation, a model, an agent, with such metadata.

    `after` is the id (`chatcmpl-…` or `req_…`) of the last one seen, in the order of the pages.
    """

    conversation_id: str | None = None
    model: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    limit: int = 20
    after: str | None = None
    newest_first: bool = False
    agent: str | None = None
