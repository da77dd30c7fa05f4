"""The usage of an exchange: as upstream reported it, else counted by the gateway (contract §6)."""

import asyncio
from typing import Any

from gateway.accounting.cost import is_figure, usage_of
from gateway.exchange import Exchange, Outcome
from gateway.fitting.count import REPLY_TOKENS
from gateway.ports import TokenCounters


class UsageCount:
    """Counts what was not reported, and learns from what was."""

    def __init__(self, counters: TokenCounters) -> None:
        self._counters = counters

    async def of(self, exchange: Exchange, outcome: Outcome) -> tuple[dict[str, Any], bool]:
        """Usage as reported, and calibration by it; else counted by the gateway (True)."""
        if not outcome.charged:
            return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, False
        reported = outcome.usage or {}
        if is_figure(reported.get("prompt_tokens")) and is_figure(reported.get("completion_tokens")):
            fitted = exchange.built.fitted if exchange.built else None
            if fitted is not None and fitted.exact:
                self._counters.learn(exchange.facts, fitted.tokens, reported["prompt_tokens"])
            return reported, False
        # It loads a vocabulary at first, and an answer may be long: streams of other requests must not wait for that.
        return await asyncio.to_thread(self._counted, exchange, outcome, reported), True

    def _counted(self, exchange: Exchange, outcome: Outcome, reported: dict[str, Any]) -> dict[str, Any]:
        """Usage with what upstream did not report counted here."""
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if not is_figure(prompt):
            prompt = self.prompt_tokens(exchange)
        if not is_figure(completion):
            completion = self._completion_tokens(exchange, outcome.completion or {})
        total = usage_of({"prompt_tokens": prompt, "completion_tokens": completion}).total_tokens
        figures = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        return {**reported, **figures}

    def _completion_tokens(self, exchange: Exchange, completion: dict[str, Any]) -> int:
        counter = self._counters.counter(exchange.facts)
        messages = [choice.get("message") or {} for choice in completion.get("choices", ())]
        return sum(max(0, counter.message(message) - counter.message({})) for message in messages)

    def prompt_tokens(self, exchange: Exchange) -> int:
        """Tokens of what is forwarded, as the gateway counts them."""
        if exchange.built is not None and exchange.built.fitted.exact:
            return exchange.built.fitted.tokens
        counter = self._counters.counter(exchange.facts)
        tools = counter.tools(exchange.request.forward)
        return REPLY_TOKENS + tools + sum(counter.message(message) for message in exchange.messages)
