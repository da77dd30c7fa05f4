"""Takes a request its way: let in where budgets or limits apply (guarantee §12.3, §12.4), prepared for a target, asked,
settled (ADR 33). Streams take the same road; turn and bill are committed before their last chunk (guarantee §3.6).

`AttemptedRoute` says where a request is asked, once that has failed also again, at another deployment, of another
model (ADR 29). All of that happens before anything has gone to the client (guarantee §12.6, §12.7)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

from gateway.billing.quota.gate import AdmissionRequest, AdmittedRequest, Quota
from gateway.billing.stream import ChunkRelay
from gateway.context.whole_files import passed_on
from gateway.core import errors, ids, ports
from gateway.core.config import setting_sections
from gateway.core.config.settings import Settings
from gateway.core.formats import stream_record
from gateway.core.formats.stream_record import Chunks
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types import upstreams
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, ModelDeployment, RequestCaller
from gateway.core.types.keys import KeyPolicy
from gateway.pipeline.billing import first_fields
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.payload import as_it_goes_up, upstream_request
from gateway.pipeline.preparing import RequestPreparer
from gateway.pipeline.settlement import RequestSettlement
from gateway.pipeline.stages import PausedRequest, PreparedRequest, RequestRun, Target, UpstreamOutcome
from gateway.storage import stored_keys
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.quota.budget_rows import SqlBudgets
from gateway.storage.quota.local import open_rates
from gateway.storage.store import ConversationStore
from gateway.upstream.routing import health, router
from gateway.upstream.routing.router import ConfiguredRouter


class StreamReceiver(Protocol):
    """Whom a stream is for."""

    @property
    def writes_at_once(self) -> bool:
        """Whether `write` may be called."""
        ...

    async def send(self, chunks: Chunks) -> None:
        """Sends chunks; waits for a client that reads slowly."""
        ...

    def write(self, chunks: Chunks) -> bool:
        """Sends chunks without waiting; returns whether more can be written now."""
        ...


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that has begun: relayed headers, and the chunks still to come."""

    headers: dict[str, str]
    conversation_id: str | None
    send_to: Callable[[StreamReceiver], Coroutine[Any, Any, None]] = field(repr=False)
    """Sends all chunks; see `relay`."""
    aclose: Callable[[], Awaitable[None]] = field(repr=False)
    """Ends the upstream call, wherever it is, and keeps what it cost; to be called in any case."""


async def relay(
    receiver: StreamReceiver,
    run: RequestRun,
    opened: ChunkStream,
    stack: AsyncExitStack,
    settlement: RequestSettlement,
    on_committed: Callable[[], None],
) -> None:
    """Sends chunks to the client: those that arrive together, together. Those between the first and the last are
    written where their bytes arrive, as long as the client reads as fast as they come.
    `stack`: holds the upstream call open; `on_committed`: called once turn and bill are committed.
    Raises GatewayError: the stream broke off; what it cost is in the ledger by then."""
    request = run.asked
    chunks = ChunkRelay(run.completion_id, request.choices, request.include_usage)
    record = chunks.record
    batches = opened.batches()

    def first() -> dict[str, Any]:
        now = settlement.clock.monotonic()
        settlement.metrics.first_chunk(request.model, now - request.started)
        return first_fields(run.attempted(), now)

    def passed(batch: Chunks) -> Chunks:
        if run.upstream_id is None and (name := next((chunk["id"] for chunk in batch if chunk.get("id")), None)):
            run.named(name)
        return chunks.push(batch, first)

    def written(batch: Chunks) -> bool:
        sent = passed(batch)
        goes_on = True
        if sent:
            goes_on = receiver.write(sent)
            run.delivered()
        return goes_on and not record.asked_are_finished

    run.hears(partial(UpstreamOutcome.of_stream, record, "partial"))
    async with stack, settlement.recording_failure(run, record):
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


T = TypeVar("T")
log = logs.get_logger("gateway.pipeline.pipeline")
IDEMPOTENCY_KEY_HEADER = "idempotency-key"
UNDRAWN = nullcontext()


