"""Calls planner and summarizer, limited in tokens, money and time, and bills the calls (guarantee §5, §6)."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from pydantic_core import from_json

from gateway.billing import cost
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.tokens.model_margins import MAX_REMEMBERED_MODELS
from gateway.context.window.counting import REPLY_TOKENS
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.settings import ContextSettings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import Cooldown
from gateway.core.types import agents, bill, upstreams
from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.core.types.content_parts import dicts_of, texts_of


@dataclass(slots=True)
class CallBudget:
    """A budget that is never exceeded: each call reserves its worst case (its whole prompt, and its longest possible
    answer) until its usage is known.

    A model of unknown price is not called if money is limited, since nothing would show that it keeps the limit.
    """

    max_tokens: int | None
    max_cost: Decimal | None
    """In USD."""
    max_seconds: float
    clock: ports.Clock
    _until: float = 0.0
    _used_tokens: int = 0
    _used_cost: Decimal = field(default=Decimal(0))

    @classmethod
    def of(cls, settings: ContextSettings, clock: ports.Clock) -> "CallBudget":
        return cls(settings.planning_max_tokens, settings.planning_max_cost, settings.planning_max_seconds, clock)

    def begin(self) -> None:
        self._until = self.clock.monotonic() + self.max_seconds

    @property
    def seconds(self) -> float:
        """The time left; not below 0."""
        return max(0.0, self._until - self.clock.monotonic())

    def check(self, calls: Sequence[bill.InternalCall]) -> None:
        """Checks that all of these calls may be made; reserves nothing.
        Raises OverBudget: they take more than is left; the message is the `fallback_reason`."""
        tokens, costs = sum(map(_tokens, calls)), [cost.price_internal(call).total for call in calls]
        purpose = calls[0].purpose
        if not self.seconds:
            raise agents.OverBudget(f"{purpose}_over_time_ceiling")
        if self.max_tokens is not None and self._used_tokens + tokens > self.max_tokens:
            raise agents.OverBudget(f"{purpose}_over_token_ceiling")
        if self.max_cost is None:
            return
        if None in costs:
            raise agents.OverBudget(f"{purpose}_price_unknown")
        if self._used_cost + sum(cost or 0 for cost in costs) > self.max_cost:
            raise agents.OverBudget(f"{purpose}_over_cost_ceiling")

    def reserve(self, worst: bill.InternalCall) -> None:
        """Reserves what a call can use at most. Raises: as `check`."""
        self.check([worst])
        self._used_tokens += _tokens(worst)
        self._used_cost += cost.price_internal(worst).total or 0

    def settle(self, worst: bill.InternalCall, call: bill.InternalCall) -> None:
        """Replaces a reservation by what the call used."""
        self._used_tokens += _tokens(call) - _tokens(worst)
        self._used_cost += (cost.price_internal(call).total or 0) - (cost.price_internal(worst).total or 0)


def _tokens(call: bill.InternalCall) -> int:
    return int(call.usage.get("prompt_tokens", 0)) + int(call.usage.get("completion_tokens", 0))


# The body of a call of an internal model, and the text of its answer, in the formats that providers support.

FORMAT_REFUSALS = (400, 404, 415, 422, 501)
"""Statuses with which servers refuse a `response_format`."""
COMPLETION_LIMITED = ("o1", "o3", "o4", "gpt-5")
"""OpenAI's reasoning models accept `max_completion_tokens` only, and no temperature other than their default."""
THINKING_TOKENS = 3000
"""Reasoning tokens of these models, which count as output: several times a plan or a summary."""
CUT_OFF = ("length", "content_filter")
"""Values of `finish_reason` of an answer that the model did not end itself."""


