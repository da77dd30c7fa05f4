"""What settings are made of (sections, words, prices, durations), and the larger sections: guards and masks (guarantee
§12.9, §12.10), routing (§12.5 to §12.8), storage, documents and files (§14), telemetry (§13.5), issuers and login
(§12.17, §12.18), budgets and limits (§12), keys (§8, §13.2)."""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, get_args, get_origin
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.core.names import did_you_mean


def _exact_decimal(value: Any) -> Any:
    """Converts a price exactly: 2.5e-06 means exactly that, not the nearest double."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic turns ValueError into its report
    return Decimal(str(value)) if isinstance(value, float | int) else value


def words(annotation: Any) -> tuple[str, ...]:
    """Returns the words that a setting's type enumerates; empty if it enumerates none."""
    if get_origin(annotation) is Literal:
        return tuple(word for word in get_args(annotation) if isinstance(word, str))
    return tuple(word for each in get_args(annotation) for word in words(each))


def _is_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_is_number, get_args(annotation)))


def _as_word(value: Any, allowed: tuple[str, ...]) -> Any:
    """Restores the word as written: YAML 1.1 reads some bare words as booleans, such as `off`. Case does not matter."""
    if isinstance(value, bool):
        meant = [word for word in allowed if yaml.safe_load(word) is value]
        return meant[0] if len(meant) == 1 else value
    if isinstance(value, str) and value not in allowed:
        near = value.strip().lower()
        return near if near in allowed else value
    return value


SEGMENT = r"(?!\.{1,2}(?:/|$))(?:[\w.:~-]+|\*)"
RELAY_PATTERN = rf"(?:(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) +)?/?(?:v1/)?{SEGMENT}(?:/{SEGMENT})*"


def _relay_pattern(text: str) -> str:
    if not re.fullmatch(RELAY_PATTERN, text, re.ASCII):
        raise ValueError("must read 'path' or 'METHOD path', as in 'POST /v1/batches' or 'batches/*'")
    return text


ORIGIN_PATTERN = r"\*|https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"


def _origin(text: str) -> str:
    if not re.fullmatch(ORIGIN_PATTERN, text, re.ASCII):
        raise ValueError("must read 'https://HOST', with a port where it has one and nothing behind, or '*'")
    return text.lower()


def _cache_address(url: str) -> str:
    """Returns Valkey's schemes as Redis's, which its protocol is and which alone the client library reads."""
    return re.sub("^valkey(?=s?://)", "redis", url)


def _sendable(key: SecretStr | None) -> SecretStr | None:
    if key is not None and not re.fullmatch("[ -~]*", key.get_secret_value()):
        raise ValueError("must hold printable ASCII characters only, in one line")
    return key


def _one_line(secret: SecretStr) -> SecretStr:
    if re.search(r"[\x00-\x1f\x7f]", secret.get_secret_value()):
        raise ValueError("must be one line without control characters")
    return secret


Secret = Annotated[SecretStr, AfterValidator(_one_line)]
Origin = Annotated[str, AfterValidator(_origin)]
CacheAddress = Annotated[str, AfterValidator(_cache_address)]
ProviderKey = Annotated[SecretStr | None, AfterValidator(_sendable)]
RelayPattern = Annotated[str, AfterValidator(_relay_pattern)]
ToolPattern = Annotated[str, Field(min_length=1, max_length=200)]
Price = Annotated[Decimal, BeforeValidator(_exact_decimal), Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]


class NumericFields(BaseModel):
    """Fields that take no `true` for a number."""

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`false` may be written for 0, but `true` for 1 is a mistake: a retention of one day, say."""
        if value is True and _is_number(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("must be a number")
        return value


class SettingsSection(NumericFields):
    """Frozen; a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _enumerated_are_words(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        allowed = {name: words(each.annotation) for name, each in cls.model_fields.items() if name in values}
        return {**values, **{name: _as_word(values[name], each) for name, each in allowed.items() if each}}


class UpstreamTimeouts(SettingsSection):
    """How long upstream may take, per model if set there."""

    connect: Seconds = Field(10.0, description="Seconds to connect.")
    first_byte: Seconds = Field(600.0, description="Seconds until the answer begins.")
    idle: Seconds = Field(120.0, description="Maximum seconds between two chunks of an answer.")


def _as_bool(value: Any) -> Any:
    """Converts a truth value that the environment gives as text."""
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower(), value)


