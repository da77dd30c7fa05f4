"""A chat of the inner form as a request of Anthropic's Messages (ADR 27)."""

from collections.abc import Mapping
from typing import Any

from gateway.core.formats.anthropic.alternating_roles import as_turns
from gateway.core.formats.anthropic.request_parser import BETA

Json = dict[str, Any]
DEFAULT_MAX_TOKENS = 4096
"""Anthropic wants a limit; this is what every model of its can write."""
SAME = ("model", "temperature", "top_p", "top_k", "thinking", "stream")
TRANSLATED = frozenset(
    {
        *(*SAME, "messages", "max_tokens", "max_completion_tokens", "stop", "tools", "functions"),
        *("tool_choice", "function_call", "parallel_tool_calls", "response_format", "reasoning_effort"),
        *("service_tier", "user"),
    }
)
LEFT_OUT = frozenset(
    {
        *("n", "seed", "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "audio"),
        *("stream_options", "store", "metadata", "modalities", "prediction", "prompt_cache_key", "verbosity"),
        *("prompt_cache_retention", "safety_identifier", "web_search_options"),
    }
)
"""What a chat may say and Anthropic has no words for."""
CHOICES = {"auto": "auto", "required": "any", "none": "none"}
TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096}
"""Tokens to think with, as LiteLLM has them for each effort."""


def messages_request(body: Mapping[str, Any], native: Mapping[str, Any] | None = None) -> tuple[Json, list[str]]:
    """The request's body, and the names for its header `anthropic-beta`.

    What the client said in Anthropic's own words (`native`) goes up as it came.

    Raises:
        InvalidRequest: a message holds what no model of Anthropic's takes.
    """
    own: Json = dict(native or {})
    betas = own.pop(BETA, None) or []
    found: Json = {name: body[name] for name in SAME if body.get(name) is not None}
    found["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
    system, found["messages"] = as_turns(body.get("messages") or ())
    if system:
        found["system"] = system
    if stop := body.get("stop"):
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if body.get("service_tier") in TIERS:
        found["service_tier"] = TIERS[body["service_tier"]]
    if isinstance(body.get("user"), str):
        found["metadata"] = {"user_id": body["user"]}
    _with_tools(found, body, own.pop("tools", None))
    _with_format(found, body, own)
    _with_effort(found, body, own)
    others = {k: v for k, v in body.items() if k not in TRANSLATED and k not in LEFT_OUT and v is not None}
    return {**found, **others, **own}, [name for name in betas if isinstance(name, str)]


def _with_tools(found: Json, body: Mapping[str, Any], native: Any) -> None:
    """Tools as the client sent them stand first; those that it did not send, such as the gateway's own, behind them."""
    tools = [tool for tool in native if isinstance(tool, dict)] if isinstance(native, list) else []
    known = {tool.get("name") for tool in tools}
    tools += [tool for tool in map(_tool, body.get("tools") or ()) if tool["name"] not in known]
    tools += [tool for f in body.get("functions") or () if (tool := _tool({"function": f}))["name"] not in known]
    if not tools:
        return
    found["tools"] = tools
    asked = body.get("tool_choice")
    if asked is None:
        asked = body.get("function_call")
    choice: Json | None = None
    if isinstance(asked, str) and asked in CHOICES:
        choice = {"type": CHOICES[asked]}
    elif isinstance(asked, dict):
        named = asked.get("function") or asked
        choice = {"type": "tool", "name": named.get("name")}
    parallel = body.get("parallel_tool_calls")
    if isinstance(parallel, bool) and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
    if choice is not None:
        found["tool_choice"] = choice


def _tool(tool: Json) -> Json:
    """A chat's function. Others are functions by now (guarantee §1.11)."""
    function = tool.get("function") or {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    made = {"name": function.get("name"), "description": function.get("description"), "input_schema": schema}
    made |= {"strict": function.get("strict"), "cache_control": tool.get("cache_control")}
    return {name: value for name, value in made.items() if value is not None}


def _with_format(found: Json, body: Mapping[str, Any], native: Json) -> None:
    """Structured output, unless the client asked for it in Anthropic's own words."""
    asked = body.get("response_format")
    config = native.get("output_config")
    if not isinstance(asked, dict) or asked.get("type") != "json_schema" or native.get("output_format"):
        return
    if isinstance(config, dict) and config.get("format"):
        return
    schema = (asked.get("json_schema") or {}).get("schema")
    if isinstance(schema, dict):
        kept = config if isinstance(config, dict) else {}
        native["output_config"] = {**kept, "format": {"type": "json_schema", "schema": schema}}


def _with_effort(found: Json, body: Mapping[str, Any], native: Json) -> None:
    """How much the operator wants a model to think, where the client says nothing of it."""
    budget = BUDGETS.get(str(body.get("reasoning_effort")))
    if budget is None or "thinking" in found or "thinking" in native or "output_config" in native:
        return
    if found["max_tokens"] > budget:
        found["thinking"] = {"type": "enabled", "budget_tokens": budget}
