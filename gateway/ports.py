"""The Protocols that the steps need. Adapters live in `storage/`, `upstream/` and `tokens.py`; `app.py` wires them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from gateway.models.calibration import Calibration
from gateway.models.conversation import ConversationMessage, ConversationRef, Earlier, Lookup, StoredConversation
from gateway.models.exchange import Caller, Deployment, JsonAnswer, StoredFile, StreamOpener
from gateway.models.internal import InternalAnswer, InternalRequest
from gateway.models.records import (
    ConversationRecord,
    Imported,
    ImportedConversation,
    ItemPage,
    ItemQuery,
    RecordPage,
    RecordQuery,
)
from gateway.models.relevance import Embeddings, Tariff
from gateway.models.turn import (
    Claim,
    ClaimRecord,
    CompletionPage,
    CompletionQuery,
    RequestIdentity,
    StoredCompletion,
    TurnCommit,
)


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class ConversationStore(Protocol):
    """Conversations and bills. Every method is one short transaction.

    Raises:
        StorageUnavailable: the storage cannot be reached, or not within its timeout.
    """

    async def secret(self) -> bytes:
        """The key of keyed hashes; lives in the storage so that replicas and restarts share it (guarantee §8)."""
        ...

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        sought: Lookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """The conversation that is named, or by the keys of what is sought the one that it continues, with the end of
        the path that leads to where the request continues: that of what is sought, else the head. Whole turns, at
        least the latest, and further ones while what they take up in a window stays within `max_bytes` (None: all);
        and what `model` was sent of it before.
        """
        ...

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> Earlier:
        """What is older than a message of this tenant's: the end of the path that leads to it, without it, as far as
        it takes up no more than `max_bytes` in a window. Nothing if the tenant has no such message."""
        ...

    async def claim_session(self, tenant: str, session: str, conversation_id: str) -> str:
        """The conversation of that name: `conversation_id`, created now, or the one that has it already."""
        ...

    async def commit(self, commit: TurnCommit) -> None:
        """Stores a turn and its bill in one transaction (guarantee §3.6)."""
        ...

    async def find_completion(self, tenant: str, completion_id: str) -> StoredCompletion | None:
        """By `chatcmpl-…` or `req_…` (guarantee §6)."""
        ...

    async def list_completions(self, tenant: str, query: CompletionQuery) -> CompletionPage | None:
        """A page of this tenant's (guarantee §6); None if it is to begin behind one that the tenant does not have."""
        ...

    async def has_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Whether this tenant has that conversation."""
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Deletes it for good, with all that was said in it; the anonymous bill stays (guarantee §5, §6). A turn that
        is under way is not stored. False: this tenant has no such conversation."""
        ...

    async def reachable(self) -> None:
        """Returns if a turn could be stored now; asked before a model is called (guarantee §3.6)."""
        ...

    async def ready(self) -> bool:
        """Whether the storage answers and is on the current schema."""
        ...


