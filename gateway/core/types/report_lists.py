"""Lists of conversations and requests as pages and commands show them, newest first (guarantee §13.9), and outlines: a
conversation's messages without what they say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, Self, TypeVar

from gateway.core.frozen_records import record
from gateway.core.types.memory import SummarySegment
from gateway.core.types.turn import LedgerEntry, TurnStatus

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHAT_ENDPOINT = "chat"
"""What the endpoint of chat completions is called where one is asked for or shown; their rows name none."""
MAX_ID_CHARS = 64
MAX_POSITION_DIGITS = 18
T = TypeVar("T")
C = TypeVar("C")
Direction = Literal["older", "newer"]


@record
class RequestPosition:
    """A place in an order of requests: microseconds since 1970, picodollars or milliseconds, and an id among equals."""

    value: int
    id: str

    def __str__(self) -> str:
        """As it stands in an address."""
        return f"{self.value}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError: the text is no position."""
        number, dot, name = text.partition(".")
        if not dot or len(name) > MAX_ID_CHARS or not name.isprintable():
            raise ValueError("no position in a list")
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_POSITION_DIGITS):
            raise ValueError("no position in a list")
        return cls(int(number), name)

    @staticmethod
    def of_time(time: datetime) -> int:
        """The value of a time."""
        return (time - EPOCH) // timedelta(microseconds=1)

    @property
    def time(self) -> datetime:
        """Raises ValueError: the value is no time."""
        try:
            return EPOCH + timedelta(microseconds=self.value)
        except OverflowError:
            raise ValueError("no position in a list") from None


@record
class ListPosition:
    """A place in a list: a time, and an id among those of the same time."""

    time: datetime
    id: str

    def __str__(self) -> str:
        """As it stands in an address: microseconds since 1970 and the id, with a dot between them."""
        return str(RequestPosition(RequestPosition.of_time(self.time), self.id))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError: the text is no position."""
        at = RequestPosition.parse(text)
        if text.startswith("-") or not at.id:
            raise ValueError("no position in a list")
        return cls(at.time, at.id)


@record
class QueryPage(Generic[T]):
    """What a query found, in the order that was asked for, and whether there is more behind it."""

    found: tuple[T, ...]
    has_more: bool = False

    @classmethod
    def of(cls, read: Iterable[T], limit: int) -> "QueryPage[T]":
        """Makes the page of what was read: one more than `limit` where there are more."""
        found = tuple(read)
        return cls(found[:limit], len(found) > limit)


@record
class ListPart(Generic[C]):
    """Which rows of a list: those with what `having` says, from `since` on and before `until` (both in UTC), at most
    `limit`: the newest, or those next to `at` that are older or newer. `searched`: how many conversations are looked
    at, at most, where no index leads to what is asked for; None: all."""

    having: C
    since: datetime | None = None
    until: datetime | None = None
    at: ListPosition | None = None
    direction: Direction = "older"
    limit: int = 20
    searched: int | None = None


@record
class ListPage(Generic[T]):
    """What was found, the newest first. `older`: from where the older ones follow; `newer`: the same; None where none
    do. Newer ones of the newest part are yet to come, so there `newer` is None. `ended`: where the look ended that
    found no more, though there may be more behind it; None where there is none."""

    found: tuple[T, ...]
    older: ListPosition | None
    newer: ListPosition | None
    ended: ListPosition | None = None


@record
class KeptSums:
    """What the requests of a conversation took. `cost` is of the calls that have a price: with `unpriced` requests that
    had others, it is the least that was paid. Requests that an older version wrote are in no sums until they are
    added (guarantee §13.1). `net_saving`: how much less the `metered` ones cost than without a gateway, below 0 where
    they cost more."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: Decimal
    planning_cost: Decimal
    unpriced: int
    estimated: int
    metered: int = 0
    net_saving: Decimal = Decimal(0)

    @property
    def is_known(self) -> bool:
        """Whether there is a cost to tell of; else nothing that was asked has a price."""
        return bool(self.cost) or self.unpriced < self.requests


NO_SUMS = KeptSums(0, 0, 0, Decimal(0), Decimal(0), 0, 0)


@record
class ConversationChoice:
    """Which conversations. `tenant` None: of all tenants. `id`: an id or how one begins. `user`, `model`: of the latest
    request. `text`: a part of how the first question begins, in whichever case."""

    tenant: str | None = None
    id: str | None = None
    session: str | None = None
    user: str | None = None
    model: str | None = None
    text: str | None = None


@record
class ConversationLine:
    """A conversation in a list. `question`: how its first user message begins; "" where an item of it was deleted, None
    where there is none, or an older version wrote it. `user`, `model`: of its latest request."""

    id: str
    tenant: str
    sessions: tuple[str, ...]
    question: str | None
    user: str | None
    model: str | None
    created_at: datetime
    updated_at: datetime
    sums: KeptSums

    @property
    def position(self) -> ListPosition:
        return ListPosition(self.updated_at, self.id)


