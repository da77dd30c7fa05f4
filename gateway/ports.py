"""The Protocols that the steps need. Adapters live in `storage/`, `upstream/` and `tokens.py`; `app.py` wires them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from gateway.models.bill import Purpose
from gateway.models.calibration import Calibration, Report
from gateway.models.conversation import ConversationRef, Earlier, Lookup, StoredConversation
from gateway.models.exchange import (
    AnswerOpener,
    Caller,
    Deployment,
    JsonAnswer,
    ModelFacts,
    RelayedCall,
    StoredFile,
    StreamOpener,
)
from gateway.models.internal import InternalAnswer, InternalRequest
from gateway.models.relevance import Embeddings, Tariff


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class ConversationReader(Protocol):
    """What `history` and `context` read of the storage; a port, as steps do not import each other.

    Raises:
        StorageUnavailable: the storage cannot be reached, or not within its timeout.
    """

    async def secret(self) -> bytes:
        """The key of keyed hashes, the same in all replicas (guarantee §8)."""
        ...

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        lookup: Lookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """The conversation of that name, or the one that `lookup.keys` recognise; None if there is none.

        Args:
            max_bytes: how much of the path is read. Whole turns, newest first: the latest always, older ones while
                the sum stays within this many bytes. None: all of it.
            sought: the messages of a resend. The path leads to the message that they continue, else to the head.
            model: the frame of this model comes with the conversation (guarantee §4 I7).
        """
        ...

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> Earlier:
        """The messages before this one, newest first until they exceed `max_bytes`. Empty for an unknown message."""
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

    async def evict(self, *groups: str) -> None:
        """Deletes all values of these groups; a cache that cannot be asked keeps them until their time is over."""
        ...

    async def close(self) -> None: ...


class Embedder(Protocol):
    """A model that finds a place for texts in a space where near means alike."""

    @property
    def name(self) -> str:
        """Vectors of one name can be compared; it is part of the key by which they are kept."""
        ...

    @property
    def at_once(self) -> int:
        """How many characters of texts one call takes."""
        ...

    def tariff(self) -> Tariff | None:
        """Where its calls go and what they cost; None if nobody bills them."""
        ...

    async def embed(self, texts: Sequence[str], caller: Caller) -> Embeddings:
        """One vector a text.

        Raises:
            UpstreamError: as drawn in `errors.py`; also where the answer holds no usable vectors.
            ModelNotFound, Unauthorized: it is not for this caller.
            EmbeddingFault: the model cannot be run here.
        """
        ...

    def close(self) -> None:
        """Lets go what it holds."""
        ...


class InternalModel(Protocol):
    """A planner or summarizer as one request may use it; each call is on that request's bill."""

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


class CallCounts(Protocol):
    """Where calls of internal models are counted for whoever runs the gateway."""

    def asked(self, purpose: Purpose, outcome: str) -> None:
        """One was asked, or kept from being asked by a ceiling; `outcome` is `ok`, `cut`, `rubbish`, `cancelled`, or
        what `fallback_reason` says after the purpose."""
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
    """A model's provider."""

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """One answer.

        Raises:
            UpstreamError: as drawn in `errors.py`.
        """
        ...

    def stream(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> StreamOpener:
        """An answer in chunks; leaving the context closes the connection."""
        ...


class RawUpstream(Protocol):
    """A provider's other endpoints, passed on as they are (guarantee §1)."""

    def open(self, deployment: Deployment, call: RelayedCall) -> AnswerOpener:
        """The answer once it has begun; leaving the context closes the connection.

        Raises:
            UpstreamError: as drawn in `errors.py`; error answers in OpenAI's shape are answers.
        """
        ...


class FileStore(Protocol):
    """Files that a client keeps with its upstream."""

    async def fetch(self, file_id: str, caller: Caller) -> StoredFile:
        """
        Raises:
            NotFound: no such file, or not for this caller.
            UpstreamError: as drawn in `errors.py`.
        """
        ...


class Router(Protocol):
    """Which deployment serves a model, and what is known of that model."""

    def deployment(self, model: str, caller: Caller) -> Deployment:
        """Where `model` is served for this caller, and with whose key.

        Raises:
            ModelNotFound: not configured, and no default upstream may serve it.
        """
        ...

    def facts(self, model: str) -> ModelFacts: ...


class InternalRouter(Router, Protocol):
    """Where internal models are served (guarantee §5)."""

    def internal(self, name: str, chosen: bool, primary: Deployment, caller: Caller) -> Deployment | None:
        """The deployment of an internal model: of `model_list`, or at the primary's own upstream with the same key;
        None if it is neither. `chosen`: somebody named it, it is no default."""
        ...


class RelayRouter(Router, Protocol):
    """Where a call goes that is only passed on."""

    def lists(self, model: str) -> bool:
        """Whether `model_list` names that model."""
        ...

    def default(self, model: str, caller: Caller) -> Deployment:
        """The default upstream.

        Raises:
            ModelNotFound: it is not for this caller.
        """
        ...


class TokenCounter(Protocol):
    """Counts tokens as the model would, offline."""

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


class TokenCounters(Protocol):
    """The counter of a model, and what upstream has taught about it."""

    def counter(self, facts: ModelFacts) -> TokenCounter: ...

    def learn(self, facts: ModelFacts, report: Report) -> None:
        """Calibrates the estimate by what upstream reported (guarantee §4 I1)."""
        ...


class CalibrationStore(Protocol):
    """What was learned of models' tokens, by the name that the learner gives each. Safe from several processes at once.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    async def load(self) -> dict[str, Calibration]:
        """All of them, or the latest thousand."""
        ...

    async def save(self, learned: Mapping[str, Calibration]) -> None:
        """Replaces those, and leaves the others alone."""
        ...


class ModelDirectory(Protocol):
    """The models that a caller may ask for."""

    async def models(self, caller: Caller) -> list[dict[str, Any]]:
        """OpenAI's model objects.

        Raises:
            UpstreamError: the list is the default upstream's, and it did not give it.
        """
        ...
