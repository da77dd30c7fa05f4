"""Where a forwarded prompt stops matching that of the request before, and what that cost in prompt cache.

A provider's prompt cache serves the beginning of a prompt that it has seen (guarantee §4 I7). From the first message
that differs on, all that the request before had forwarded is paid for again.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gateway.billing import cost, ledger_verification
from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import bill, past_turns, turn

SYSTEM_CHANGED, WINDOW_MOVED, MEMORY_CHANGED, REWORDED = (
    "system_messages_changed",
    "window_moved",
    "memory_changed",
    "message_reworded",
)
"""Why a prefix ends: the client's system messages changed; something left the window; the memory message changed; a
message was forwarded in another form."""
INPUT, CACHED = "input_cost_per_token", "cache_read_input_token_cost"
Prices = Callable[[], Mapping[str, Decimal]]


@record
class PrefixDivergence:
    """The first message (`index` from 0) that differs from what the request before forwarded there.

    Attributes:
        before, after: that message then and now; None where one request ended.
        message_id: of the message now; None where it is not the conversation's.
        lost_tokens: of the request before, from that message on, estimated by its share of the characters.
        kept_tokens: of the common beginning, estimated likewise.
        cached_tokens: what the provider reported as read from its cache.
        cost: USD more for the lost tokens at the full input price than at the cached one; None if a price is unknown.
        input_rate, cached_rate: USD per token. `is_todays_rate`: the cached rate is on neither bill, but configured
            now.
    """

    previous_request_id: str
    index: int
    why: str
    before: Json | None
    after: Json | None
    message_id: str | None
    lost_tokens: int
    kept_tokens: int
    cached_tokens: int
    cost: Decimal | None
    input_rate: Decimal | None
    cached_rate: Decimal | None
    is_todays_rate: bool = False


def divergence(
    previous: tuple[turn.LedgerEntry, past_turns.SentMessages],
    current: tuple[turn.LedgerEntry, past_turns.SentMessages],
    prices: Prices | None = None,
) -> PrefixDivergence | None:
    """Finds where the current request's messages stop matching those of the previous one; None where they never do, or
    where either request is not known exactly.
    `prices`: returns the model's current prices, for rates that are on neither bill."""
    (entry_before, sent_before), (entry, sent) = previous, current
    old, new = sent_before.messages, sent.messages
    if old is None or new is None or not (sent_before.is_exact and sent.is_exact):
        return None
    index = next((i for i, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), len(new))
    if index >= len(old):
        return None
    kept, lost = _tokens(entry_before, old, index)
    cached = bill.cache_tokens(_primary_usage(entry))[0]
    rate = _rate(INPUT, entry, entry_before)
    cheaper = _rate(CACHED, entry, entry_before)
    todays = cheaper is None and prices is not None
    if cheaper is None and prices is not None:
        cheaper = prices().get(CACHED)
    return PrefixDivergence(
        entry_before.request_id,
        index,
        _why(sent_before, sent, index),
        old[index],
        new[index] if index < len(new) else None,
        _name(sent, index),
        lost,
        kept,
        cached,
        cost.rounded((rate - cheaper) * lost) if rate is not None and cheaper is not None else None,
        rate,
        cheaper,
        todays and cheaper is not None,
    )


def _why(before: past_turns.SentMessages, after: past_turns.SentMessages, index: int) -> str:
    names = (before.names[index], after.names[index] if index < len(after.names) else None)
    if past_turns.INSTRUCTION in names:
        return SYSTEM_CHANGED
    if past_turns.MEMORY in names:
        return MEMORY_CHANGED
    return REWORDED if names[0] == names[1] else WINDOW_MOVED


def _name(sent: past_turns.SentMessages, index: int) -> str | None:
    name = sent.names[index] if index < len(sent.names) else None
    return None if name in (past_turns.INSTRUCTION, past_turns.MEMORY) else name


def _tokens(entry: turn.LedgerEntry, messages: list[Json], index: int) -> tuple[int, int]:
    """Estimates the tokens of the prompt before and from a message on, by their shares of the bytes; tools, which come
    first, and the like count in the former."""
    sizes = [len(jsons.dumps(message)) for message in messages]
    prompt = bill.usage_of(_primary_usage(entry)).prompt_tokens
    breakdown = (entry.metadata.get("context_utilization") or {}).get("breakdown") or {}
    tools = min(prompt, int(breakdown.get("tools") or 0))
    lost = round((prompt - tools) * sum(sizes[index:]) / max(1, sum(sizes)))
    return prompt - lost, lost


def _primary_usage(entry: turn.LedgerEntry) -> Mapping[str, Any]:
    return next((call.usage for call in entry.calls if call.purpose == "primary"), {})


def _rate(name: str, *entries: turn.LedgerEntry) -> Decimal | None:
    """Returns a rate stored with the primary model's call of the first entry that has it."""
    for entry in entries:
        for call in entry.calls:
            if call.purpose == "primary" and name in ledger_verification.repriced(call).rates:
                return Decimal(ledger_verification.repriced(call).rates[name])
    return None
