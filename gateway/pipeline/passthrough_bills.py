"""Bills of relayed calls: read from the bytes that were relayed, after the answer (guarantee §13.8).

Nothing here can delay or fail a call: its bill is made and written by a task of its own, and waits in memory while the
storage is unavailable.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing import budgets, cost, metadata, relayed_usage
from gateway.context.tokens import TiktokenCounter
from gateway.core import errors
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks, offload_if
from gateway.core.types import bill, keys, turn, upstreams
from gateway.core.types.chat import ModelDeployment, ModelFacts, RequestCaller
from gateway.core.types.keys import HeldAdmission
from gateway.pipeline.billing import OpenCalls, priced_prompt
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.settlement import TurnCommits, log_fields
from gateway.pipeline.stages import BYTES_PER_TOKEN
from gateway.upstream import passthrough

log = logs.get_logger("gateway.pipeline.passthrough_bills")
PASSTHROUGH_LARGE_BODY_BYTES = 2**15
"""Bodies of more bytes are read in a thread; of a stream, however long, only the last event is read."""
BATCH_SECONDS = 0.1
"""Seconds that a bill waits for others to share its transaction, which costs more than the rest of it."""
MAX_UNBILLED = 500
"""Calls that wait for their bill with their sampled bodies; further calls drop the sample of the request."""
LONG_TEXT = 10_000
"""The tokens of a text of this many characters or more are estimated by samples."""
MODEL_CHARS = 256
LONGEST_OUTPUT = 4096
"""Output tokens assumed of an unknown model, where a call names no limit."""
UNKNOWN_MODEL = "unknown"
"""The model of a call that names none, or none that can be read."""
WRITES_TEXT = ("completions",)
"""APIs whose output can be counted where it is not reported."""


READS_AUDIO = ("audio/transcriptions", "audio/translations")
"""APIs whose input is a recording."""


@dataclass(slots=True)
class MeteredCall:
    """A relayed call to a model, so far. Times are on the monotonic clock, in seconds."""

    request_id: str
    caller: RequestCaller
    path: str
    """Below `/v1/`, one of `ENDPOINTS`."""
    models_in_address: Callable[[], list[str]]
    deployment: ModelDeployment
    arrived_at: datetime
    started: float
    request: passthrough.BodySample
    is_form: bool
    answer: passthrough.UnpackingSample | None = None
    """None until it begins."""
    stream: bool = False
    ended_at: float = 0.0
    error_code: str | None = None
    fault: errors.GatewayError | None = None
    """The error that ended it."""
    status: turn.TurnStatus = "failed"
    sent_at: float = 0.0
    admission: HeldAdmission | None = None
    """Its reservations in budgets and limits, if any apply."""
    asked: list[ModelDeployment] = field(default_factory=list)
    """All deployments that were asked, in order; the last is asked now."""
    charged: list[ModelDeployment] = field(default_factory=list)
    """Those that failed before `deployment` and may have charged."""

    def continue_at(self, deployment: ModelDeployment, error: errors.UpstreamError, now: float) -> None:
        """Continues at another deployment after this error."""
        if error.may_be_charged:
            self.charged.append(self.deployment)
        self.asked.append(deployment)
        self.deployment, self.sent_at = deployment, now


class RelayedBills:
    """Makes and writes the bills of relayed calls."""

    def __init__(self, parts: PipelineParts, open_calls: OpenCalls) -> None:
        self.clock = parts.clock
        self._parts = parts
        self._tasks = BackgroundTasks()
        self._commits = TurnCommits(parts.store, parts.metrics, parts.hooks)
        self._open = open_calls
        self._unbilled: list[MeteredCall] = []
        self._billing: asyncio.Task[None] | None = None
        self._draining = asyncio.Event()

    async def begin(self, call: MeteredCall, size: int) -> None:
        """Stores that a model is about to be asked, with a body of `size` bytes.
        Raises StorageReadOnly: no bill could be stored."""
        model = call.deployment.model or UNKNOWN_MODEL
        facts = self._parts.router.facts(model, call.deployment)
        about = {
            **_on_ledger(call, model[:MODEL_CHARS]),
            "route": [model, call.deployment.route],
            "stream": False,
            **dict.fromkeys(("end_user", "agent")),
        }
        prompt = priced_prompt(call.deployment.route, size // BYTES_PER_TOKEN, facts.prices)
        try:
            await self._open.open(call.request_id, call.arrived_at, about, [prompt])
        except errors.StorageReadOnly:
            raise
        except errors.StorageUnavailable:
            return  # its bill waits in memory

    def left(self, call: MeteredCall) -> None:
        """Closes a call that ended without anything to bill."""
        self._open.close(call.request_id)

    def check_writable(self) -> None:
        """Raises StorageReadOnly: no bill could be stored."""
        self._parts.store.check_writable()

    async def most(
        self, path: str, deployment: ModelDeployment, model: str, fields: dict[str, Any], sizes: tuple[int, int]
    ) -> tuple[int | None, int]:
        """Estimates a call's maximum cost in picodollars (None: unknown) and tokens from its body.
        `sizes`: bytes of the body, and of files in it."""
        facts = self._parts.router.facts(model or UNKNOWN_MODEL, _served(deployment, model or UNKNOWN_MODEL))
        counter = self._parts.counters.counter(facts)
        longest = facts.max_output_tokens or LONGEST_OUTPUT
        usage = await asyncio.to_thread(
            relayed_usage.most_usage,
            path,
            fields,
            sizes,
            lambda text: budgets.prompt_at_most(_count(counter, text), exact=False),
            longest,
        )
        price = relayed_usage.most_price(path, usage, facts.prices)
        is_text = relayed_usage.RELAYED_ENDPOINTS[path] in (*relayed_usage.WRITES_NOTHING, *WRITES_TEXT)
        tokens = usage["prompt_tokens"] + usage["completion_tokens"] if is_text else 0
        return None if price is None else keys.picousd(price), tokens

    def add(self, call: MeteredCall) -> None:
        """Bills a call that is over. Calls that end within `BATCH_SECONDS` share a transaction."""
        if len(self._unbilled) >= MAX_UNBILLED:
            call.request = passthrough.BodySample()
        self._unbilled.append(call)
        if self._billing is None or self._billing.done():
            self._billing = self._tasks.start(self._bill())

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for bills being recorded; bills that the storage does not take by then are logged."""
        self._draining.set()
        await self._commits.drain(seconds, self._tasks)
        for call in self._unbilled:
            log.warning("bill_not_recorded", request_id=call.request_id)

    async def _bill(self) -> None:
        """Makes the bills of all calls that are over, and drops their bodies."""
        while self._unbilled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._draining.wait()
            for _ in range(len(self._unbilled)):
                call = self._unbilled[0]
                try:
                    entry = await self._entry(call)
                    self._tasks.start(self._write(entry, call.admission))
                except Exception as fault:  # noqa: BLE001 - whatever is wrong with a body, the call was answered
                    log.fault("bill_not_recorded", fault, request_id=call.request_id)
                    if call.admission is not None:
                        call.admission.closed()
                finally:
                    del self._unbilled[0], call

    async def _write(self, entry: turn.LedgerEntry, admission: HeldAdmission | None) -> None:
        try:
            await self._commits.commit(turn.TurnCommit(entry), admission)
        except Exception as fault:  # noqa: BLE001 - nobody waits for it
            log.fault("bill_not_recorded", fault, **log_fields(entry))
            if admission is not None:
                admission.closed()
            self._parts.metrics.billed(entry)

    async def _entry(self, call: MeteredCall) -> turn.LedgerEntry:
        looked_through = 0 if call.stream or call.answer is None else call.answer.sample.size
        is_large = max(call.request.size, looked_through) > PASSTHROUGH_LARGE_BODY_BYTES
        request, answer = await offload_if(is_large, _read, call)
        model = _model(call, request, answer)
        deployment = _served(call.deployment, model)
        facts = self._parts.router.facts(model, deployment)
        reported = answer.usage
        if (
            reported is None and call.path in READS_AUDIO and cost.is_amount(answer.duration)
        ):  # as `verbose_json` has it
            reported = {"type": "duration", "seconds": answer.duration}
        usage = relayed_usage.chat_usage(call.path, reported) if reported is not None else None
        is_counted = usage is None
        if usage is None or relayed_usage.lacks_figures(call.path, usage, request.fields):
            # it may load a vocabulary, and texts may be long: streams of others must not wait for that
            found = await asyncio.to_thread(self._counted, call, request, answer, facts)
            usage, is_counted = relayed_usage.completed(usage, found)
        if "service_tier" in answer.named:
            usage["service_tier"] = answer.named["service_tier"]
        if is_counted or "input_cost_per_token" not in facts.prices:
            units = relayed_usage.units_of(call.path, request.fields)
            usage = {**usage, "units": units} if units and "units" not in usage else usage
        call_cost = relayed_usage.price_relayed(call.path, deployment.route, usage, facts.prices, estimated=is_counted)
        calls = [await asyncio.to_thread(self._failed, call, each, request) for each in call.charged]
        return _entry(call, request, answer, model, (*calls, call_cost))

    def _failed(
        self, call: MeteredCall, deployment: ModelDeployment, request: passthrough.PassthroughRequest
    ) -> bill.CallCost:
        """Prices a try that failed and may have been charged: its prompt, as far as it can be counted."""
        facts = self._parts.router.facts(deployment.model, deployment)
        prompt = None
        if request.is_whole:
            counter = self._parts.counters.counter(facts)
            prompt = relayed_usage.input_tokens(call.path, request.fields, partial(_count, counter))
        usage = {"prompt_tokens": prompt, "completion_tokens": 0}
        cost_of = relayed_usage.price_relayed(call.path, deployment.route, usage, facts.prices, estimated=True)
        return replace(cost_of, purpose=bill.FAILED_TRY)

    def _counted(
        self,
        call: MeteredCall,
        request: passthrough.PassthroughRequest,
        answer: passthrough.PassthroughUsage,
        facts: ModelFacts,
    ) -> dict[str, Any]:
        """Counts the tokens in the gateway; None where it cannot."""
        count = partial(_count, self._parts.counters.counter(facts))
        prompt = relayed_usage.input_tokens(call.path, request.fields, count) if request.is_whole else None
        endpoint, completion = relayed_usage.RELAYED_ENDPOINTS[call.path], None
        if endpoint in WRITES_TEXT and not answer.is_pending:
            completion = _written(call, count)
        if prompt is None and completion is None:
            return {}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        return usage if endpoint not in relayed_usage.WRITES_NOTHING else {"prompt_tokens": prompt}


