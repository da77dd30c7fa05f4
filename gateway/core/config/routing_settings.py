"""Which of several deployments is asked, what is tried again, and who answers instead (guarantee §12.5 to §12.8)."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.core.config.settings_fields import Seconds, SettingsSection


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Models = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Names of models, in the order in which they are asked; one may stand alone."""


class RoutingSettings(SettingsSection):
    """How calls reach the deployments of a model, and other models where it fails."""

    strategy: Literal["weighted", "latency", "least_busy"] = Field(
        "weighted",
        description="Which of the healthy deployments of lowest `order` is asked: by `weight`, the quickest to begin "
        "its answers, or the one with the fewest requests.",
    )
    sticky: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Keep a conversation at one deployment; `auto`: where the provider caches prompts.",
    )
    retries: int | None = Field(
        None,
        ge=0,
        le=10,
        description="Times that a failed call is tried again before the answer begins; null: once at each other "
        "deployment of the model.",
    )
    retry_statuses: tuple[int, ...] = Field(
        (408, 429, 500, 502, 503, 504, 529), description="Answers of an upstream after which another try may help."
    )
    retry_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of the requests under way that may be at another try of a deployment that has failed.",
    )
    retry_minimum: int = Field(3, ge=0, description="Tries that are allowed at once, however few requests there are.")
    backoff: Seconds = Field(0.5, description="Seconds before the second try of one deployment; they double.")
    backoff_max: Seconds = Field(8.0, description="Most seconds between two tries, a `Retry-After` included.")
    allowed_fails: int = Field(3, ge=1, description="Failures within a minute after which a deployment rests.")
    cooldown: Seconds = Field(5.0, description="Seconds that it rests; they double while it goes on failing.")
    cooldown_max: Seconds = Field(120.0, description="Most seconds that it rests.")
    probe: Seconds | None = Field(
        None,
        description="Seconds between two questions (`GET /models`) whether a resting deployment is well again.",
    )
    fallbacks: dict[str, Models] = Field({}, description="Models that answer where all deployments of one fail.")
    context_window_fallbacks: dict[str, Models] = Field(
        {}, description="Models that answer where a prompt cannot be made to fit one."
    )
    content_policy_fallbacks: dict[str, Models] = Field(
        {}, description="Models that answer where a provider refuses the content."
    )
    default_fallbacks: Models = Field((), description="Models that answer where one without `fallbacks` fails.")
    max_fallbacks: int = Field(5, ge=0, description="Most other models that one request tries.")
