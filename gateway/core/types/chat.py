"""One exchange with a model: what is asked, of whom, and what came back; and what holds in every form of a message's
content. What tells kinds of parts apart, or refuses some, stands where that is done."""

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
from gateway.core.types.recall import Recall
from gateway.core.types.turn import RequestClaim

ANTHROPICS_KEY = "sk-ant-"
"""How keys and tokens of Anthropic's begin, so that they are known as such wherever they stand."""
USER_FIELDS = ("user", "safety_identifier")
"""Fields in which a body names the user that it is for."""
OTHER_MODELS = ("models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
"""Fields in which some upstreams (OpenRouter, LiteLLM) take models that may answer instead."""


def named_besides(fields: Mapping[str, Any]) -> Iterator[str]:
    """The models that a body names beside its `model`, for upstreams that go by it; whatever is a text there counts."""
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
    """Who asks: the tenant, and the client's own key if it may go upstream (guarantee §8). `key_id` names the key that
    asks, and `project` what it is for; both None where they are not known. `roles` say what it may look at.
    `anthropic_key` is the client's own for Anthropic, and goes nowhere else. `key` is what is known of a key of ours;
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
        """Whom its token names as the user of its requests, whatever they say; None: they say it themselves."""
        return None if self.key is None else self.key.user

    def end_user(self, fields: Mapping[str, Any]) -> str | None:
        """The user whom a bill names: whom its token names, else the first of a body's `USER_FIELDS` that is there."""
        if self.key is not None and self.key.user is not None:
            return self.key.user
        for key in USER_FIELDS:
            if isinstance(name := fields.get(key), str) and name:
                return name
        return None

    def may_ask(self, model: str) -> bool:
        """Whether its key lets it ask that model."""
        return self.key is None or self.key.may_ask(model)

    def check_model(self, model: str) -> None:
        """Raises ModelNotAllowed: its key names the models it may ask, and not this (guarantee §12.1)."""
        if not self.may_ask(model):
            text = f"This key may not ask the model {shown(model)}: it names those that it may."
            raise errors.ModelNotAllowed(text, param="model")

    def check_models_of(self, fields: Mapping[str, Any]) -> None:
        """The same of the models that a body names beside its own, for upstreams that may let them answer."""
        if self.key is not None and self.key.models:
            for name in named_besides(fields):
                self.check_model(name)


@record
class WhatIf:
    """What a past request is made again with, to be looked at: artifacts in full, by their content ids, and the plan
    that is followed for all others; None: none was made."""

    in_full: frozenset[str]
    plan: ArtifactPlan | None = None


@record
class ContextOptions:
    """What a request says of its context (guarantee §2), defaults applied."""

    mode: str
    planning: str
    goal: ContextGoal
    max_input_tokens: int | None = None
    dry_run: bool = False
    models: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    """The mode of the prompt profile; `off`: none; None: as the messages call for."""
    memory: str = EXTRACTS
    """What stands for old turns: `extracts`, `summary` or `both` (guarantee §11.13)."""
    whole: bool = False
    """Nothing may be left out: what does not fit as it is, is refused."""
    recall: Recall = False
    """The model is to have the tool `recall` (guarantee §10.11); `auto`: once something is left out."""
    cite: bool = False
    """The model is to name what its statements rest on (guarantee §14.8); never in mode `off`."""
    what_if: WhatIf | None = None
    """Of a dry run that the page makes; no client can set it."""
    clear_above: int | None = None
    """Tokens above which a client's API wants room to be made. What cannot be made to fit them may be more, unlike
    `max_input_tokens`."""
    compacts: bool = False
    """Its client wants to be told where such room was made, by what may stand for all before the answer."""
    pauses: bool = False
    """Then it wants to be told that alone: no model is asked."""
    sent_elsewhere: bool = False
    """Of a dry run: who asks sends the fitted messages to the model itself, so that they are kept as forwarded."""
    economy: str = OFF
    """Whether passes are made where they pay: `auto`, `observe` or `off` (guarantee §4 I7)."""
    untouched_tools: tuple[str, ...] = ()
    """Patterns of names of tools whose results are never shaped (guarantee §4 I8)."""
    held_out: bool | None = None
    """Whether the conversation goes direct, to be compared with those that are economised (false); None where none
    does."""

    @property
    def takes_profile(self) -> bool:
        """Whether it has a prompt profile, where these are configured."""
        return self.mode != "off" and self.profile != "off"

    @property
    def is_summarized(self) -> bool:
        """Whether summaries may stand for old turns."""
        return self.memory != EXTRACTS


@record
class PlainMessages:
    """Messages that are roles and texts and nothing else, as most are."""

    roles: list[str]
    texts: list[str]
    lengths: list[int]


@dataclass(slots=True)
class KnownMessages:
    """What is known of a request's messages from an earlier one: that the first `count` of them were in it, as they
    are here. `digests` are chain digests after each message that is no leading system message, as far as they are
    known; once they have been computed, all of them. `source` is for whoever recognised the request."""

    count: int = 0
    digests: Sequence[ChainDigest] = ()
    source: object = None


def stays() -> bool:
    """Of a client of which nothing is known: it is still there."""
    return False


@record
class CacheMark:
    """Where a client wants a prompt's cache to end: behind a part of a message's content, or behind the message.

    A client moves its marks from request to request, so that they are no part of what is said and stored.
    """

    message: int
    part: int | None
    value: Any


@record
class NativeRequest:
    """What a request says in its own API's words alone (ADR 27). `fields` go up untouched where the upstream speaks
    that API, and nowhere else. `needs` are the paths of those without which the request makes no sense. `marks` are set
    on its messages wherever a provider takes such marks. `hosted` are path and type of what only an upstream runs that
    has it: tools, and their calls in earlier answers."""

    protocol: Literal["responses", "anthropic"]
    fields: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    marks: tuple[CacheMark, ...] = ()
    hosted: tuple[tuple[str, str], ...] = ()

    def without_hosted(self) -> "NativeRequest":
        """The same for an upstream that runs no tools itself: it has those that a chat says."""
        left_out = ("tools", "tool_choice", "mcp_servers")
        return replace(self, fields={k: v for k, v in self.fields.items() if k not in left_out}, hosted=())


@record
class ChatRequest:
    """A validated chat request. `forward` is the body without the gateway's own fields, `messages` apart; `size` are
    the bytes of the whole body as it came; `agent` is who answers, where one is named; `pinned` are indexes of messages
    that stay in every window; `memory` says which things are remembered, None where its memory of things is off (the
    field `context.memory` is `options.memory`); `claim` says that it is to be answered once; `log_facts` are the fields
    of its line in the log; `has_left` tells whether its client has closed the connection, and nobody else wants the
    answer; `known` is what an earlier request tells of its messages. `api` names the API that it came by, None for chat
    completions; `native` is what it says in that API's words alone,
    `asked` what its answer repeats of it: that is stored with the answer."""

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
    has_left: Callable[[], bool] = field(default=stays, repr=False, compare=False)
    known: KnownMessages = field(default_factory=KnownMessages, repr=False, compare=False)
    api: Literal["responses", "messages"] | None = None
    native: NativeRequest | None = None
    asked: Mapping[str, Any] | None = None
    admissions: list[HeldAdmission] = field(default_factory=list, repr=False, compare=False)
    """`admission`, once it is let in: a copy of a whole request for that alone is dear."""
    patience: float | None = None
    """Seconds from `started` that its client waits for an answer to begin, if it says so."""
    fallbacks: bool = True
    """Another model may answer where its own fails."""
    left_out: tuple[str, ...] = ()
    """Tools of which calls were taken out of its messages, as a provider ran them itself."""

    @property
    def admission(self) -> HeldAdmission | None:
        """What it holds of budgets and limits, where any apply."""
        return self.admissions[-1] if self.admissions else None

    @property
    def end_user(self) -> str | None:
        """The user whom its bill names."""
        return self.caller.end_user(self.forward)

    @property
    def users(self) -> tuple[str, ...]:
        """The users that it names; a chain is recognised for the same ones only. Whom the caller's token names, it
        is."""
        key = self.caller.key
        if key is not None and key.user is not None:
            return (key.user,)
        return tuple(
            sorted({name for field in USER_FIELDS if isinstance(name := self.forward.get(field), str) and name})
        )

    def check_models(self) -> None:
        """Raises ModelNotAllowed: its caller may not ask one of the models that it names."""
        if self.caller.key is None:
            return
        for name in (self.model, *self.options.models.values()):  # a key's models are also those that plan for it
            self.caller.check_model(name)
        for fields in (self.forward, self.native.fields if self.native is not None else {}):
            self.caller.check_models_of(fields)

    @property
    def keeps_content(self) -> bool:
        """Whether what its user and its model write is stored."""
        return self.store and not self.is_proxied

    @property
    def is_worded(self) -> bool:
        """Whether its messages are not forwarded as they are, since its agent reads them otherwise (§11.2)."""
        return self.agent is not None and self.agent.changes_messages and self.options.mode != "off"

    @property
    def remembers(self) -> bool:
        """Whether remembered things may stand beside its question (guarantee §11.14)."""
        return self.memory is not None and self.options.mode != "off"

    @property
    def goes_on(self) -> bool:
        """Whether later requests may begin with its messages: it is stored, or it has tools, or goes on itself."""
        tools = self.forward.get("tools") or self.forward.get("functions")
        return self.store or bool(tools) or any(message["role"] == "assistant" for message in self.messages)

    @property
    def has_sections(self) -> bool:
        """Whether its agent reads sections and none of the messages."""
        return self.is_worded and self.agent is not None and self.agent.is_assembled

    @property
    def prefills(self) -> bool:
        """Whether an assistant message at its end is the beginning of the answer (guarantee §3.4); for an agent with
        sections it is what is delivered, unless the agent asks for that (§11.3)."""
        return not self.has_sections or (self.agent is not None and self.agent.prefill)

    @property
    def is_proxied(self) -> bool:
        """Whether it goes up as it came, and leaves its bill alone: in mode `off`, with no conversation named."""
        return self.options.mode == "off" and self.conversation == UNNAMED


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
    """The API that it is served by, by LiteLLM's names: `chat`, `responses` …; None: nobody says."""
    prices_are_configured: bool = False
    """The operator named its prices."""
    window_is_configured: bool = False
    """The operator named its window: what an upstream tells of it does not count."""
    served_at: str = ""
    """The address that was configured for it: one name may stand for other models elsewhere."""


@record
class TurnBound:
    """At most `most` turns, the current one counted, are forwarded as messages. Where there would be more, one pass
    leaves the latest `kept`, so that the next turns find room without another (guarantee §3.11)."""

    most: int
    kept: int

    @classmethod
    def of(cls, most: int | None, oldest_share: float) -> "TurnBound | None":
        """The bound of the settings; None where there is none. `oldest_share`: share of `most` that leaves at once."""
        return None if most is None else cls(most, most - int(oldest_share * most))


@record
class PromptBudget:
    """`tokens` for prompt, tools and schema; None if the window is unknown and no limit was named. `reserve_named`:
    the request names `reserved_output` itself; else it is this gateway's own choice. `turns` bounds the window beside
    tokens, also where these are not known. `max_input`: the least other limit of a prompt, and whose it is.
    `clear_above`: tokens above which room is wanted already, though more fit."""

    tokens: int | None
    context_window: int | None
    reserved_output: int = 0
    reserve_named: bool = False
    turns: TurnBound | None = None
    max_input: tuple[int, str] | None = None
    clear_above: int | None = None

    @property
    def cleared(self) -> "PromptBudget":
        """The budget if room is made above `clear_above`."""
        if self.clear_above is None or (self.tokens is not None and self.tokens <= self.clear_above):
            return self
        return replace(self, tokens=self.clear_above)

    def overflow(self, tokens: int | None) -> str:
        """What a client is told whose messages take more than this: by the model's window, or by another limit that is
        less than what the answer leaves of it."""
        window, reserved = self.context_window, self.reserved_output
        if self.max_input is not None and (window is None or self.max_input[0] < window - reserved):
            limit, whose = self.max_input
            return f"{errors.overflow_text(limit, tokens)} {whose} sets this limit."
        return errors.overflow_text(self.tokens if window is None else window, tokens, reserved if window else 0)


@record
class ModelDeployment:
    """Where a model is served, with the key and parameters to use. `provider_model` goes in the body.

    `protocol` names the adapter that calls it, `origin` who makes its answers: what is bound to one origin is of no
    use to another. `options` are the operator's settings for litellm: credentials, regions, its knobs.
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
    """Whether it has an endpoint for responses; None: nobody says."""
    query: str = ""
    key_header: str = "authorization"
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    id: str = ""
    """Names its entry of `model_list`, the same on all replicas and without secrets; empty for none."""
    max_answer_bytes: int = 64 * 2**20
    """Of an answer that is not streamed."""

    def url(self, path: str) -> str:
        """The address of `path` beside the completions."""
        return f"{self.api_base}/{path}{self.query}"

    @property
    def authorization(self) -> dict[str, str]:
        """The header that carries the key, if there is one."""
        if not self.api_key:
            return {}
        return {self.key_header: f"Bearer {self.api_key}" if self.key_header == "authorization" else self.api_key}


@record
class JsonAnswer:
    """A complete answer: the JSON body as upstream sent it, and the headers that are relayed."""

    body: dict[str, Any]
    headers: dict[str, str]


@record
class StoredFile:
    """A file that a client keeps here (`own`) or upstream. `digest`: SHA-256 of its content in hex, where known."""

    name: str
    media_type: str
    content: bytes
    own: bool = False
    digest: str = ""


class ChunkStream(Protocol):
    """A streamed answer: headers first, then its chunks as upstream sent them."""

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def done(self) -> bool:
        """Whether upstream said `[DONE]`."""
        ...

    def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Chunks until upstream's `[DONE]`: those that came together, together.
        Raises UpstreamInterrupted, UpstreamTimeout, UpstreamInvalidResponse: the stream did not end well."""
        ...

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Between two `batches`: gives chunks to `take` in the moment in which their bytes come, without a task that is
        woken for each. Returns when `take` returned False, and when there is something that only `batches` can tell; at
        once, if this stream cannot do so.
        Raises as `batches`, and what `take` raises."""
        ...


class StreamAround:
    """A `ChunkStream` around another: its head, and whether that is done. Chunks are not given in the moment in which
    they come, unless a subclass says so."""

    def __init__(self, opened: ChunkStream) -> None:
        self._opened = opened

    @property
    def headers(self) -> dict[str, str]:
        """Those of the stream within."""
        return self._opened.headers

    @property
    def done(self) -> bool:
        """Whether upstream said `[DONE]` in it."""
        return self._opened.done

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """See `ChunkStream.push`: `batches` tells all."""


SIGNS: ContextVar[Callable[[bytes], None] | None] = ContextVar("gateway_signs", default=None)
"""Told of what an upstream sends to say that it still works (comments, `ping`, empty lines), where somebody wants to
know. It must not raise."""
StreamOpener = AbstractAsyncContextManager[ChunkStream]

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values as they came."""
