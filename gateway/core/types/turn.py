"""What one request stores: turn, bill and claim, committed as a whole (guarantee §3.6) and read again."""

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
    """A request that is answered only once, identified by keyed digests, which do not reveal its text.

    `key` is the digest of its `Idempotency-Key`, `body` that of the body and of the headers that change the request.
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

    `kept` is how long the record is valid from then on. `shared`: the claim is in the storage, visible to other
    processes.
    """

    identity: RequestIdentity
    request_id: str
    process: str
    created_at: datetime
    kept: timedelta
    shared: bool = False
    settling: asyncio.Future[None] | None = field(default=None, repr=False)

    async def settle(self, commit: Coroutine[Any, Any, None]) -> None:
        """Runs the commit that settles the claim to its end, even if the caller is cancelled."""
        task = self.settling = asyncio.create_task(commit)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    @property
    def settled(self) -> bool:
        """Whether a commit has made it a record or released it."""
        task = self.settling
        return task is not None and task.done() and not task.cancelled() and task.exception() is None


@record
class ClaimRecord:
    """The stored claim of a request. `valid`: it has not expired, and its process is alive."""

    state: ClaimState
    request_id: str
    body: bytes
    created_at: datetime
    valid: bool


TurnStatus = Literal["complete", "partial", "failed"]


@record
class NewAnswer:
    """One choice of the answer in stored form.

    `digest` is that of the chain that ends with it, as the client sees it; `other_digests` are those of other forms in
    which the client may send it again (after a prefill, guarantee §3.4).
    """

    message: ConversationMessage
    choice: int
    digest: ChainDigest = CHAIN_START
    other_digests: tuple[ChainDigest, ...] = ()


@record
class LedgerFigures:
    """What a bill adds to sums beside its usage and its total: tokens that the primary model read from its prompt cache
    and wrote to it; USD of the calls that have a price (None: none has), of internal models, and saved by leaving
    content out. `planning_unpriced` counts calls of internal models without a price. `direct_cost`: what the client's
    own request would have cost, `net_saving`: how much less was billed, below 0 if it was more; None: not known.
    `held_out`: its conversation goes direct (true) or is one that is compared with these (false); None: neither.
    `bounced_tokens`, `bounced_cost`: of results that were read again soon after they had been cut; the bill includes
    their cost."""

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
    """A failed attempt to call a model. `at_ms`: since the request arrived, `took_ms`: until it failed; None: not
    known. `status`: the one its client would get. `message`: the error message; None if that is not stored."""

    route: str
    at_ms: int | None
    took_ms: int | None
    status: int
    code: str | None
    message: str | None = None


@record
class RequestFailure:
    """How a request failed, and which attempts failed before one was answered. `status`: the HTTP status that its
    client got; None if an answer had begun, or the client had left. `message`: the error, by the upstream's own message
    if it had one: content, which is deleted with its conversation (None if no content is stored)."""

    status: int | None = None
    message: str | None = None
    tries: tuple[TryFailure, ...] = ()

    def without_words(self) -> "RequestFailure":
        """Returns the failure without any messages."""
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
    """The user that the request named (`user`, else `safety_identifier`)."""
    agent: str | None = None
    """The agent that was to answer (guarantee §11.1)."""
    document: bytes | None = None
    """`metadata` as JSON, if already serialized."""
    endpoint: str | None = None
    """The API of the request; None for chat completions."""
    key_id: str | None = None
    """The id of the request's key."""
    project: str | None = None
    """The project of that key."""
    figures: LedgerFigures | None = None
    """None: not known; then the bill is in no sums yet."""
    failure: RequestFailure | None = None
    """None: nothing failed."""

    @property
    def window_model(self) -> str:
        """The model for which its context was last built: the requested one, or another that answered."""
        used = self.metadata.get("context_utilization")
        named = used.get("model_name") if isinstance(used, dict) else None
        return named if isinstance(named, str) else self.model