@record
class RequestChoice:
    """Which requests. `tenant` None: of all tenants. `endpoint`: as the ledger names it, or `chat`. Costs and net
    savings are in USD. `text`: a part of a user message of theirs, in whichever case."""

    tenant: str | None = None
    model: str | None = None
    user: str | None = None
    agent: str | None = None
    conversation: str | None = None
    status: TurnStatus | None = None
    endpoint: str | None = None
    key: str | None = None
    http_status: int | None = None
    min_cost: Decimal | None = None
    max_cost: Decimal | None = None
    min_saved: Decimal | None = None
    max_saved: Decimal | None = None
    min_ms: int | None = None
    max_ms: int | None = None
    text: str | None = None


@record
class RequestLine:
    """A request in a list: what its row of the ledger says without its calls. `cost` is None as soon as one call has no
    price; `known_cost` is of those that have one. `known_cost`, `planning_cost`, `saved`, `cached_tokens` and
    `cache_write_tokens` are None where an older version wrote the row, until it is added to the sums (`counted`).
    `direct_cost` and `net_saving` are None where nobody knows what it would have cost without a gateway. `http_status`:
    of the error that its client got, `total_ms`: from its arrival to its end; None where nobody knows."""

    id: str
    completion_id: str | None
    tenant: str
    conversation_id: str | None
    model: str
    status: TurnStatus
    stream: bool
    error_code: str | None
    created_at: datetime
    user: str | None
    agent: str | None
    endpoint: str | None
    project: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    cache_write_tokens: int | None
    cost: Decimal | None
    known_cost: Decimal | None
    planning_cost: Decimal | None
    saved: Decimal | None
    direct_cost: Decimal | None
    net_saving: Decimal | None
    estimated: bool
    counted: bool
    key_id: str | None = None
    http_status: int | None = None
    total_ms: int | None = None

    @property
    def position(self) -> ListPosition:
        return ListPosition(self.created_at, self.id)


RequestSort = Literal["time", "cost", "latency", "saved"]
OK = 200
"""The HTTP status of each request that did not fail; an answer that broke off has begun with it."""


@record
class RequestQuery:
    """Which requests, in which order: those that came from `since` on and before `until`, from the largest value of
    `sort` down (`ascending`: the other way round), at most `limit`: the first ones, or those next to `at`: `older` ones
    further on in the order, `newer` ones before."""

    having: RequestChoice
    since: datetime | None = None
    until: datetime | None = None
    sort: RequestSort = "time"
    ascending: bool = False
    at: RequestPosition | None = None
    direction: Direction = "older"
    limit: int = 50


@record
class RequestSpeed:
    """Milliseconds within which half of some requests were over, and 95 of 100. `is_part`: of the latest `requests`
    alone, as there are more."""

    p50: int
    p95: int
    requests: int
    is_part: bool


@record
class FoundRequest:
    """A request, and how its last user message begins (None where none is stored)."""

    line: RequestLine
    question: str | None


@record
class FoundRequests:
    """A part of what is found, in its order, and where it goes on. `ended`: the look ended there, as it had read all
    that one look may read: there may be more."""

    found: tuple[FoundRequest, ...]
    older: RequestPosition | None
    newer: RequestPosition | None
    ended: RequestPosition | None = None


@record
class OutlinedMessage:
    """A message of any branch. `choice` is the number of an answer, None of what a client sent. `call_id` of a tool's
    result is the message with its call."""

    message_id: str
    parent_id: str | None
    role: str
    status: str
    request_id: str
    choice: int | None
    agent: str | None
    number: int
    created_at: datetime
    call_id: str | None = None
    instructions: str | None = None


@record
class OutlinedReplay:
    """A replay of turns, and the last message of what is done of it; None: nothing yet."""

    replay_id: str
    from_turn: int
    to_turn: int
    at_id: str | None


@record
class ConversationOutline:
    """All messages of a conversation, oldest first, and what else is kept of it. `is_whole` is False where it has more
    messages than are read. `head_id` ends the current branch."""

    conversation_id: str
    tenant: str
    head_id: str | None
    created_at: datetime
    updated_at: datetime
    messages: Sequence[OutlinedMessage]
    is_whole: bool = True
    forgotten_at: datetime | None = None
    session: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    team_task: str | None = None
    pinned: frozenset[str] = frozenset()
    segments: tuple[SummarySegment, ...] = ()
    replays: tuple[OutlinedReplay, ...] = ()
    sums: KeptSums = NO_SUMS


@record
class OutlinedPage:
    """What is read of the turns of one page: bills by request, how user messages begin, by message, and what messages
    say, by message, where that is asked for; of those in `cut` the beginning alone."""

    bills: Mapping[str, LedgerEntry]
    texts: Mapping[str, str]
    bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
