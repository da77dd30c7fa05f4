"""The body that goes upstream."""

from typing import Any

from gateway.models.exchange import Deployment, ModelFacts

# How long an answer may become, for providers that want to be told (guarantee §4 I1).
#
# Anthropic takes no request without `max_tokens`, and refuses one whose prompt and `max_tokens` together exceed the
# window. litellm fills in what the model can write at most, which near the window is more than there is room for.


LIMITS = ("max_completion_tokens", "max_tokens")
THINKS = ("thinking", "reasoning_effort")
"""With these litellm sends as much as the thoughts may have and a little more."""
ROUTES = ("anthropic/", "vertex_ai/claude", "azure_ai/claude")
SPARE = 0.05
"""Of the prompt: by so much the provider may count more tokens than were counted here."""


def with_output_limit(
    forward: dict[str, Any],
    deployment: Deployment,
    facts: ModelFacts,
    *,
    window: int | None,
    prompt: int,
    reserved: int,
    refitted: bool,
) -> dict[str, Any]:
    """The fields with `max_tokens`, if nobody named it: what the model can write, or what the prompt leaves of the
    window; never less than was reserved when the prompt was fitted.

    Args:
        prompt: tokens of the prompt as they were counted.
        refitted: the provider has said once that it does not fit; then it is what was reserved.
    """
    named = {**deployment.parameters, **deployment.options, **forward}
    if deployment.protocol != "litellm" or not deployment.route.startswith(ROUTES):
        return forward
    if any(named.get(name) is not None for name in (*LIMITS, *THINKS)):
        return forward
    if window is None or facts.max_output_tokens is None or reserved <= 0:
        return forward
    room = 0 if refitted else window - int(prompt * (1 + SPARE))
    return {**forward, "max_tokens": min(facts.max_output_tokens, max(reserved, room))}


def request_body(
    forward: dict[str, Any], messages: list[dict[str, Any]], deployment: Deployment, *, stream: bool, ask_usage: bool
) -> dict[str, Any]:
    """The client's fields untouched over the deployment's; a stream is always asked for its usage (guarantee §6)."""
    body = {**deployment.parameters, **forward, "model": deployment.provider_model, "messages": messages}
    if stream:
        body["stream"] = True
        options = dict(forward.get("stream_options") or {})
        options.pop("include_usage", None)
        if ask_usage:
            options["include_usage"] = True
        body.pop("stream_options", None)
        if options:
            body["stream_options"] = options
    return body
