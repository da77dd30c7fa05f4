"""The Protocols that the steps need. `app.py` and the packages' `wiring.py` wire the adapters, which are in `storage/`,
`upstream/`, `documents/files/`, `retrieval/embeddings/` and `context/`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
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
        """Reads the values of several keys at once, in the time of one `get`; None for each unknown key."""

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Stores a value for at most `ttl` seconds; `evict` deletes the values of a `group` together."""

    async def evict(self, *groups: str) -> None:
        """Deletes all values of these groups; an unreachable cache retains them until their TTL ends."""

    async def close(self) -> None: ...


class Embedder(Protocol):
    """A model that turns texts into vectors: one behind an upstream, or MiniLM on this machine."""

    @property
    def name(self) -> str:
        """A name shared by vectors that can be compared with each other; part of the cache key of vectors."""

    @property
    def at_once(self) -> int:
        """Most characters of text that one call accepts."""

    def tariff(self) -> EmbeddingTariff | None:
        """Returns name and prices of the model; None if its calls cost nothing."""

    async def embed(self, texts: Sequence[str], scope: CallScope) -> TextEmbeddings:
        """Computes one vector for each text.
        Raises UpstreamError: see `core/errors`; also if the answer holds no usable vectors; ModelNotFound,
        Unauthorized: the model is not for this caller; EmbeddingFault: the model cannot be run here."""

    def close(self) -> None:
        """Releases the model and its resources."""


class ClaimingCache(CacheBackend, Protocol):
    """A cache by which several processes agree on which of them computes a value."""

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Claims `key` for `owner` for `ttl` seconds and returns whether it is `owner`'s now: if it was already, was
        free, or the cache is unreachable."""

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        """Reads the value of `key` and, if there is none, claims `claim` for `owner`, in one round trip; returns the
        value or None, and whether `claim` is `owner`'s now."""

    async def release(self, key: str, owner: str) -> None:
        """Releases a claim, if it is still `owner`'s."""


class Upstream(Protocol):
    """Calls a model: in OpenAI's protocol, or through litellm."""

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        """Sends a request and returns its complete answer. Raises UpstreamError: see `core/errors`."""

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        """Opens a streamed answer; leaving the context closes the connection."""


class ModelChoice(Protocol):
    """Where models are served, and what is known of them. A port since contexts call internal models wherever they are
    served."""

    def internal(
        self, name: str, chosen: bool, primary: ModelDeployment, caller: RequestCaller
    ) -> ModelDeployment | None:
        """Returns the deployment of an internal model; None if none may serve it (guarantee §5).
        `chosen`: the request or the operator named the model."""

    def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
        """Returns what is known of a model, at `deployment` if that is given."""


