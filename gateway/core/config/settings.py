"""Every setting: its name, meaning and default. Frozen once loaded; nothing else reads environment or files.

Sections of `config.yaml` are ours, but for `model_list` and the three `*_settings` that LiteLLM proxy users already
have (guarantee §9). Each setting `section.key` also has the environment name `GATEWAY_SECTION_KEY`.

Descriptions are Markdown, with links as from docs/: docs/configuration.md is made of them (`make docs`).
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)

from gateway.core.config.litellm_draft import SettingFate
from gateway.core.config.model_list import ModelEntry
from gateway.core.config.setting_sections import (
    AuthSettings,
    CacheAddress,
    DocumentSettings,
    FileSettings,
    GuardEntry,
    LimitSettings,
    MaskingSettings,
    Origin,
    PositiveShare,
    Price,
    ProviderKey,
    RecallMode,
    RelayPattern,
    RoutingSettings,
    Seconds,
    SettingsSection,
    Share,
    TelemetrySettings,
    ToolPattern,
    UpstreamTimeouts,
)
from gateway.core.config.setting_sections import StorageSettings as StorageSettings
from gateway.core.names import did_you_mean, shown

LOCAL = "local"
"""The `context.embedding_model` that runs in this process."""


class ServerSettings(SettingsSection):
    """The process and its port."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=64, description="Processes that serve the port; more than one needs PostgreSQL.")
    max_body_bytes: PositiveInt = Field(64 * 2**20, description="Larger request bodies get a 413.")
    max_messages: PositiveInt = Field(
        20_000, description="Requests with more messages get a 400: storing them at once would delay other requests."
    )
    max_bytes_in_flight: PositiveInt = Field(
        96 * 2**20,
        description="Bytes of large request bodies (8 MiB or more) that are processed at once; further ones wait.",
    )
    receive_timeout: Seconds = Field(60.0, description="Seconds within which a request must have arrived.")
    send_timeout: Seconds = Field(
        60.0, description="Seconds after which a client that stops reading its answer is disconnected."
    )
    keepalive: NonNegativeFloat = Field(
        10.0,
        description="Seconds without a byte of a streamed answer after which [a sign of "
        "life](api.md#signs-of-life) is sent; `0`: never.",
    )
    shutdown_grace: Seconds = Field(30.0, description="Seconds that running requests get after SIGTERM.")
    relay: tuple[RelayPattern, ...] = Field(
        (),
        description="[Additional paths](#serverrelay) that are relayed with an operator's key, such as `POST "
        "/v1/batches`.",
    )
    cors_origins: tuple[Origin, ...] = Field(
        (), description="Origins whose pages may be clients, such as `https://app.example.org`; `*`: any."
    )
    metrics: Literal["open", "key", "off"] = Field(
        "open", description="Who may read `/metrics`: anybody (`open`), holders of `auth.keys` (`key`), nobody (`off`)."
    )
    ui: Literal["auto", "off"] = Field(
        "auto",
        description="[The page `/ui`](ui.md): `auto` serves it to keys of role `viewer` or `admin`, without "
        "`auth.keys` on loopback only; `off` disables it.",
    )
    mcp: Literal["on", "off"] = Field(
        "on",
        description="[Stored conversations as an MCP server](mcp.md) at `/mcp`, if the extra `mcp` is installed; "
        "`off` disables it.",
    )
    ui_session_hours: float = Field(12.0, gt=0, le=8760, description="Hours that a login to the web UI lasts.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Minimum level logged.")
    log_format: Literal["auto", "text", "json"] = Field(
        "auto", description="`text`: lines for people; `json`: for machines; `auto`: text on a terminal."
    )


class CacheSettings(SettingsSection):
    """What may be forgotten at any time."""

    url: CacheAddress | None = Field(
        None, description="`redis://` or `valkey://` URL; without one, the cache is in the process's memory."
    )
    timeout: Seconds = Field(0.05, description="Seconds to wait for the cache before a lookup counts as a miss.")
    max_bytes: PositiveInt = Field(32 * 2**20, description="Maximum bytes in the in-process cache.")
    index_bytes: PositiveInt = Field(64 * 2**20, description="Maximum bytes of search indexes in the process.")
    conversation_bytes: PositiveInt = Field(
        128 * 2**20,
        description="Maximum bytes of conversations in the process; half of them hold messages as forwarded.",
    )
    conversation_ttl: float = Field(
        600.0, gt=0, le=600, description="Seconds that a conversation stays there after its last request."
    )
    frame_bytes: PositiveInt = Field(
        16 * 2**20,
        description="Maximum bytes of [frames](adr/0012-frames.md) of requests with `store: false` in the process; "
        "they hold no content.",
    )
    frame_ttl: float = Field(
        3600.0,
        gt=0,
        le=3600,
        description="Seconds that a frame is kept, there and in Redis: the lifetime of a provider's prompt cache.",
    )
    document_ttl: Seconds = Field(86400.0, description="Seconds that the extracted text of a document is cached.")
    vector_ttl: Seconds = Field(604800.0, description="Seconds that vectors of an embedding model are cached.")
    summary_ttl: Seconds = Field(604800.0, description="Seconds that a summary of an artifact is cached.")

    @property
    def half_of_conversations(self) -> int:
        """Maximum bytes of conversations as forwarded; the same maximum holds for requests as received."""
        return self.conversation_bytes // 2


