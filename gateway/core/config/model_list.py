"""Entries of `model_list`, in LiteLLM's shape (guarantee §9)."""

import re
from collections.abc import Container
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from gateway.core.config import setting_sections
from gateway.core.names import is_credential

MAX_CONFIGURED_PRICE = Decimal(1_000_000_000)
"""USD; the highest price of which a bill can be made."""
TIERED_PRICING = "tiered_pricing"
"""LiteLLM's table of context tiers: prices with the range of prompts to which they apply."""


def _prices_as_decimals(values: Any, checked: Container[str]) -> Any:
    """Parses prices: YAML reads `9e-08` as a text. `checked`: fields that are left to their own checks.
    Raises ValueError: a price is no number, or would make a bill that is below 0 or cannot be written."""
    if not isinstance(values, dict):
        return values
    found, wrong = _exact_prices(values)
    if wrong := [name for name in wrong if name not in checked]:
        raise ValueError(f"prices must be numbers from 0 to {MAX_CONFIGURED_PRICE}: {', '.join(wrong)}")
    return found


def _exact_prices(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the values with exact prices, and the names of invalid prices."""
    found, wrong = dict(values), []
    for name, value in values.items():
        if name == TIERED_PRICING and isinstance(value, list):
            tiers = [_exact_prices(tier) for tier in value if isinstance(tier, dict)]
            found[name] = [prices for prices, _ in tiers]
            wrong += [f"{name}.{each}" for _, names in tiers for each in names]
        elif "_cost" in str(name) and isinstance(value, str | int | float) and not isinstance(value, bool):
            price = price_of(value, MAX_CONFIGURED_PRICE)
            found[name] = value if price is None else price
            wrong += [name] if price is None else []
    return found, wrong


def price_of(value: object, most: Decimal) -> Decimal | None:
    """Parses a price in USD; returns None where it is no number from 0 to `most`."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 <= price <= most else None


def _as_texts(values: Any) -> Any:
    """Converts header values to texts: YAML reads `2024` as a number."""
    if not isinstance(values, dict):
        return values
    return {name: str(value) if isinstance(value, int | float) else value for name, value in values.items()}


def _first_of(value: Any) -> Any:
    """Returns the first organization of a list, of which LiteLLM makes several deployments."""
    return value[0] if isinstance(value, list) and value else value


def _as_text(value: Any) -> Any:
    """Converts a date to a text: YAML reads `2024-10-21` as a date."""
    return value.isoformat() if isinstance(value, date) else value


CLOUDS = frozenset(
    {"bedrock", "bedrock_converse", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta", "oci", "sap"}
)
"""Providers whose credentials come from their own settings or from where the process runs: always the operator's."""
CREDENTIAL_FIELDS = ("azure_ad_token", "client_secret", "vertex_credentials", "aws_secret_access_key")


class _Priced(setting_sections.NumericFields):
    """Fields among which may be prices, under whatever name LiteLLM has for them."""

    @model_validator(mode="before")
    @classmethod
    def _prices_are_numbers(cls, values: Any) -> Any:
        return _prices_as_decimals(values, cls.model_fields)


class LitellmParams(_Priced):
    """A deployment, in LiteLLM's shape. Parameters that are named nowhere, neither here nor by LiteLLM, are sent with
    each request."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    model: str = Field(min_length=1, description="`provider/model` ([providers](providers.md)).")
    api_base: str | None = Field(None, description="The provider's address.")
    api_key: setting_sections.ProviderKey = Field(
        None, description="The operator's key; without one, the client's own is sent."
    )
    organization: Annotated[str | None, BeforeValidator(_first_of)] = Field(None, description="Sent along.")
    extra_headers: Annotated[dict[str, str], BeforeValidator(_as_texts)] = Field({}, description="Sent along.")
    timeout: setting_sections.UpstreamTimeouts | setting_sections.Seconds | None = Field(
        None, description="Seconds of `first_byte`; or `{connect, first_byte, idle}`."
    )
    stream_timeout: setting_sections.Seconds | None = Field(None, description="Seconds of `idle`.")
    custom_llm_provider: str | None = Field(None, description="The provider, if `model` does not begin with it.")
    api_version: Annotated[str | None, BeforeValidator(_as_text)] = Field(
        None, description="The version of Azure's API."
    )
    order: float | None = Field(
        None, allow_inf_nan=False, description="Among entries of one name, those with the lowest order are asked first."
    )
    weight: float | None = Field(
        None, ge=0, description="Its share of requests among entries of the same order; else by `rpm` or `tpm`."
    )
    rpm: float | None = Field(None, ge=0, description="Maximum requests a minute sent to it.")
    tpm: float | None = Field(None, ge=0, description="Maximum tokens a minute sent to it.")
    max_parallel_requests: float | None = Field(None, ge=0, description="Maximum concurrent requests sent to it.")

    @field_validator("api_key")
    @classmethod
    def _is_not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not key.get_secret_value():  # it would send the client's own key
            raise ValueError("is empty: leave it out to send each client's own key, or write none if no key is needed")
        return key

    def timeouts(self, general: setting_sections.UpstreamTimeouts) -> setting_sections.UpstreamTimeouts:
        """Returns this model's timeouts, the general ones where it has none. A number is LiteLLM's: it means the time
        until the answer begins, and `stream_timeout` the time between two chunks."""
        own: dict[str, float] = {}
        if self.stream_timeout is not None:
            own["idle"] = self.stream_timeout
        if isinstance(self.timeout, setting_sections.UpstreamTimeouts):
            own |= {name: getattr(self.timeout, name) for name in self.timeout.model_fields_set}
        elif self.timeout is not None:
            own["first_byte"] = self.timeout
        return setting_sections.UpstreamTimeouts(
            **{name: own.get(name, getattr(general, name)) for name in setting_sections.UpstreamTimeouts.model_fields}
        )

    @property
    def has_credentials(self) -> bool:
        """Whether calls of this entry are made with the operator's credentials."""
        provider = self.custom_llm_provider or self.model.partition("/")[0]
        extras = self.model_extra or {}
        return bool(
            self.api_key
            or provider in CLOUDS
            or any(extras.get(name) for name in CREDENTIAL_FIELDS)
            or any(value and is_credential(name) for name, value in self.extra_headers.items())
        )


class ModelInfo(_Priced):
    """What is known of a model, over LiteLLM's own map: window, prices, tokenizer."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    max_input_tokens: int | None = Field(None, gt=0, description="Maximum tokens of a prompt.")
    max_output_tokens: int | None = Field(None, gt=0, description="Maximum tokens of an answer.")
    context_window: int | None = Field(
        None, gt=0, description="Tokens of prompt and answer together, if that limit differs from `max_input_tokens`."
    )
    input_cost_per_token: setting_sections.Price | None = Field(
        None,
        le=MAX_CONFIGURED_PRICE,
        description="USD. Setting any price here, including other `…_cost…` fields, replaces all prices from the map.",
    )
    output_cost_per_token: setting_sections.Price | None = Field(None, le=MAX_CONFIGURED_PRICE, description="USD.")
    base_model: str | None = Field(None, description="The model in LiteLLM's map whose facts apply.")
    tokenizer: Literal["o200k_base", "o200k_harmony", "cl100k_base", "p50k_base"] | None = Field(
        None, description="The tiktoken encoding to count with."
    )
    token_margin: float = Field(
        1.0, ge=0.5, le=4, description="The model's tokens for each token of that encoding; learned if unset."
    )


STAR = re.compile(r"(?!(?:.*/)?\.{0,2}(?:/|$))[^\s?#%\\\x00-\x1f\x7f]+")
"""Text that a star may match: it may become part of a URL, where it must not lead elsewhere."""


class ModelEntry(BaseModel):
    """One entry of `model_list`."""

    model_config = ConfigDict(
        extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True, protected_namespaces=()
    )

    model_name: str = Field(min_length=1)
    litellm_params: LitellmParams
    model_info: ModelInfo = ModelInfo()
    unset: tuple[str, ...] = Field((), exclude=True)
    """Environment variables that its parameters name and that are not set: the entry is not served without them."""

    def star(self, model: str) -> str | None:
        """Returns what the star of this entry's name matches in a model's name (`*`, `openai/*`: LiteLLM's wildcards);
        None if there is no star, or the rest of the name differs."""
        before, star, after = self.model_name.partition("*")
        fits = star and model.startswith(before) and model.endswith(after) and len(model) > len(before) + len(after)
        found = model[len(before) : len(model) - len(after)] if fits else ""
        return found if STAR.fullmatch(found) else None
