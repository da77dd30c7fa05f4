"""A request of Anthropic's API as its upstream takes it: in a chat's words, with the client's marks for caches where a
provider takes them (ADR 27)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.context.assembly.cache_breakpoints import takes_breakpoints
from gateway.core.formats.anthropic.clearing import edited
from gateway.core.formats.anthropic.edits import edits_of
from gateway.core.formats.anthropic.plain_blocks import plain_messages, with_shown_apart, without_blocks
from gateway.core.formats.hosted import is_silent
from gateway.core.types.chat import CacheMark, ChatRequest, ModelDeployment, NativeRequest
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import BREAKPOINT
from gateway.core.types.provider_facts import (
    EFFORT_LEVELS,
    EFFORT_MODELS,
    EFFORT_PROVIDERS,
    EFFORTS,
    PROTOCOLS,
    family_in,
)

Message = dict[str, Any]
EDITS = "context_management"


class TranslatedPrompt(NamedTuple):
    """Messages and fields in the words of a deployment's protocol, and what only that says, where it is the request's
    own."""

    messages: list[Message]
    forward: dict[str, Any]
    native: dict[str, Any] | None
    cleared: tuple[dict[str, Any], ...] = ()
    """What the request's edits took out, as its API reports that."""


def as_upstream_takes(
    messages: list[Message],
    forward: dict[str, Any],
    request: ChatRequest,
    deployment: ModelDeployment,
    tokens: int | None = None,
) -> TranslatedPrompt:
    """A request as its deployment takes it. Of a request of another API only what was stored by this one changes.

    Args:
        tokens: what the prompt takes, by which edits go.
    """
    cleared: list[dict[str, Any]] = []
    native, protocol = request.native, PROTOCOLS[deployment.protocol]
    speaks = native is not None and native.protocol == deployment.protocol
    fields = dict(native.fields) if native is not None and speaks else None
    if native is None or request.api != "messages":
        if not protocol.takes_blocks:
            plain = ((without_blocks(message), message) for message in messages)
            messages = [each for each, message in plain if each is message or not is_silent(each)]
        if request.api == "responses" and not protocol.takes_items:
            messages = [message for message in messages if not is_silent(message)]
        if protocol.text_results and request.api == "responses":
            messages = list(with_shown_apart(messages))
        return TranslatedPrompt(messages, forward, fields)
    if EDITS in native.fields:
        relayed = fields is not None and messages == list(request.messages)
        if fields is not None and not relayed:  # the window has made room already
            del fields[EDITS]
        if not relayed:
            messages, cleared = edited(messages, edits_of(native.fields[EDITS]), tokens)
    takes = speaks or takes_breakpoints(deployment)
    if not speaks:
        messages = plain_messages(messages, thoughts=takes)
        forward = _plain_fields(forward, native, deployment, marked=takes)
    if takes and native.marks:
        messages = with_marks(messages, request.messages, native.marks)
    return TranslatedPrompt(messages, forward, fields, tuple(cleared))


def with_marks(messages: Sequence[Message], sent: Sequence[Message], marks: Sequence[CacheMark]) -> list[Message]:
    """The forwarded messages with the client's marks: system messages stand in front, all others count from the end."""
    marked = list(messages)
    for mark in marks:
        role = sent[mark.message].get("role")
        leads = all(each.get("role") in INSTRUCTION_ROLES for each in sent[: mark.message + 1])
        at = mark.message if leads else mark.message + len(messages) - len(sent)
        if 0 <= at < len(marked) and marked[at].get("role") == role:
            marked[at] = _marked(marked[at], mark)
    return marked


def _marked(message: Message, mark: CacheMark) -> Message:
    content = message.get("content")
    if mark.part is None:
        return {**message, BREAKPOINT: mark.value}
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    at = min(mark.part, len(parts) - 1)
    if at < 0 or not isinstance(parts[at], dict):
        return message
    parts[at] = {**parts[at], BREAKPOINT: mark.value}
    return {**message, "content": parts}


def _plain_fields(
    forward: dict[str, Any], native: NativeRequest, deployment: ModelDeployment, *, marked: bool
) -> dict[str, Any]:
    found = dict(forward)
    if not marked and found.get("tools"):
        found["tools"] = [{k: v for k, v in tool.items() if k != BREAKPOINT} for tool in found["tools"]]
    thinking = native.fields.get("thinking")
    if deployment.protocol == "litellm" and family_in(deployment.route).signs_thoughts:
        if thinking is not None:
            found["thinking"] = thinking
    elif deployment.provider in EFFORT_PROVIDERS and EFFORT_MODELS.search(deployment.provider_model):
        if "max_tokens" in found:
            found["max_completion_tokens"] = found.pop("max_tokens")
        effort = _effort(thinking, native.fields.get("output_config"))
        if effort is not None:
            found.setdefault("reasoning_effort", effort)
    return found


def _effort(thinking: Any, config: Any) -> str | None:
    """How much is to be thought, as OpenAI's models are told it; None where nothing is said."""
    said = config.get("effort") if isinstance(config, dict) else None
    if isinstance(said, str) and said in EFFORT_LEVELS:
        return EFFORT_LEVELS[said]
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if not isinstance(budget, int):
        return None
    return next((name for most, name in EFFORTS if budget <= most), "high")
