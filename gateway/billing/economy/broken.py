"""Why a provider read less from its prompt cache than what was forwarded before promises (guarantee §6.11).

What a request forwarded is kept as digests with the sums of its branch: of its tools, of its system messages, and of
each of its latest messages with all before it. So no history is walked, and any replica can tell.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.types import bill, conversation, items

MAX_MESSAGES = 256
"""Messages, the latest, that have a digest of their own."""
BREAK_DIGEST_BYTES = 6
"""Bytes of the digests of tools and of system messages."""
BLOCK = 256
SLACK_DIVISOR = 50
"""Providers cache in blocks and count by themselves: so many tokens less, or such a part, is no break."""
MIN_CACHED_TOKENS = 4096
"""Tokens of a prompt from which on any provider keeps it that has a prompt cache and does not say what it kept."""
TOOLS, SYSTEM, MODEL, TTL, PROVIDER = "tools", "system", "model", "ttl", "provider"


def sent_prompt(route: str, tools: Sequence[Any], messages: Sequence[Mapping[str, Any]]) -> bill.SentPrompt:
    """The digests of a prompt. Marks of prompt caches, which move on, are no part of it."""
    running = hashlib.blake2b(digest_size=BREAK_DIGEST_BYTES)
    system, digests = running.hexdigest(), []
    is_head = True
    for message in messages:
        running.update(jsons.canonical(unmarked(message)))
        digests.append(running.digest()[: bill.DIGEST_BYTES_EACH])
        is_head = is_head and message["role"] in conversation.INSTRUCTION_ROLES
        if is_head:
            system = running.hexdigest()
    latest = digests[-MAX_MESSAGES:]
    plain = jsons.canonical([_unmarked(tool) for tool in tools])
    told = hashlib.blake2b(plain, digest_size=BREAK_DIGEST_BYTES).hexdigest()
    return bill.SentPrompt(route, told, system, len(digests) - len(latest), b"".join(latest))


def broke_at(before: bill.SentPrompt, now: bill.SentPrompt, *, is_same_model: bool) -> str:
    """What changed since a request whose prompt the provider did not read from its cache: `model` (or where it is
    asked), `ttl` (the cache had expired, whatever else changed), `tools`, `system`, `message N` (from 1, of those that
    were forwarded), or `provider` (nothing did)."""
    if not is_same_model or before.route != now.route:
        return MODEL
    if now.at - before.at > before.lifetime:
        return TTL
    if before.tools != now.tools:
        return TOOLS
    if before.system != now.system:
        return SYSTEM
    for count in range(1 + max(before.first, now.first), before.count + 1):
        if before.digest_after(count) != now.digest_after(count):
            return f"message {count}"
    return PROVIDER


def fell_short(promised: int, cached: int) -> bool:
    """Whether a provider read clearly less than it had in its cache."""
    return cached < promised - max(BLOCK, promised // SLACK_DIVISOR)


def unmarked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message in one form, however its client marks it for prompt caches: one text is in parts for a mark alone."""
    content = message.get("content")
    if not isinstance(content, list) and items.BREAKPOINT not in message:
        return message
    plain = {name: value for name, value in message.items() if name != items.BREAKPOINT}
    if isinstance(content, list):
        parts = [_unmarked(part) for part in content]
        is_text = len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
        plain["content"] = parts[0]["text"] if is_text else parts
    return plain


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict) and items.BREAKPOINT in value:
        return {name: each for name, each in value.items() if name != items.BREAKPOINT}
    return value
