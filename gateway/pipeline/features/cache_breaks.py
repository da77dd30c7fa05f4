"""Compares what a request forwarded with what its conversation forwarded before, and with what its provider then read
from its cache (guarantees §4 I7, §6.11)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.billing import prompt_cache
from gateway.conversations import rebuild
from gateway.core import jsons
from gateway.core.bounded_cache import BoundedCache
from gateway.core.instrumentation import logs
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.tasks import offload_if
from gateway.core.types import bill, chain, conversation, window
from gateway.core.types.prompt_digests import BYTES_EACH, PromptDigests
from gateway.inspection import prefix
from gateway.pipeline.stages import PreparedRequest, RequestFeature, SettledRequest

log = logs.get_logger("gateway.pipeline.features.cache_breaks")
MAX_LATEST_PROMPTS = 4096
"""Conversations whose latest prompt this process knows, on any branch."""
LARGE_PROMPT_BYTES = 2**20
"""The digests of a larger prompt are computed in a thread."""
SMALLEST_CACHED_PROMPT = 512
"""Tokens below which no known provider caches a prompt at all without saying so."""
BRANCHED = "branched"
"""The client has changed an earlier message, or continues from one."""
MAX_KEPT_BYTES = 6 * 2**20
"""Bytes of digests that are cached; beyond that those of the least recently used conversations are dropped."""
MAX_ENDS = 64
"""Latest messages after which the previous request may have ended."""
PromptKey = tuple[Any, ...]


class CacheBreaks:
    """Remembers the last prompt of each conversation that this process answered. Other branches record theirs with
    their latest answer."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._prefixes = PromptPrefixes()
        self._latest: BoundedCache[str, tuple[str, bill.SentPrompt]] = BoundedCache(MAX_LATEST_PROMPTS)

    def build(self) -> RequestFeature:
        return RequestFeature(on_bill=self._compared)

    async def _compared(self, settled: SettledRequest) -> SettledRequest:
        prepared = settled.attempted.prepared
        if settled.attempted.outcome.status == "failed":
            return settled
        usage = next((call.usage for call in settled.calls if call.purpose == "primary"), {})
        is_read = settled.costs is not None and bool(bill.reported_counts(usage, reads=True))
        try:
            keys = _prefix_keys(prepared)
            if not keys and not is_read:
                return settled
            messages = prepared.messages
            is_large = prepared.prompt_bytes >= LARGE_PROMPT_BYTES
            digests = await offload_if(is_large, _prompt_digests, prepared, messages)
            if keys and (reason := self._prefixes.broken(prepared, keys, messages, digests)) is not None:
                self._metrics.prefix_broken(prepared.asked.model, reason)
            return self._with_cache_figures(settled, usage, messages, digests) if is_read else settled
        except Exception as fault:  # noqa: BLE001 - a fault costs the report on the cache, not the answer
            log.fault("cache_break_not_told", fault, request_id=prepared.request.request_id)
            return settled

    def _with_cache_figures(
        self,
        settled: SettledRequest,
        usage: Mapping[str, Any],
        messages: Sequence[Mapping[str, Any]],
        digests: PromptDigests,
    ) -> SettledRequest:
        prepared, costs = settled.attempted.prepared, settled.costs
        before, kept = self._before(prepared), _kept(usage)
        is_cached = kept or (before is not None and before[1].kept)
        if costs is None or not (is_cached or bill.figure(usage, "prompt_tokens") >= SMALLEST_CACHED_PROMPT):
            self._latest.pop(prepared.conversation_id or "")
            return settled  # no provider has anything of it to read next time
        request = prepared.request
        sent = prompt_cache.sent_prompt(prepared.wire.deployment.route, prompt_cache.tools_of(request), digests)
        marked = [messages[index] for index in digests.marked]
        lifetime = int(prompt_cache.cache_lifetime(request, prepared.facts.prices, marked).total_seconds())
        sent = replace(sent, at=int(request.arrived_at.timestamp()), lifetime=lifetime, kept=kept)
        if prepared.conversation_id is not None:
            self._latest.put(prepared.conversation_id, (request.model, sent))
        settled = replace(settled, costs=replace(costs, sent=sent))
        cached, _ = bill.cache_tokens(usage)
        if before is None or not prompt_cache.fell_short(before[1].kept, cached) or _ends_early(before[1], sent):
            return settled
        at = prompt_cache.broke_at(before[1], sent, is_same_model=before[0] == request.model)
        cache = {"broke_at": at, "promised_tokens": before[1].kept, "cached_tokens": cached}
        metadata = {**settled.metadata, "cache": cache}
        return replace(settled, metadata=metadata, document=jsons.dumps(metadata))

    def _before(self, prepared: PreparedRequest) -> tuple[str, bill.SentPrompt] | None:
        """Returns the model and the prompt of the previous request: the conversation's latest, or else its branch's."""
        known = self._latest.peek(prepared.conversation_id or "")
        of_branch: bill.BranchCosts | None = prepared.history.costs if prepared.history is not None else None
        if of_branch is None or of_branch.sent is None:
            return known
        if known is not None and known[1].at >= of_branch.sent.at:
            return known
        return of_branch.model, of_branch.sent


