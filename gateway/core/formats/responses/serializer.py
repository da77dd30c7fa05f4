"""An answer of the inner form as a response."""

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import GatewayError
from gateway.core.formats.responses.namespaces import names_apart
from gateway.core.ids import RESPONSE, answer_id
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import items_of
from gateway.core.types.typed_tools import status_of
from gateway.core.types.usage import cache_tokens, without_cache

Json = dict[str, Any]
OF_A_CHAT = frozenset(("id", "object", "created", "model", "choices", "usage", "system_fingerprint"))
"""Fields of a completion that a response has in other words. All others are passed on."""
ECHOED: Json = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "background": False,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "safety_identifier": None,
    "service_tier": "auto",
    "store": True,
    "top_logprobs": 0,
    "truncation": "auto",
    "user": None,
}
"""Fields of the request that its response repeats, and what stands there where the request does not name them."""
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
ENCRYPTED = "reasoning.encrypted_content"


def echo(body: Mapping[str, Any], *, store: bool) -> Json:
    """What a response repeats of its request."""
    found = {name: default if body.get(name) is None else body[name] for name, default in ECHOED.items()}
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    found["text"] = {"format": {"type": "text"}, **text}
    found["reasoning"] = {"effort": None, "summary": None, **reasoning}
    return {**found, "store": store}


def response_of(
    completion: Mapping[str, Any],
    echoed: Mapping[str, Any],
    include: tuple[str, ...] = (),
    compaction: Json | None = None,
) -> Json:
    """A whole completion as a response.

    Args:
        echoed: what it repeats of its request; see `echo`.
        include: what the request wants to see beside the usual.
        compaction: the item that stands for all before it.
    """
    choice: Json = next(iter(completion.get("choices") or ()), {})
    output = output_items(choice.get("message") or {}, completion["id"], include, choice.get("logprobs"))
    names = names_apart(echoed.get("tools"))
    output = [{**item, **names.get(str(item.get("name")), {})} for item in output] if names else output
    reason = INCOMPLETE.get(str(choice.get("finish_reason")))
    if reason:
        output[-1] = as_incomplete(output[-1])
    if compaction is not None:
        output = [compaction, *output]
    return ended(begun(completion, echoed), output, reason, completion.get("usage"), completion)


def begun(completion: Mapping[str, Any], echoed: Mapping[str, Any]) -> Json:
    """A response that is still being made, of a completion or the first chunk of one."""
    response: Json = {
        "id": answer_id(completion["id"], RESPONSE),
        "object": "response",
        "created_at": _number(completion.get("created")),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": str(completion.get("model") or ""),
        "output": [],
        **echoed,
        "usage": None,
    }
    return {**response, **extras(completion)}


def extras(completion: Mapping[str, Any]) -> Json:
    """What a completion or a chunk says beside what a response says in its own words: the bill, the conversation, and
    whatever its upstream added."""
    return {name: value for name, value in completion.items() if name not in OF_A_CHAT and value is not None}


def ended(response: Json, output: list[Json], reason: str | None, usage: Any, completion: Mapping[str, Any]) -> Json:
    """The response with its output. `reason`: why it is incomplete, None where it is not."""
    found = {**response, **extras(completion), "output": output, "usage": usage_of(usage)}
    if reason:
        return {**found, "status": "incomplete", "incomplete_details": {"reason": reason}}
    return {**found, "status": "completed", "completed_at": found["created_at"]}


def output_items(message: Json, completion_id: str, include: tuple[str, ...], logprobs: Any = None) -> list[Json]:
    """The items that an answer is: the same as the Conversations API shows."""
    body = {**message, "role": "assistant"}
    stored = ConversationMessage("assistant", body, message_id=answer_id(completion_id))
    items = items_of(stored)
    if ENCRYPTED in include:
        items = with_sealed(items, body)
    said = (logprobs or {}).get("content") if isinstance(logprobs, dict) else None
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    texts = [part for part in parts if part.get("type") == "output_text"]
    for part in texts:
        part.setdefault("annotations", [])
        part["logprobs"] = whole_logprobs(part.get("logprobs"))
    if texts and not any(part["logprobs"] for part in texts):
        texts[0]["logprobs"] = whole_logprobs(said)
    return items


def with_sealed(items: list[Json], body: Mapping[str, Any]) -> list[Json]:
    """The items with what is sealed in their thoughts, for clients that send them again."""
    thoughts = [each for each in body.get("reasoning_items") or () if isinstance(each, dict)]
    thoughts += [each for each in body.get("output_items") or () if each.get("type") == "reasoning"]
    sealed = iter(thoughts)
    found = []
    for item in items:
        if item["type"] == "reasoning" and (thought := next(sealed, None)) and thought.get("encrypted_content"):
            item = {**item, "encrypted_content": thought["encrypted_content"]}
        found.append(item)
    return found


def as_incomplete(item: Json) -> Json:
    """The item in which an answer broke off."""
    return {**item, "status": status_of(item.get("type"), "incomplete")}


def failed(error: GatewayError) -> Json:
    """What a response says that broke off by an error."""
    return {"status": "failed", "error": {"code": "server_error", "message": told(error)["message"]}}


def told(error: GatewayError) -> Json:
    """An error as its client is told it: `code`, `message`, `param`."""
    said = error.body()["error"]
    message = str(said.get("message") or error.message)
    code, param = (said.get(name) and str(said[name]) for name in ("code", "param"))
    return {"code": code, "message": message, "param": param}


def whole_logprobs(tokens: Any) -> list[Json]:
    """Log probabilities of a whole text: each with its bytes."""
    found = []
    for each in tokens or ():
        others = [_with_bytes(other) for other in each.get("top_logprobs") or ()]
        found.append({**_with_bytes(each), "top_logprobs": others})
    return found


def _with_bytes(token: Json) -> Json:
    known = token.get("bytes")
    return {**token, "bytes": known if known is not None else list(str(token.get("token")).encode())}


def usage_of(usage: Any) -> Json | None:
    """Usage by the names of Responses; `cost` and whatever else stands there stays."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _details(usage, "prompt_tokens_details"), _details(usage, "completion_tokens_details")
    read, written = cache_tokens(usage)
    own = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
    sent, answered = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
    return {
        "input_tokens": sent,
        "input_tokens_details": {**without_cache(prompt), "cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": answered,
        "output_tokens_details": {**completion, "reasoning_tokens": completion.get("reasoning_tokens") or 0},
        "total_tokens": _number(usage.get("total_tokens")) or sent + answered,
        **{name: value for name, value in without_cache(usage).items() if name not in own},
    }


def _number(value: Any) -> int:
    """A count or a time, as whole seconds; 0 for what is none."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _details(usage: Json, name: str) -> Json:
    details = usage.get(name)
    return {k: v for k, v in details.items() if v is not None} if isinstance(details, dict) else {}