class ConversationTransfer(Protocol):
    """Conversations as documents, lossless.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    async def export_conversation(self, tenant: str | None, conversation_id: str) -> Iterator[bytes] | None:
        """The document, of one moment, in pieces that are made as they are asked for; None if the tenant (None:
        whoever's) has no such conversation."""
        ...

    async def import_conversation(self, tenant: str, made: ImportedConversation) -> Imported:
        """A new conversation: all of it, or nothing."""
        ...


class ExpiringStore(Protocol):
    """What has had its time. Safe from several processes at once.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    async def delete_unused(self, before: datetime) -> int:
        """Deletes the conversations that nothing was added to since then; returns how many."""
        ...

    async def delete_leftovers(self) -> None:
        """Deletes claims whose time is over, and processes that are long gone."""
        ...


class ConversationRecords(Protocol):
    """Conversations by themselves: made, listed, read and changed item by item. Every method is one short transaction.

    Raises:
        StorageUnavailable: the storage cannot be reached, or not within its timeout.
        ConversationNotFound: the tenant has no such conversation.
        ItemNotFound: the conversation has no such item.
    """

    async def create(
        self,
        tenant: str,
        conversation_id: str,
        metadata: dict[str, str],
        messages: Sequence[ConversationMessage],
        request_id: str,
    ) -> ConversationRecord:
        """A new conversation that begins with these messages."""
        ...

    async def find(self, tenant: str, conversation_id: str) -> ConversationRecord:
        """One of this tenant's."""
        ...

    async def update(self, tenant: str, conversation_id: str, metadata: dict[str, str]) -> ConversationRecord:
        """The conversation, with this metadata in the place of what it had."""
        ...

    async def list_page(self, tenant: str, query: RecordQuery) -> RecordPage:
        """A page of this tenant's conversations."""
        ...

    async def items(self, tenant: str, conversation_id: str, query: ItemQuery) -> ItemPage:
        """A page of the items of the current branch: the system messages in force and the path to the head."""
        ...

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> dict[str, Any]:
        """One item, of any branch."""
        ...

    async def add_items(
        self, tenant: str, conversation_id: str, messages: Sequence[ConversationMessage], request_id: str
    ) -> list[dict[str, Any]]:
        """The items that were made of these messages, at the head."""
        ...

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> ConversationRecord:
        """Deletes an item for good; what it said is nowhere in the conversation afterwards."""
        ...


class ClaimStore(Protocol):
    """What is known of requests that are to be answered once. Every method is one short transaction.

    Raises:
        StorageUnavailable: the storage cannot be reached, or not within its timeout.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes use the same storage: claims are taken in it then, and not in memory alone."""
        ...

    async def take(self, claim: Claim, *, anew: bool, alive_until: datetime | None) -> ClaimRecord | None:
        """Takes the claim if it is free, and returns None; else what stands in its way. `anew`: the record of an
        earlier answer does not, and what runs is contested from now on. `alive_until` is noted of the process."""
        ...

    async def find(self, identity: RequestIdentity) -> ClaimRecord | None:
        """What is known of that request."""
        ...

    async def release(self, claim: Claim) -> None:
        """Lets go what has not become a record, and what it took the place of."""
        ...

    async def beat(self, process: str, alive_until: datetime) -> None:
        """That process holds its claims until then at least."""
        ...


class CacheBackend(Protocol):
    """A cache that may be down, slow or empty at any time: every fault is a miss (guarantee §5)."""

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, None where it is unknown: asked for at once, within the time of one `get`."""
        ...

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds at most; those of one `group` can be forgotten together."""
        ...

    async def forget(self, *groups: str) -> None:
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

    def tariff(self) -> Tariff | None:
        """Name and prices of the model; None if its calls cost nothing."""
        ...

    async def embed(self, texts: Sequence[str], caller: Caller) -> Embeddings:
        """One vector for each text.

        Raises:
            UpstreamError: as drawn in `errors.py`; also if the answer holds no usable vectors.
            ModelNotFound, Unauthorized: the model is not for this caller.
            EmbeddingFault: the model cannot be run here.
        """
        ...

    def close(self) -> None:
        """Releases what it holds."""
        ...


class InternalModel(Protocol):
    """A planner or summarizer of one request. A port since `planning` is below `internal_models`, which makes the calls
    and puts them on the bill."""

    @property
    def name(self) -> str: ...

    @property
    def max_input_tokens(self) -> int | None: ...

    @property
    def max_output_tokens(self) -> int | None: ...

    async def ask(self, ask: InternalRequest) -> InternalAnswer:
        """The text of its answer, and whether that is all of it.

        Raises:
            InternalModelFailed: there is none, or not in time; the message is the `fallback_reason`.
        """
        ...

    async def allow(self, asks: Sequence[InternalRequest]) -> None:
        """Before the first of several questions that are of use only together.

        Raises:
            OverCeiling: this request may not use what their prompts alone take; nobody is asked in vain.
        """
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

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """One answer.

        Raises:
            UpstreamError: as drawn in `errors.py`.
        """
        ...

    def stream(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> StreamOpener:
        """An answer in chunks; leaving the context closes the connection."""
        ...


class FileStore(Protocol):
    """Files that a client keeps with its upstream. A port since `artifacts` is beside `upstream`."""

    async def fetch(self, file_id: str, caller: Caller) -> StoredFile:
        """A file with its name and content.

        Raises:
            NotFound: no such file, or not for this caller.
            UpstreamError: as drawn in `errors.py`.
        """
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

    def with_margin(self, plain: int) -> int:
        """What `message` gives where `plain` gives this."""
        ...

    def tools(self, forward: dict[str, Any]) -> int:
        """Tokens of tools and response schema."""
        ...


class CalibrationStore(Protocol):
    """What was learned of models' tokens, by the learner's names. Safe from several processes at once. A port since
    `tokens` is beside `storage`.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    async def load(self) -> dict[str, Calibration]:
        """All of them, or the latest thousand."""
        ...

    async def save(self, learned: Mapping[str, Calibration]) -> None:
        """Replaces those, and leaves the others alone."""
        ...
