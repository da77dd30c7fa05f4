"""One exchange with a model: the request, its caller, the deployment and the answer. Code that distinguishes kinds of
content parts, or refuses some, is in the modules that need it."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.names import shown
from gateway.core.types.agents import RequestAgent
from gateway.core.types.artifacts import ArtifactPlan, ContextGoal, RequestAttachment
from gateway.core.types.bill import OFF
from gateway.core.types.chain import ChainDigest
from gateway.core.types.conversation import UNNAMED, ConversationRef
from gateway.core.types.keys import HeldAdmission, KeyPolicy
from gateway.core.types.memory import EXTRACTS, EntityMemoryOptions
from gateway.core.types.prompt_digests import PromptDigests
from gateway.core.types.recall import Recall
from gateway.core.types.turn import RequestClaim

ANTHROPICS_KEY = "sk-ant-"
"""Prefix of Anthropic's keys and tokens, by which they are recognised anywhere."""
COMPLETION_FIELDS = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier")
)
"""Fields of a completion that answers of other APIs have in another form. All others are passed on."""
USER_FIELDS = ("user", "safety_identifier")
"""Fields in which a body names its end user."""
OTHER_MODELS = ("models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
"""Fields in which some upstreams (OpenRouter, LiteLLM) accept models that may answer instead."""


def named_besides(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields the models that a body names beside its `model`, for upstreams that may use them; every string counts."""
    left = [fields[name] for name in OTHER_MODELS if name in fields]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()


@record
class RequestCaller:
    """The caller of a request: the tenant, and the client's own key if it may be sent upstream (guarantee §8). `key_id`
    names the key in use, and `project` its project; both None if unknown. `roles` determine what it may view.
    `anthropic_key` is the client's own for Anthropic, and is sent nowhere else. `key` is the policy of a gateway key;
    None for a client's own."""

    tenant: str
    client_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    key_id: str | None = None
    project: str | None = None
    roles: frozenset[str] = frozenset({"user"})
    anthropic_key: str | None = field(default=None, repr=False)
    key: KeyPolicy | None = None

    @property
    def user(self) -> str | None:
        """The user named by its token, which overrides the requests' own; None: each request names its user."""
        return None if self.key is None else self.key.user

    def end_user(self, fields: Mapping[str, Any]) -> str | None:
        """Returns the user for the bill: the one its token names, else the first of `USER_FIELDS` that a body has."""
        if self.key is not None and self.key.user is not None:
            return self.key.user
        for key in USER_FIELDS:
            if isinstance(name := fields.get(key), str) and name:
                return name
        return None

    def may_ask(self, model: str) -> bool:
        """Returns whether the caller's key allows that model."""
        return self.key is None or self.key.may_ask(model)

    def check_model(self, model: str) -> None:
        """Raises ModelNotAllowed: the caller's key names the models that it allows, and not this (guarantee §12.1)."""
        if not self.may_ask(model):
            text = f"This key may not ask the model {shown(model)}: it names those that it may."
            raise errors.ModelNotAllowed(text, param="model")

    def check_models_of(self, fields: Mapping[str, Any]) -> None:
        """Raises ModelNotAllowed: the key does not allow a model that a body names beside its own, which some upstreams
        may let answer."""
        if self.key is not None and self.key.models:
            for name in named_besides(fields):
                self.check_model(name)


@record
class WhatIf:
    """Changes with which a past request is repeated for inspection: artifacts to show in full, by their content ids,
    and the plan to follow for all others; None: no plan was made."""

    in_full: frozenset[str]
    plan: ArtifactPlan | None = None


def a_pin(value: Any, where: str) -> bool:
    """Returns whether to pin a message (guarantee §11.12). Raises InvalidRequest: it is neither true nor false."""
    if not isinstance(value, bool):
        raise errors.invalid(where, "must be true or false")
    return value


@record
class ContextOptions:
    """A request's options for its context (guarantee §2), defaults applied."""

    mode: str
    planning: str
    goal: ContextGoal
    max_input_tokens: int | None = None
    dry_run: bool = False
    models: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    """The mode of the prompt profile; `off`: none; None: chosen by the messages."""
    memory: str = EXTRACTS
    """What represents old turns: `extracts`, `summary` or `both` (guarantee §11.13)."""
    whole: bool = False
    """Nothing may be left out: a request that does not fit as it is, is refused."""
    recall: Recall = False
    """The model gets the tool `recall` (guarantee §10.11); `auto`: after something is left out."""
    cite: bool = False
    """The model is to cite the sources of its statements (guarantee §14.8); never in mode `off`."""
    what_if: WhatIf | None = None
    """For dry runs of the web UI; no client can set it."""
    clear_above: int | None = None
    """Tokens above which a client's API wants the prompt cut. Unlike `max_input_tokens` it may be exceeded by what
    cannot be cut."""
    compacts: bool = False
    """The client wants a compaction reported, by an item that replaces everything before the answer."""
    pauses: bool = False
    """After a compaction only that item is returned: no model is called."""
    sent_elsewhere: bool = False
    """Of a dry run: the caller sends the fitted messages to the model itself, so they are stored as forwarded."""
    economy: str = OFF
    """Whether passes are made when they pay: `auto`, `observe` or `off` (guarantee §4 I7)."""
    untouched_tools: tuple[str, ...] = ()
    """Name patterns of tools whose results are never shaped (guarantee §4 I8)."""
    held_out: bool | None = None
    """True: the conversation goes direct, to be compared with economised ones; False: it is one of these; None: no
    conversation is held out."""

    @property
    def takes_profile(self) -> bool:
        """Whether the request gets a prompt profile, if profiles are configured."""
        return self.mode != "off" and self.profile != "off"

    @property
    def is_summarized(self) -> bool:
        """Whether summaries may represent old turns."""
        return self.memory != EXTRACTS


@record
class PlainMessages:
    """Messages that are roles and texts and nothing else, as most are."""

    roles: list[str]
    texts: list[str]
    lengths: list[int]


@dataclass(slots=True)
class KnownMessages:
    """What an earlier request reveals of a request's messages: the first `count` of them are the same. `digests` are
    chain digests after each message but leading system messages, as far as they are known; all of them after they have
    been computed. `sent` are digests of the prompt that these messages were, if all were forwarded as they came.
    `source` is for the code that recognised the request."""

    count: int = 0
    digests: Sequence[ChainDigest] = ()
    sent: PromptDigests = field(default_factory=PromptDigests)
    source: object = None


def is_relayed(options: ContextOptions, conversation: ConversationRef) -> bool:
    """Returns whether a request is sent upstream as it came, and only its bill is stored: in mode `off`, with no
    conversation named."""
    return options.mode == "off" and conversation == UNNAMED


def never_leaves() -> bool:
    """Returns False: a client of which nothing is known has not disconnected."""
    return False


@record
class CacheMark:
    """The point up to which a client wants a prompt cached: after a part of a message's content, or after the message.

    A client moves its marks from request to request, so they are not part of the stored messages.
    """

    message: int
    part: int | None
    value: Any


@record
class NativeRequest:
    """The fields of a request that only its own API has (ADR 27). `fields` are sent unchanged to an upstream that
    speaks that API, and to no other. `needs` are the paths of fields that the request cannot do without. `marks` are
    set on its messages if the provider accepts them. `hosted` are path and type of everything that only an upstream can
    run: tools, and their calls in earlier answers."""

    protocol: Literal["responses", "anthropic"]
    fields: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    marks: tuple[CacheMark, ...] = ()
    hosted: tuple[tuple[str, str], ...] = ()

    def without_hosted(self) -> "NativeRequest":
        """Returns the request without its hosted tools, for an upstream that runs none: it gets the chat's tools."""
        left_out = ("tools", "tool_choice", "mcp_servers")
        return replace(self, fields={k: v for k, v in self.fields.items() if k not in left_out}, hosted=())


@record
class ChatRequest:
    """A validated chat request. `forward` is the body without the gateway's own fields and without `messages`; `size`
    the bytes of the whole body as received; `agent` the agent that answers, if one is named; `pinned` the indexes of
    messages that stay in every window; `memory` the options of entity memory, None if that is off (the field
    `context.memory` is `options.memory`); `claim` makes it answered only once; `log_facts` are the fields of its log
    line; `has_left` returns whether its client has closed the connection and nobody else wants the answer; `known` is
    what an earlier request reveals of its messages. `api` names the API of the request, None for chat completions;
    `native` the fields that only this API has, `asked` the fields that its answer repeats, stored with the answer."""

    request_id: str
    caller: RequestCaller
    model: str
    messages: tuple[dict[str, Any], ...]
    forward: dict[str, Any]
    conversation: ConversationRef
    attachments: tuple[RequestAttachment, ...]
    options: ContextOptions
    store: bool
    stream: bool
    include_usage: bool
    choices: int
    metadata: dict[str, str] | None
    arrived_at: datetime
    started: float
    size: int
    plain: PlainMessages | None = None
    agent: RequestAgent | None = None
    pinned: frozenset[int] = frozenset()
    memory: EntityMemoryOptions | None = None
    claim: RequestClaim | None = None
    log_facts: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    has_left: Callable[[], bool] = field(default=never_leaves, repr=False, compare=False)
    known: KnownMessages = field(default_factory=KnownMessages, repr=False, compare=False)
    api: Literal["responses", "messages"] | None = None
    native: NativeRequest | None = None
    asked: Mapping[str, Any] | None = None
    admissions: list[HeldAdmission] = field(default_factory=list, repr=False, compare=False)
    """Holds `admission` after the request is admitted: copying a whole request to set it would be expensive."""
    patience: float | None = None
    """Seconds from `started` that its client waits for an answer to begin, if it names them."""
    fallbacks: bool = True
    """Another model may answer if its own fails."""
    left_out: tuple[str, ...] = ()
    """Tools whose calls were removed from its messages, since a provider had run them itself."""

    @property
    def admission(self) -> HeldAdmission | None:
        """Its reservations in budgets and limits; None if none apply."""
        return self.admissions[-1] if self.admissions else None

    @property
    def has_prompt(self) -> bool:
        """Whether it names a prompt that its upstream stores: it may have no messages of its own."""
        return self.native is not None and "prompt" in self.native.fields

    @property
    def end_user(self) -> str | None:
        """The user whom its bill names."""
        return self.caller.end_user(self.forward)

    @property
    def on_ledger(self) -> dict[str, Any]:
        """The fields of its bill that are known before it is answered."""
        caller = self.caller
        return {
            "tenant": caller.tenant,
            "model": self.model,
            "stream": self.stream,
            "end_user": caller.end_user(self.forward),
            "agent": self.agent.agent_id if self.agent is not None else None,
            "key_id": caller.key_id,
            "project": caller.project,
            "endpoint": self.api,
        }

    @property
    def users(self) -> tuple[str, ...]:
        """The users that it names, or the one that the caller's token names; chains are recognised only for the same
        users."""
        key = self.caller.key
        if key is not None and key.user is not None:
            return (key.user,)
        return tuple(
            sorted({name for field in USER_FIELDS if isinstance(name := self.forward.get(field), str) and name})
        )

    def check_models(self) -> None:
        """Raises ModelNotAllowed: the caller's key does not allow one of the models that the request names."""
        if self.caller.key is None:
            return
        for name in (self.model, *self.options.models.values()):  # a key's models limit its internal models, too
            self.caller.check_model(name)
        for fields in (self.forward, self.native.fields if self.native is not None else {}):
            self.caller.check_models_of(fields)

    @property
    def keeps_content(self) -> bool:
        """Whether the text of its user and its model is stored."""
        return self.store and not self.is_relayed

    @property
    def is_worded(self) -> bool:
        """Whether its messages are rendered in another form, since its agent reads them so (§11.2)."""
        return self.agent is not None and self.agent.changes_messages and self.options.mode != "off"

    @property
    def remembers(self) -> bool:
        """Whether remembered entities may be shown with its question (guarantee §11.14)."""
        return self.memory is not None and self.options.mode != "off"

    @property
    def goes_on(self) -> bool:
        """Whether later requests may begin with its messages: it is stored, has tools, or continues an answer."""
        tools = self.forward.get("tools") or self.forward.get("functions")
        return self.store or bool(tools) or any(message["role"] == "assistant" for message in self.messages)

    @property
    def has_sections(self) -> bool:
        """Whether its agent reads sections instead of the messages."""
        return self.is_worded and self.agent is not None and self.agent.is_assembled

    @property
    def prefills(self) -> bool:
        """Whether an assistant message at its end is the beginning of the answer (guarantee §3.4); for an agent with
        sections it is the message delivered to it, unless the agent has `prefill` (§11.3)."""
        return not self.has_sections or (self.agent is not None and self.agent.prefill)

    @property
    def is_relayed(self) -> bool:
        """See the function of this name."""
        return is_relayed(self.options, self.conversation)


@record
class ModelFacts:
    """What is known of a model: prices by LiteLLM's names, exact; windows in tokens."""

    name: str
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    prices: dict[str, Decimal] = field(default_factory=dict)
    tokenizer: str | None = None
    token_margin: float = 1.0
    supports_pdf_input: bool = False
    supports_prompt_caching: bool | None = None
    """None: nothing is known of the model."""
    mode: str | None = None
    """The API that serves it, by LiteLLM's names: `chat`, `responses` …; None: unknown."""
    prices_are_configured: bool = False
    """The operator configured its prices."""
    window_is_configured: bool = False
    """The operator configured its window, which overrides what an upstream reports."""
    served_at: str = ""
    """The address configured for it: elsewhere the same name may mean another model."""


@record
class TurnBound:
    """At most `most` turns, including the current one, are forwarded as messages. If there would be more, one pass
    leaves the latest `kept`, so that the next turns fit without another pass (guarantee §3.11)."""

    most: int
    kept: int

    @classmethod
    def of(cls, most: int | None, oldest_share: float) -> "TurnBound | None":
        """Makes the bound of the settings; None if there is none. `oldest_share`: share of `most` that a pass drops."""
        return None if most is None else cls(most, most - int(oldest_share * most))


@record
class PromptBudget:
    """`tokens` for prompt, tools and schema; None if the window is unknown and no limit was named. `reserve_named`:
    the request names `reserved_output`; else the gateway chose it. `turns` bounds the window beside tokens, even if
    these are unknown. `max_input`: the least other limit of a prompt, and what sets it. `clear_above`: tokens above
    which the prompt is to be cut although more would fit."""

    tokens: int | None
    context_window: int | None
    reserved_output: int = 0
    reserve_named: bool = False
    turns: TurnBound | None = None
    max_input: tuple[int, str] | None = None
    clear_above: int | None = None

    @property
    def cleared(self) -> "PromptBudget":
        """The budget with `tokens` lowered to `clear_above`."""
        if self.clear_above is None or (self.tokens is not None and self.tokens <= self.clear_above):
            return self
        return replace(self, tokens=self.clear_above)

    def overflow(self, tokens: int | None) -> str:
        """Renders the error message for messages that exceed the budget: it names the model's window, or another limit
        if that is less than what the answer leaves of the window."""
        window, reserved = self.context_window, self.reserved_output
        if self.max_input is not None and (window is None or self.max_input[0] < window - reserved):
            limit, whose = self.max_input
            return f"{errors.overflow_text(limit, tokens)} {whose} sets this limit."
        return errors.overflow_text(self.tokens if window is None else window, tokens, reserved if window else 0)


@record
class ModelDeployment:
    """Where a model is served, with the key and parameters to use. `provider_model` goes in the body.

    `protocol` names the adapter that calls it, `origin` the maker of its answers: content bound to one origin is
    useless to another. `options` are the operator's settings for litellm: credentials, regions and others.
    """

    model: str
    provider_model: str
    route: str
    api_base: str
    api_key: str | None = field(repr=False)
    operator_key: bool
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict)
    connect_timeout: float = 10.0
    first_byte_timeout: float = 600.0
    idle_timeout: float = 120.0
    protocol: Literal["openai", "litellm", "responses", "anthropic"] = "openai"
    origin: str = "openai"
    provider: str = "openai"
    """By LiteLLM's names."""
    has_responses: bool | None = None
    """Whether it has a Responses endpoint; None: unknown."""
    query: str = ""
    key_header: str = "authorization"
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    id: str = ""
    """Id of its entry in `model_list`, the same on all replicas and free of secrets; empty if there is no entry."""
    max_answer_bytes: int = 64 * 2**20
    """Limit for an answer that is not streamed."""

    def url(self, path: str) -> str:
        """Returns the URL of `path` at this deployment."""
        return f"{self.api_base}/{path}{self.query}"

    @property
    def authorization(self) -> dict[str, str]:
        """The header that carries the key; empty without a key."""
        if not self.api_key:
            return {}
        return {self.key_header: f"Bearer {self.api_key}" if self.key_header == "authorization" else self.api_key}


@record
class JsonAnswer:
    """A complete answer: the JSON body as the upstream sent it, and the headers to relay."""

    body: dict[str, Any]
    headers: dict[str, str]


@record
class StoredFile:
    """A file that a client stores here (`own`) or upstream. `digest`: SHA-256 of its content in hex, if known."""

    name: str
    media_type: str
    content: bytes
    own: bool = False
    digest: str = ""


class ChunkStream(Protocol):
    """A streamed answer: headers first, then its chunks as the upstream sent them."""

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def done(self) -> bool:
        """Whether the upstream sent `[DONE]`."""

    def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yields chunks until the upstream's `[DONE]`; those that arrive together are in one batch.
        Raises UpstreamInterrupted, UpstreamTimeout, UpstreamInvalidResponse: the stream did not end well."""

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Passes chunks to `take` as soon as their bytes arrive, without waking a task for each; to be called between
        two `batches`. Returns when `take` returned False, or when only `batches` can go on; at once, if the stream does
        not support it.
        Raises as `batches`, and what `take` raises."""


class StreamAround:
    """A `ChunkStream` that wraps another: it has that stream's headers and `done`. It does not push chunks, unless a
    subclass does."""

    def __init__(self, opened: ChunkStream) -> None:
        self._opened = opened

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the wrapped stream."""
        return self._opened.headers

    @property
    def done(self) -> bool:
        """Whether the upstream sent `[DONE]` in the wrapped stream."""
        return self._opened.done

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Returns at once (`ChunkStream.push`): all chunks come by `batches`."""


SIGNS: ContextVar[Callable[[bytes], None] | None] = ContextVar("gateway_signs", default=None)
"""Called with an upstream's signs of life (comments, `ping`, empty lines), if somebody wants them. It must not
raise."""
StreamOpener = AbstractAsyncContextManager[ChunkStream]

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values as received."""
