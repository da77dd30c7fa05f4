"""Which other model answers where one cannot (guarantee §12.7). Pure."""

from collections.abc import Collection
from typing import Literal

from gateway.core import jsons
from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.errors import ContextLengthExceeded, GatewayError, UpstreamOverflow, UpstreamRefused
from gateway.upstream.openai.error_bodies import error_object
from gateway.upstream.routing.health import helps

Kind = Literal["general", "context_window", "content_policy"]
POLICY_CODES = {
    "content_filter",  # OpenAI, Azure
    "content_policy_violation",
    "responsibleaipolicyviolation",  # Azure, in its inner error
}
POLICY_WORDS = (
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "the response was filtered due to the prompt triggering azure openai's content management",
    "your task failed as a result of our safety system",
    "the model produced invalid content",
    "content_filter_policy",
    "rejected as a result of our safety system",
    "rejected as a result of the safety system",
    "the response was blocked.",  # Gemini
    "output blocked by content filtering policy",  # Anthropic
)
"""By which LiteLLM knows that a provider refuses the content."""


def kind_of(error: GatewayError, settings: RoutingSettings) -> Kind | None:
    """Which fallbacks an error calls for; None if it is the request's own fault."""
    if isinstance(error, ContextLengthExceeded | UpstreamOverflow):
        return "context_window"
    if isinstance(error, UpstreamRefused) and refuses_content(error):
        return "content_policy"
    return "general" if helps(error, settings.retry_statuses) != "nowhere" else None


def refuses_content(refusal: UpstreamRefused) -> bool:
    """Whether a provider will not answer because of what is said."""
    error = error_object(refusal.original)
    inner = error.get("innererror")
    named = (error.get("code"), error.get("type"), inner.get("code") if isinstance(inner, dict) else None)
    if any(isinstance(name, str) and name.lower() in POLICY_CODES for name in named):
        return True
    text = error.get("message")
    said = (text if isinstance(text, str) else jsons.dumps_text(error)[:4000]).lower()
    return any(words in said for words in POLICY_WORDS)


def instead_of(
    asked: str, failed: str, kind: Kind, settings: RoutingSettings, tried: Collection[str]
) -> tuple[str, ...]:
    """The models that may answer instead, in their order: those of the model that was asked for, then those of the one
    that failed last. None of those that were tried, and no more than `max_fallbacks` in all.
    `tried`: the models that were asked, that which was asked for included."""
    left = settings.max_fallbacks - (len(tried) - 1)
    names = (*_listed(asked, kind, settings), *_listed(failed, kind, settings))
    found = [name for name in dict.fromkeys(names) if name not in tried]
    return tuple(found[: max(left, 0)])


def has_fallbacks(settings: RoutingSettings) -> bool:
    """Whether any model may answer for another."""
    named = (settings.fallbacks, settings.context_window_fallbacks, settings.content_policy_fallbacks)
    return any(named) or bool(settings.default_fallbacks)


def _listed(model: str, kind: Kind, settings: RoutingSettings) -> tuple[str, ...]:
    if kind == "context_window":
        return settings.context_window_fallbacks.get(model, ())
    if kind == "content_policy":
        return settings.content_policy_fallbacks.get(model, ())
    return settings.fallbacks.get(model, settings.default_fallbacks)