@record
class StoredTurn:
    """The part of a turn that holds content; absent with `store: false`, and in mode `off` without a name.

    `base` and `digests` are those of the chain as its client sees it: before the new messages, and after each.
    `branch_restores`: messages that the client omits are restored in this branch from now on.
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
    """The planner's decisions on the artifacts, with reasons: content, like the answer."""
    prefilled: bool = False
    cached: tuple[str, ...] = ()
    """Digests of contents with derived cache entries, evicted when the last conversation with them is deleted."""
    base: ChainDigest = CHAIN_START
    digests: tuple[ChainDigest, ...] = ()
    branch_restores: bool = False
    unproven: bool = False
    open_step: tuple[ConversationMessage, ...] = ()
    """The stored message whose calls the first new messages may answer, and the results that followed it."""
    counts: tuple[tuple[str, Mapping[str, int]], ...] = ()
    """Token counts, by id, of messages that were stored without them."""
    frame: NewFrame | None = None
    profile: str | None = None
    """The conversation's profile mode from now on, if prompt profiles are configured."""
    pins: tuple[str, ...] = ()
    """Messages that are pinned from now on."""
    things: NotedThings | None = None
    """The things that it notes, if things are remembered (guarantee §11.15)."""
    branch: BranchPoint | None = None
    """Of a replay: the conversation's current branch stays, and the replay continues after this turn."""
    retention_days: float | None = None
    """Of the request's key: the conversation is stored no longer than that from now on (guarantee §12.13)."""
    inherited: tuple[dict[str, Any], ...] = ()
    """Those of `instructions` that are the conversation's: the client did not send them."""
    forgotten_at: datetime | None = None
    """When something of the conversation had last been deleted, at the time the request read it."""


@record
class TurnCommit:
    """One transaction: a bill, with its turn if content is stored; the keys of the chains that it answered; and the
    claim that it settles."""

    ledger: LedgerEntry
    turn: StoredTurn | None = None
    chains: tuple[ChainKey, ...] = ()
    claim: RequestClaim | None = None
    again: bool = False
    """A retry: it may already be stored; then the stored one stays."""


@record
class OpenCallRow:
    """A request that is about to call a model. `facts` are the content of its bill, as JSON, None if it has called no
    model; `alive_until` is the heartbeat of its process, if one is due."""

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
        """Whether it can be returned to its client again: nothing of it was left out or has been deleted since."""
        choices = (self.completion or {}).get("choices")
        return bool(choices) and all("role" in (choice.get("message") or {}) for choice in choices or ())


CITED_FIELDS = ("citations", "citations_dropped")
"""Fields beside a stored completion's plan, and on its bill: what the answer cites, and how many of the citations in it
were dropped (guarantee §14.8)."""
ASKED = "asked"
"""The field of a stored completion's body that holds `ChatRequest.asked`; no client is shown it."""
BROUGHT = "messages"
"""The field of `asked` with how many messages the request had after the leading system messages."""
BROKE = "broke"
"""The field of `asked` with the error that interrupted an answer, as its client got it: `message`, `code`, `param`."""
OWN_INSTRUCTIONS = "instructions_digest"
"""The field of `asked` with the digest of a response's `instructions`; their text is among the system messages."""


def is_own(asked: Mapping[str, Any] | None, instructions: Sequence[dict[str, Any]]) -> bool:
    """Returns whether the first of these system messages is the `instructions` of a response with this `asked`."""
    digest = (asked or {}).get(OWN_INSTRUCTIONS)
    first = instructions[0].get("content") if instructions else None
    return isinstance(first, str) and digest is not None and content_digest(first) == digest


LARGEST_KEPT = (2**63 - 1) * PICO
"""The most USD that a column holds; only the `response_metadata` has the exact figure of a larger cost."""


@record
class LedgerQuery:
    """Selects rows from `since` on, before `until` (both in UTC), of one model, tenant, conversation, user or agent."""

    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    tenant: str | None = None
    conversation_id: str | None = None
    end_user: str | None = None
    agent: str | None = None


@record
class LedgerRow:
    """A row with its calls. `entry.metadata` holds numbers as they are written; {} if it cannot be read."""

    entry: LedgerEntry
    prompt_tokens: int
    completion_tokens: int
    total_cost: Decimal | None
    estimated: bool

    @property
    def net_saving(self) -> Decimal | None:
        """The value of the ledger's column, which reports add up; None if the request is in no net saving."""
        return self.entry.figures.net_saving if self.entry.figures is not None else None


@record
class CompletionQuery:
    """Selects a page of a tenant's stored completions, by conversation, model, agent and metadata.

    `after` is the id (`chatcmpl-…` or `req_…`) of the last one seen, in the order of the pages.
    """

    conversation_id: str | None = None
    model: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    limit: int = 20
    after: str | None = None
    newest_first: bool = False
    agent: str | None = None