RecallMode = Annotated[Literal["auto", True, False], BeforeValidator(_as_bool)]
"""Whether a model has the tool `recall`; `auto`: after something is left out."""


MASK_RULES = (
    *("private_key", "url", "password", "token", "jwt", "key", "email", "iban", "card", "ssn", "phone", "ip"),
)
"""The built-in rules, in the order in which they are applied."""


def _rule(name: str) -> str:
    if name not in MASK_RULES:
        raise ValueError(f"there is no such rule.{did_you_mean(name, MASK_RULES)}")
    return name


RuleName = Annotated[str, AfterValidator(_rule)]


class GuardEntry(BaseModel):
    """A guard, by the name of its entry point; what else stands here is for the guard itself."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    name: str = Field(min_length=1, max_length=64, description="Its entry point in the group `gateway.guards`.")
    on_failure: Literal["open", "closed"] = Field(
        "closed", description="Whether requests pass (`open`) while it fails, times out or rests; else they get a 503."
    )
    timeout: Seconds = Field(2.0, description="Seconds that it may take each time.")
    hold: int = Field(
        200, ge=1, le=100_000, description="Maximum characters of a streamed answer that it is shown at once."
    )

    @property
    def options(self) -> dict[str, Any]:
        """Options for the guard itself."""
        return dict(self.model_extra or {})


class MaskRule(SettingsSection):
    """A rule of the operator's own."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]{0,15}$")] = Field(
        description="What its placeholders are called: capitals and digits."
    )
    pattern: str = Field(min_length=1, max_length=1000, description="What is masked, in RE2's syntax.")


