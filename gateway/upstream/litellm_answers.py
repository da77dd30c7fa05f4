"""litellm's objects as the JSON of OpenAI's protocol, without what litellm adds of its own."""

from typing import Any

NOISE = ("vertex_ai_", "citations", "images", "annotations", "thinking_blocks", "provider_specific_fields")
"""Fields that say nothing while they are empty."""
LITELLM_OWN = ("response_ms", "_response_ms")


def whole(response: Any) -> dict[str, Any]:
    """A complete answer."""
    answer = _plain(response)
    for number, choice in enumerate(answer.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        message = choice.setdefault("message", {})
        message.setdefault("role", "assistant")
        message.setdefault("content", None)
        _tidy(message)
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
    return answer


def chunk(part: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    found = _plain(part)
    for number, choice in enumerate(found.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        _tidy(choice.setdefault("delta", {}))
    if isinstance(found.get("usage"), dict):
        found["choices"] = [c for c in found.get("choices") or () if c["delta"] or c["finish_reason"]]
    return found


def _plain(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    if isinstance(found.get("usage"), dict):
        found["usage"].pop("cost", None)  # litellm's reckoning in floating point; the bill is the gateway's
    return {k: v for k, v in found.items() if k not in LITELLM_OWN and (v or not k.startswith(NOISE))}


def _tidy(message: dict[str, Any]) -> None:
    """Takes out what is said twice or says nothing; thoughts and signatures stay as they are."""
    fields = message.get("provider_specific_fields")
    if isinstance(fields, dict):
        kept = {k: v for k, v in fields.items() if v and not (k == "thinking_blocks" and message.get(k) == v)}
        message["provider_specific_fields"] = kept
        if not kept:
            del message["provider_specific_fields"]
    for name in [k for k, v in message.items() if k.startswith(NOISE) and not v]:
        del message[name]