def _count(counter: TiktokenCounter, text: str) -> int:
    if len(text) < LONG_TEXT:
        return counter.text(text)
    return max(0, counter.estimate_texts([text], [len(text)])[0] - counter.with_margin(upstreams.MESSAGE_TOKENS))


def _written(call: MeteredCall, count: Callable[[str], int]) -> int | None:
    """Counts the tokens of what was delivered."""
    if call.answer is None:
        return 0
    if not call.answer.readable:
        return None
    found = passthrough.texts(call.answer.sample, stream=call.stream)
    if found is None:
        return 0 if call.status != "complete" else None
    said, times = found
    return int(Decimal(count("".join(said))) * Decimal(times))


def _read(call: MeteredCall) -> tuple[passthrough.PassthroughRequest, passthrough.PassthroughUsage]:
    answer, usage = call.answer, passthrough.PassthroughUsage()
    if answer is not None and answer.readable:
        usage = passthrough.told(answer.sample, stream=call.stream)
    return passthrough.asked(call.request, form=call.is_form), usage


def _model(call: MeteredCall, request: passthrough.PassthroughRequest, answer: passthrough.PassthroughUsage) -> str:
    reported_model = answer.named.get("model")
    name = call.deployment.model or request.model or next(iter(call.models_in_address()), None) or reported_model
    return (name or UNKNOWN_MODEL)[:MODEL_CHARS].encode("utf-8", "replace").decode()


