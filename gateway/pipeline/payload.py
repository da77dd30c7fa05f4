"""What goes upstream of a prepared request: its messages as the deployment takes them, and the whole body.

Signed thoughts depend on what stands before them: where that has changed, they leave (guarantee §10.10). An answer is
stored with the digest of the prompt that its thoughts were made under. They are forwarded as long as the same stands
before them: whatever changes it, be it a window that moves, a result that is reduced, other tools or another model. Of
thoughts that come from a client and were never stored, only the client knows that; they stay as long as nothing before
them is changed here.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.context.assembly.messages import (
    as_upstream_takes,
    has_blocks,
    request_body,
    wants_breakpoints,
    with_breakpoints,
    with_output_limit,
    with_own_files,
    without_items,
)
from gateway.core.formats.anthropic import plain_blocks
from gateway.core.types import items, recall, upstreams
from gateway.core.types.chat import ChatRequest
from gateway.pipeline.stages import PreparedRequest

Json = dict[str, Any]


class GoingUp(NamedTuple):
    """What is forwarded in the words of its deployment's protocol, without marks for caches. `native` is what only that
    says, where it is the request's own; `said` are the messages with the items that other APIs have no words for."""

    messages: list[Json]
    forward: Json
    native: Json | None
    said: list[Json]


def upstream_request(
    prepared: PreparedRequest, headers: dict[str, str], scope: upstreams.CallScope
) -> upstreams.UpstreamRequest:
    """What goes upstream. Providers that want it are told where to cache, and how long the answer may be."""
    request, recall, context = prepared.request, prepared.recall, prepared.context
    deployment, facts, budget = prepared.wire.deployment, prepared.facts, prepared.budget
    messages, forward, native, _ = as_it_goes_up(prepared)
    is_managed = context is not None and request.options.mode != "off"
    if context is not None and is_managed:
        if wants_breakpoints(deployment, facts):
            goes_on = bool(prepared.conversation_id or any(message["role"] == "assistant" for message in messages))
            own = request.native.fields if request.native is not None else {}
            translated = upstreams.PROTOCOLS[deployment.protocol].as_anthropics
            messages = with_breakpoints(messages, {**forward, **own}, goes_on=goes_on, translated=translated)
        forward = with_output_limit(
            forward,
            deployment,
            facts,
            window=budget.context_window,
            prompt=context.fitted.tokens + (recall.tokens if recall is not None else 0) + prepared.surplus,
            reserved=budget.reserved_output,
            refitted=prepared.refused_budget is not None,
        )
    body = request_body(forward, messages, deployment, stream=request.stream, ask_usage=prepared.wire.asks_usage)
    if is_managed:
        body, native = with_possible_thinking(body, native)
    return upstreams.UpstreamRequest(body, native, headers, scope)


def as_it_goes_up(prepared: PreparedRequest) -> GoingUp:
    """What is forwarded, as its upstream takes it. The same each time."""
    request, messages, forward = prepared.request, prepared.messages, prepared.request.forward
    rounds, deployment, context = prepared.recall, prepared.wire.deployment, prepared.context
    if rounds is not None:
        messages, forward = [*messages, *rounds.messages], recall.without_recall(forward) if rounds.closed else forward
    own = context.own if context is not None else prepared.own
    if own.files or own.pictures:
        messages = with_own_files(messages, own)
    as_sent, native = context is None or context.is_as_sent, None
    fields = set[str]().union(*messages)
    if request.native is not None or (not as_sent and has_blocks(messages, fields)):
        tokens = context.fitted.tokens if context is not None else None
        messages, forward, native, cleared = as_upstream_takes(messages, forward, request, deployment, tokens)
        if context is not None:
            context.utilization.without(cleared)
    said = bound_messages(prepared, messages) if items.SIGNED in fields or items.BOUND in fields else messages
    apart = not upstreams.PROTOCOLS[deployment.protocol].takes_items and not fields.isdisjoint(items.RESPONSES_ALONE)
    return GoingUp(without_items(said, request) if apart else said, forward, native, said)


def bound_messages(prepared: PreparedRequest, messages: list[Json]) -> list[Json]:
    """What is forwarded, as it goes up: without thoughts that do not belong where they stand, and without what says
    where they do."""
    if prepared.context is None or not any(map(plain_blocks.is_signed, messages)):
        return [_unmarked(message) if items.BOUND in message else message for message in messages]
    as_told = _as_told(prepared)
    prefix, kept = _prefix(prepared), []
    for message in messages:
        if plain_blocks.is_signed(message):
            bound = message.get(items.BOUND)
            here = prefix.digest
            stays = here == bound if bound is not None else here in as_told
            if not stays:
                message = plain_blocks.without_thoughts(message)
        if items.BOUND in message:
            message = _unmarked(message)
        prefix.add(message)
        kept.append(message)
    return kept


def _unmarked(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != items.BOUND}


def with_binding(answer: Json, prepared: PreparedRequest, said: Iterable[Json]) -> Json:
    """An answer as it is stored: with the digest of what its thoughts are bound to.
    `said`: the messages that it answers, as they went up."""
    if not plain_blocks.is_signed(answer):
        return answer
    prefix = _prefix(prepared)
    for message in said:
        prefix.add(message)
    return {**answer, items.BOUND: prefix.digest}


def with_possible_thinking(body: Json, native: Json | None) -> tuple[Json, Json | None]:
    """A body, and what stands beside it in words of its own API, with thinking left out where the provider would refuse
    it: in the middle of a tool loop whose last step has no thought, as it left, or as another model took that step."""
    asked = [fields["thinking"] for fields in (body, native or {}) if "thinking" in fields]
    if not (any(map(plain_blocks.is_enabled, asked)) and plain_blocks.lacks_thoughts(body["messages"])):
        return body, native
    return plain_blocks.without_thinking(body), plain_blocks.without_thinking(native) if native is not None else None


def _as_told(prepared: PreparedRequest) -> set[str]:
    """The digests before thoughts of which it is not known what they are bound to, where all stands as it was told."""
    history, request = prepared.history, prepared.request
    if history is not None and history.unread:
        return set()
    told: Iterable[Json] = request.messages
    if history is not None and history.messages:
        told = (*history.instructions, *(message.body for message in history.messages))
    prefix, found = _prefix(prepared), set()
    for message in told:
        if plain_blocks.is_signed(message):
            found.add(prefix.digest)
        prefix.add(message)
    return found


def _prefix(prepared: PreparedRequest) -> plain_blocks.PromptDigest:
    return plain_blocks.PromptDigest(prepared.wire.deployment.provider_model, _tools(prepared.request))


def _tools(request: ChatRequest) -> list[Any]:
    own = request.native.fields.get("tools") if request.native is not None else None
    return [*(request.forward.get("tools") or ()), *(own if isinstance(own, list) else ())]
