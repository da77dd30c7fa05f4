"""Attributes of spans and metrics by OpenTelemetry's conventions for HTTP and generative AI: figures, names and ids;
content only with `telemetry.content`.

The conventions: opentelemetry.io, "Semantic conventions for generative client AI spans", 1.41. Attributes that they do
not name have the prefix `gateway.`.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from gateway.core import errors, jsons
from gateway.core.types import bill, turn
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.content_parts import dicts_of

Attributes = dict[str, Any]
PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that LiteLLM names differently."""
PORTS = {"http": 80, "https": 443}
SAMPLING_FIGURES = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
OUTPUT_TYPES = {"json_object": "json", "json_schema": "json", "text": "text"}
RELAYED_OPERATIONS = {"embeddings": "embeddings", "completions": "text_completion"}
"""The conventions' operations of relayed calls, by the path of the call."""
MAX_TOLD_NAME = 128
"""Characters of a name that an upstream gives."""
CANCELLED = "cancelled"
"""`error.type` of a cancelled call: its client disconnected, or it took too long."""
MAX_CONTENT_CHARS = 200_000
"""Of the texts of one call that are exported, in either direction."""
CONTENT_LEFT_OUT = "[left out: too long to export]"


def provider_of(deployment: ModelDeployment) -> str:
    """Returns `gen_ai.provider.name` of a deployment."""
    provider = deployment.origin.partition(" ")[0]
    return PROVIDERS.get(provider, provider)


def of_server(deployment: ModelDeployment) -> Attributes:
    """Returns the server address and port of a deployment; empty if only its library knows them, or it is none."""
    try:
        parts = urlsplit(deployment.api_base)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return {}
    return {"server.address": parts.hostname, "server.port": port} if parts.hostname else {}


def of_request(deployment: ModelDeployment, body: Mapping[str, Any], operation: str = "chat") -> Attributes:
    """Returns the attributes of a model call that are known when it begins."""
    found: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider_of(deployment),
        "gen_ai.request.model": deployment.provider_model,
        "gateway.model": deployment.model,
        **of_server(deployment),
    }
    if body.get("stream"):
        found["gen_ai.request.stream"] = True
    for name in SAMPLING_FIGURES:
        if _is_number(body.get(name)):
            found[f"gen_ai.request.{name}"] = body[name]
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if _is_number(most):
        found["gen_ai.request.max_tokens"] = most
    choices = body.get("n")
    if _is_number(choices) and choices != 1:
        found["gen_ai.request.choice.count"] = choices
    wanted = body.get("response_format")
    kind = OUTPUT_TYPES.get(str(wanted.get("type"))) if isinstance(wanted, Mapping) else None
    return found if kind is None else {**found, "gen_ai.output.type": kind}


def of_answer(answer: Mapping[str, Any]) -> Attributes:
    """Returns the attributes of a whole or partial answer: `id`, `model`, `usage`, and each choice's finish reason."""
    found: Attributes = {}
    for field in ("id", "model"):
        if isinstance(answer.get(field), str):
            found[f"gen_ai.response.{field}"] = answer[field][:MAX_TOLD_NAME]
    choices = [each for each in answer.get("choices") or () if isinstance(each, Mapping)]
    if reasons := [str(each["finish_reason"])[:MAX_TOLD_NAME] for each in choices if each.get("finish_reason")]:
        found["gen_ai.response.finish_reasons"] = reasons
    return found | of_usage(answer.get("usage"))


def of_usage(usage: object) -> Attributes:
    """Returns the token counts of a usage that upstream reported or the gateway counted; empty without a usage."""
    if not isinstance(usage, Mapping):
        return {}
    completion = _mapping(usage.get("completion_tokens_details"))
    figures = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "cache_read.input_tokens": max(bill.reported_counts(usage, reads=True), default=None),
        "cache_creation.input_tokens": max(bill.reported_counts(usage, reads=False), default=None),
        "reasoning.output_tokens": completion.get("reasoning_tokens"),
    }
    return {f"gen_ai.usage.{name}": figure for name, figure in figures.items() if _is_number(figure)}


def of_cost(call: bill.CallCost) -> Attributes:
    """Returns the cost of a call in USD, for tools that show it beside the call; empty if its price is unknown."""
    return {} if call.total is None else {"gen_ai.usage.cost": float(call.total)}