def body_of(
    deployment: ModelDeployment, ask: agents.InternalRequest, response_format: dict[str, Any] | None
) -> dict[str, Any]:
    """Builds the body of a call, with the parameters that the operator configured for the model."""
    body: dict[str, Any] = {"model": deployment.provider_model, "messages": ask.messages}
    if _thinks(deployment):
        body["max_completion_tokens"] = max_answer_tokens(deployment, ask)
    else:
        body |= {"max_tokens": max_answer_tokens(deployment, ask), "temperature": 0}
    if response_format is not None:
        body["response_format"] = response_format
    configured = {k: v for k, v in deployment.parameters.items() if k not in upstreams.OUTPUT_LIMITS}
    return {**configured, **body}


def max_answer_tokens(deployment: ModelDeployment, ask: agents.InternalRequest) -> int:
    """Returns the tokens of the longest answer, including the model's reasoning."""
    return ask.max_tokens + (THINKING_TOKENS if _thinks(deployment) else 0)


def _thinks(deployment: ModelDeployment) -> bool:
    return deployment.provider_model.rpartition("/")[2].startswith(COMPLETION_LIMITED)


def refuses_format(refusal: errors.UpstreamRefused) -> bool:
    """Returns whether upstream refused the response format, so that a simpler format may work."""
    if refusal.status not in FORMAT_REFUSALS:
        return False
    said = str(refusal.original).lower()
    return any(word in said for word in ("response_format", "json_schema", "json_object", "schema"))


def text_of(body: dict[str, Any] | None) -> str:
    """Returns the first choice's text, of all its text parts; empty if there is none. Replaces half of a surrogate
    pair, with which no text can be stored or sent, by a question mark."""
    message = _first_choice(body).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return "".join(texts_of(content, "text")).encode(errors="replace").decode()


def text_begun(raw: bytes) -> str:
    """Returns the text of an answer of which only the beginning came, in any of the three APIs."""
    try:
        body = from_json(raw, allow_partial="trailing-strings")
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    contents = (body.get("content"), *(item.get("content") for item in dicts_of(body.get("output"))))
    return text_of(body) or "".join(text for content in contents for text in texts_of(content))


def is_cut(body: dict[str, Any] | None) -> bool:
    """Returns whether the answer broke off before its end."""
    return _first_choice(body).get("finish_reason") in CUT_OFF


