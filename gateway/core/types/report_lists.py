"""Lists of conversations and requests for web pages and commands, newest first (guarantee §13.9)."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, Self, TypeVar

from gateway.core.frozen_records import record
from gateway.core.jsons import picked
from gateway.core.types.bill import PICO, CostSums
from gateway.core.types.turn import TurnStatus

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHAT_ENDPOINT = "chat"
"""The endpoint name of chat completions in queries and lists; their rows in the ledger name none."""
MAX_ID_CHARS = 64
MAX_POSITION_DIGITS = 18
T = TypeVar("T")
C = TypeVar("C")
Direction = Literal["older", "newer"]
DIRECTIONS: tuple[Direction, ...] = ("older", "newer")


@record
class ListPosition:
    """A position in a sorted list: microseconds since 1970, picodollars or milliseconds, and an id to order equal
    values."""

    value: int
    id: str

    def __str__(self) -> str:
        """Returns the form in URLs."""
        return f"{self.value}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a position in the form of URLs. Raises ValueError: the text is not a position."""
        number, dot, name = text.partition(".")
        if not dot or len(name) > MAX_ID_CHARS or not name.isprintable():
            raise ValueError("no position in a list")
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_POSITION_DIGITS):
            raise ValueError("no position in a list")
        return cls(int(number), name)

    @classmethod
    def of_time(cls, time: datetime, name: str) -> Self:
        """Makes a position in a list that is sorted by times."""
        return cls((time - EPOCH) // timedelta(microseconds=1), name)

    @property
    def time(self) -> datetime:
        """The value as a time. Raises ValueError: it is out of range."""
        try:
            return EPOCH + timedelta(microseconds=self.value)
        except OverflowError:
            raise ValueError("no position in a list") from None


@record
class QueryPage(Generic[T]):
    """The results of a query, in the requested order, and whether more follow."""

    found: tuple[T, ...]
    has_more: bool = False

    @classmethod
    def of(cls, read: Iterable[T], limit: int) -> "QueryPage[T]":
        """Makes a page of the rows read: at most `limit`, and one more if more follow."""
        found = tuple(read)
        return cls(found[:limit], len(found) > limit)


@record
class ListPart(Generic[C]):
    """Selects rows of a list: those that match `having`, from `since` on and before `until` (both in UTC), at most
    `limit`: the newest, or those next to `at` that are older or newer. `searched`: how many conversations are scanned
    at most if no index serves the query; None: all."""

    having: C
    since: datetime | None = None
    until: datetime | None = None
    at: ListPosition | None = None
    direction: Direction = "older"
    limit: int = 20
    searched: int | None = None


@record
class ListPage(Generic[T]):
    """A part of a list, in its order. `older`: the position after which the later rows of the order follow; `newer`:
    that of the earlier rows; None if there are none, so `newer` is None for the first part. `ended`: the position where
    a scan stopped at its limit, after which there may be more; None if it was complete."""

    found: tuple[T, ...]
    older: ListPosition | None
    newer: ListPosition | None
    ended: ListPosition | None = None


def figures_of_conversation(sums: CostSums) -> dict[str, Any]:
    """Returns the sums reported for a conversation; costs are in USD, of the calls that have a price."""
    return {
        **picked(sums, "requests", "prompt_tokens", "completion_tokens", "cost"),
        "planning_cost": sums.planning,
        **picked(sums, "unpriced", "estimated", "metered"),
        "net_saving": sums.net_saving_picousd * PICO,
    }


@record
class ConversationChoice:
    """Which conversations. `tenant` None: of all tenants. `id`: an id or its beginning. `user`, `model`: of the latest
    request. `text`: a part of the beginning of the first question, ignoring case."""

    tenant: str | None = None
    id: str | None = None
    session: str | None = None
    user: str | None = None
    model: str | None = None
    text: str | None = None


@record
class ConversationLine:
    """A conversation in a list. `question`: the beginning of its first user message; "" if an item of it was deleted,
    None if there is none, or an older version stored it. `user`, `model`: of its latest request. `sums`: requests
    stored by an older version are in none until they are added (guarantee §13.1)."""

    id: str
    tenant: str
    sessions: tuple[str, ...]
    question: str | None
    user: str | None
    model: str | None
    created_at: datetime
    updated_at: datetime
    sums: CostSums

    @property
    def position(self) -> ListPosition:
        return ListPosition.of_time(self.updated_at, self.id)


@record
class RequestChoice:
    """Which requests. `tenant` None: of all tenants. `endpoint`: as the ledger names it, or `chat`. Costs and net
    savings are in USD. `text`: a part of one of their user messages, ignoring case."""

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
    """A request in a list: its row of the ledger without its calls. `cost` is None if any call has no price;
    `known_cost` covers those that have one. `known_cost`, `planning_cost`, `saved`, `cached_tokens` and
    `cache_write_tokens` are None if an older version wrote the row, until it is added to the sums.
    `direct_cost` and `net_saving` are None if its cost without a gateway is unknown. `http_status`: of the error that
    its client got, `total_ms`: from its arrival to its end; None if unknown."""

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
    key_id: str | None = None
    http_status: int | None = None
    total_ms: int | None = None


RequestSort = Literal["time", "cost", "latency", "saved"]
OK = 200
"""The HTTP status of each request that did not fail; an interrupted answer had begun with it, too."""


@record
class RequestQuery:
    """Selects and sorts requests: those that came from `since` on and before `until`, by `sort` in descending order
    (unless `ascending`), at most `limit`: the first ones, or those next to `at`: `older` ones after it in the order,
    `newer` ones before."""

    having: RequestChoice
    since: datetime | None = None
    until: datetime | None = None
    sort: RequestSort = "time"
    ascending: bool = False
    at: ListPosition | None = None
    direction: Direction = "older"
    limit: int = 50


@record
class RequestSpeed:
    """The median and the 95th percentile of the durations of requests, in milliseconds. `is_part`: only of the latest
    `requests`, as there are more."""

    p50: int
    p95: int
    requests: int
    is_part: bool


@record
class FoundRequest:
    """A request, and the beginning of its last user message (None if none is stored)."""

    line: RequestLine
    question: str | None


FoundRequests = ListPage[FoundRequest]
