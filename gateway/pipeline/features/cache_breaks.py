"""Compares what a provider read from its cache with what it was sent before (guarantee §6.11)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.billing import prompt_cache
from gateway.core import jsons
from gateway.core.bounded_cache import BoundedCache
from gateway.core.instrumentation import logs
from gateway.core.tasks import offload_if
from gateway.core.types import bill
from gateway.pipeline.stages import PreparedRequest, RequestFeature, SettledRequest

log = logs.get_logger("gateway.pipeline.features.cache_breaks")
MAX_LATEST_PROMPTS = 4096
"""Conversations whose latest prompt this process knows, on any branch."""
LARGE_PROMPT_BYTES = 2**20
"""The digests of a larger prompt are computed in a thread."""
SMALLEST_CACHED_PROMPT = 512
"""Tokens below which no known provider caches a prompt at all without saying so."""


class CacheBreaks:
    """Remembers the last prompt of each conversation that this process answered. Other branches record theirs with
    their latest answer."""

    def __init__(self) -> None:
        self._latest: BoundedCache[str, tuple[str, bill.SentPrompt]] = BoundedCache(MAX_LATEST_PROMPTS)

    def build(self) -> RequestFeature:
        return RequestFeature(on_bill=self._with_cache_figures)

    async def _with_cache_figures(self, settled: SettledRequest) -> SettledRequest:
        prepared, costs = settled.attempted.prepared, settled.costs
        usage = next((call.usage for call in settled.calls if call.purpose == "primary"), {})
        reads = bill.reported_counts(usage, reads=True)
        if costs is None or not reads or settled.attempted.outcome.status == "failed":
            return settled
        try:
            before, kept = self._before(prepared), _kept(usage)
            is_cached = kept or (before is not None and before[1].kept)
            if not is_cached and bill.figure(usage, "prompt_tokens") < SMALLEST_CACHED_PROMPT:
                self._latest.pop(prepared.conversation_id or "")
                return settled  # no provider has anything of it to read next time
            sent = await offload_if(prepared.prompt_bytes >= LARGE_PROMPT_BYTES, _sent, prepared, kept)
            if prepared.conversation_id is not None:
                self._latest.put(prepared.conversation_id, (prepared.request.model, sent))
        except Exception as fault:  # noqa: BLE001 - a fault costs the report on the cache, not the answer
            log.fault("cache_break_not_told", fault, request_id=prepared.request.request_id)
            return settled
        settled = replace(settled, costs=replace(costs, sent=sent))
        cached, _ = bill.cache_tokens(usage)
        if before is None or not prompt_cache.fell_short(before[1].kept, cached) or _ends_early(before[1], sent):
            return settled
        at = prompt_cache.broke_at(before[1], sent, is_same_model=before[0] == prepared.request.model)
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


def _sent(prepared: PreparedRequest, kept: int) -> bill.SentPrompt:
    """Returns what a request forwarded."""
    request = prepared.request
    sent = prompt_cache.sent_prompt(prepared.wire.deployment.route, prompt_cache.tools_of(request), prepared.messages)
    lifetime = prompt_cache.cache_lifetime(request, prepared.facts.prices, prepared.messages).total_seconds()
    return replace(sent, at=int(request.arrived_at.timestamp()), lifetime=int(lifetime), kept=kept)