def _ends_early(before: bill.SentPrompt, sent: bill.SentPrompt) -> bool:
    """Returns whether a prompt is the beginning of the previous one, as when an answer is requested again."""
    if sent.count >= before.count or before.tools != sent.tools:
        return False
    digest = sent.digest_after(sent.count)
    return digest is not None and before.digest_after(sent.count) == digest


def _kept(usage: Mapping[str, Any]) -> int:
    """Returns the tokens of a prompt that its provider has cached now."""
    if bill.reported_counts(usage, reads=False):
        return sum(bill.cache_tokens(usage))
    prompt = bill.figure(usage, "prompt_tokens")
    return prompt if prompt >= prompt_cache.MIN_CACHED_TOKENS else 0


def _prompt_digests(prepared: PreparedRequest, messages: Sequence[Mapping[str, Any]]) -> PromptDigests:
    """Returns the digests of what a request forwarded. Those of the previous one go on if it was the beginning: of what
    a client sent that is known by its bytes, of a cached conversation by its objects."""
    asked, history = prepared.asked, prepared.history
    is_as_sent = conversation.begin_with(asked.messages, messages)
    digests = PromptDigests()
    if is_as_sent and asked.known.sent.count <= len(messages):
        digests = asked.known.sent
    if history is not None:
        beginning, known = history.cache.forwarded or ((), digests)
        if known.count > digests.count and conversation.begin_with(messages, beginning):
            digests = known
        answered = next((at for at in range(len(messages), 0, -1) if messages[at - 1]["role"] == "assistant"), 0)
        digests = digests.followed_by(messages[digests.count : answered])
        history.cache.forwarded = (messages[: digests.count], digests)
    digests = digests.followed_by(messages[digests.count :])
    asked.known.sent = digests if is_as_sent else PromptDigests()
    return digests


class PromptPrefixes:
    """Detects requests that do not begin with what the previous one in their conversation forwarded: from the
    difference on, a provider's prompt cache cannot serve them (guarantee §4 I7).

    Holds the digests of what this process last forwarded of each conversation to each model."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._sent: BoundedCache[PromptKey, bytes] = BoundedCache(max_weight=max_bytes)

    def broken(
        self,
        prepared: PreparedRequest,
        keys: Sequence[PromptKey],
        messages: Sequence[Mapping[str, Any]],
        digests: PromptDigests,
    ) -> str | None:
        """Returns why a request does not begin with what the previous one forwarded; None if it does, or no previous
        one is known. A request that ends earlier, but is the same so far, breaks nothing; nor does a pass after the
        provider's cache has expired.
        `keys`: the request's own first, then those that the previous one may have."""
        sent = digests.each
        before = next((found for key in keys if (found := self._sent.peek(key)) is not None), b"")
        self._sent.put(keys[0], sent, weight=len(sent))
        length = min(len(before), len(sent))
        economy = prepared.context.economy if prepared.context is not None else None
        if before[:length] == sent[:length] or (economy is not None and economy.passed == bill.COLD):
            return None
        same = next(at for at in range(length) if before[at] != sent[at])
        return _why(prepared, messages, same // BYTES_EACH)


def _prefix_keys(prepared: PreparedRequest) -> list[PromptKey]:
    """Returns the key of a request's digests, then those of the previous request: of an unstored conversation, where it
    ended in what its client sends. Chats without an answer could be anybody's."""
    asked = prepared.asked
    if prepared.conversation_id is not None:
        return [(prepared.conversation_id, prepared.request.model)]
    if asked.options.mode == "off" or asked.options.dry_run:
        return []
    said = [message for message in asked.messages if message["role"] not in conversation.INSTRUCTION_ROLES]
    first = next((index for index, message in enumerate(said) if message["role"] == "assistant"), None)
    if first is None:
        return []
    digests, leading = asked.known.digests, len(rebuild.sent_instructions(asked))
    is_known = len(digests) == len(said) == len(asked.messages) - leading  # further instructions are part of that chain
    ends = (digests if is_known else chain.chain_digests(said))[first:][-MAX_ENDS:]
    return [(asked.caller.tenant, prepared.request.model, end.path) for end in reversed(ends)]


def _why(prepared: PreparedRequest, messages: Sequence[Mapping[str, Any]], index: int) -> str:
    """Returns the reason, by the first message that differs."""
    context, history = prepared.context, prepared.history
    if messages[index]["role"] in conversation.INSTRUCTION_ROLES:
        return prefix.SYSTEM_CHANGED
    if context is not None and context.material is not None and context.fitted.new_pass:
        if context.fitted.forwarded.indexes[index] == window.MEMORY_INDEX:
            return prefix.MEMORY_CHANGED
        return (
            prefix.WINDOW_MOVED if context.fitted.selection.first != context.material.frozen_first else prefix.REWORDED
        )
    return prefix.REWORDED if history is None or history.at_head else BRANCHED