class MaskingSettings(SettingsSection):
    """Secrets and personal data, replaced before anything goes to a model and put back in its answer."""

    enabled: bool = Field(False, description="Whether anything is masked.")
    rules: tuple[RuleName, ...] = Field(MASK_RULES, description="Which built-in [rules](guards.md#masking) are used.")
    custom: tuple[MaskRule, ...] = Field(
        (), description="Additional rules, each with `name` and `pattern`; they need the extra `masking`."
    )
    on_unreadable: Literal["pass", "refuse"] = Field(
        "pass",
        description="What happens to images, audio and files, in which nothing can be masked: `pass` forwards them, "
        "`refuse` answers with a 400 `content_refused`.",
    )


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Models = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Names of models, in the order in which they are called; a single one may be a string."""


class RoutingSettings(SettingsSection):
    """How calls reach the deployments of a model, and other models where it fails."""

    strategy: Literal["weighted", "latency", "least_busy"] = Field(
        "weighted",
        description="Which of the healthy deployments of lowest `order` is asked: one chosen by `weight`, the one "
        "whose answers begin soonest, or the one with the fewest running requests.",
    )
    sticky: Literal["auto", "always", "never"] = Field(
        "auto", description="Keep a conversation at one deployment; `auto`: where the provider caches prompts."
    )
    retries: int | None = Field(
        None,
        ge=0,
        le=10,
        description="How often a failed call is retried before the answer begins; null: once at each other "
        "deployment of the model.",
    )
    retry_statuses: tuple[int, ...] = Field(
        (408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529),
        description="HTTP statuses of an upstream that are retried.",
    )
    retry_share: Share = Field(
        0.2, description="Share of the running requests that may be retrying a deployment that has failed."
    )
    retry_minimum: NonNegativeInt = Field(
        3, description="Concurrent retries that are always allowed, however few requests are running."
    )
    backoff: Seconds = Field(
        0.5, description="Seconds before the first retry of a deployment; doubles with each retry."
    )
    backoff_max: Seconds = Field(
        8.0, description="Maximum seconds between two tries; a longer `Retry-After` goes to the client."
    )
    allowed_fails: int = Field(3, ge=1, description="Failures within a minute after which a deployment rests.")
    cooldown: Seconds = Field(5.0, description="Seconds that it rests; doubles while it keeps failing.")
    cooldown_max: Seconds = Field(120.0, description="Maximum seconds that it rests.")
    probe: Seconds | None = Field(
        None, description="Seconds between two probes (`GET /models`) of a resting deployment; null: none."
    )
    fallbacks: dict[str, Models] = Field({}, description="Models that answer if all deployments of a model fail.")
    context_window_fallbacks: dict[str, Models] = Field(
        {}, description="Models that answer if a prompt cannot be made to fit a model."
    )
    content_policy_fallbacks: dict[str, Models] = Field(
        {}, description="Models that answer if a provider refuses the content."
    )
    default_fallbacks: Models = Field((), description="Models that answer if a model without `fallbacks` fails.")
    max_fallbacks: NonNegativeInt = Field(5, description="Maximum number of fallback models that one request tries.")


KEY_BYTES = 32
NO_KEY_BYTES = f"must be {KEY_BYTES} random bytes in base64 or as {2 * KEY_BYTES} hex digits: `openssl rand -base64 32`"


class StorageSettings(SettingsSection):
    """Where conversations and bills are kept."""

    url: str = Field(
        "sqlite:///context-gateway.db", description="SQLite file (`sqlite:///FILE`) or `postgresql://` URL."
    )
    pool_size: int = Field(10, ge=1, le=500, description="Maximum connections to PostgreSQL.")
    timeout: Seconds = Field(5.0, description="Seconds to wait for a connection or a lock before a 503.")
    auto_migrate: bool = Field(True, description="Bring the schema up to date at start.")
    migration_timeout: Seconds = Field(
        600.0, description="Seconds that a migration waits for other processes and locked tables."
    )
    encryption_key: SecretStr | None = Field(
        None,
        description="Key that stored content is [encrypted](operations.md#encryption) with: 32 random bytes in "
        "base64 or hex; without one, content is stored in clear.",
    )
    encryption_keys_before: tuple[SecretStr, ...] = Field(
        (), description="Former keys that stored content may still be encrypted with: used to read, never to write."
    )

    @field_validator("encryption_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        if not key:
            return None
        key_bytes(key)
        return key

    @field_validator("encryption_keys_before")
    @classmethod
    def _are_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in keys:
            key_bytes(key)
        return keys


def key_bytes(key: SecretStr) -> bytes:
    """Returns the bytes of an encryption key. Raises ValueError: it is not `KEY_BYTES` long."""
    text = key.get_secret_value().strip()
    if re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        return bytes.fromhex(text)
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:  # no base64
        raise ValueError(NO_KEY_BYTES) from None
    if len(found) != KEY_BYTES:
        raise ValueError(NO_KEY_BYTES)
    return found


class DocumentSettings(SettingsSection):
    """How documents are read (guarantee §14.2 to §14.4)."""

    ocr: Literal["auto", "off"] = Field(
        "auto",
        description="Recognize the text of [scanned pages and attached pictures](context.md#pdfs) where "
        "`tesseract` is installed; or `off`.",
    )
    ocr_languages: str = Field(
        "eng",
        min_length=3,
        max_length=200,
        pattern=r"^[A-Za-z_]+(\+[A-Za-z_]+)*$",
        description="Languages that `tesseract` recognizes, such as `eng+deu`; those not installed are ignored.",
    )
    seconds: Seconds = Field(
        60.0, description="Seconds that reading one document may take, in [a process of its own](operations.md#sizes)."
    )
    memory_bytes: int = Field(2**30, ge=2**28, description="Bytes of memory that this process may use.")
    native_pages: int = Field(
        8,
        ge=0,
        le=100,
        description="Maximum number of [pages](context.md#pages-of-a-pdf) forwarded as PDF pages for a question, if "
        "the whole PDF does not fit; 0: none.",
    )
    index_chars: int = Field(
        4_000_000,
        ge=100_000,
        description="Length in characters from which an attached document is indexed, in the background.",
    )


class S3Settings(SettingsSection):
    """A bucket for `files.store: s3`; without keys those of the environment or the machine's role count."""

    bucket: str = Field("", description="Name of the bucket.")
    prefix: str = Field("", max_length=512, description="Prefix of all object names.")
    endpoint: str | None = Field(None, description="URL of an S3-compatible service; Amazon's own if unset.")
    region: str = Field("us-east-1", description="Region used in signatures.")
    access_key: Secret | None = Field(None, description="Access key id.")
    secret_key: Secret | None = Field(None, description="Secret access key.")


