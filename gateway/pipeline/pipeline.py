"""The way of a request: prepare it for a target, ask, settle (ADR 33). Streams take the same road."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from gateway.context.whole_files import passed_on
from gateway.core.config.settings import Settings
from gateway.core.errors import ContextLengthExceeded, GatewayError
from gateway.core.frozen_records import record, replace
from gateway.core.instrumentation.logs import get_logger
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, RequestCaller
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.payload import as_it_goes_up
from gateway.pipeline.preparing import RequestPreparer
from gateway.pipeline.sending import AttemptedRoute, ModelRoutes, UpstreamSender
from gateway.pipeline.settlement import RequestSettlement
from gateway.pipeline.stages import PausedRequest, RequestRun, Target, UpstreamOutcome
from gateway.pipeline.streaming import StreamedAnswer, StreamReceiver, relay

T = TypeVar("T")
log = get_logger("gateway.pipeline.sending")


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
        Raises GatewayError: as drawn in `errors`; what the failed call cost is in the ledger by then."""
        run = await self._opened(request)

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
            for hook in self._parts.features.on_reply:
                answer = await hook(run, answer, ask)
            settled = await self.settlement.settle(run, UpstreamOutcome.of(answer))
        self._keep(run)
        body = {**answer.body, "id": run.completion_id, "usage": settled.usage, **settled.fields()}
        headers = run.prepared.headers(answer.headers)
        return WholeCompletion(body, headers, run.prepared.conversation_id, settled.total)

    async def stream(self, request: ChatRequest) -> StreamedAnswer | PausedRequest:
        """Answers a request by a stream; returns once upstream has begun to answer.
        Raises GatewayError: nothing has been sent yet."""
        run, stack = await self._opened(request), AsyncExitStack()

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

        for hook in self._parts.features.on_reply_stream:
            opened = hook(run, opened, ask)

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
        run = await self._opened(request)
        async with self.settlement.recording_failure(run):
            if paused := await self._prepare(run):
                return paused
            estimate = await self.settlement.estimate(run, as_it_goes_up(run.prepared).messages)
            await self.settlement.bill_dry_run(run)
        return estimate

    async def _opened(self, asked: ChatRequest) -> RequestRun:
        """A request that may be asked, of which nothing is read yet.
        Raises GatewayError: it may not; there is no bill."""
        self._parts.store.check_writable()
        target = self._routes.first(asked)
        for name in (asked.model, *asked.options.models.values()):  # a key's models are also those that plan for it
            asked.caller.check_model(name)
        for fields in (asked.forward, asked.native.fields if asked.native is not None else {}):
            asked.caller.check_models_of(fields)
        return RequestRun(await self._preparer.opened(asked, target))

    async def _prepare(self, run: RequestRun) -> PausedRequest | None:
        """Steps 1 to 5: the request as it is to be sent first. If it cannot be fitted to its model, it is prepared
        for a fallback model."""
        preparer, asked, clock = self._preparer, run.asked, self.settlement.clock
        if asked.is_proxied:
            run.turn_to(replace(run.prepared, own=await passed_on(asked, self._parts.files)))
            return None
        rebuilt = await preparer.rebuilt(run.prepared)
        at = clock.monotonic()
        try:
            made = await preparer.built(run, rebuilt)
        except ContextLengthExceeded as error:
            route = AttemptedRoute(self._routes, run)
            if not await self._turned(run, route.instead(error), route):
                raise
            made = run.prepared
        if isinstance(made, PausedRequest):
            await self.settlement.paused(run)
            return made
        if self._parts.features.on_payload:
            run.turn_to(made)
            made = await preparer.with_surplus(run, made)
        run.timings.update(rebuild=at - asked.started, plan=clock.monotonic() - at)
        conversation_id = made.history.conversation_id if made.history else None
        run.turn_to(made if made.conversation_id == conversation_id else replace(made, conversation_id=conversation_id))
        run.turn_to(await preparer.storable(run.prepared))
        self.settlement.running.enter(run)
        return None

    async def _asked(self, run: RequestRun, send: Callable[[AttemptedRoute], Awaitable[T]]) -> T:
        """One answer: of the target that is prepared or, where that fails, of the next that may be asked.
        Raises GatewayError: as drawn in `errors`, of who was asked last."""
        route, at = AttemptedRoute(self._routes, run), self.settlement.clock.monotonic()
        if self._routes.has_fallbacks:
            await self._turned(run, route.better(), route)
        while True:
            await self.settlement.open_calls.begin(run, run.prepared)
            run.began(at, self.settlement.clock.monotonic())
            try:
                with route.trying():
                    return await send(route)
            except GatewayError as error:
                run.failed(error, self.settlement.clock.monotonic())
                if not await self._turned(run, route.after(error), route, error):
                    raise

    async def _turned(
        self, run: RequestRun, targets: AsyncIterator[Target], route: AttemptedRoute, error: GatewayError | None = None
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
                except GatewayError as fault:
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
        prepared, parts = run.prepared, self._parts
        context, conversation_id = prepared.context, prepared.conversation_id
        prepared.target.candidates.remember(run.completion_id, prepared.target.chosen)
        if context is not None and conversation_id:
            tenant = prepared.request.caller.tenant
            parts.context.keep(context, lambda: parts.store.has_conversation(tenant, conversation_id))
        for hook in parts.features.on_settled:
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
        sender=UpstreamSender(
            upstream=parts.upstream, preparer=preparer, settings=settings.routing, hooks=parts.features
        ),
        settlement=settlement,
    )
