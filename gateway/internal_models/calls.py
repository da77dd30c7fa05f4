"""Calls of internal models, planner and summarizer: made, limited in time, on the bill (guarantee §5, §6)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.accounting.cost import is_figure
from gateway.errors import GatewayError, UpstreamAuth, UpstreamError, UpstreamRefused, UpstreamUnreachable
from gateway.internal_models.limits import Ceilings, UnknownModels, is_unknown, place_of
from gateway.models.bill import InternalCall, Purpose
from gateway.models.exchange import Caller, Deployment, ModelFacts
from gateway.models.internal import InternalAnswer, InternalModelFailed, InternalRequest, OverCeiling
from gateway.ports import CallCounts, Clock, InternalRouter, TokenCounters, Upstream
from gateway.window.budget import OUTPUT_LIMITS
from gateway.window.counting import REPLY_TOKENS

# What internal models are sent, and the text that came back: in the formats that their providers know.


FORMAT_REFUSALS = (400, 404, 415, 422, 501)
COMPLETION_LIMITED = ("o1", "o3", "o4", "gpt-5")
"""Models of OpenAI's that know `max_completion_tokens` only, and no temperature but their own."""
CUT_OFF = ("length", "content_filter")
"""Reasons of an answer's end that are not its own."""
THINKING_TOKENS = 3000
"""What these think is part of what they may answer."""


def text_of(body: dict[str, Any] | None) -> str:
    """The first choice's text, of all its text parts; empty if there is none. Half of a surrogate pair, with which no
    text can be kept or sent, is a question mark."""
    message = _first_choice(body).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
        content = "".join(text for text in texts if isinstance(text, str))
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""


def is_cut(body: dict[str, Any] | None) -> bool:
    """Whether the answer broke off before its end."""
    return _first_choice(body).get("finish_reason") in CUT_OFF


