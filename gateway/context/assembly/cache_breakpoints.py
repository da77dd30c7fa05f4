"""Breakpoints of prompt caches, for providers that want them (guarantee §4 I7).

Anthropic's models cache a prompt only up to content blocks with `cache_control`. Three are set: after the system
messages, which the tools precede; where the previous request ended, up to which its prompt is cached; and where this
one ends, for the next request. Breakpoints are not part of what is cached, so that they can move on.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.core.types.content_parts import as_parts, texts_of
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import ANTHROPIC_BLOCKS, BREAKPOINT
from gateway.core.types.provider_facts import PROTOCOLS, family_in, is_routed

EPHEMERAL = {"type": "ephemeral"}
INJECTION_POINTS = "cache_control_injection_points"
"""LiteLLM's setting for the same purpose: with it the operator sets the breakpoints."""
MIN_CHARS = 4 * 1024
"""Characters of a prompt worth caching: Anthropic caches no less than 1,024 tokens, of about four characters."""


def wants_breakpoints(deployment: ModelDeployment, facts: ModelFacts) -> bool:
    """Whether the model's prompts are cached only up to breakpoints."""
    if not family_in(f"{deployment.route} {deployment.provider_model}").wants_breakpoints:
        return False
    if INJECTION_POINTS in deployment.options or INJECTION_POINTS in deployment.parameters:
        return False
    if PROTOCOLS[deployment.protocol].as_anthropics:
        known = facts.supports_prompt_caching
        return deployment.route.startswith("anthropic/") if known is None else known
    return is_routed(deployment)


def takes_breakpoints(deployment: ModelDeployment) -> bool:
    """Whether a deployment is told by `cache_control` where to cache: others may refuse the field."""
    return deployment.protocol == "litellm" or is_routed(deployment)


def with_breakpoints(
    messages: list[dict[str, Any]], forward: dict[str, Any], *, goes_on: bool, translated: bool
) -> list[dict[str, Any]]:
    """The messages with breakpoints, in copies; unchanged if the client set any itself.

    Args:
        forward: the other fields of the body, with its tools.
        goes_on: whether another request may continue this one. If not, its end is not cached: writing costs more.
        translated: the body becomes one of Anthropic's, for which a tool result's breakpoint is expected on the
            message; routers expect it on a part.
    """
    tools = [each for name in ("tools", "functions") for each in forward.get(name) or ()]
    if BREAKPOINT in forward or any(map(_has_breakpoint, (*messages, *tools))):
        return messages
    sizes = list(accumulate(map(_size, messages), initial=sum(len(str(tool)) for tool in tools)))[1:]
    marked = list(messages)
    for at in _positions(messages, goes_on=goes_on):
        if sizes[at] >= MIN_CHARS:
            marked[at] = _marked(messages[at], whole=translated and messages[at]["role"] == "tool") or messages[at]
    return marked


def _positions(messages: Sequence[dict[str, Any]], *, goes_on: bool) -> set[int]:
    """Indexes of the messages after which a breakpoint is due."""
    roles = [message["role"] for message in messages]
    system = next((i for i, role in enumerate(roles) if role not in INSTRUCTION_ROLES), len(roles)) - 1
    answers = [i for i, role in enumerate(roles[:-1]) if role == "assistant"]
    ends = [system, answers[-1] - 1 if answers else -1, len(messages) - 1 if goes_on else -1]
    return {at for end in ends if (at := _last_possible(messages, end)) is not None}


def _last_possible(messages: Sequence[dict[str, Any]], last: int) -> int | None:
    """The last message up to `last` that can have a breakpoint; the model's own may have to stay as they came."""
    return next((i for i in range(last, -1, -1) if messages[i]["role"] != "assistant" and _marked(messages[i])), None)


def _marked(message: dict[str, Any], *, whole: bool = False) -> dict[str, Any] | None:
    """The message with a breakpoint after its last text, or on the message if `whole`; None if it has no text, as
    providers refuse a breakpoint on nothing."""
    parts = as_parts(message.get("content"))
    for at in range(len(parts) - 1, -1, -1):
        if isinstance(parts[at], dict) and str(parts[at].get("text") or "").strip():
            if whole:
                return {**message, BREAKPOINT: dict(EPHEMERAL)}
            return {**message, "content": [*parts[:at], {**parts[at], BREAKPOINT: dict(EPHEMERAL)}, *parts[at + 1 :]]}
    return None


def _has_breakpoint(value: dict[str, Any]) -> bool:
    """Whether a message or a tool has a breakpoint, itself or in one of its parts, calls or its function."""
    inner = (value.get("content"), value.get("tool_calls"), [value.get("function")], value.get(ANTHROPIC_BLOCKS))
    parts = [part for each in inner if isinstance(each, list) for part in each]
    return BREAKPOINT in value or any(isinstance(part, dict) and BREAKPOINT in part for part in parts)


def _size(message: dict[str, Any]) -> int:
    """Characters of a message's texts, roughly."""
    return sum(map(len, texts_of(message.get("content"))))
