"""The rounds in which a model reads what its window leaves out, within one request (guarantee §10.11)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gateway.config.settings import ContextSettings
from gateway.context.manager import ContextManager, PlannerAccess
from gateway.context.recalling import Window
from gateway.models.exchange import ChatRequest, Deployment, JsonAnswer, ModelFacts
from gateway.models.recall import RecallRounds, is_recall, may_be_offered, recalls_of, with_recall, without_recalls
from gateway.telemetry.logs import get_logger
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange, Outcome
from gateway.turn.settlement import Settlement
from gateway.window.budget import Budget

log = get_logger("gateway.turn.recall")
LEAST_BUDGET = 3000
"""In a smaller one the tool and its room take more than it brings (docs/performance.md)."""
ROOM_DIVISOR = 4
"""Of the budget, rounds may take so much at most."""
ROUND_SHARE = 2 / 3
"""Of the room that is left, what a round may take which is not the last."""
ROUND_TOKENS = 400
"""What it may take in any case, as far as there is room: two paragraphs."""
LEAST_TOKENS = 60
"""Room that each answer to a call has at the least."""
MOST_CALLS = 4
"""Calls of one round that are answered; to further ones the model is told that they are too many."""
FRAME_TOKENS = 12
"""Of a message that answers a call, beside its text: more than any provider's."""
TOO_MANY = "Too many calls at once."
SHOWN_CHARS = 600
"""Text of a round that is longer is a part of the answer: a stream has shown it before the round called anything."""
PARTED = "\n\n"
"""Between the text of two rounds."""


def offered(
    request: ChatRequest, deployment: Deployment, facts: ModelFacts, budget: Budget, settings: ContextSettings
) -> tuple[ChatRequest, Budget, RecallRounds | None]:
    """The request with the tool, and the budget that its rounds leave; both as they are where it cannot have the
    tool."""
    if budget.tokens is None or budget.tokens < LEAST_BUDGET or "tools" in deployment.parameters:
        return request, budget, None
    room = min(settings.recall_max_tokens, budget.tokens // ROOM_DIVISOR)
    is_priced = {"input_cost_per_token", "output_cost_per_token"} <= facts.prices.keys()
    unbounded = settings.recall_max_cost is not None and not is_priced
    if unbounded or room < LEAST_TOKENS or not may_be_offered(request.forward, request.choices):
        return request, budget, None
    request = replace(request, forward=with_recall(request.forward))
    return request, replace(budget, tokens=budget.tokens - room), RecallRounds(room, settings.recall_rounds)


class Recaller:
    """Answers calls of the tool."""

    def __init__(
        self,
        context: ContextManager,
        counters: CounterRegistry,
        settlement: Settlement,
        settings: ContextSettings,
    ) -> None:
        self._context = context
        self._counters = counters
        self._settlement = settlement
        self._settings = settings

    async def answered(
        self, exchange: Exchange, answer: JsonAnswer, again: Callable[[], Awaitable[JsonAnswer]]
    ) -> JsonAnswer:
        """The answer without calls of the tool, after as many rounds as it takes; `again` asks the model anew."""
        before = ""
        while (choice := _calling(answer.body)) is not None:
            if not await self.run(exchange, answer.body):
                others = answer.body["choices"][1:]
                answer = JsonAnswer({**answer.body, "choices": [without_recalls(choice), *others]}, answer.headers)
                break
            text = choice["message"].get("content")
            if isinstance(text, str) and len(text) > SHOWN_CHARS:
                before += text + PARTED
            answer = await again()
        return _behind(before, answer) if before else answer

    async def run(self, exchange: Exchange, completion: Mapping[str, Any]) -> bool:
        """Answers the calls of the tool in an answer, so that the model can be asked again; False where this answer is
        the last: it calls tools of the client's, or the bounds are reached."""
        rounds, choice = exchange.recall, _calling(completion)
        if rounds is None or choice is None or rounds.closed:
            return False
        message = {"role": "assistant", **choice["message"]}
        calls = recalls_of(message)
        if len(calls) < len(message["tool_calls"]) or not all(isinstance(call.get("id"), str) for call in calls):
            return False
        counter = self._counters.counter(exchange.facts)
        free = rounds.room - rounds.tokens - counter.message(message)
        usage = completion.get("usage")
        outcome = Outcome("complete", dict(completion), usage if isinstance(usage, dict) else None)
        await self._settlement.settle_round(exchange, rounds, outcome)
        rounds.left -= 1
        if free < LEAST_TOKENS * len(calls):  # what it said has no room itself: it is asked as if it had not
            rounds.closed = True
            return True
        most = free if rounds.left < 1 else max(int(free * ROUND_SHARE), min(free, ROUND_TOKENS))
        results: list[dict[str, Any]] = []
        for number, call in enumerate(calls):
            least = LEAST_TOKENS * (len(calls) - number - 1)
            text = TOO_MANY if number >= MOST_CALLS else await self._told(exchange, call, results, most - least)
            results.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            added = counter.message(results[-1])
            free, most = free - added, most - added
        rounds.messages += [message, *results]
        rounds.tokens = rounds.room - free
        rounds.closed = rounds.left < 1 or free < LEAST_TOKENS or self._is_spent(rounds)
        return True

    async def _told(self, exchange: Exchange, call: dict[str, Any], results: list[dict[str, Any]], room: int) -> str:
        """What a call is answered. A fault of ours is told the model; it costs quality, never the answer."""
        built, history = exchange.built, exchange.history
        if built is None or built.material is None or history is None:
            return "Nothing is left out."
        shown = [*exchange.messages, *exchange.rounds, *results]
        window = Window(
            built.material, built.fitted, exchange.facts, exchange.budget, shown, max(0, room - FRAME_TOKENS)
        )
        try:
            access = PlannerAccess(exchange.deployment)
            return await self._context.told(exchange.request, history, window, call, access)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with the tool, the model answers without it
            log.fault("recall_failed", fault, request_id=exchange.request.request_id)
            return "Reading failed. Answer with what is here."

    def _is_spent(self, rounds: RecallRounds) -> bool:
        most = self._settings.recall_max_cost
        spent = [call.total for call in rounds.paid]
        return most is not None and (None in spent or sum((each or Decimal(0) for each in spent), Decimal(0)) >= most)


def _calling(completion: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first choice, where it calls the tool."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    is_calling = isinstance(calls, list) and any(map(is_recall, calls))
    return choice if is_calling and isinstance(choice, dict) else None


def _behind(before: str, answer: JsonAnswer) -> JsonAnswer:
    """The answer with what earlier rounds said in front."""
    choices = answer.body.get("choices") or [{}]
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return answer
    text = message.get("content")
    whole = before + text if isinstance(text, str) else before.removesuffix(PARTED)
    first = {**choices[0], "message": {**message, "content": whole}}
    return JsonAnswer({**answer.body, "choices": [first, *choices[1:]]}, answer.headers)