class ContextSettings(SettingsSection):
    """How a context is made (guarantee §4, §5)."""

    mode: Literal["auto", "simple", "off"] = Field("auto", description="Default of a request's `context.mode`.")
    planning: Literal["auto", "always", "never"] = Field("auto", description="Default of `context.planning`.")
    max_input_tokens: PositiveInt | None = Field(None, description="Ceiling on the prompt of every request.")
    reserved_output_tokens: NonNegativeInt = Field(
        4096, description="Tokens reserved for the answer if a request sets no limit; at most a quarter of the window."
    )
    history_share: Share = Field(
        0.1, description="Share of the space above the minimum reserved for the latest old turns when passages compete."
    )
    low_water: PositiveShare | None = Field(
        None,
        description="Share of the budget that a pass fills when something has to leave, in a conversation that "
        "is known to continue (§4 I7). Unset, and with `context.economy: auto`, [prices decide](economy.md); 0.4 where "
        "the price of cached input is unknown, or with `context.economy: off`.",
    )
    economy: Literal["auto", "observe", "off"] = Field(
        "observe",
        description="Default of a request's `context.economy`: clear old tool results [where that "
        "pays](economy.md) (`auto`), estimate on bills what that would have saved (`observe`), or "
        "neither (`off`).",
    )
    untouched_tools: tuple[ToolPattern, ...] = Field(
        (),
        description="Patterns of tool names, such as `get_*`, whose results are never [shaped on "
        "arrival](economy.md#shaped-on-arrival) (§4 I8). Requests may add more.",
    )
    economy_holdout: Share = Field(
        0.0,
        description="Share of conversations that go direct where `context.economy` is `auto`, as a control group "
        "to [measure savings](economy.md#measured) against (§13.14).",
    )
    recall_bytes: NonNegativeInt = Field(
        2**20, description="Bytes of older stored messages that are searched for each question, latest first (§4 I6)."
    )
    recall: RecallMode = Field(
        False,
        description="Default of a request's `context.recall`: the model gets [the tool "
        "`recall`](context.md#the-tool-recall) to read what was left out; `auto`: once something "
        "was (§10.11).",
    )
    recall_rounds: int = Field(3, ge=1, le=20, description="Maximum number of `recall` rounds in one request.")
    recall_max_tokens: PositiveInt = Field(
        4000,
        description="Maximum tokens that these rounds add to a prompt, and reserve; at most a quarter of the budget.",
    )
    recall_max_cost: Price | None = Field(
        None,
        description="USD that these rounds may cost before the next one is the last; if set, models without a known "
        "price do not get the tool.",
    )
    cite: bool = Field(
        False,
        description="Default of a request's `context.cite`: the model [cites the source of each "
        "statement](context.md#citations) (§14.8).",
    )
    warning_threshold: PositiveShare = Field(
        0.8, description="Window utilization above which the bill carries a warning."
    )
    document_min_chars: int = Field(
        8000, ge=500, description="Minimum length of a document inside a user message (§4 I4)."
    )
    small_total_chars: NonNegativeInt = Field(
        5000, description="With fewer characters of artifacts, no plan is needed."
    )
    large_artifact_chars: NonNegativeInt = Field(10000, description="An artifact with more characters is worth a plan.")
    fits_share: PositiveShare = Field(0.7, description="Up to this share of the budget no plan is needed.")
    near_limit_share: PositiveShare = Field(0.9, description="At or above this share of the budget a plan is needed.")
    expensive_input_cost_per_token: Price = Field(
        Decimal("0.000003"), description="Input price in USD above which a primary model counts as expensive."
    )
    embedding_model: str | None = Field(
        None,
        description="Ranks passages [by meaning](context.md#relevance-by-meaning) as well as by words: `local` "
        "(the extra `embeddings`), or a model in `model_list` that serves `/embeddings`.",
    )
    embedding_timeout: Seconds = Field(
        0.25, description="Seconds to wait for vectors; after that, passages are ranked by words."
    )
    planner_model: str | None = Field(None, description="Model that plans contexts; `gpt-4o-mini` if unset.")
    summarizer_model: str | None = Field(None, description="Model that summarizes artifacts; `gpt-4o-mini` if unset.")
    planner_timeout: Seconds = Field(8.0, description="Seconds that a planner may take.")
    summarizer_timeout: Seconds = Field(20.0, description="Seconds that one summarizer call may take.")
    planner_prompt_chars: int = Field(24_000, ge=2000, description="Maximum characters shown to a planner.")
    planning_max_tokens: PositiveInt | None = Field(
        200_000, description="Maximum tokens, prompts and answers, that planning one request may use; null: no limit."
    )
    planning_max_cost: Price | None = Field(
        None,
        description="Maximum USD that planning one request may cost; if set, models without a price are not called.",
    )
    planning_max_seconds: Seconds = Field(30.0, description="Seconds in total that planning one request may take.")
    trust_planner: bool = Field(
        False, description="Follow the planner's plan without the guards that limit the harm of a bad one."
    )
    historical_turns: NonNegativeInt = Field(
        20, description="Number of earlier turns whose artifacts count as historical."
    )
    memory: Literal["extracts", "summary", "both"] = Field(
        "extracts",
        description="Default of a request's `context.memory`: [what replaces old turns](rolling-summary.md): "
        "extracts relevant to the question, a rolling summary, or both (§11.13).",
    )
    agent_window: int = Field(
        5,
        ge=0,
        le=1000,
        description="Number of messages before the current one that an [agent with sections](agents.md) reads.",
    )
    agent_max_bytes: PositiveInt = Field(
        768 * 1024,
        description="Maximum bytes of all sections of such an agent; the oldest context leaves first, then the "
        "current message is cut.",
    )