def _served(deployment: ModelDeployment, model: str) -> ModelDeployment:
    """Returns the deployment with the model asked: the default upstream is chosen before the model's name is read."""
    if deployment.model:
        return deployment
    return replace(deployment, model=model, provider_model=model, route=f"{deployment.route}{model}")


def _entry(
    call: MeteredCall,
    request: passthrough.PassthroughRequest,
    answer: passthrough.PassthroughUsage,
    model: str,
    calls: tuple[bill.CallCost, ...],
) -> turn.LedgerEntry:
    """`calls`: tries that failed and may have been charged, then the last one."""
    sums = cost.total_cost(calls)[0]
    upstream = round(1000 * (call.ended_at - call.sent_at), 3)
    timings = {"rebuild": 0.0, "plan": 0.0, "upstream": upstream}
    timings["total"] = round(1000 * (call.ended_at - call.started), 3)
    known = bill.ResponseMetadata(
        request_id=call.request_id,
        conversation_id=None,
        upstream_id=answer.named.get("id"),
        model=model,
        routing_path=[model, *(_served(each, model).route for each in call.asked)],
        usage=bill.usage_of(calls[-1].usage),
        cost=sums,
        context_utilization=None,
        timings_ms=timings,
    )
    own = _on_ledger(call, model)
    stored = metadata.response_metadata(known)
    stored |= {"context_utilization": None, "managed": False, "endpoint": own["endpoint"]}
    status: turn.TurnStatus = "complete" if answer.is_ended else call.status
    if answer.is_failed:
        status = "partial" if call.stream else "failed"
    return turn.LedgerEntry(
        request_id=call.request_id,
        **own,
        status=status,
        stream=call.stream,
        created_at=call.arrived_at,
        metadata=stored,
        calls=calls,
        error_code=None if status == "complete" else call.error_code,
        end_user=call.caller.end_user(request.fields),
        figures=cost.ledger_figures(stored, calls),
        failure=_failure(call, status),
    )


def _on_ledger(call: MeteredCall, model: str) -> dict[str, Any]:
    return {
        "tenant": call.caller.tenant,
        "conversation_id": None,
        "completion_id": None,
        "model": model,
        "endpoint": relayed_usage.RELAYED_ENDPOINTS[call.path],
        "key_id": call.caller.key_id,
        "project": call.caller.project,
    }


def _failure(call: MeteredCall, status: turn.TurnStatus) -> turn.RequestFailure | None:
    """Describes how a call failed, only in the gateway's own words: relayed content is not stored."""
    fault = call.fault
    told = errors.CANCELLED_WITH.get(call.error_code or "") if fault is None else fault.status
    if status == "complete" or (fault is None and told is None):
        return None
    words = fault.message if fault is not None and fault.is_logged else None
    return turn.RequestFailure(told if status == "failed" else None, words)
