"""Signed thoughts depend on what stands before them: where that has changed, they leave (guarantee §10.10).

An answer is stored with the digest of the prompt that its thoughts were made under. They are forwarded as long as the
same stands before them: whatever changes it, be it a window that moves, a result that is reduced, other tools or
another model. Of thoughts that come from a client and were never stored, only the client knows that; they stay as long
as nothing before them is changed here.
"""

from collections.abc import Iterable
from typing import Any

from gateway.models.exchange import ChatRequest
from gateway.models.items import BOUND
from gateway.turn.exchange import Exchange
from gateway.wire.anthropic.binding import (
    Prefix,
    is_enabled,
    is_signed,
    lacks_thoughts,
    without_thinking,
    without_thoughts,
)

Json = dict[str, Any]


def bound_messages(exchange: Exchange, messages: list[Json]) -> list[Json]:
    """What is forwarded, as it goes up: without thoughts that do not belong where they stand, and without what says
    where they do."""
    if exchange.built is None or not any(map(is_signed, messages)):
        return [_unmarked(message) if BOUND in message else message for message in messages]
    as_told = _as_told(exchange)
    prefix, kept = _prefix(exchange), []
    for message in messages:
        if is_signed(message):
            bound = message.get(BOUND)
            here = prefix.digest
            stays = here == bound if bound is not None else here in as_told
            if not stays:
                message = without_thoughts(message)
        if BOUND in message:
            message = _unmarked(message)
        prefix.add(message)
        kept.append(message)
    return kept


def _unmarked(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != BOUND}


def with_binding(answer: Json, exchange: Exchange) -> Json:
    """An answer as it is stored: with the digest of what its thoughts are bound to."""
    if not is_signed(answer) or exchange.sent is None:
        return answer
    return {**answer, BOUND: _end(exchange, exchange.sent)}


def with_possible_thinking(body: Json, native: Json | None) -> tuple[Json, Json | None]:
    """A body, and what stands beside it in words of its own API, with thinking left out where the provider would refuse
    it: in the middle of a tool loop whose last step has no thought, as it left, or as another model took that step."""
    asked = [fields.get("thinking") for fields in (body, native or {})]
    if not (any(map(is_enabled, asked)) and lacks_thoughts(body["messages"])):
        return body, native
    return without_thinking(body), without_thinking(native) if native is not None else None


def _as_told(exchange: Exchange) -> set[str]:
    """The digests before thoughts of which it is not known what they are bound to, where all stands as it was told."""
    history, request = exchange.history, exchange.request
    if history is not None and history.unread:
        return set()
    told: Iterable[Json] = request.messages
    if history is not None and history.messages:
        told = (*history.instructions, *(message.body for message in history.messages))
    prefix, found = _prefix(exchange), set()
    for message in told:
        if is_signed(message):
            found.add(prefix.digest)
        prefix.add(message)
    return found


def _end(exchange: Exchange, messages: Iterable[Json]) -> str:
    prefix = _prefix(exchange)
    for message in messages:
        prefix.add(message)
    return prefix.digest


def _prefix(exchange: Exchange) -> Prefix:
    return Prefix(exchange.deployment.provider_model, _tools(exchange.request))


def _tools(request: ChatRequest) -> list[Any]:
    own = request.native.fields.get("tools") if request.native is not None else None
    return [*(request.forward.get("tools") or ()), *(own if isinstance(own, list) else ())]