def of_bill(entry: turn.LedgerEntry) -> Attributes:
    """Returns the attributes of a request that its bill holds: decisions about its context, and sums. Costs are in
    USD, and left out if a price is unknown."""
    bill = entry.metadata
    used, cost = _mapping(bill.get("context_utilization")), _mapping(bill.get("cost"))
    found: Attributes = {"gateway.request_id": entry.request_id, "gateway.status": entry.status}
    told = {
        "gateway.completion_id": entry.completion_id,
        "gateway.agent": entry.agent,
        "gateway.context.strategy": used.get("strategy"),
        "gateway.context.goal": used.get("goal"),
        "gateway.context.planned": used.get("llm_planning_used"),
        "gateway.context.planning_reason": used.get("planning_reason"),
        "gateway.context.fallback_reason": used.get("fallback_reason"),
        "gateway.context.budget_tokens": used.get("budget_tokens"),
        "gateway.context.tokens_used": used.get("tokens_used"),
        "gateway.context.utilization": used.get("utilization"),
        "gateway.context.messages_included": used.get("messages_included"),
        "gateway.context.messages_excluded": used.get("messages_excluded"),
        "gateway.context.warnings": list(used.get("warnings") or ()) or None,
        "gateway.cost.total": _usd(cost.get("total_cost")),
        "gateway.cost.planning": _usd(cost.get("planning_cost")),
        "gateway.cost.estimated": cost.get("estimated"),
    }
    listed = used.get("artifacts_processed") or ()
    decided = Counter(str(each.get("strategy")) for each in listed if not each.get("standing"))
    told |= {f"gateway.context.artifacts.{strategy}": number for strategy, number in decided.items()}
    if standing := _mapping(used.get("artifacts_standing")).get("count"):
        told["gateway.context.artifacts.standing"] = standing
    return found | of_session(entry) | {name: value for name, value in told.items() if value is not None}


def of_session(entry: turn.LedgerEntry) -> Attributes:
    """Returns conversation and user, under the conventions' names and those by which Langfuse groups."""
    found: Attributes = {}
    if entry.conversation_id:
        found |= {"gen_ai.conversation.id": entry.conversation_id, "session.id": entry.conversation_id}
    return {**found, "user.id": entry.end_user} if entry.end_user else found


def error_type(error: BaseException) -> str:
    """Returns `error.type`: one of few values, never text of a client or an upstream."""
    if isinstance(error, errors.UpstreamOverflow):
        return "context_length_exceeded"
    if isinstance(error, errors.UpstreamRefused):
        return str(error.status)
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return CANCELLED
    if isinstance(error, errors.GatewayError):
        return type(error).code or type(error).__name__
    return type(error).__name__


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _usd(cost: object) -> float | None:
    return float(cost) if isinstance(cost, Decimal | float | int) else None


# Content of users and models: roles with parts, as the conventions define them. Images, sounds and files are named but
# never exported. If a call's texts are too long, its last messages are exported first: they are the question.


def of_input(body: Mapping[str, Any]) -> Attributes:
    """Renders the messages of a request as `gen_ai.input.messages`; empty without messages."""
    messages = [each for each in body.get("messages") or () if isinstance(each, Mapping)]
    return {"gen_ai.input.messages": _written([(each, None) for each in messages])} if messages else {}


def of_output(answer: Mapping[str, Any]) -> Attributes:
    """Renders the messages of an answer as `gen_ai.output.messages`; empty without messages."""
    choices = [each for each in answer.get("choices") or () if isinstance(each, Mapping)]
    said = [(each.get("message"), each.get("finish_reason") or "error") for each in choices]
    found = [(message, reason) for message, reason in said if isinstance(message, Mapping)]
    return {"gen_ai.output.messages": _written(found)} if found else {}


def _written(messages: Sequence[tuple[Mapping[str, Any], str | None]]) -> str:
    left, written = MAX_CONTENT_CHARS, []
    for message, reason in reversed(messages):
        parts = _parts(message)
        size = sum(len(text) for part in parts for text in part.values() if isinstance(text, str))
        if size > left:
            parts = [{"type": "text", "content": CONTENT_LEFT_OUT}]
        left -= min(size, left)
        said: dict[str, Any] = {"role": str(message.get("role") or "assistant"), "parts": parts}
        written.append(said if reason is None else {**said, "finish_reason": reason})
    return jsons.dumps_text(written[::-1])


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": _text(content)}]
    parts: list[dict[str, Any]] = []
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    for part in dicts_of(content):
        text = part.get("text")
        is_text = isinstance(text, str)
        parts.append({"type": "text", "content": text} if is_text else {"type": str(part.get("type"))})
    for call in message.get("tool_calls") or ():
        asked = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(asked, Mapping):
            named = {"id": call.get("id"), "name": asked.get("name"), "arguments": asked.get("arguments")}
            parts.append({"type": "tool_call", **named})
    return parts


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in dicts_of(content) if "text" in part)
