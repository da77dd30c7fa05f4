"""A completion as a message of Anthropic's (ADR 27)."""

from collections.abc import Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.formats.anthropic.compacting import with_iterations
from gateway.core.formats.anthropic.edits import applied
from gateway.core.formats.anthropic.message_completion import arguments_of
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.items import ANTHROPIC_BLOCKS
from gateway.core.types.usage import cache_tokens

Json = dict[str, Any]
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
ANTHROPICS = frozenset(
    {
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"),
        "model_context_window_exceeded",
    }
)
"""Reasons in Anthropic's own words, which a choice may say beside its `finish_reason`, in `stop_reason`."""
GATEWAYS = ("response_metadata", "conversation", "agent")
"""What the gateway says of an answer (guarantee §6)."""
ENVELOPE = ("container", "context_management", "diagnostics", "input_transformations", *GATEWAYS)
"""Fields of a completion that stand at the end of a streamed message: those that Anthropic has, and the gateway's."""
OF_A_CHAT = frozenset(("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"))
"""Fields of a completion that a message has in other words. All others are passed on."""
USAGE_OF_A_CHAT = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
)
METADATA = "response_metadata"
TIERS = ("standard", "priority", "batch")
BILLED = ("cost", "cost_details")


def message_id(completion_id: str) -> str:
    """The name of the completion with that id as a message."""
    return f"msg_{completion_id.removeprefix('chatcmpl-')}"


def as_message(
    completion: Json,
    model: str,
    stops: Sequence[str] = (),
    edits: Sequence[Json] = (),
    compaction: Json | None = None,
) -> Json:
    """
    Args:
        compaction: the block that stands for all before the answer.
        model: the one that was asked for.
        stops: the request's stop sequences.
        edits: what it wants to be cleared of its context.
    """
    choice: Json = next(iter(completion.get("choices") or ()), {})
    said = choice.get("message") or {}
    content = content_blocks(said)
    reason, sequence = stopped(choice, stops, calls=any(block["type"] == "tool_use" for block in content))
    if said.get("refusal"):
        reason = "refusal"
    message: Json = {
        "id": message_id(str(completion.get("id"))),
        "type": "message",
        "role": "assistant",
        "model": str(completion.get("model") or model),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": as_usage(completion.get("usage"), completion.get("service_tier")),
    }
    message |= extras(completion)
    if details := refusal_details(choice):
        message["stop_details"] = details
    if compaction is not None:
        message |= {"content": [compaction, *content], "usage": with_iterations(message["usage"])}
    return with_applied(message, edits)


def extras(completion: Json) -> Json:
    """What a completion or a chunk says beside what a message says in its own words."""
    return {name: value for name, value in completion.items() if name not in OF_A_CHAT and value is not None}


def with_applied(told: Json, edits: Sequence[Json]) -> Json:
    """A message, or the event that ends one, with what was cleared of its context, where the request asks for that."""
    if not edits:
        return told
    reported = blocks_in(an_object(told.get("context_management")).get("applied_edits"))
    return {**told, "context_management": {"applied_edits": [*reported, *applied(edits, told.get(METADATA))]}}


def content_blocks(said: Json) -> list[Json]:
    """The blocks of an assistant's message: thoughts, text, calls; or all of them as they came."""
    if kept := blocks_in(said.get(ANTHROPIC_BLOCKS)):
        return kept
    blocks = _thoughts(said)
    texts = (text_of(said.get("content")), said.get("refusal"))
    blocks += [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
    for call in said.get("tool_calls") or ():
        function = an_object(call.get("function"))
        given = arguments_of(function.get("arguments"))
        blocks.append(
            {"type": "tool_use", "id": str(call.get("id")), "name": str(function.get("name")), "input": given}
        )
    return blocks


def _thoughts(said: Json) -> list[Json]:
    if signed := thoughts_in(said):
        return [_thought(block) for block in signed]
    text = reasoning_of(said)
    return [{"type": "thinking", "thinking": text, "signature": ""}] if text else []


def thoughts_in(said: Json) -> list[Json]:
    """Signed thoughts of a message or a delta."""
    found = blocks_in(said.get("thinking_blocks"))
    return [block for block in found if block["type"] == "thinking" or _is_redacted(block)]


def _is_redacted(block: Json) -> bool:
    return block["type"] == "redacted_thinking" and isinstance(block.get("data"), str)


def _thought(block: Json) -> Json:
    if block.get("type") != "thinking":
        return block
    return {**block, **{name: str(block.get(name) or "") for name in ("thinking", "signature")}}


def reasoning_of(said: Json) -> str:
    """Plain thoughts of a message or a delta, by either of their names."""
    text = said.get("reasoning_content") or said.get("reasoning")
    return text if isinstance(text, str) else ""


def text_of(content: Any) -> str:
    """The text of a content."""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in dicts_of(content))


def canonical_calls(choice: Json) -> Json:
    """A choice whose calls have their arguments as a client of this API sends them again: it has them as objects."""
    message = choice.get("message") or {}
    calls = message.get("tool_calls")
    if not calls:
        return choice
    written = []
    for call in calls:
        function = call.get("function")
        if not isinstance(function, dict):
            written.append(call)
            continue
        text = jsons.dumps_text(arguments_of(function.get("arguments")))
        written.append({**call, "function": {**function, "arguments": text}})
    return {**choice, "message": {**message, "tool_calls": written}}


def stopped(choice: Json, stops: Sequence[str], *, calls: bool) -> tuple[str, str | None]:
    """Why an answer ended, and by which stop sequence, where its upstream says so."""
    said = choice.get("stop_reason")
    if isinstance(said, str) and said in ANTHROPICS:
        sequence = choice.get("stop_sequence")
        return said, sequence if isinstance(sequence, str) else None
    if isinstance(said, str) and said in stops:  # as vLLM says it
        return "stop_sequence", said
    reason = STOP_REASONS.get(str(choice.get("finish_reason")), "end_turn")
    return ("tool_use" if calls and reason == "end_turn" else reason), None


def refusal_details(choice: Json) -> Json | None:
    """Why a model refused, where Anthropic says so."""
    found = an_object(choice.get("stop_details"))
    return found if found.get("type") == "refusal" else None


def as_usage(usage: Any, tier: Any = None) -> Json:
    """Usage by Anthropic's names: `input_tokens` are those that no cache had a part in."""
    usage = usage if isinstance(usage, dict) else {}
    read, made = cache_tokens(usage)
    found: Json = {
        "input_tokens": max(0, _count(usage.get("prompt_tokens")) - read - made),
        "cache_creation_input_tokens": made,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage.get("completion_tokens")),
    }
    thought = _count(an_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    if thought:
        found["output_tokens_details"] = {"thinking_tokens": thought}
    if tier in TIERS:
        found["service_tier"] = tier
    more = {k: v for k, v in usage.items() if k not in USAGE_OF_A_CHAT and (v is not None or k in BILLED)}
    return {**more, **found}


def an_object(value: Any) -> Json:
    """What an upstream says where an object is to be; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def blocks_in(value: Any) -> list[Json]:
    """What of a value are blocks."""
    return [each for each in value if isinstance(an_object(each).get("type"), str)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
