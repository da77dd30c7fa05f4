"""Where a provider's prompt cache is told to begin and to end, for providers that want to be told (guarantee §4 I7).

Anthropic's models cache a prompt only up to blocks with `cache_control`. Three are set: behind the system messages
(before which the tools stand), where the previous request ended, which is what its cache holds, and where this one
ends, for the next to find. Which blocks bear a mark is no part of what is cached, so marks may move on.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.exchange import Deployment, ModelFacts

EPHEMERAL = {"type": "ephemeral"}
MARK = "cache_control"
OPERATORS_OWN = ("cache_control_injection_points",)
"""LiteLLM's setting for the same: who uses it has said where."""
ROUTERS = ("openrouter/", "litellm_proxy/")
ROUTER_ADDRESS = "openrouter.ai"
LEAST_CHARS = 4 * 1024
"""No model of Anthropic's caches less than 1,024 tokens; some want more, and ignore such a mark."""


def wants_breakpoints(deployment: Deployment, facts: ModelFacts) -> bool:
    """Whether the model's prompts are cached where it is told, and there alone."""
    if "claude" not in f"{deployment.route} {deployment.provider_model}".lower():
        return False
    if any(name in deployment.options or name in deployment.parameters for name in OPERATORS_OWN):
        return False
    if deployment.protocol == "litellm":
        known = facts.supports_prompt_caching
        return deployment.route.startswith("anthropic/") if known is None else known
    return deployment.route.startswith(ROUTERS) or ROUTER_ADDRESS in deployment.api_base


def with_breakpoints(
    messages: list[dict[str, Any]], forward: dict[str, Any], *, goes_on: bool, translated: bool
) -> list[dict[str, Any]]:
    """The messages with marks, in copies; as they are if the client set any of its own.

    Args:
        forward: the other fields of the body; tools stand before the messages.
        goes_on: whether another request may continue this one: nobody pays for writing what nobody will read.
        translated: whether litellm puts a mark of a tool result where Anthropic takes it; routers look for it in parts.
    """
    tools = [each for name in ("tools", "functions") for each in forward.get(name) or ()]
    if MARK in forward or any(map(_is_marked, (*messages, *tools))):
        return messages
    sizes = list(accumulate(map(_size, messages), initial=sum(len(str(tool)) for tool in tools)))[1:]
    marked = list(messages)
    for at in _places(messages, goes_on=goes_on):
        if sizes[at] >= LEAST_CHARS:
            marked[at] = _marked(messages[at], whole=translated and messages[at]["role"] == "tool") or messages[at]
    return marked


def _places(messages: Sequence[dict[str, Any]], *, goes_on: bool) -> set[int]:
    """Behind which messages a mark is due."""
    roles = [message["role"] for message in messages]
    system = next((i for i, role in enumerate(roles) if role not in INSTRUCTION_ROLES), len(roles)) - 1
    answers = [i for i, role in enumerate(roles[:-1]) if role == "assistant"]
    ends = [system, answers[-1] - 1 if answers else -1, len(messages) - 1 if goes_on else -1]
    return {at for end in ends if (at := _markable(messages, end)) is not None}


def _markable(messages: Sequence[dict[str, Any]], last: int) -> int | None:
    """The last message up to there that can bear a mark. The model's own cannot: they may have to stay as they came."""
    return next((i for i in range(last, -1, -1) if messages[i]["role"] != "assistant" and _marked(messages[i])), None)


def _marked(message: dict[str, Any], *, whole: bool = False) -> dict[str, Any] | None:
    """The message with a mark behind its last text; None if it has none, as providers refuse marks of nothing.

    Args:
        whole: the mark is of the message instead.
    """
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        return None
    for at in range(len(parts) - 1, -1, -1):
        if isinstance(parts[at], dict) and str(parts[at].get("text") or "").strip():
            if whole:
                return {**message, MARK: dict(EPHEMERAL)}
            return {**message, "content": [*parts[:at], {**parts[at], MARK: dict(EPHEMERAL)}, *parts[at + 1 :]]}
    return None


def _is_marked(value: dict[str, Any]) -> bool:
    """Whether a message or a tool bears a mark, itself or in one of its parts, calls or its function."""
    inner = (value.get("content"), value.get("tool_calls"), [value.get("function")])
    parts = [part for each in inner if isinstance(each, list) for part in each]
    return MARK in value or any(isinstance(part, dict) and MARK in part for part in parts)


def _size(message: dict[str, Any]) -> int:
    """Characters of a message's texts, roughly."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else ()
    return sum(len(str(part.get("text") or "")) for part in parts if isinstance(part, dict))