def _first_choice(body: dict[str, Any] | None) -> dict[str, Any]:
    choices = (body or {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _thinks(deployment: Deployment) -> bool:
    return deployment.provider_model.rpartition("/")[2].startswith(COMPLETION_LIMITED)


def most_tokens(deployment: Deployment, ask: InternalRequest) -> int:
    """How long an answer may become, what is thought for it included."""
    return ask.max_tokens + (THINKING_TOKENS if _thinks(deployment) else 0)


def body_of(deployment: Deployment, ask: InternalRequest, response_format: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a call; what the operator configured for the model stands in it, too."""
    limit = "max_completion_tokens" if _thinks(deployment) else "max_tokens"
    body: dict[str, Any] = {"model": deployment.provider_model, "messages": ask.messages}
    body[limit] = most_tokens(deployment, ask)
    if limit == "max_tokens":
        body["temperature"] = 0
    if response_format is not None:
        body["response_format"] = response_format
    configured = {k: v for k, v in deployment.parameters.items() if k not in OUTPUT_LIMITS}
    return {**configured, **body}


def formats_of(schema: dict[str, Any] | None) -> list[dict[str, Any] | None]:
    """The formats that an answer may be asked for in: the strict schema, any JSON, text."""
    if schema is None:
        return [None]
    return [{"type": "json_schema", "json_schema": schema}, {"type": "json_object"}, None]


def refuses_format(refusal: UpstreamRefused) -> bool:
    """Whether it is the format that was refused, so that a simpler one may do."""
    if refusal.status not in FORMAT_REFUSALS:
        return False
    said = str(refusal.original).lower()
    return any(word in said for word in ("response_format", "json_schema", "json_object", "schema"))


UNCHARGED = (UpstreamRefused, UpstreamAuth, UpstreamUnreachable)
COUNTED_CHARS = 200_000
"""Of an absurdly long answer whose tokens nobody reported, the rest is taken to be like its beginning."""
MOST_KEPT = 1000


class InternalModels:
    """Knows what the internal models of a process can do; holds nothing of any request."""

    def __init__(
        self, upstream: Upstream, router: InternalRouter, counters: TokenCounters, clock: Clock, counts: CallCounts
    ) -> None:
        self._upstream = upstream
        self._router = router
        self._counters = counters
        self.counts = counts
        self._formats: dict[str, int] = {}
        self._unknown = UnknownModels(clock)

    def served(
        self, name: str, primary: Deployment, caller: Caller, bill: "OpenBill", *, chosen: bool
    ) -> "BilledModel | None":
        """The model, if it may be asked (guarantee §5: in `model_list`, or at the primary's own upstream with the same
        key), and is not known to be unknown there."""
        deployment = self._router.internal(name, chosen, primary, caller)
        if deployment is None or self._unknown.has(deployment):
            return None
        return BilledModel(self, deployment, self._router.facts(name), bill)

    async def complete(self, deployment: Deployment, ask: InternalRequest) -> dict[str, Any]:
        """The answer's body. A format that the upstream refuses is not asked for again: the strict schema, then any
        JSON, then none.

        Raises:
            UpstreamError: as drawn in `errors.py`.
        """
        place = place_of(deployment)
        formats = formats_of(ask.schema)
        first = min(self._formats.get(place, 0), len(formats) - 1) if ask.schema else 0
        for number in range(first, len(formats)):
            try:
                answer = await self._upstream.complete(deployment, body_of(deployment, ask, formats[number]), {})
            except UpstreamRefused as refusal:
                last = number + 1 == len(formats)
                if last or not refuses_format(refusal):
                    self._unknown.refused(deployment, refusal)
                    raise
                continue
            self._unknown.answered(deployment)
            if number and len(self._formats) < MOST_KEPT:
                self._formats[place] = number
            return answer.body
        raise AssertionError("unreachable: the last format is returned or raised")

    def spent(
        self, model: "BilledModel", ask: InternalRequest, body: dict[str, Any] | None, *, charged: bool
    ) -> InternalCall:
        """What a call used: as reported, else what was sent and what came, counted here."""
        usage = (body or {}).get("usage")
        reported = usage if isinstance(usage, dict) else {}
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if is_figure(prompt) and is_figure(completion):
            return model.call(ask.purpose, reported, estimated=False)
        if not charged:
            return model.call(ask.purpose, {"prompt_tokens": 0, "completion_tokens": 0}, estimated=False)
        return model.call(ask.purpose, _usage(self._prompt(model, ask), self._came(model, body)), estimated=True)

    def worst(self, model: "BilledModel", ask: InternalRequest) -> InternalCall:
        """What a call can use at most."""
        most = most_tokens(model.deployment, ask)
        return model.call(ask.purpose, _usage(self._prompt(model, ask), most), estimated=True)

    def least(self, model: "BilledModel", asks: Sequence[InternalRequest]) -> list[InternalCall]:
        """What calls use in any case: their prompts."""
        prompts = [(ask.purpose, self._prompt(model, ask)) for ask in asks]
        return [model.call(purpose, _usage(prompt, 0), estimated=True) for purpose, prompt in prompts]

    def _prompt(self, model: "BilledModel", ask: InternalRequest) -> int:
        counter = self._counters.counter(model.facts)
        return REPLY_TOKENS + sum(counter.message(message) for message in ask.messages)

    def _came(self, model: "BilledModel", body: dict[str, Any] | None) -> int:
        text = text_of(body)
        if not text:
            return 0
        counted = self._counters.counter(model.facts).text(text[:COUNTED_CHARS])
        return counted * len(text) // min(len(text), COUNTED_CHARS)


@dataclass(slots=True)
class OpenBill:
    """Where the calls of one request are added up, and what they may use at most."""

    calls: list[InternalCall]
    ceilings: Ceilings


@dataclass(frozen=True, slots=True)
class BilledModel:
    """One internal model of one request (adapter of `ports.InternalModel`): what its calls cost is on the bill, also
    of those that failed."""

    models: InternalModels = field(repr=False)
    deployment: Deployment
    facts: ModelFacts
    bill: OpenBill

    @property
    def name(self) -> str:
        return self.deployment.route

    @property
    def max_input_tokens(self) -> int | None:
        return self.facts.max_input_tokens

    @property
    def max_output_tokens(self) -> int | None:
        return self.facts.max_output_tokens

    async def ask(self, ask: InternalRequest) -> InternalAnswer:
        """See `ports.InternalModel`. What came of it is counted in the words of `fallback_reason`."""
        outcome = "cancelled"
        try:
            answer = await self._ask(ask)
            useful = "cut" if answer.is_cut else "ok"
            outcome = useful if ask.is_useful(answer.text) else "rubbish"
            return answer
        except InternalModelFailed as failed:
            outcome = str(failed).removeprefix(f"{ask.purpose}_")
            raise
        finally:
            self.models.counts.asked(ask.purpose, outcome)

    async def allow(self, asks: Sequence[InternalRequest]) -> None:
        """See `ports.InternalModel`."""
        least = await asyncio.to_thread(self.models.least, self, asks)
        try:
            self.bill.ceilings.allow(least)
        except OverCeiling as over:
            self.models.counts.asked(asks[0].purpose, str(over).removeprefix(f"{asks[0].purpose}_"))
            raise

    async def _ask(self, ask: InternalRequest) -> InternalAnswer:
        # Counting may have a vocabulary to load: streams of other requests must not wait for that.
        worst = await asyncio.to_thread(self.models.worst, self, ask)
        self.bill.ceilings.take(worst)
        left = self.bill.ceilings.seconds
        body: dict[str, Any] | None = None
        charged = True
        try:
            async with asyncio.timeout(min(ask.timeout_seconds, left)):
                body = await self.models.complete(self.deployment, ask)
        except TimeoutError:
            if left < ask.timeout_seconds:
                raise OverCeiling(f"{ask.purpose}_over_time_ceiling") from None
            raise InternalModelFailed(f"{ask.purpose}_timeout") from None
        except UpstreamError as error:
            charged = not isinstance(error, UNCHARGED)
            raise InternalModelFailed(f"{ask.purpose}_{_reason(self.deployment, error)}") from error
        except GatewayError as error:
            charged = False
            raise InternalModelFailed(f"{ask.purpose}_unavailable") from error
        finally:
            await asyncio.shield(asyncio.ensure_future(self._book(ask, worst, body, charged)))
        return InternalAnswer(text_of(body), is_cut(body))

    def call(self, purpose: Purpose, usage: dict[str, Any], *, estimated: bool) -> InternalCall:
        """A call of this model that used so much."""
        return InternalCall(purpose, self.deployment.route, usage, self.facts.prices, estimated)

    async def _book(
        self, ask: InternalRequest, worst: InternalCall, body: dict[str, Any] | None, charged: bool
    ) -> None:
        call = await asyncio.to_thread(self.models.spent, self, ask, body, charged=charged)
        self.bill.calls.append(call)
        self.bill.ceilings.settle(worst, call)


def _reason(deployment: Deployment, error: UpstreamError) -> str:
    if isinstance(error, UpstreamRefused):
        if is_unknown(deployment, error):
            return "unknown_model"
        if error.status < 500:
            return "over_quota" if error.status == 429 else "refused"
    return {"upstream_timeout": "timeout", "upstream_unreachable": "unreachable"}.get(error.code or "", "failed")


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