def _first_choice(body: dict[str, Any] | None) -> dict[str, Any]:
    choices = (body or {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


# A circuit breaker for internal models that their upstream does not know (guarantee §5).

OPEN_SECONDS = 60.0
"""How long an unknown model is not asked. A minute later it may be known, if it was being loaded or renamed."""
UNKNOWN_CODES = ("model_not_found", "DeploymentNotFound")
log = logs.get_logger("gateway.context.planning")


class UnknownModelBreaker:
    """Tracks models that an upstream does not know, for one process. The log names each once, until it answers."""

    def __init__(self, clock: ports.Clock) -> None:
        self._clock = clock
        self._cooldowns: BoundedCache[str, Cooldown] = BoundedCache(MAX_REMEMBERED_MODELS)

    def is_open(self, deployment: ModelDeployment) -> bool:
        """Returns whether the model must not be asked now."""
        cooldown = self._cooldowns.peek(_key(deployment))
        return cooldown is not None and cooldown.remaining(self._clock.monotonic()) > 0

    def refused(self, deployment: ModelDeployment, refusal: errors.UpstreamRefused) -> None:
        """Opens the breaker if the refusal reports that there is no such model."""
        if not is_unknown(deployment, refusal):
            return
        key = _key(deployment)
        cooldown = self._cooldowns.get(key)
        if cooldown is None:
            log.warning("internal_model_unknown", model=deployment.route, seconds=OPEN_SECONDS)
            cooldown = self._cooldowns.put(key, Cooldown(1, OPEN_SECONDS))
        cooldown.failed(self._clock.monotonic())

    def answered(self, deployment: ModelDeployment) -> None:
        self._cooldowns.pop(_key(deployment))


def model_at(deployment: ModelDeployment) -> str:
    """Names a model and its address: its abilities are the same for all callers."""
    return f"{deployment.api_base} {deployment.provider_model}"


def _key(deployment: ModelDeployment) -> str:
    """Names model, address and account: a client's own account may lack a model that others have."""
    model = model_at(deployment)
    if deployment.operator_key:
        return model
    return f"{model} {hash((deployment.api_key, *sorted(deployment.headers.items())))}"


def is_unknown(deployment: ModelDeployment, refusal: errors.UpstreamRefused) -> bool:
    """Returns whether a refusal reports that there is no such model: by its code, or by a 404 whose message names the
    model. Any other 404, such as the page of a proxy that is being restarted, is a failed call."""
    if not isinstance(refusal.original, dict | list):
        return False
    if str(errors.error_object(refusal.original).get("code")) in UNKNOWN_CODES:
        return True
    named = rf"(?<![\w.-]){re.escape(deployment.provider_model)}(?![\w-])"
    return refusal.status == 404 and re.search(named, refusal.message, re.IGNORECASE) is not None


COUNTED_ANSWER_CHARS = 200_000
"""Characters counted of an answer with unreported tokens; the rest of a longer one is assumed to be alike."""
MAX_ANSWER_BYTES = 2**20
"""A plan or a summary has some kilobytes: a larger answer is useless, and would take memory from other requests."""
Begin = Callable[[bill.InternalCall], Awaitable[None]]
CountOutcome = Callable[[bill.Purpose, str], None]
"""Called once per call with its outcome: `ok`, `cut`, `rubbish`, `cancelled`, else that of the `fallback_reason`."""


class InternalModels:
    """The internal models of a process; keeps no state of any request."""

    def __init__(
        self,
        upstream: ports.Upstream,
        router: ports.ModelChoice,
        counters: CounterRegistry,
        clock: ports.Clock,
        count_outcome: CountOutcome,
        spans: ports.Spans = nullcontext,
    ) -> None:
        self._upstream, self._router, self._counters, self._spans = upstream, router, counters, spans
        self.clock, self.count_outcome = clock, count_outcome
        self._formats: dict[str, int] = {}
        self._breaker = UnknownModelBreaker(clock)

    def served(self, name: str, primary: ModelDeployment, bill: "OpenBill", *, chosen: bool) -> "BilledModel | None":
        """Returns the model if it may be asked (guarantee §5: in `model_list`, or at the primary's own upstream with
        the same key) and its upstream has not just reported it as unknown; else None."""
        deployment = self._router.internal(name, chosen, primary, bill.scope.caller)
        if deployment is None or self._breaker.is_open(deployment):
            return None
        deployment = replace(deployment, max_answer_bytes=MAX_ANSWER_BYTES)
        return BilledModel(self, deployment, self._router.facts(name, deployment), bill)

    async def complete(
        self, deployment: ModelDeployment, ask: agents.InternalRequest, scope: upstreams.CallScope, arrived: list[bytes]
    ) -> dict[str, Any]:
        """Calls the model in the strictest format that its upstream accepts, and remembers it; returns the body.
        `arrived`: gets the pieces of the answer as they come.
        Raises UpstreamError: see `core/errors`."""
        model = model_at(deployment)
        formats: list[dict[str, Any] | None] = [None]
        if ask.schema is not None:  # strict schema, then any JSON, then text
            formats = [{"type": "json_schema", "json_schema": ask.schema}, {"type": "json_object"}, None]
        first = min(self._formats.get(model, 0), len(formats) - 1)
        for number in range(first, len(formats)):
            try:
                body = body_of(deployment, ask, formats[number])
                with self._spans(ask.purpose):
                    request = upstreams.UpstreamRequest(body, scope=scope.made_for(ask.purpose), arrived=arrived)
                    answer = await self._upstream.complete(deployment, request)
            except errors.UpstreamRefused as refusal:
                last = number + 1 == len(formats)
                if last or not refuses_format(refusal):
                    self._breaker.refused(deployment, refusal)
                    raise
                continue
            self._breaker.answered(deployment)
            if number and len(self._formats) < MAX_REMEMBERED_MODELS:
                self._formats[model] = number
            return answer.body
        raise AssertionError("unreachable: the last format is returned or raised")

    def counter(self, facts: ModelFacts) -> ports.TokenCounter:
        """Returns the token counter of a model."""
        return self._counters.counter(facts)


@dataclass(slots=True)
class OpenBill:
    """The calls of one request so far, and the budget for them."""

    scope: upstreams.CallScope
    """The caller, and the list of its calls."""
    budget: CallBudget
    begin: Begin | None = None
    """Awaited before each call, with the call's prompt as its usage."""


@record
class BilledModel:
    """One internal model of one request (an `InternalModel`). Every call is on the bill, failed calls included."""

    models: InternalModels = field(repr=False)
    deployment: ModelDeployment
    facts: ModelFacts
    open_bill: OpenBill

    @property
    def name(self) -> str:
        return self.deployment.route

    @property
    def max_input_tokens(self) -> int | None:
        return self.facts.max_input_tokens

    @property
    def max_output_tokens(self) -> int | None:
        return self.facts.max_output_tokens

    def price(self, ask: agents.InternalRequest) -> Decimal | None:
        """Returns the price of the call in USD if its answer takes all of `max_tokens`; None for an unknown price."""
        usage = _usage(self._prompt_tokens(ask), ask.max_tokens)
        return cost.price_internal(self.call(ask.purpose, usage, estimated=True)).total

    async def ask(self, ask: agents.InternalRequest) -> agents.InternalAnswer:
        """Sends the request to the model; returns the text of its answer.
        Raises InternalModelFailed: no answer, or not in time; the message is the `fallback_reason`."""
        outcome = "cancelled"
        try:
            answer = await self._ask(ask)
            useful = "cut" if answer.is_cut else "ok"
            outcome = useful if ask.is_useful(answer.text) else "rubbish"
            return answer
        except agents.InternalModelFailed as failed:
            outcome = str(failed).removeprefix(f"{ask.purpose}_")
            raise
        finally:
            self.models.count_outcome(ask.purpose, outcome)

    async def allow(self, asks: Sequence[agents.InternalRequest]) -> None:
        """Checks that the budget covers all these prompts.
        Raises OverBudget: it does not, so that no call is made in vain."""
        least = await asyncio.to_thread(self.least, asks)
        try:
            self.open_bill.budget.check(least)
        except agents.OverBudget as over:
            self.models.count_outcome(asks[0].purpose, str(over).removeprefix(f"{asks[0].purpose}_"))
            raise

    async def _ask(self, ask: agents.InternalRequest) -> agents.InternalAnswer:
        # Counting may load a vocabulary: streams of other requests must not wait for that.
        most = await asyncio.to_thread(self.most, ask)
        try:
            if (reserve := self.open_bill.scope.reserve) is not None:
                await reserve(most)
        except errors.GatewayError as error:
            raise agents.OverBudget(f"{ask.purpose}_over_cost_ceiling") from error
        self.open_bill.budget.reserve(most)
        left = self.open_bill.budget.seconds
        body: dict[str, Any] | None = None
        arrived: list[bytes] = []
        charged = True
        try:
            if self.open_bill.begin is not None:
                await self.open_bill.begin(
                    self.call(ask.purpose, _usage(most.usage["prompt_tokens"], 0), estimated=True)
                )
            async with asyncio.timeout(min(ask.timeout_seconds, left)):
                body = await self.models.complete(self.deployment, ask, self.open_bill.scope, arrived)
        except TimeoutError:
            if left < ask.timeout_seconds:
                raise agents.OverBudget(f"{ask.purpose}_over_time_ceiling") from None
            raise agents.InternalModelFailed(f"{ask.purpose}_timeout") from None
        except errors.UpstreamError as error:
            charged, body = error.may_be_charged, {"usage": error.usage}
            raise agents.InternalModelFailed(f"{ask.purpose}_{_reason(self.deployment, error)}") from error
        except errors.GatewayError as error:
            charged = False
            raise agents.InternalModelFailed(f"{ask.purpose}_unavailable") from error
        finally:
            await asyncio.shield(asyncio.create_task(self._book(ask, most, body, arrived, charged)))
        return agents.InternalAnswer(text_of(body), is_cut(body))

    def call(self, purpose: bill.Purpose, usage: dict[str, Any], *, estimated: bool) -> bill.InternalCall:
        return bill.InternalCall(purpose, self.deployment.route, usage, self.facts.prices, estimated)

    def used(
        self, ask: agents.InternalRequest, body: dict[str, Any] | None, arrived: Sequence[bytes] = (), *, charged: bool
    ) -> bill.InternalCall:
        """Returns what a call used: as reported, else counted here from both texts; nothing if not charged. `arrived`:
        what came of the answer, which counts if its text did not come whole."""
        usage = (body or {}).get("usage")
        reported = usage if isinstance(usage, dict) else {}
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if bill.is_figure(prompt) and prompt and bill.is_figure(completion) and (completion or not text_of(body)):
            return self.call(ask.purpose, reported, estimated=False)
        if not charged:
            nothing = self.call(ask.purpose, {"prompt_tokens": 0, "completion_tokens": 0}, estimated=False)
            return replace(nothing, prices={**bill.UNCHARGED, **self.facts.prices})
        answer = self._answer_tokens(text_of(body))
        if not answer:
            begun = self._answer_tokens(text_begun(b"".join(arrived)))
            answer = min(begun, max_answer_tokens(self.deployment, ask))
        return self.call(ask.purpose, _usage(self._prompt_tokens(ask), answer), estimated=True)

    def most(self, ask: agents.InternalRequest) -> bill.InternalCall:
        """Returns what a call can use at most: its prompt and its longest answer."""
        usage = _usage(self._prompt_tokens(ask), max_answer_tokens(self.deployment, ask))
        return self.call(ask.purpose, usage, estimated=True)

    def least(self, asks: Sequence[agents.InternalRequest]) -> list[bill.InternalCall]:
        """Returns what calls use in any case: their prompts."""
        return [self.call(ask.purpose, _usage(self._prompt_tokens(ask), 0), estimated=True) for ask in asks]

    def _prompt_tokens(self, ask: agents.InternalRequest) -> int:
        counter = self.models.counter(self.facts)
        return REPLY_TOKENS + sum(counter.message(message) for message in ask.messages)

    def _answer_tokens(self, text: str) -> int:
        if not text:
            return 0
        counted = self.models.counter(self.facts).text(text[:COUNTED_ANSWER_CHARS])
        return counted * len(text) // min(len(text), COUNTED_ANSWER_CHARS)

    async def _book(
        self,
        ask: agents.InternalRequest,
        most: bill.InternalCall,
        body: dict[str, Any] | None,
        arrived: Sequence[bytes],
        charged: bool,
    ) -> None:
        call = await asyncio.to_thread(self.used, ask, body, arrived, charged=charged)
        self.open_bill.scope.calls.append(call)
        self.open_bill.budget.settle(most, call)


def _reason(deployment: ModelDeployment, error: errors.UpstreamError) -> str:
    if isinstance(error, errors.UpstreamAnswerTooLong):
        return "answer_too_long"
    if isinstance(error, errors.UpstreamRefused):
        if is_unknown(deployment, error):
            return "unknown_model"
        if error.status < 500:
            return "over_quota" if error.status == 429 else "refused"
    return {"upstream_timeout": "timeout", "upstream_unreachable": "unreachable"}.get(error.code or "", "failed")


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
