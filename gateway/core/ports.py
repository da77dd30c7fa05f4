"""The Protocols that the steps need. `app.py` and the packages' `wiring.py` wire the adapters, which are in `storage/`,
`upstream/`, `documents/files/`, `retrieval/embeddings/` and `context/`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gateway.core.types.chat import JsonAnswer, ModelDeployment, ModelFacts, RequestCaller, StoredFile, StreamOpener
    from gateway.core.types.conversation import (
        ConversationRef,
        EarlierMessages,
        HistoryLookup,
        MessageParts,
        StoredConversation,
    )
    from gateway.core.types.keys import AccountLease, RateWindow, SpendingAccount
    from gateway.core.types.places import LargeIndex, RegionPlace, TextRegion
    from gateway.core.types.relevance import EmbeddingTariff, TextEmbeddings
    from gateway.core.types.upstreams import CallScope, ModelCalibration, UpstreamRequest

Spans = Callable[[str], AbstractContextManager[Any]]
"""Marks a step of a request, as in `with spans("rebuild"):`. Where nothing is traced, it is `contextlib.nullcontext`.

Names are `rebuild`, `fit`, `plan` and `commit`; the purpose of an internal call marks the calls made within.
"""


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class CacheBackend(Protocol):
    """A cache that may be down, slow or empty at any time: every fault is a miss (guarantee §5)."""

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, None where it is unknown: asked for at once, within the time of one `get`."""
        ...

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds at most; those of one `group` can be forgotten together."""
        ...

    async def evict(self, *groups: str) -> None:
        """Deletes all values of these groups; a cache that cannot be asked keeps them until their time is over."""
        ...

    async def close(self) -> None: ...


class Embedder(Protocol):
    """A model that turns texts into vectors: one behind an upstream, or MiniLM on this machine."""

    @property
    def name(self) -> str:
        """Names the vectors that can be compared with each other; part of the key of kept ones."""
        ...

    @property
    def at_once(self) -> int:
        """The most characters of texts that one call takes."""
        ...

    def tariff(self) -> EmbeddingTariff | None:
        """Name and prices of the model; None if its calls cost nothing."""
        ...

    async def embed(self, texts: Sequence[str], scope: CallScope) -> TextEmbeddings:
        """One vector for each text.
        Raises UpstreamError: see `core/errors`; also if the answer holds no usable vectors; ModelNotFound,
        Unauthorized: the model is not for this caller; EmbeddingFault: the model cannot be run here."""
        ...

    def close(self) -> None:
        """Releases what it holds."""
        ...


class ClaimingCache(CacheBackend, Protocol):
    """A cache by which several processes agree on who makes a value."""

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Whether `key` is `owner`'s now, for `ttl` seconds: it was that owner's, nobody's, or nobody can be asked."""
        ...

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        """The value of `key`, else None and whether `claim` is `owner`'s now: asked for in one go."""
        ...

    async def release(self, key: str, owner: str) -> None:
        """Gives a claim up, if it is still that owner's."""
        ...


class Upstream(Protocol):
    """Calls a model: in OpenAI's protocol, or through litellm."""

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        """One answer. Raises UpstreamError: see `core/errors`."""
        ...

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        """An answer in chunks; leaving the context closes the connection."""
        ...