class ModelRoutes:
    """Knows where models are served, and how many requests are asking there."""

    def __init__(
        self,
        *,
        router: ConfiguredRouter,
        settings: setting_sections.RoutingSettings,
        clock: ports.Clock,
        metrics: GatewayMetrics,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = metrics
        self.sleep = sleep
        self.chance = chance or random.Random()
        self.budget = health.RetryBudget(settings.retry_share, settings.retry_minimum)
        self.answering = AnsweredRequests()
        self.has_fallbacks = health.has_fallbacks(settings)
        self._router = router

    def first(self, request: ChatRequest) -> Target:
        """Where a request is to be asked first.
        Raises ModelNotFound, Unauthorized, ModelNotAllowed: nowhere, or not for this caller."""
        candidates = self.candidates(request)
        request.check_models()
        return Target(request.model, candidates, candidates.first)

    def candidates(self, request: ChatRequest) -> upstreams.RoutingCandidates:
        """Where the request's model is served. Raises ModelNotFound, Unauthorized: nowhere, or not for this caller."""
        alone = self._router.alone(request.model)
        return alone or self._router.candidates(request.model, request.caller, router.hint_of(request))

    def check_model(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Where a caller is answered by a model. Raises ModelNotFound, ModelNotAllowed, Unauthorized: nowhere."""
        found = self._router.deployment(model, caller)
        caller.check_model(model)
        return found


class AnsweredRequests:
    """How many requests are being answered: each is, in a block of this."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class AttemptedRoute:
    """What one request has tried for one answer, and where that leads."""

    def __init__(self, routes: ModelRoutes, run: RequestRun) -> None:
        self._routes = routes
        self._settings = routes.settings
        self._run = run
        self._models = [run.asked.model]
        """Those that were asked, or could not be."""
        self._tries: list[ModelDeployment] = []
        self._is_drawn = False
        """The next try draws on the budget of retries."""
        self._key: tuple[PreparedRequest, str] | None = None

    def key_of(self, prepared: PreparedRequest) -> str:
        """The `Idempotency-Key` of a body: the same as long as the same is sent again."""
        if self._key is None or self._key[0] is not prepared:
            self._key = prepared, ids.new_id("idem_")
        return self._key[1]

    def trying(self) -> AbstractContextManager[None]:
        """While the target that is prepared is asked."""
        self._tries.append(self._run.prepared.target.chosen)
        return self._routes.budget.trying() if self._is_drawn else UNDRAWN

    async def better(self) -> AsyncIterator[Target]:
        """Other models in the place of one of which all deployments rest, where they are well."""
        is_exhausted = self._routes.has_fallbacks and self._run.prepared.target.candidates.exhausted
        for target in (
            self._other_models("general", only_well=True) if is_exhausted and not self._run.is_delivered else ()
        ):
            yield target

    async def instead(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Other models in the place of one that cannot even be asked."""
        kind = health.kind_of(error, self._settings) if self._routes.has_fallbacks else None
        for target in self._other_models(kind) if kind is not None else ():
            yield target

    async def after(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Where to ask anew after an error, the best first; whoever takes one asks there."""
        kind, left = health.kind_of(error, self._settings), self._left()
        if kind is None or self._run.is_delivered or self._run.asked.has_left() or (left is not None and left <= 0):
            return
        if kind == "general":
            async for target in self._other_tries(error):
                yield target
            if self._run.asked.has_left():  # during a wait
                return
        self._is_drawn = False
        for target in self._other_models(kind) if self._routes.has_fallbacks else ():
            yield target

    async def _other_tries(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Of the same model: at a deployment that was not asked yet, else where it was asked last, after a wait."""
        target = self._run.prepared.target
        while True:
            other = target.candidates.next(target.chosen, error) if target.candidates.several else None
            rests = other is not None and target.candidates.rests(other)
            if rests and self._routes.has_fallbacks and self._named("general"):
                return
            facts = self._facts(error, other or target.chosen, rests=rests)
            decision = health.decide(facts, self._settings, self._routes.chance.random, self._routes.clock.now())
            if not decision.again:
                return
            self._is_drawn = facts.is_drawn
            if decision.wait > 0:
                with self._routes.budget.trying():  # it is the second one there
                    await self._routes.sleep(decision.wait)
                if self._run.asked.has_left():
                    return
            yield target if other is None else self._target(target.model, target.candidates, other)

    def _facts(self, error: errors.GatewayError, place: ModelDeployment, *, rests: bool) -> health.FailedTry:
        return health.FailedTry(
            error,
            len(self._tries),
            sum(each is place or each == place for each in self._tries),
            begun=self._run.is_delivered,
            rests=rests,
            has_room=self._routes.budget.has_room(self._routes.answering.count),
            left=self._left(),
        )

    def _left(self) -> float | None:
        """Seconds that its client still waits; None if it does not say."""
        asked = self._run.asked
        return None if asked.patience is None else asked.started + asked.patience - self._routes.clock.monotonic()

    def _other_models(self, kind: health.Kind, *, only_well: bool = False) -> Iterator[Target]:
        """`only_well`: a model of which all deployments rest is no better."""
        for model in self._named(kind):
            try:
                candidates = self._routes.candidates(replace(self._run.asked, model=model))
            except errors.GatewayError as fault:
                log.warning("fallback_cannot_be_asked", model=model, code=fault.code)
                continue
            if only_well and candidates.exhausted:
                continue
            self._models.append(model)
            yield self._target(model, candidates, candidates.first, kind)

    def _target(
        self,
        model: str,
        candidates: upstreams.RoutingCandidates,
        chosen: ModelDeployment,
        kind: health.Kind | None = None,
    ) -> Target:
        now = self._run.prepared.target
        first = now.chosen.origin if now.origin is None else now.origin
        return Target(model, candidates, chosen, now.number + 1, first, kind)

    def _named(self, kind: health.Kind) -> list[str]:
        """The models that may answer instead, and that this caller may ask."""
        asked, key = self._run.asked, self._run.asked.caller.key
        if not asked.fallbacks:
            return []
        names = health.instead_of(asked.model, self._run.prepared.request.model, kind, self._settings, self._models)
        return [name for name in names if key is None or key.may_ask(name)]

    def took(self, target: Target, error: errors.GatewayError | None, before: Target) -> None:
        """Counts that a target is turned to, or asked again, after an error of the one before."""
        if error is not None:
            self._routes.metrics.upstream_failed(before.model, error)
        if target.kind is not None and target is not before:
            self._routes.metrics.fell_back(target.kind)
        elif error is not None:
            self._routes.metrics.retried(error)


class UpstreamSender:
    """Asks the target of a request; what its upstream refuses is mended and sent once more."""

    def __init__(
        self, *, upstream: ports.Upstream, preparer: RequestPreparer, settings: setting_sections.RoutingSettings
    ) -> None:
        self._upstream = upstream
        self._preparer = preparer
        self._settings = settings

    async def whole(self, run: RequestRun, route: AttemptedRoute) -> JsonAnswer:
        """A whole answer. Raises GatewayError: see `core/errors`."""

        async def complete(prepared: PreparedRequest, attempt: upstreams.RoutingAttempt) -> JsonAnswer:
            request = upstream_request(prepared, self._headers(prepared, route), run.scope)
            answer = await self._upstream.complete(prepared.wire.deployment, request)
            attempt.answered()
            usage = answer.body.get("usage")
            written = usage.get("completion_tokens") if isinstance(usage, dict) else None
            attempt.ended(None, written if isinstance(written, int) else 0)
            for hook in prepared.features.on_answer:
                answer = hook(prepared, answer)
            return answer

        return await self._mended(run, complete)

    async def opened(self, run: RequestRun, route: AttemptedRoute, stack: AsyncExitStack) -> ChunkStream:
        """A stream that has begun; `stack` holds it open. Raises as `whole`."""

        async def opening(prepared: PreparedRequest, attempt: upstreams.RoutingAttempt) -> ChunkStream:
            request = upstream_request(prepared, self._headers(prepared, route), run.scope)
            opened = await stack.enter_async_context(self._upstream.stream(prepared.wire.deployment, request))
            attempt.answered()

            def ended(_: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
                attempt.ended(error, run.written)
                return False

            stack.push(ended)
            for hook in prepared.features.on_stream:
                opened = hook(prepared, opened)
            return opened

        return await self._mended(run, opening)

    async def _mended(
        self, run: RequestRun, call: Callable[[PreparedRequest, upstreams.RoutingAttempt], Awaitable[T]]
    ) -> T:
        while True:
            prepared = run.prepared
            tokens = prepared.context.fitted.tokens if prepared.context is not None else 0
            attempt = prepared.target.candidates.began(prepared.target.chosen, tokens)
            try:
                try:
                    return await call(prepared, attempt)
                except BaseException as error:
                    attempt.ended(error)
                    raise
            except errors.UpstreamRefused as refusal:
                run.turn_to(await self._preparer.mended(run, refusal))

    def _headers(self, prepared: PreparedRequest, route: AttemptedRoute) -> dict[str, str]:
        """The client's headers, and where one deployment may be asked twice, what tells it that this is one request."""
        headers = prepared.request.caller.headers
        if not self._settings.retries or not upstreams.PROTOCOLS[prepared.wire.deployment.protocol].knows_keys:
            return headers
        return {**headers, IDEMPOTENCY_KEY_HEADER: route.key_of(prepared)}


@record
class WholeCompletion:
    """A whole answer: the body for the client, and upstream's headers that are relayed."""

    body: dict[str, Any]
    headers: dict[str, str]
    conversation_id: str | None
    cost: Decimal | None = None


class Pipeline:
    """Answers chat requests. It holds nothing between them but what its collaborators hold."""

    def __init__(
        self,
        *,
        parts: PipelineParts,
        preparer: RequestPreparer,
        routes: ModelRoutes,
        sender: UpstreamSender,
        settlement: RequestSettlement,
    ) -> None:
        self.settlement = settlement
        self._parts = parts
        self._preparer = preparer
        self._routes = routes
        self._sender = sender

    async def answer(self, request: ChatRequest) -> WholeCompletion | PausedRequest:
        """Answers a request at once.
        Raises GatewayError: see `core/errors`; what the failed call cost is in the ledger by then."""
        run = await self._new_run(request)

        async def ask() -> JsonAnswer:
            with self._routes.answering:
                answer = await self._asked(run, partial(self._sender.whole, run))
            run.hears(partial(UpstreamOutcome.of, answer))
            return answer

        async with self.settlement.recording_failure(run):
            if paused := await self._prepare(run):
                return paused
            await self._preparer.reserve(run.prepared)
            answer = await ask()
            for hook in run.prepared.features.on_reply:
                answer = await hook(run, answer, ask)
            settled = await self.settlement.settle(run, UpstreamOutcome.of(answer))
        self._keep(run)
        body = {**answer.body, "id": run.completion_id, "usage": settled.usage, **settled.fields()}
        headers = run.prepared.headers(answer.headers)
        return WholeCompletion(body, headers, run.prepared.conversation_id, settled.total)

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """Answers a request by a stream; returns once upstream has begun to answer.
        Raises GatewayError: nothing has been sent yet."""
        run, stack = await self._new_run(request), AsyncExitStack()

        async def ask() -> ChunkStream:
            await stack.aclose()  # of a round before
            stack.enter_context(self._routes.answering)
            try:
                return await self._asked(run, partial(self._sender.opened, run, stack=stack))
            except BaseException:
                await stack.aclose()
                raise

        async with self.settlement.recording_failure(run):
            if paused := await self._prepare(run):
                return paused
            await self._preparer.reserve(run.prepared)
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
        """What would be forwarded and what it would cost. The primary model is not called; nothing is stored but the
        bill of internal models (guarantee §5)."""
        run = await self._new_run(request)
        async with self.settlement.recording_failure(run):
            if paused := await self._prepare(run):
                return paused
            estimate = await self.settlement.estimate(run, as_it_goes_up(run.prepared).messages)
            await self.settlement.bill_dry_run(run)
        return estimate

    async def _new_run(self, asked: ChatRequest) -> RequestRun:
        """A request that may be asked, of which nothing is read yet.
        Raises GatewayError: it may not; there is no bill."""
        self._parts.store.check_writable()
        return RequestRun(await self._preparer.for_target(asked, self._routes.first(asked)))

    async def _prepare(self, run: RequestRun) -> PausedRequest | None:
        """Rebuilds and makes the context of what is to be sent first. If it cannot be fitted to its model, the request
        is prepared for a fallback model."""
        preparer, asked, clock = self._preparer, run.asked, self.settlement.clock
        if asked.is_proxied:
            run.turn_to(replace(run.prepared, own=await passed_on(asked, self._parts.files)))
            return None
        rebuilt = await preparer.rebuilt(run.prepared)
        at = clock.monotonic()
        try:
            made = await preparer.built(run, rebuilt)
        except errors.ContextLengthExceeded as error:
            route = AttemptedRoute(self._routes, run)
            if not await self._turned(run, route.instead(error), route):
                raise
            made = run.prepared
        if isinstance(made, PausedRequest):
            await self.settlement.paused(run)
            return made
        if made.features.on_payload:
            run.turn_to(made)
            made = await preparer.with_surplus(run, made)
        run.timings.update(rebuild=at - asked.started, plan=clock.monotonic() - at)
        conversation_id = made.history.conversation_id if made.history else None
        made = made if made.conversation_id == conversation_id else replace(made, conversation_id=conversation_id)
        run.turn_to(made)
        run.turn_to(await preparer.storable(made))
        self.settlement.running.enter(run)
        return None

    async def _asked(self, run: RequestRun, send: Callable[[AttemptedRoute], Awaitable[T]]) -> T:
        """One answer: of the target that is prepared or, where that fails, of the next that may be asked.
        Raises GatewayError: see `core/errors`; that of whom was asked last."""
        route, at = AttemptedRoute(self._routes, run), self.settlement.clock.monotonic()
        if self._routes.has_fallbacks:
            await self._turned(run, route.better(), route)
        while True:
            await self.settlement.open_calls.begin(run, run.prepared)
            run.began(at, self.settlement.clock.monotonic())
            try:
                with route.trying():
                    return await send(route)
            except errors.GatewayError as error:
                run.failed(error, self.settlement.clock.monotonic())
                if not await self._turned(run, route.after(error), route, error):
                    raise

    async def _turned(
        self,
        run: RequestRun,
        targets: AsyncIterator[Target],
        route: AttemptedRoute,
        error: errors.GatewayError | None = None,
    ) -> bool:
        """Whether the request is prepared for one of these targets, the first that can be asked.
        `error`: of the try before, if there was one."""
        before, cost = run.prepared.target, None
        async for target in targets:
            if error is not None and error.may_be_charged and cost is None:
                cost = await self.settlement.usage.of_failure(run)
            if target is not before:
                try:
                    run.turn_to(await self._preparer.another(run, target))
                except errors.GatewayError as fault:
                    event = "deployment_cannot_be_asked" if target.kind is None else "fallback_cannot_be_asked"
                    log.warning(event, model=target.model, code=fault.code)
                    continue
            if error is not None:
                run.followed(cost)
            route.took(target, error, before)
            return True
        return False

    def _keep(self, run: RequestRun) -> None:
        """What an answered request leaves for later ones, once it is stored."""
        prepared = run.prepared
        prepared.target.candidates.remember(run.completion_id, prepared.target.chosen)
        if prepared.context is not None and prepared.conversation_id:
            self._parts.context.keep(prepared.context, prepared.conversation_id)
        for hook in prepared.features.on_settled:
            hook(prepared)

    def check_model(self, model: str, caller: RequestCaller) -> None:
        """Raises ModelNotFound, ModelNotAllowed, Unauthorized: this caller cannot be answered by it."""
        self._routes.check_model(model, caller)

    async def count(self, request: ChatRequest) -> int:
        """Tokens of a request's prompt as it was sent.
        Raises ModelNotFound, ModelNotAllowed, Unauthorized: this caller cannot be answered by its model."""
        deployment, router = self._routes.check_model(request.model, request.caller), self._parts.router
        await router.learn(request.model, deployment)
        return await self._parts.context.count(request, router.facts(request.model, deployment))


def open_pipeline(settings: Settings, parts: PipelineParts) -> Pipeline:
    """The pipeline with all that it is made of. It asks and starts nothing yet."""
    settlement = RequestSettlement(parts=parts, match=settings.conversation.match)
    preparer = RequestPreparer(settings=settings, parts=parts, settlement=settlement)
    return Pipeline(
        parts=parts,
        preparer=preparer,
        routes=ModelRoutes(router=parts.router, settings=settings.routing, clock=parts.clock, metrics=parts.metrics),
        sender=UpstreamSender(upstream=parts.upstream, preparer=preparer, settings=settings.routing),
        settlement=settlement,
    )


MAX_LIMITED_MODEL_CHARS = 512
"""Of the model that a relayed call names: as many as a chat may."""
CACHE_TIMES = 5
"""How many times as long as a cache's answer that of a limiter is waited for: it cannot be missed as easily."""


class LimitedPipeline:
    """The pipeline behind the budgets and limits of who asks."""

    def __init__(self, pipeline: Pipeline, quota: Quota) -> None:
        self._pipeline = pipeline
        self._quota = quota

    def may_limit(self, key: KeyPolicy | None) -> bool:
        """Whether anything can be limited for requests with that key, whatever they ask."""
        return self._quota.limits_all or (key is not None and key.is_limited)

    def of(self, caller: RequestCaller) -> "LimitedPipeline | Pipeline":
        """What a caller's requests go through: this, or the pipeline alone where no budget or limit can apply."""
        return self if self.may_limit(caller.key) else self._pipeline

    async def answer(self, request: ChatRequest) -> WholeCompletion | PausedRequest:
        """As `Pipeline.answer`.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is not so much left."""
        completion, admitted = await self._within(request, self._pipeline.answer)
        if admitted is None or isinstance(completion, PausedRequest):
            return completion
        admitted.leave()
        return replace(completion, headers={**completion.headers, **admitted.headers})

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """As `Pipeline.stream`. Until `aclose` it is one of the requests at once. Raises as `answer`."""
        answer, admitted = await self._within(request, self._pipeline.stream)
        if admitted is None or isinstance(answer, PausedRequest):
            return answer
        held, end = admitted, answer.aclose

        async def close() -> None:
            held.leave()
            await end()

        answer.headers = {**answer.headers, **admitted.headers}
        answer.aclose = close
        return answer

    async def dry_run(self, request: ChatRequest) -> dict[str, Any] | PausedRequest:
        """As `Pipeline.dry_run`: it is a request, and has no tokens. Raises as `answer`."""
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
        """Lets in a call that is relayed, of which no more is known than whose it is and which model and user it names;
        None where nothing limits it.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left."""
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
        """Gives back what this process holds of budgets."""
        await self._quota.close()


def _cut(user: str | None) -> str | None:
    """A user as the ledger names it: what its client sends may be endless, and is kept for a while."""
    return user[: stored_keys.USER_CHARS] if user is not None else None


def open_limited(
    settings: Settings,
    transactions: DatabaseTransactions,
    store: ConversationStore,
    pipeline: Pipeline,
    hooks: TelemetryHooks,
) -> LimitedPipeline:
    """The pipeline behind budgets and limits; nothing of them is loaded before a request comes that has one."""
    clock, metrics, cache = pipeline.settlement.clock, pipeline.settlement.metrics, settings.cache
    budgets = SqlBudgets(transactions, clock, store.secret, ids.new_id("proc_"), settings.accounting.users)

    def rates() -> ports.RateStore:
        return open_rates(cache.url, CACHE_TIMES * cache.timeout, transactions)

    return LimitedPipeline(pipeline, Quota(settings.limits, budgets, rates, clock, metrics, hooks))