NO_BUCKET = S3Settings()


class FileSettings(SettingsSection):
    """Files that clients upload to `/v1/files` (guarantee §14.5)."""

    serve: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whose files the gateway stores: with `auto`, those of clients with a gateway key, and of all "
        "clients whose default upstream stores none ([others' go upstream](files.md#who-keeps-them)); "
        "`on`: all; `off`: none.",
    )
    store: Literal["auto", "database", "disk", "s3"] = Field(
        "auto",
        description="Where file contents are stored: `disk`, `database`, `s3`; `auto`: a folder next to the SQLite "
        "file, else the database.",
    )
    path: str | None = Field(
        None, description="Folder for `disk`; if unset, `files` next to the SQLite file, else in the working directory."
    )
    max_bytes: PositiveInt = Field(512 * 2**20, description="Larger uploads get a 413.")
    quota_bytes: PositiveInt | None = Field(
        None, description="Bytes of files that one tenant may store; a key may have its own `file_bytes`."
    )
    expires_after: Seconds | None = Field(
        None, description="Seconds until files expire whose upload sets no expiry; null: never."
    )
    s3: S3Settings = Field(
        NO_BUCKET, description="The bucket: `bucket`, `prefix`, `endpoint`, `region`, `access_key`, `secret_key`."
    )

    @model_validator(mode="after")
    def _has_a_place(self) -> "FileSettings":
        if self.store == "s3" and not self.s3.bucket:
            raise ValueError("files.s3.bucket: files.store is s3, so a bucket must be named")
        return self


HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)