class TokenCounter(Protocol):
    """Counts tokens as a model does, offline. A port since `window` and `upstream` are beside `tokens`."""

    @property
    def tokenizer(self) -> str:
        """Name of the tokenizer: counts of `plain` are valid for all counters of the same name, and for no others."""

    def text(self, text: str) -> int: ...

    def message(self, message: dict[str, Any]) -> int:
        """Counts the tokens of one message, its framing included."""

    def least(self, message: dict[str, Any]) -> int:
        """Returns a lower bound of `message`, found without counting; not a good estimate."""

    def plain(self, message: dict[str, Any]) -> int | None:
        """Counts the tokens of one message without any margin; None if they depend on more than the tokenizer (images,
        audio)."""

    @property
    def margin(self) -> float:
        """The model's tokens per counted token, as configured or learned (ADR 13)."""

    @property
    def is_own(self) -> bool:
        """Whether this is the model's own tokenizer, as far as is known."""

    @property
    def added_per_message(self) -> int:
        """Tokens that each message takes beyond the count of `plain`, margin included (ADR 13)."""

    def saved(self, calls: int) -> int:
        """Returns by how many tokens `plain` overcounts each tool call in a prompt with `calls` of them (ADR 13)."""

    def estimate(self, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        """Estimates the tokens of messages, framing and margin included; returns also whether all text was counted, as
        of long texts only samples are."""

    def parts(self, message: dict[str, Any]) -> MessageParts:
        """Splits a message into the parts that `estimate_parts` needs; without media they are the same for every
        model."""

    def estimate_parts(self, parts: Sequence[MessageParts]) -> tuple[int, bool]:
        """Estimates the tokens of messages given as parts; returns what `estimate` does."""

    def estimate_texts(self, texts: Sequence[str], lengths: Sequence[int]) -> tuple[int, bool]:
        """Estimates the tokens of messages of one text each; returns what `estimate` does. `lengths`: of the texts, in
        characters."""

    def with_margin(self, plain: int) -> int:
        """Applies the margin to a count of `plain`."""

    def tools(self, forward: dict[str, Any]) -> int:
        """Counts the tokens of tools and response schema."""


class HistoryStore(Protocol):
    """Conversations, as far as a request reads them. A port since the request's conversation is found, and its context
    built, whatever stores them.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def secret(self) -> bytes:
        """Returns the key of keyed hashes, which replicas share (guarantee §8)."""

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        lookup: HistoryLookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """Finds the conversation that a request continues, and the point where; see `storage/store.py`."""

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> EarlierMessages:
        """Reads the messages before `message_id`, the newest first, until they exceed `max_bytes`."""


class LargeTexts(Protocol):
    """Large documents, of which only the regions relevant to a question are read, by their indexes (guarantee §14.7). A
    port since regions are ranked whatever stores them.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def indexes(self, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()) -> list[LargeIndex]:
        """Reads the metadata and the given index buckets of these documents; missing documents are skipped."""

    async def regions(self, tenant: str, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[TextRegion]]:
        """Reads the regions `wanted` of each document, in order; missing ones are skipped."""

    async def places(self, tenant: str, digests: Sequence[str]) -> dict[str, list[RegionPlace]]:
        """Reads the place of each region of these documents, in order."""


class CalibrationStore(Protocol):
    """What was learned of models' tokens, by the learner's names. Safe for concurrent use by several processes. A port
    since `tokens` is beside `storage`.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def load(self) -> dict[str, ModelCalibration]:
        """Reads all calibrations, or the latest thousand."""

    async def save(self, learned: Mapping[str, ModelCalibration]) -> None:
        """Stores these calibrations, replacing those of the same names; others stay."""


class BudgetStore(Protocol):
    """What was spent, and what processes may still spend without asking again (ADR 28). Each method is one short
    transaction, and safe for concurrent use by several processes.
    Raises StorageUnavailable: the storage cannot be reached."""

    async def spent(self, account: SpendingAccount) -> int:
        """Returns the picodollars of all bills since the account's period began."""

    async def lease(self, account: SpendingAccount, budget: int, held: int, more: int) -> AccountLease:
        """Records this process's lease of a budget: what its running requests hold already (`held`), `more`, and a
        share of the rest if any is left. Amounts that do not fit beside what was spent and what others hold are not
        granted."""

    async def give_back(self, account: SpendingAccount) -> None:
        """Ends this process's lease of the account."""

    async def sweep(self) -> None:
        """Deletes the leases of processes that are gone."""


class RateStore(Protocol):
    """Counts within a minute, and concurrent requests. It may lose counts at any time; each change is atomic.
    Raises LimitsUnavailable, StorageUnavailable: the store cannot be reached."""

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if the total then does not exceed `limit`; returns whether it fits, and the counts."""

    def correct(self, key: str, amount: int, since: float) -> Coroutine[Any, Any, None] | None:
        """Adds `amount` to a count made at `since` (seconds since 1970). A negative amount applies only while that
        count is in the current window. None: it is done."""

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Admits a request, for a minute unless renewed, if fewer than `limit` others run; returns whether it did."""

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """Counts these requests, by key and id, as running for another minute."""

    def leave(self, key: str, request_id: str) -> Coroutine[Any, Any, None] | None:
        """Ends a running request. None: it is done."""

    async def sweep(self) -> None:
        """Deletes counts and running requests that have expired."""

    async def close(self) -> None: ...


class FileStore(Protocol):
    """Files that a client has uploaded, here or to its upstream. A port since contexts are built below `documents`."""

    def keeps(self, caller: RequestCaller) -> bool:
        """Returns whether this caller's files are stored here, so that no upstream knows their ids."""

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        """Returns the name of a file. Raises NotFound: no such file, or not for this caller."""

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        """Reads a file with its name and content.
        Raises NotFound: no such file, or not for this caller; UpstreamError: see `core/errors`."""


class ContentStore(Protocol):
    """Where contents of files are stored, by names that are never reused. A port since `upstream` speaks to buckets."""

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores all pieces durably, or nothing if they end with an error.
        Raises StorageUnavailable: the content cannot be stored now."""

    def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        """Yields the content from byte `start` on, in pieces of any size, without reading the bytes before.
        Raises StorageUnavailable: the content cannot be read, or does not exist."""

    async def delete(self, *names: str) -> None:
        """Deletes contents for good; a missing one is not an error."""

    def names(self) -> AsyncIterator[list[str]]:
        """Yields the names of all contents, in batches."""