class PromptModes(SettingsSection):
    """Guidance for each mode of a conversation."""

    general: str | None = None
    creation: str | None = None
    search: str | None = None
    modification: str | None = None
    analysis: str | None = None


class PromptProfiles(SettingsSection):
    """A system message in parts, composed by what a conversation is about (guarantee §11.7)."""

    core: str | None = Field(None, description="Who the assistant is; always included.")
    modes: PromptModes = Field(
        PromptModes(), description="Guidance for `general`, `creation`, `search`, `modification`, `analysis`."
    )
    tools: str | None = Field(None, description="What its tools are for; always included.")
    error_handling: str | None = Field(None, description="What to do when something fails; always included.")

    @property
    def is_set(self) -> bool:
        """Whether there is anything to compose."""
        return self != NO_PROFILES


NO_PROFILES = PromptProfiles()


class ConversationSettings(SettingsSection):
    """What is remembered (guarantee §3)."""

    store: bool = Field(True, description="Default of a request's `store`.")
    match: Literal["user", "tenant", "off"] = Field(
        "tenant",
        description="Which requests without an id may continue a conversation: those of the tenant with the same "
        "`user` or none (`tenant`), only those with a `user` (`user`), or none (`off`).",
    )
    max_turns: int | None = Field(
        None,
        ge=2,
        le=100_000,
        description="Maximum number of turns, including the current one, that are [forwarded as "
        "messages](context.md#a-bound-of-turns); null: as many as fit.",
    )
    idempotency_hours: float = Field(24.0, gt=0, le=8760, description="Hours that an `Idempotency-Key` is kept.")
    retention_days: PositiveFloat | None = Field(
        None, description="Days without activity after which a conversation is deleted; null: never."
    )


class MemorySettings(SettingsSection):
    """What outlives the window: summaries of old turns, and things (guarantee §11.13 to §11.17)."""

    max_turns: int | None = Field(
        None,
        ge=2,
        le=100_000,
        description="Older name of `conversation.max_turns`; if both are set, the new name wins.",
    )
    threshold: PositiveShare = Field(
        0.7, description="Share of the budget, or of `conversation.max_turns`, at which a summary is due."
    )
    oldest_share: float = Field(
        0.4,
        gt=0,
        lt=1,
        description="Share of the unsummarized turns, oldest first, that the next summary covers; without summaries, "
        "the share of `conversation.max_turns` that leaves at once.",
    )
    things: bool = Field(
        False, description="Remember [things](things.md) that conversations mention, even if a request has no `memory`."
    )
    things_days: PositiveFloat | None = Field(
        None, description="Days that a thing is remembered after its last mention; null: as long as what it belongs to."
    )


class AccountingSettings(SettingsSection):
    """What bills say of who asked (guarantee §13.6)."""

    users: Literal["plain", "hashed", "off"] = Field(
        "plain",
        description="How a request's `user`, else its `safety_identifier`, is recorded in [bills and "
        "reports](operations.md#who-asked): as is (`plain`), as a keyed digest (`hashed`), or not at "
        "all (`off`).",
    )


