"""The usage of an exchange: as upstream reported it, else counted here (guarantee §6)."""

import asyncio
from dataclasses import replace
from typing import Any

from gateway.accounting.cost import price_call, usage_of
from gateway.base.tasks import BackgroundTasks
from gateway.models.bill import FAILED_TRY, CallCost
from gateway.models.calibration import Report
from gateway.models.exchange import ModelFacts
from gateway.models.usage import cache_tokens, is_figure
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange, Outcome
from gateway.window.counting import MEDIA, REPLY_TOKENS


class UsageCount:
    """Counts what upstream did not report, and calibrates counts by what it did report."""

    def __init__(self, counters: CounterRegistry) -> None:
        self._counters = counters
        self._tasks = BackgroundTasks()

    async def of(self, exchange: Exchange, outcome: Outcome) -> tuple[dict[str, Any], bool]:
        """The usage, and whether it was counted here because upstream did not report it."""
        if not outcome.charged:
            return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, False
        reported = outcome.usage or {}
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        answered = is_figure(completion) and (completion or not _says(outcome.completion))
        if is_figure(prompt) and prompt and answered:
            self._learn(exchange, prompt, cached=sum(cache_tokens(reported)))
            return reported, False
        # It loads a vocabulary at first, and an answer may be long: streams of other requests must not wait for that.
        return await asyncio.to_thread(self._counted, exchange, outcome, reported), True

    async def priced(self, exchange: Exchange, outcome: Outcome) -> tuple[dict[str, Any], CallCost]:
        """The usage of a call of the primary model, and the call priced by it."""
        usage, estimated = await self.of(exchange, outcome)
        tier = (outcome.completion or {}).get("service_tier")
        known = {**usage, "service_tier": tier} if isinstance(tier, str) else usage
        model = exchange.deployment.route
        return usage, price_call("primary", model, known, exchange.facts.prices, estimated=estimated)

    async def of_failure(self, exchange: Exchange) -> CallCost:
        """A call that failed and may have been charged, as the gateway counts it; another call follows."""
        return replace((await self.priced(exchange, Outcome("failed")))[1], purpose=FAILED_TRY)

    def learn_refusal(self, exchange: Exchange) -> None:
        """Learns that a prompt has more tokens than the budget, however few were counted: upstream refused it twice.
        Errors often name no figures, or those of prompt and answer together."""
        if exchange.refused_budget is not None and exchange.refused_budget.tokens is not None:
            self._learn(exchange, exchange.refused_budget.tokens + 1, cached=0)

    def _learn(self, exchange: Exchange, reported: int, *, cached: int) -> None:
        """Calibrates by prompts that were counted exactly and hold text alone: pictures are counted by formulas. More
        than was counted cannot be without the cached tokens, where the model's own tokenizer counted."""
        built, budget = exchange.built, exchange.budget.tokens
        if exchange.surplus:  # what was sent is not what was counted
            return
        if built is None or budget is None or exchange.rounds or built.utilization.cleared:
            return
        forward = exchange.request.forward
        has_tools = any(forward.get(name) for name in ("tools", "functions", "response_format"))
        if not built.fitted.exact:
            is_plain = not (has_tools or cached or exchange.refused_budget)
            if is_plain and self._counters.takes_small(exchange.facts, built.fitted.forwarded.messages):
                messages = exchange.messages
                report = Report(0, reported, budget, exchange.budget.context_window, messages=len(messages))
                self._tasks.start(self._learn_small(exchange.facts, report, messages))
            return
        if built.counting is None or any(map(_has_media, exchange.messages)):
            return
        calls = sum(len(message.get("tool_calls") or ()) for message in exchange.messages)
        number = len(exchange.messages)
        tokens = built.fitted.tokens - built.counting.added_per_message * number
        counted = round(tokens / built.counting.margin) + built.counting.saved_per_call * calls
        report = Report(
            counted,
            reported,
            budget,
            exchange.budget.context_window,
            cached=cached > 0 and not (built.counting.is_own and reported + cached > counted),
            refused=exchange.refused_budget is not None,
            messages=number,
            calls=calls,
            has_tools=has_tools,
        )
        self._counters.learn(exchange.facts, report)

    async def _learn_small(self, facts: ModelFacts, report: Report, messages: list[dict[str, Any]]) -> None:
        """Calibrates by a small prompt that surely fitted, so that nobody has counted it. Nothing waits for that: it
        shows what upstream adds to each message, for prompts that are to come."""

        def counted() -> int:
            counter = self._counters.counter(facts)
            return REPLY_TOKENS + sum(counter.plain(message) or 0 for message in messages)

        report = replace(report, counted=await asyncio.to_thread(counted))
        if not report.is_large:
            self._counters.learn(facts, report)

    def _counted(self, exchange: Exchange, outcome: Outcome, reported: dict[str, Any]) -> dict[str, Any]:
        """Usage with what upstream did not report counted here; nothing of a prompt, or of an answer that says
        something, is no report."""
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if not (is_figure(prompt) and prompt):
            prompt = self.prompt_tokens(exchange)
        if not (is_figure(completion) and completion):
            said = outcome.completion or {}
            if exchange.heard is not None:  # a round, or several of which all but the last are paid
                said = exchange.heard.completion()
            completion = self._completion_tokens(exchange, said)
        total = usage_of({"prompt_tokens": prompt, "completion_tokens": completion}).total_tokens
        figures = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        return {**reported, **figures}

    def _completion_tokens(self, exchange: Exchange, completion: dict[str, Any]) -> int:
        counter = self._counters.counter(exchange.facts)
        messages = [choice.get("message") or {} for choice in completion.get("choices", ())]
        return sum(max(0, counter.message(message) - counter.message({})) for message in messages)

    def prompt_tokens(self, exchange: Exchange) -> int:
        """Tokens of what is forwarded, as the gateway counts them."""
        counter = self._counters.counter(exchange.facts)
        further = sum(counter.message(message) for message in exchange.rounds)
        if exchange.built is not None and exchange.built.fitted.exact:
            return exchange.built.fitted.tokens + exchange.surplus + further
        tools = counter.tools(exchange.request.forward)
        return (
            REPLY_TOKENS
            + tools
            + exchange.surplus
            + further
            + sum(counter.message(message) for message in exchange.messages)
        )


def _says(completion: dict[str, Any] | None) -> bool:
    """Whether an answer has anything in it."""
    messages = [choice.get("message") or {} for choice in (completion or {}).get("choices") or ()]
    return any(value for message in messages for name, value in message.items() if name != "role")


def _has_media(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") in MEDIA for p in content)