class ModelChoice(Protocol):
    """Where models are served, and what is known of them. A port since contexts ask internal models whoever serves
    them."""

    def internal(
        self, name: str, chosen: bool, primary: ModelDeployment, caller: RequestCaller
    ) -> ModelDeployment | None:
        """The deployment of an internal model; None if nobody may serve it (guarantee §5).
        `chosen`: the request or the operator named it."""
        ...

    def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
        """What is known of a model, at its deployment where that is named."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as a model does, offline. A port since `window` and `upstream` are beside `tokens`."""

    @property
    def tokenizer(self) -> str:
        """Names what counts: `plain` is the same wherever this is the same, and of no use elsewhere."""
        ...

    def text(self, text: str) -> int: ...

    def message(self, message: dict[str, Any]) -> int:
        """Tokens of one message with what frames it."""
        ...

    def least(self, message: dict[str, Any]) -> int:
        """Never more than `message` gives, found out without counting; no good estimate."""
        ...

    def plain(self, message: dict[str, Any]) -> int | None:
        """The same without any margin; None if that depends on more than the tokenizer (pictures, sounds)."""
        ...

    @property
    def margin(self) -> float:
        """The model's tokens for one that is counted, as configured or learned (ADR 13)."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether the model itself counts like this, as far as is known."""
        ...

    @property
    def added_per_message(self) -> int:
        """Tokens that each message takes more than `plain` says, margin included (ADR 13)."""
        ...

    def saved(self, calls: int) -> int:
        """Tokens that each tool call of a prompt with so many takes less than `plain` says (ADR 13)."""
        ...

    def estimate(self, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        """`message` of all together, and whether they were counted: of long ones samples are."""
        ...

    def parts(self, message: dict[str, Any]) -> MessageParts:
        """What `estimate_parts` needs of a message; without media the same for every model."""
        ...

    def estimate_parts(self, parts: Sequence[MessageParts]) -> tuple[int, bool]:
        """`estimate` of the messages that have these parts."""
        ...

    def estimate_texts(self, texts: Sequence[str], lengths: Sequence[int]) -> tuple[int, bool]:
        """The same of messages that are one text each, with these numbers of characters."""
        ...

    def with_margin(self, plain: int) -> int:
        """What `message` gives where `plain` gives this."""
        ...

    def tools(self, forward: dict[str, Any]) -> int:
        """Tokens of tools and response schema."""
        ...


class HistoryStore(Protocol):
    """Conversations, as far as a request reads them. A port since what a request continues is found, and its context
    made, whatever keeps them.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def secret(self) -> bytes:
        """The key of keyed hashes, which replicas share (guarantee §8)."""
        ...

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        lookup: HistoryLookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """See `storage/store.py`."""
        ...

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> EarlierMessages:
        """The messages before this one, the newest first, until they exceed `max_bytes`."""
        ...


class LargeTexts(Protocol):
    """Large documents, of which a question's regions are read by their indexes (guarantee §14.7). A port since regions
    are ranked whatever keeps them.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def indexes(self, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()) -> list[LargeIndex]:
        """What is known of these documents, as far as they are there, with these buckets of their indexes."""
        ...

    async def regions(self, tenant: str, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[TextRegion]]:
        """These regions of documents, in order, as far as they are there."""
        ...

    async def places(self, tenant: str, digests: Sequence[str]) -> dict[str, list[RegionPlace]]:
        """Where each region of these documents stands, in order."""
        ...


class CalibrationStore(Protocol):
    """What was learned of models' tokens, by the learner's names. Safe from several processes at once. A port since
    `tokens` is beside `storage`.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def load(self) -> dict[str, ModelCalibration]:
        """All of them, or the latest thousand."""
        ...

    async def save(self, learned: Mapping[str, ModelCalibration]) -> None:
        """Replaces those, and leaves the others alone."""
        ...


class BudgetStore(Protocol):
    """What was spent, and what processes may still spend without asking again (ADR 28). Each method is one short
    transaction, and safe from several processes at once.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def spent(self, account: SpendingAccount) -> int:
        """Picodollars of all bills since the account's period began."""
        ...

    async def lease(self, account: SpendingAccount, budget: int, held: int, more: int) -> AccountLease:
        """Writes down what this process holds of a budget: what its running requests hold already, `more`, and, where
        there is room, a share of what is left. What does not fit beside what was spent and what others hold is not
        given."""
        ...

    async def give_back(self, account: SpendingAccount) -> None:
        """This process holds nothing of it any more."""
        ...

    async def sweep(self) -> None:
        """Deletes what processes held that are gone."""
        ...


class LocalRateStore(Protocol):
    """The same as `RateStore` in this process, of which nothing has to be waited for. `now`: Unix seconds."""

    def take(self, key: str, limit: int, amount: int, now: float) -> tuple[bool, RateWindow]: ...

    def correct(self, key: str, amount: int, since: float) -> None: ...

    def enter(self, key: str, request_id: str, limit: int) -> bool: ...

    def leave(self, key: str, request_id: str) -> None: ...


class RateStore(Protocol):
    """Counts within a minute, and requests at once. It may forget at any time; each change is atomic.
    Raises LimitsUnavailable, StorageUnavailable: it cannot be reached."""

    @property
    def local(self) -> LocalRateStore | None:
        """What counts in this process alone; None where others count, too."""
        ...

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if no more than `limit` are counted then, and tells what is counted."""
        ...

    async def correct(self, key: str, amount: int, since: float) -> None:
        """Counts so many more, or fewer (below 0) than were counted at `since` (seconds since 1970). Fewer only while
        they stand in the window that runs."""
        ...

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Whether the request is one of at most `limit` that are under way. It is for a minute, unless renewed."""
        ...

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """These requests, by key and id, are under way for another minute."""
        ...

    async def leave(self, key: str, request_id: str) -> None:
        """The request is over."""
        ...

    async def sweep(self) -> None:
        """Deletes what is over."""
        ...

    async def close(self) -> None: ...


class FileStore(Protocol):
    """Files that a client has uploaded, here or to its upstream. A port since contexts are made below `documents`."""

    def keeps(self, caller: RequestCaller) -> bool:
        """Whether this caller's files are kept here, so that no upstream knows their ids."""
        ...

    async def check(self, file_id: str, caller: RequestCaller) -> None:
        """Raises NotFound: no such file, or not for this caller."""
        ...

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        """A file with its name and content.
        Raises NotFound: no such file, or not for this caller; UpstreamError: see `core/errors`."""
        ...


class ContentStore(Protocol):
    """Where contents of files are kept, by names that are given once. A port since `upstream` speaks to buckets."""

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Keeps all pieces, for good, or nothing if they end with an error.
        Raises StorageUnavailable: it cannot be kept now."""
        ...

    def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        """The content from byte `start` on, in pieces of whichever size. What is before that is not read.
        Raises StorageUnavailable: it cannot be read, or is not there."""
        ...

    async def delete(self, *names: str) -> None:
        """Deletes contents for good; one that is not there is no fault."""
        ...

    def names(self) -> AsyncIterator[list[str]]:
        """What is kept, in batches."""
        ...
