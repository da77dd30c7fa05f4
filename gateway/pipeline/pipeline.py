"""Runs a request in four steps (ADR 33): admit it, where budgets or limits apply (guarantee §12.3, §12.4); prepare it
for a target; call the upstream; settle. Streams take the same path; turn and bill are committed before their last chunk
(guarantee §3.6)."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar

from gateway.billing import AdmissionRequest, AdmittedRequest, Quota
from gateway.conversations import rebuild
from gateway.core import errors, ids, ports, processes
from gateway.core.config.settings import Settings
from gateway.core.formats import stream_record
from gateway.core.formats.stream_record import ChunkRelay, Chunks
from gateway.core.frozen_records import record
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, RequestCaller
from gateway.core.types.conversation import UNNAMED
from gateway.core.types.keys import KeyPolicy
from gateway.pipeline.attempts import ModelRoutes, RequestAttempts, RequestPreparer, UpstreamSender
from gateway.pipeline.billing import first_fields
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.payload import build_payload
from gateway.pipeline.settlement import FailureRecording, RequestSettlement
from gateway.pipeline.stages import PausedRequest, RequestRun, UpstreamOutcome
from gateway.storage import ConversationStore, SqlBudgets, keyed_hashes, open_rates
from gateway.storage.database import DatabaseTransactions


class StreamReceiver(Protocol):
    """The receiver of a stream."""

    @property
    def writes_at_once(self) -> bool:
        """Whether `write` may be called."""

    async def send(self, chunks: Chunks) -> None:
        """Sends chunks; waits for a client that reads slowly."""

    def write(self, chunks: Chunks) -> bool:
        """Sends chunks without waiting; returns whether more can be written now."""


@record
class StreamedAnswer:
    """An answer that has begun: relayed headers, and the chunks still to come."""

    headers: dict[str, str]
    conversation_id: str | None
    send_to: Callable[[StreamReceiver], Coroutine[Any, Any, None]] = field(repr=False)
    """Sends all chunks; see `relay`."""
    aclose: Callable[[], Awaitable[None]] = field(repr=False)
    """Ends the upstream call at any stage, and records its cost; must always be called."""


async def relay(
    receiver: StreamReceiver,
    run: RequestRun,
    opened: ChunkStream,
    stack: AsyncExitStack,
    settlement: RequestSettlement,
    on_committed: Callable[[], None],
) -> None:
    """Sends chunks to the client; those that arrive together are sent together. Between the first and the last, chunks
    are written as soon as their bytes arrive, as long as the client keeps up.
    `stack`: holds the upstream call open; `on_committed`: called after turn and bill are committed.
    Raises GatewayError: the stream broke off; its cost is in the ledger by then."""
    request = run.asked
    is_translated = request.api is None and run.prepared.wire.deployment.protocol == "litellm"
    chunks = ChunkRelay(
        run.completion_id,
        request.choices,
        request.include_usage,
        _envelope(request),
        numbers_thoughts=is_translated,  # others come down as their upstream wrote them (guarantee §1)
    )
    record = chunks.record
    batches = opened.batches()

    def first() -> dict[str, Any]:
        now = settlement.clock.monotonic()
        settlement.metrics.first_chunk(request.model, now - request.started)
        return first_fields(run.attempted(), now)

    def passed(batch: Chunks) -> Chunks:
        if run.upstream_id is None and (name := next((chunk["id"] for chunk in batch if chunk.get("id")), None)):
            run.set_upstream_id(name)
        return chunks.push(batch, first)

    def written(batch: Chunks) -> bool:
        sent = passed(batch)
        goes_on = True
        if sent:
            goes_on = receiver.write(sent)
            run.delivered()
        return goes_on and not record.asked_are_finished

    run.set_answer_reader(partial(UpstreamOutcome.of_stream, record, "partial"))
    async with stack, FailureRecording(settlement, run, record):
        while (batch := await stream_record.next_batch(batches, record)) is not None:
            if sent := passed(batch):
                await receiver.send(sent)
                run.delivered()
                if receiver.writes_at_once and not record.asked_are_finished:
                    await opened.push(written)
        if opened.done and not record.begun:
            raise errors.UpstreamInvalidResponse("The upstream ended its stream without any choices.")
        if not (record.begun_are_finished or opened.done):
            raise errors.UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
        chunks.conclude()
        settled = await settlement.settle(run, UpstreamOutcome.of_stream(record))
    on_committed()
    await receiver.send(chunks.final(settled.fields(), settled.usage))


def _envelope(request: ChatRequest) -> dict[str, Any]:
    """Returns what SDKs read of each answer, for upstreams that leave it out."""
    return {"created": int(request.arrived_at.timestamp()), "model": request.model}


T = TypeVar("T")


@record
class WholeCompletion:
    """A whole answer: the body for the client, and the relayed headers of upstream."""

    body: dict[str, Any]
    headers: dict[str, str]
    conversation_id: str | None
    cost: Decimal | None = None


class Pipeline:
    """Answers chat requests. It holds no state between them beyond that of its collaborators."""

    def __init__(self, *, parts: PipelineParts, attempts: RequestAttempts, settlement: RequestSettlement) -> None:
        self.settlement = settlement
        self._parts = parts
        self._attempts = attempts

    async def answer(self, request: ChatRequest) -> WholeCompletion | PausedRequest:
        """Answers a request with a whole body.
        Raises GatewayError: see `core/errors`; the cost of the failed call is in the ledger by then."""
        run = await self._new_run(request)

        async def ask() -> JsonAnswer:
            answer = await self._attempts.whole_answer(run)
            answer = replace(answer, body={"object": "chat.completion", **_envelope(request), **answer.body})
            run.set_answer_reader(partial(UpstreamOutcome.of, answer))
            return answer

        async with FailureRecording(self.settlement, run):
            if paused := await self._attempts.make_ready(run):
                return paused
            answer = await ask()
            for hook in run.prepared.features.on_reply:
                answer = await hook(run, answer, ask)
            settled = await self.settlement.settle(run, UpstreamOutcome.of(answer))
        self._keep(run)
        body = {**answer.body, "id": run.completion_id, "usage": settled.usage, **settled.fields()}
        headers = run.prepared.headers(answer.headers)
        return WholeCompletion(body, headers, run.prepared.conversation_id, settled.total)

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """Answers a request with a stream; returns when upstream has begun to answer.
        Raises GatewayError: nothing has been sent yet."""
        run, stack = await self._new_run(request), AsyncExitStack()
        ask = partial(self._attempts.opened_stream, run, stack)
        async with FailureRecording(self.settlement, run):
            if paused := await self._attempts.make_ready(run):
                return paused
            opened = await ask()
            try:
                for hook in run.prepared.features.on_reply_stream:
                    opened = hook(run, opened, ask)
            except BaseException:
                await stack.aclose()
                raise

        async def close() -> None:
            try:
                await stack.aclose()
            finally:
                self.settlement.abandon(run)

        async def send_to(receiver: StreamReceiver) -> None:
            await relay(receiver, run, opened, stack, self.settlement, lambda: self._keep(run))

        return StreamedAnswer(run.prepared.headers(opened.headers), run.prepared.conversation_id, send_to, close)

    async def dry_run(self, request: ChatRequest) -> dict[str, Any] | PausedRequest:
        """Returns what would be forwarded and its estimated cost. The primary model is not called; nothing is stored
        but the bill of internal models (guarantee §5)."""
        run = await self._new_run(request)
        async with FailureRecording(self.settlement, run):
            if paused := await self._attempts.make_ready(run):
                return paused
            estimate = await self.settlement.estimate(run, build_payload(run.prepared).messages)
            await self.settlement.bill_dry_run(run)
        return estimate

    async def _new_run(self, asked: ChatRequest) -> RequestRun:
        """Begins the run of a request, of which nothing is read yet.
        Raises GatewayError: the request may not be asked; there is no bill."""
        self._parts.store.check_writable()
        attempts = self._attempts
        run = RequestRun(await attempts.preparer.for_target(asked, attempts.routes.first(asked)))
        if (candidates := run.prepared.target.candidates).several:
            run.completion_id = candidates.named(partial(ids.new_id, ids.COMPLETION))
        return run

    def _keep(self, run: RequestRun) -> None:
        """Caches what an answered request leaves for later ones, after it is stored."""
        prepared = run.prepared
        prepared.target.candidates.remember(run.completion_id, prepared.target.chosen)
        if prepared.context is not None and prepared.conversation_id:
            self._parts.context.keep(prepared.context, prepared.conversation_id)
        for hook in prepared.features.on_settled:
            hook(prepared)

    def check_model(self, model: str, caller: RequestCaller) -> None:
        """Raises ModelNotFound, ModelNotAllowed, Unauthorized: the model cannot answer this caller."""
        self._attempts.routes.check_model(model, caller)

    async def count(self, request: ChatRequest, *, with_history: bool = False) -> int:
        """Counts the tokens of a request's prompt as it was sent, with its documents.
        `with_history`: the whole history that the request names is part of its prompt.
        Raises ModelNotFound, ModelNotAllowed, Unauthorized: its model cannot answer this caller; NotFound,
        InvalidRequest: a document cannot be read; with a history also as `rebuild.build_llm_messages`."""
        deployment = self._attempts.routes.check_model(request.model, request.caller)
        facts = await self._parts.router.learn(request.model, deployment)
        if request.attachments:
            request = await self._parts.attachments.with_contents(request)
        history = None
        if with_history and request.conversation != UNNAMED:
            options = rebuild.RebuildOptions(remembers=False)
            history = await rebuild.build_llm_messages(request, self._parts.store, options)
        return await self._parts.context.count(request, facts, history)


def build_pipeline(settings: Settings, parts: PipelineParts) -> Pipeline:
    """Builds the pipeline with all its parts. It asks and starts nothing yet."""
    settlement = RequestSettlement(parts=parts, match=settings.conversation.match)
    preparer = RequestPreparer(settings=settings, parts=parts, settlement=settlement)
    attempts = RequestAttempts(
        preparer=preparer,
        routes=ModelRoutes(router=parts.router, settings=settings.routing, clock=parts.clock, metrics=parts.metrics),
        sender=UpstreamSender(upstream=parts.upstream, preparer=preparer, settings=settings.routing),
        settlement=settlement,
        files=parts.files,
        ready=parts.ready,
    )
    return Pipeline(parts=parts, attempts=attempts, settlement=settlement)


MAX_LIMITED_MODEL_CHARS = 512
"""Characters kept of the model that a relayed call names: as many as a chat may name."""
CACHE_TIMES = 5
"""A limiter is waited for this many times as long as a cache, as its answer is harder to do without."""


class LimitedPipeline:
    """The pipeline behind the caller's budgets and limits."""

    def __init__(self, pipeline: Pipeline, quota: Quota) -> None:
        self._pipeline = pipeline
        self._quota = quota

    def may_limit(self, key: KeyPolicy | None) -> bool:
        """Returns whether anything can limit requests with that key, whatever they ask."""
        return self._quota.limits_all or (key is not None and key.is_limited)

    def of(self, caller: RequestCaller) -> "LimitedPipeline | Pipeline":
        """Returns what a caller's requests go through: this, or the pipeline alone if no budget or limit can apply."""
        return self if self.may_limit(caller.key) else self._pipeline

    async def answer(self, request: ChatRequest) -> WholeCompletion | PausedRequest:
        """Answers as `Pipeline.answer`, within budgets and limits.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: not enough is left."""
        completion, admitted = await self._within(request, self._pipeline.answer)
        if admitted is None or isinstance(completion, PausedRequest):
            return completion
        admitted.leave()
        return replace(completion, headers={**completion.headers, **admitted.headers})

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """Streams as `Pipeline.stream`. Counts as a concurrent request until `aclose`. Raises as `answer`."""
        answer, admitted = await self._within(request, self._pipeline.stream)
        if admitted is None or isinstance(answer, PausedRequest):
            return answer
        held, end = admitted, answer.aclose

        async def close() -> None:
            held.leave()
            await end()

        return replace(answer, headers={**answer.headers, **admitted.headers}, aclose=close)

    async def dry_run(self, request: ChatRequest) -> dict[str, Any] | PausedRequest:
        """Runs `Pipeline.dry_run`, which counts as a request without tokens. Raises as `answer`."""
        admitted = await self._admit(request)
        try:
            return await self._pipeline.dry_run(request)
        finally:
            if admitted is not None:
                admitted.leave()

    async def _within(
        self, request: ChatRequest, ask: Callable[[ChatRequest], Awaitable[T]]
    ) -> tuple[T, AdmittedRequest | None]:
        admitted = await self._admit(request)
        if admitted is None:
            return await ask(request), None
        try:
            result = await ask(request)
        except BaseException as error:
            admitted.failed(error)
            raise
        if isinstance(result, PausedRequest):
            admitted.leave()
        return result, admitted

    async def relayed(
        self, request_id: str, caller: RequestCaller, named: tuple[str, str | None], at: datetime
    ) -> AdmittedRequest | None:
        """Admits a relayed call, of which only the caller and the named model and user are known; None where nothing
        limits it.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: nothing is left."""
        model, user = named[0][:MAX_LIMITED_MODEL_CHARS], _cut(named[1])
        ask = AdmissionRequest(request_id, caller.tenant, caller.key_id, caller.project, user, model, at)
        return await self._quota.admit(ask, caller.key)

    async def _admit(self, request: ChatRequest) -> AdmittedRequest | None:
        caller, user = request.caller, _cut(request.end_user)
        who = request.request_id, caller.tenant, caller.key_id, caller.project
        admitted = await self._quota.admit(AdmissionRequest(*who, user, request.model, request.arrived_at), caller.key)
        if admitted is not None:
            request.admissions.append(admitted)
        return admitted

    async def close(self) -> None:
        """Releases what this process holds of budgets."""
        await self._quota.close()


def _cut(user: str | None) -> str | None:
    """Cuts a user's name to the ledger's length: a client may send an endless one, which is held for a while."""
    return user[: keyed_hashes.USER_CHARS] if user is not None else None


def build_limited_pipeline(
    settings: Settings,
    transactions: DatabaseTransactions,
    store: ConversationStore,
    pipeline: Pipeline,
    hooks: TelemetryHooks,
) -> LimitedPipeline:
    """Builds the pipeline behind budgets and limits; loads none of them before a request comes that has one."""
    clock, metrics, cache = pipeline.settlement.clock, pipeline.settlement.metrics, settings.cache
    process = processes.process_name(ids.new_id("")[-8:])
    budgets = SqlBudgets(transactions, clock, store.secret, process, settings.accounting.users)

    def rates() -> ports.RateStore:
        return open_rates(cache.url, CACHE_TIMES * cache.timeout, transactions, clock)

    return LimitedPipeline(pipeline, Quota(settings.limits, budgets, rates, clock, metrics, hooks))