class UpstreamSettings(UpstreamTimeouts):
    """The default upstream, for models that `model_list` does not name, and what holds for all."""

    api_base: str = Field("https://api.openai.com/v1", description="Default upstream.")
    api_key: ProviderKey = Field(None, description="Operator's key for it.")
    anthropic_api_base: str = Field(
        "https://api.anthropic.com",
        description="Where `/v1/messages` requests for `claude-…` go [with a client's own Anthropic "
        "key](messages.md#keys), if no entry serves the model.",
    )
    max_connections: int = Field(1000, ge=1, description="Maximum connections to upstreams.")
    forward_store: bool = Field(False, description="Send `store` and `metadata` upstream.")
    hosted_tools: Literal["drop", "refuse"] = Field(
        "drop",
        description="What happens to hosted tools that the upstream lacks, such as `web_search`: `drop` with a warning "
        "on the bill, or `refuse` with a 400. One that `tool_choice` forces is always a 400.",
    )
    unlisted: Literal["refuse", "relay"] = Field(
        "refuse",
        description="What happens to requests for models that are not in a `model_list`: `refuse` with a 404, or "
        "`relay` to the default upstream.",
    )

    @field_validator("api_key")
    @classmethod
    def _an_empty_key_is_none(cls, key: SecretStr | None) -> SecretStr | None:
        return key or None


class Settings(SettingsSection):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=())

    server: ServerSettings = ServerSettings()
    storage: StorageSettings = StorageSettings()
    cache: CacheSettings = CacheSettings()
    context: ContextSettings = ContextSettings()
    conversation: ConversationSettings = ConversationSettings()
    memory: MemorySettings = MemorySettings()
    accounting: AccountingSettings = AccountingSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitSettings = LimitSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    routing: RoutingSettings = RoutingSettings()
    prompt_profiles: PromptProfiles = NO_PROFILES
    documents: DocumentSettings = DocumentSettings()
    files: FileSettings = FileSettings()
    masking: MaskingSettings = MaskingSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    guards: tuple[GuardEntry, ...] = ()
    model_list: tuple[ModelEntry, ...] = ()
    warnings: tuple[str, ...] = Field((), exclude=True)
    moved: tuple[SettingFate, ...] = Field((), exclude=True)
    """What became of LiteLLM's settings, and of classic names in the environment."""
    origins: dict[str, str] = Field({}, exclude=True)
    """Origin of each `section.key` that is not the default, and of each `model_list[0]`: file and line, a name of the
    environment, or the command line; a reference such as `os.environ/NAME` follows its line."""
    storage_is_named: bool = Field(False, exclude=True)
    """Whether anything names the storage; if not, it is the default, in the working directory."""

    @model_validator(mode="after")
    def _embedder_is_listed(self) -> Self:
        name = self.context.embedding_model
        if name is not None and name != LOCAL and not self.lists(name):
            raise ValueError(f"context.embedding_model: model_list has no {name!r}, and it is not {LOCAL!r}")
        return self

    @model_validator(mode="after")
    def _users_can_be_counted(self) -> Self:
        limits = self.limits
        if self.accounting.users == "off" and any(each.budgets for each in (limits.each_user, *limits.users.values())):
            raise ValueError("limits: budgets of users are added up by user, but accounting.users is off")
        return self

    @property
    def max_turns(self) -> int | None:
        """Maximum turns that are forwarded as messages, from either of its names."""
        return self.conversation.max_turns or self.memory.max_turns

    def model(self, name: str) -> ModelEntry | None:
        """Returns the first entry with this `model_name`, or None."""
        return next((entry for entry in self.model_list if entry.model_name == name), None)

    def lists(self, name: str) -> bool:
        """Returns whether an entry of `model_list` serves a model of this name."""
        return self.model(name) is not None or any(entry.star(name) is not None for entry in self.model_list)

    @property
    def serves_unlisted(self) -> bool:
        """Whether clients may request models that `model_list` does not have."""
        return not self.model_list or self.upstream.unlisted == "relay"

    def unknown(self, name: str, may_ask: Callable[[str], bool]) -> str:
        """Returns the error text for a model that is not served here; names the nearest that may be requested."""
        if not self.model_list and self.upstream.api_key is None and self.auth.mode == "keys":
            return "This gateway has no key for its upstream. Its operator sets `upstream.api_key` or a `model_list`."
        known = [each.model_name for each in self.model_list if may_ask(each.model_name)]
        return f"The model {shown(name)} does not exist here.{did_you_mean(name, known)}"

    def has_operator_key(self) -> bool:
        """Returns whether an operator's key is set, so that requests may spend the operator's money."""
        return self.upstream.api_key is not None or any(e.litellm_params.has_credentials for e in self.model_list)


SECTIONS = (
    *("server", "storage", "cache", "context", "conversation", "memory", "accounting", "auth", "limits"),
    *("upstream", "routing", "documents", "files", "prompt_profiles", "masking", "telemetry"),
)
