"""The body that goes upstream."""

from collections.abc import Set
from typing import Any

from gateway.core.formats.hosted import is_silent, told_items, with_told
from gateway.core.types.chat import ChatRequest, ModelDeployment, ModelFacts
from gateway.core.types.items import ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS, OF_RESPONSES
from gateway.core.types.provider_facts import ANSWER_LIMITS, LIMITED_ROUTES, PROTOCOLS

TOLD_THOUGHTS = frozenset({"reasoning_content", "reasoning"})
SPARE_SHARE = 0.05
"""Share of the prompt by which the provider may count more tokens than were counted here."""


def with_output_limit(
    forward: dict[str, Any],
    deployment: ModelDeployment,
    facts: ModelFacts,
    *,
    window: int | None,
    prompt: int,
    reserved: int,
    refitted: bool,
) -> dict[str, Any]:
    """The fields with `max_tokens`, if neither request nor deployment names it: what the model can write, or what the
    prompt leaves of the window; never less than was reserved when the prompt was fitted (guarantee §4 I1).

    Anthropic requires `max_tokens`, and refuses a request whose prompt and `max_tokens` together exceed the window.
    litellm's default is what the model can write at most, for which a long prompt leaves no room.

    Args:
        prompt: tokens of the prompt as counted.
        reserved: tokens reserved for the answer.
        refitted: the provider has refused the prompt once as too long; then no more than `reserved` is asked for.
    """
    named = {**deployment.parameters, **deployment.options, **forward}
    if not PROTOCOLS[deployment.protocol].as_anthropics or not deployment.route.startswith(LIMITED_ROUTES):
        return forward
    if any(named.get(name) is not None for name in ANSWER_LIMITS):
        return forward
    if window is None or facts.max_output_tokens is None or reserved <= 0:
        return forward
    room = 0 if refitted else window - int(prompt * (1 + SPARE_SHARE))
    return {**forward, "max_tokens": min(facts.max_output_tokens, max(reserved, room))}


def without_items(messages: list[dict[str, Any]], request: ChatRequest) -> list[dict[str, Any]]:
    """The messages without what only Responses take back, for an upstream that is called by another API: hosted calls
    are told in words (guarantee §1.14), and what then says nothing is left out. What a chat's own client says stays as
    it is."""
    found = [message for message in messages if not OF_RESPONSES.isdisjoint(message)]
    if not found:
        return messages
    own = frozenset(map(id, request.messages)) if request.api is None else frozenset()
    taken = frozenset(id(message) for message in found) - own
    told = ((_without_items(message), True) if id(message) in taken else (message, False) for message in messages)
    return [message for message, changed in told if not (changed and is_silent(message))]


def _without_items(message: dict[str, Any]) -> dict[str, Any]:
    dropped = OF_RESPONSES if _are_readable(message) else OF_RESPONSES | TOLD_THOUGHTS
    return with_told({name: value for name, value in message.items() if name not in dropped}, told_items(message))


def has_blocks(messages: list[dict[str, Any]], fields: Set[str]) -> bool:
    """Whether a message holds what only Anthropic's API can be sent as it is. `fields` are those of all messages."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if type(content) is list for part in content)
    return ANTHROPIC_BLOCKS in fields or any(ANTHROPIC_BLOCK in part for part in parts)


def _are_readable(message: dict[str, Any]) -> bool:
    """Whether the thoughts of a message are their own words. What is told of sealed ones, a summary mostly, is bound to
    whoever sealed them."""
    items = [*(message.get("reasoning_items") or ()), *(message.get("output_items") or ())]
    thoughts = [each for each in items if isinstance(each, dict) and each.get("type") == "reasoning"]
    return all(each.get("content") and not each.get("encrypted_content") for each in thoughts)


def request_body(
    forward: dict[str, Any],
    messages: list[dict[str, Any]],
    deployment: ModelDeployment,
    *,
    stream: bool,
    ask_usage: bool,
) -> dict[str, Any]:
    """The client's fields, unchanged, and where it names none the deployment's. `ask_usage`: the stream is to end with
    its usage (guarantee §6)."""
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