def _collector(text: str) -> str:
    """Checks a collector's address. Raises ValueError: it is none."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must read 'http://HOST:PORT' or 'https://HOST', with a path where the collector has one")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("takes no credentials and no query; telemetry.headers carry a key")
    return text.strip().rstrip("/")


def _headers(value: Any) -> Any:
    """Returns a mapping as it is; parses a text of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,…`, percent-encoded."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if not isinstance(value, str):
        return value
    found = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError("must read 'name=value', several with commas between")
        found[unquote(name.strip())] = unquote(text.strip())
    return found


def _header_names(headers: dict[str, SecretStr] | None) -> dict[str, SecretStr] | None:
    for name, value in (headers or {}).items():
        text = value.get_secret_value()
        if not HEADER_NAME.fullmatch(name) or not text.isascii() or not text.isprintable():
            raise ValueError("holds a name or a value that no HTTP header may have")
    return headers


Collector = Annotated[str, AfterValidator(_collector)]
SecretHeaders = Annotated[dict[str, SecretStr] | None, BeforeValidator(_headers), AfterValidator(_header_names)]


class TelemetrySettings(SettingsSection):
    """Traces and metrics by OTLP; nothing is exported, or loaded for it, while no endpoint is named."""

    otlp_endpoint: Collector | None = Field(
        None, description="Base address of an OTLP receiver over HTTP; `/v1/traces` and `/v1/metrics` are added."
    )
    headers: SecretHeaders = Field(
        None,
        description="Headers of every export, such as a key: a mapping, or `name=value,name=value` with "
        "percent-encoding.",
    )
    service_name: str = Field("context-gateway", min_length=1, description="The resource's `service.name`.")
    traces: bool = Field(True, description="Export traces.")
    metrics: bool = Field(True, description="Export metrics.")
    sample_ratio: Share | None = Field(
        None,
        description="Share of requests that are traced, unless the caller has decided; null: as "
        "`OTEL_TRACES_SAMPLER` says, else all.",
    )
    content: bool = Field(False, description="Also record what users and models wrote on the spans of model calls.")
    metric_interval: Seconds = Field(60.0, description="Seconds between exports of metrics.")

    @property
    def is_on(self) -> bool:
        """Whether anything is exported."""
        return self.otlp_endpoint is not None and (self.traces or self.metrics)

    @property
    def header_fields(self) -> Mapping[str, str]:
        """The headers as they are sent."""
        return {name: value.get_secret_value() for name, value in (self.headers or {}).items()}


Role = Literal["user", "viewer", "admin"]
LABEL = r"^[^\x00-\x1f\x7f]+$"
NAME_PATTERN = r"^[\w.:@-]+$"
MAX_SETTING_NAME_CHARS = 128
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures by a private key only: with `none`, or a shared secret (HS256), whoever has the public key could sign."""
CALLBACK_PATH = "/ui/login/callback"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _secure(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.fragment or parts.username is not None or not text.isascii():
        raise ValueError("must be an address, https://HOST with a path where it has one")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise ValueError("must begin with https://; http:// is for this machine alone")
    return text


def _callback(text: str) -> str:
    if urlsplit(_secure(text)).path != CALLBACK_PATH or "?" in text:
        raise ValueError(f"must be the web UI's own address with the path {CALLBACK_PATH}")
    return text


SecureUrl = Annotated[str, AfterValidator(_secure)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]
Roles = Annotated[tuple[Role, ...], BeforeValidator(_as_tuple)]
ClaimName = Annotated[str, Field(min_length=1, max_length=256)]
OwnName = Annotated[str, Field(min_length=1, max_length=MAX_SETTING_NAME_CHARS, pattern=NAME_PATTERN)]
"""The name of a tenant or a project."""


class ClaimNames(SettingsSection):
    """Which claim of a token says what. A name is looked up as it stands, else as a path (`realm_access.roles`)."""

    tenant: ClaimName | None = Field(None, description="Whose data it is.")
    project: ClaimName | None = Field(None, description="What it is for; costs are reported by it.")
    roles: ClaimName | None = Field(None, description="Roles or groups: a list, or words with blanks between.")
    user: ClaimName = Field("sub", description="The `user` of requests.")
    name: ClaimName = Field("name", description="What people call them.")
    models: ClaimName | None = Field(None, description="Models that may be asked; a token without them may ask none.")


class IssuerSettings(SettingsSection):
    """An issuer of signed tokens, and what they are worth here."""

    issuer: SecureUrl = Field(description="Who issues the tokens, exactly as their claim `iss` names it.")
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), min_length=1, description="Signatures accepted.")
    leeway: float = Field(30.0, ge=0, le=300, description="Seconds that the clocks may differ.")
    claims: ClaimNames = Field(ClaimNames(), description="Which claim says what.")
    tenant: OwnName | None = Field(None, description="Tenant where no claim names one.")
    roles: dict[str, Roles] = Field(
        {}, description="Our roles by the values of the roles' claim; without any, the values are our roles themselves."
    )
    default_roles: Roles | None = Field(None, description="Roles where the claim gives none.")

    @model_validator(mode="after")
    def _has_a_tenant(self) -> Self:
        if self.tenant is None and self.claims.tenant is None:
            raise ValueError("must name a tenant, or claims.tenant")
        if self.roles and self.claims.roles is None:
            raise ValueError("roles: needs claims.roles, the claim that they are values of")
        return self


class JwtSettings(IssuerSettings):
    """Bearer tokens that somebody else signs, in the place of keys (guarantee §12.17)."""

    audience: Texts = Field(min_length=1, description="Whom a token must be meant for: one of these in its `aud`.")
    jwks_url: SecureUrl | None = Field(None, description="Where the issuer's public keys are; else it is asked.")
    jwks_file: str | None = Field(None, min_length=1, description="A file that holds them, in the place of an address.")

    @model_validator(mode="after")
    def _keys_in_one_place(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("jwks_url and jwks_file cannot both be set")
        return self


class OidcSettings(IssuerSettings):
    """The login to the web UI by an identity provider (guarantee §12.18)."""

    client_id: str = Field(min_length=1, description="What the provider knows the gateway as.")
    client_secret: Secret | None = Field(None, description="Its secret there; a public client has none.")
    redirect_url: Annotated[str, AfterValidator(_callback)] = Field(
        description=f"The web UI's address for browsers with the path `{CALLBACK_PATH}`, as the provider knows it."
    )
    scopes: Texts = Field(("openid", "profile", "email"), description="What is asked of the provider.")
    userinfo: bool = Field(False, description="Ask its userinfo endpoint for claims that the id token lacks.")
    label: str = Field(
        "single sign-on", min_length=1, max_length=64, pattern=LABEL, description="The provider's name in the web UI."
    )

    @model_validator(mode="after")
    def _somebody_may_look(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes: must contain openid")
        if self.claims.roles is None and not self.default_roles:
            raise ValueError("must name claims.roles, or default_roles: else nobody could look")
        return self


Period = Literal["day", "week", "month", "total"]
"""Days are those of UTC; a week begins on Monday, a month on its first day; `total` never ends."""


MIN_BUDGET_USD = Decimal("1e-12")
"""A smaller budget would be stored as 0, which refuses everything."""
MAX_LIMIT = 10**12
"""More than anybody needs, and within the range of every counter."""


def _countable(usd: Decimal) -> Decimal:
    if 0 < usd < MIN_BUDGET_USD:
        raise ValueError(f"must be 0, or at least {MIN_BUDGET_USD:f}: amounts are kept in picodollars")
    return usd


class SpendBudget(SettingsSection):
    """A sum that may be spent in a period."""

    usd: Annotated[Price, Field(le=9_000_000), AfterValidator(_countable)] = Field(
        description="USD that may be spent in the period."
    )
    period: Period = Field("month", description="How long it lasts, in days of UTC.")
    hard: bool = Field(True, description="Whether requests beyond it are refused; else they carry a warning.")


class RateLimits(SettingsSection):
    """How much may be asked; what is not set is not limited."""

    rpm: int | None = Field(None, gt=0, le=MAX_LIMIT, description="Requests within any minute.")
    tpm: int | None = Field(None, gt=0, le=MAX_LIMIT, description="Tokens, of prompts and answers, within any minute.")
    concurrent: int | None = Field(None, gt=0, le=MAX_LIMIT, description="Requests at once.")

    @property
    def is_set(self) -> bool:
        return bool(self.rpm or self.tpm or self.concurrent)


NO_LIMITS = RateLimits()


class HolderAllowance(SettingsSection):
    """Budgets and limits of one holder."""

    budgets: tuple[SpendBudget, ...] = Field((), description="Sums that may be spent.")
    limits: RateLimits = Field(NO_LIMITS, description="How much may be asked.")

    @property
    def is_set(self) -> bool:
        """Whether it restricts anything."""
        return bool(self.budgets) or self.limits.is_set


NO_ALLOWANCE = HolderAllowance()


class LimitSettings(SettingsSection):
    """Budgets and limits beside those of keys (guarantee §12.3)."""

    all: HolderAllowance = Field(NO_ALLOWANCE, description="Allowance of all requests together.")
    keys: HolderAllowance = Field(NO_ALLOWANCE, description="Allowance of each key without its own.")
    each_user: HolderAllowance = Field(
        NO_ALLOWANCE, description="Allowance of each `user` of a tenant who is not in `limits.users`."
    )
    users: dict[str, HolderAllowance] = Field({}, description="Allowances by the `user` field of requests.")
    models: dict[str, HolderAllowance] = Field({}, description="Allowances by model, under the name that clients use.")
    projects: dict[str, HolderAllowance] = Field({}, description="Allowances by a key's project.")
    when_down: Literal["open", "closed"] = Field(
        "open",
        description="What happens while limits cannot be checked: `open` answers requests with a warning, `closed` "
        "refuses them with a 503 `limits_unavailable`.",
    )

    @property
    def is_set(self) -> bool:
        named = (*self.users.values(), *self.models.values(), *self.projects.values())
        return any(each.is_set for each in (self.all, self.keys, self.each_user, *named))


def _with_zone(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("must be a time before the year 10000") from None


Expiry = Annotated[datetime, AfterValidator(_with_zone)]
"""When something ends; without a zone it is UTC."""


class ContextDefaults(SettingsSection):
    """What holds for requests with a key that do not say otherwise (guarantee §2)."""

    mode: Literal["auto", "simple", "off"] | None = None
    planning: Literal["auto", "always", "never"] | None = None
    max_input_tokens: PositiveInt | None = Field(None)
    memory: Literal["extracts", "summary", "both"] | None = None
    recall: RecallMode | None = None
    economy: Literal["auto", "observe", "off"] | None = None
    cite: bool | None = None


NO_DEFAULTS = ContextDefaults()


USER: Literal["user"] = "user"
VIEWER: Literal["viewer"] = "viewer"
ADMIN: Literal["admin"] = "admin"
"""Roles of a key: `user` may call models and change what is stored; `viewer` may view its tenant in the web UI `/ui`;
`admin` may view all tenants there and in `/v1/organization/`."""
LOOKS = frozenset((VIEWER, ADMIN))
"""Roles that may open the web UI."""


ModelPattern = Annotated[str, Field(min_length=1, max_length=256, pattern=LABEL)]


class KeyFields(SettingsSection):
    """What may be said of a key, in the configuration and when one is made (guarantee §12.1)."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SETTING_NAME_CHARS,
        pattern=LABEL,
        description="What people call it; shown to those who may see it.",
    )
    owner: str | None = Field(None, min_length=1, max_length=256, pattern=LABEL, description="Who answers for it.")
    tenant: OwnName = Field(description="The tenant that it belongs to; tenants see nothing of each other.")
    project: OwnName | None = Field(None, description="What it is for; costs are reported by it.")
    roles: tuple[Role, ...] = Field(
        (USER,),
        description="`user` asks models and changes what is stored; `viewer` sees its tenant in [the web UI](ui.md); "
        "`admin` sees all tenants, there and in `/v1/organization/`, and makes [keys at runtime](keys.md). Apart from "
        "that, a key without `user` may only read: anything else is a 403.",
    )
    models: tuple[ModelPattern, ...] = Field(
        (), description="Names of models that it may ask; `*` matches any characters."
    )
    expires_at: Expiry | None = Field(None, description="When it expires; UTC if no zone is given.")
    budgets: tuple[SpendBudget, ...] = Field((), description="What may be [spent with it](keys.md#make-one).")
    limits: RateLimits = Field(NO_LIMITS, description="Its rate limits: `rpm`, `tpm`, `concurrent`.")
    context: ContextDefaults = Field(NO_DEFAULTS, description="Defaults of `context` for its requests.")
    retention_days: float | None = Field(
        None, gt=0, le=36_500, description="Days without activity after which conversations made with it are deleted."
    )
    file_bytes: PositiveInt | None = Field(None, description="Bytes of files that may be stored with it.")

    @field_validator("roles")
    @classmethod
    def _each_once(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if not roles:
            raise ValueError("must name at least one of user, viewer, admin")  # a key without any could do nothing
        return tuple(dict.fromkeys(roles))


class ApiKey(KeyFields):
    """A key that clients may use and whose it is."""

    key: Secret = Field(min_length=8, description="The secret, of 8 characters or more.")


class AuthSettings(SettingsSection):
    """Who may ask (guarantee §8)."""

    mode: Literal["auto", "keys", "open"] = Field(
        "auto",
        description="`keys`: only [gateway keys](keys.md) are accepted, even if `auth.keys` is empty; "
        "`open`: listen beyond loopback with an operator's key and without gateway keys.",
    )
    keys: tuple[ApiKey, ...] = Field(
        (), description="[Keys](#authkeys) accepted; if there are none, the client's own key goes upstream."
    )
    jwt: JwtSettings | None = Field(
        None, description="[Issuer of signed tokens](identity.md#programs-at-the-api) that are accepted besides keys."
    )
    oidc: OidcSettings | None = Field(
        None,
        description="[Identity provider](identity.md#people-at-the-page) for logins to the web UI `/ui`, besides keys "
        "(OpenID Connect).",
    )

    @model_validator(mode="after")
    def _whose_is_plain(self) -> Self:
        """Checks that a key that is listed twice has the same tenant, project, roles and limits each time."""
        said = {entry.key.get_secret_value(): entry for entry in self.keys}
        for entry in self.keys:
            other = said[entry.key.get_secret_value()]
            # Its name is only shown; whatever decides must be unambiguous.
            if other.tenant != entry.tenant:
                raise ValueError("keys: one key stands with two tenants")
            if _what_counts(other) != _what_counts(entry):
                raise ValueError("keys: one key stands with two projects, or with other roles or limits")
        return self

    @property
    def wants_keys(self) -> bool:
        """Whether requests without a key of ours, or a token of `jwt`, are refused."""
        return bool(self.keys) or self.mode == "keys" or self.jwt is not None or self.oidc is not None


def _what_counts(entry: ApiKey) -> tuple[object, ...]:
    told = entry.model_dump(exclude={"key", "name", "owner", "roles"})
    return (told, set(entry.roles))
