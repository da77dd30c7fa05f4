"""Requests that do not begin with what the one before in their conversation forwarded: from there on a provider's
prompt cache is of no use to them (guarantee §4 I7)."""

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from threading import Lock
from typing import Any

from gateway.assembly.cache_breakpoints import BREAKPOINT
from gateway.base import jsons
from gateway.explain.prefix import MEMORY_CHANGED, REWORDED, SYSTEM_CHANGED, WINDOW_MOVED
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.window import MEMORY_INDEX
from gateway.turn.exchange import Exchange
from gateway.turn.ranges import plain_parts

BRANCHED = "branched"
"""The client has changed an earlier message, or goes on from one."""
MARK = f'"{BREAKPOINT}"'.encode()
MAX_KEPT = 2**20
"""Digests, of 8 bytes each, that are kept; then those of conversations that were not asked for longest are dropped."""
MAX_ENDS = 64
"""Messages, the latest, behind which the request before may have ended."""


class Prefixes:
    """What this process forwarded last of each conversation to each model, as a digest of each message and all before
    it; the digests are of this process alone."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most, self._kept = most, 0
        self._sent: OrderedDict[tuple[Hashable, ...], array[int]] = OrderedDict()
        self._lock = Lock()

    def broken(self, exchange: Exchange) -> str | None:
        """Why a request does not begin with what the one before it forwarded; None if it does, or nothing is known of
        one. A request that ends earlier than that, and is the same so far, breaks nothing."""
        names = _names(exchange)
        if not names:
            return None
        messages, sent = exchange.messages, array("q", digests(exchange.messages))
        with self._lock:
            before = next((found for name in names if (found := self._sent.get(name)) is not None), array("q"))
            self._kept += len(sent) - len(self._sent.pop(names[0], ()))
            self._sent[names[0]] = sent
            while self._kept > self._most and len(self._sent) > 1:
                self._kept -= len(self._sent.popitem(last=False)[1])
        pairs = zip(before, sent, strict=False)
        index = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
        return None if index is None else _why(exchange, messages, index)


def _names(exchange: Exchange) -> list[tuple[Hashable, ...]]:
    """What a request's messages are kept under, and then what those of the one before may be: of a conversation that is
    not stored, where in what its client sends it ended. Chats that have no answer yet may be anybody's."""
    asked = exchange.asked
    if exchange.conversation_id is not None:
        return [(exchange.conversation_id, exchange.request.model)]
    if asked.options.mode == "off" or asked.options.dry_run:
        return []
    said = [message for message in asked.messages if message["role"] not in INSTRUCTION_ROLES]
    first = next((index for index, message in enumerate(said) if message["role"] == "assistant"), len(said))
    ends = digests(said)[first:][-MAX_ENDS:]
    return [(asked.caller.tenant, exchange.request.model, end) for end in reversed(ends)]


def digests(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Of each message with all before it. Breakpoints of prompt caches, which move on, are no part of a message."""
    found, last = [], 0
    for message in messages:
        try:
            said: Hashable = hash(frozenset(message.items()))  # texts know their hashes
        except TypeError:  # parts or calls
            said = _nested(message)
        last = hash((last, said))
        found.append(last)
    return found


def _nested(message: Mapping[str, Any]) -> bytes:
    raw = jsons.canonical(message)
    if MARK not in raw:
        return raw
    plain = {name: value for name, value in message.items() if name != BREAKPOINT}
    return jsons.canonical({**plain, "content": plain_parts(message.get("content"))})


def _why(exchange: Exchange, messages: Sequence[Mapping[str, Any]], index: int) -> str:
    """The reason, by the first message that is another."""
    built, history = exchange.built, exchange.history
    if messages[index]["role"] in INSTRUCTION_ROLES:
        return SYSTEM_CHANGED
    if built is not None and built.material is not None and built.fitted.new_pass:
        if built.fitted.forwarded.indexes[index] == MEMORY_INDEX:
            return MEMORY_CHANGED
        return WINDOW_MOVED if built.fitted.selection.first != built.material.frozen_first else REWORDED
    return REWORDED if history is None or history.at_head else BRANCHED
