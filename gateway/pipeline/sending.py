"""Where a request is asked, once that has failed also again, at another deployment, of another model; and one try
(ADR 29).

All of that happens before anything has gone to the client (guarantee §12.6, §12.7).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.errors import GatewayError, UpstreamRefused
from gateway.core.ids import new_id
from gateway.core.instrumentation.logs import get_logger
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.ports import Clock, Upstream
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, ModelDeployment, RequestCaller
from gateway.core.types.upstreams import PROTOCOLS, RoutingAttempt, RoutingCandidates, hint_of
from gateway.pipeline.hooks import FeatureHooks
from gateway.pipeline.payload import upstream_request
from gateway.pipeline.preparing import RequestPreparer
from gateway.pipeline.stages import PreparedRequest, RequestRun, Target
from gateway.upstream.routing.fallbacks import Kind, has_fallbacks, instead_of, kind_of
from gateway.upstream.routing.health import FailedTry, RetryBudget, decide
from gateway.upstream.routing.router import ConfiguredRouter

T = TypeVar("T")
log = get_logger("gateway.pipeline.sending")
KEY = "idempotency-key"
UNDRAWN = nullcontext()


class ModelRoutes:
    """Knows where models are served, and how many requests are asking there."""

    def __init__(
        self,
        *,
        router: ConfiguredRouter,
        settings: RoutingSettings,
        clock: Clock,
        metrics: GatewayMetrics,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = metrics
        self.sleep = sleep
        self.chance = chance or random.Random()
        self.budget = RetryBudget(settings.retry_share, settings.retry_minimum)
        self.answering = AnsweredRequests()
        self.has_fallbacks = has_fallbacks(settings)
        self._router = router

    def first(self, request: ChatRequest) -> Target:
        """Where a request is to be asked first. Raises ModelNotFound, Unauthorized: nowhere, or not for this caller."""
        candidates = self.candidates(request)
        return Target(request.model, candidates, candidates.first)

    def candidates(self, request: ChatRequest) -> RoutingCandidates:
        """Where the request's model is served; raises as `first`."""
        alone = self._router.alone(request.model)
        return alone or self._router.candidates(request.model, request.caller, hint_of(request))

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
            self._key = prepared, new_id("idem_")
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

    async def instead(self, error: GatewayError) -> AsyncIterator[Target]:
        """Other models in the place of one that cannot even be asked."""
        kind = kind_of(error, self._settings) if self._routes.has_fallbacks else None
        for target in self._other_models(kind) if kind is not None else ():
            yield target

    async def after(self, error: GatewayError) -> AsyncIterator[Target]:
        """Where to ask anew after an error, the best first; whoever takes one asks there."""
        kind, left = kind_of(error, self._settings), self._left()
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

    async def _other_tries(self, error: GatewayError) -> AsyncIterator[Target]:
        """Of the same model: at a deployment that was not asked yet, else where it was asked last, after a wait."""
        target = self._run.prepared.target
        while True:
            other = target.candidates.next(target.chosen, error) if target.candidates.several else None
            rests = other is not None and target.candidates.rests(other)
            if rests and self._routes.has_fallbacks and self._named("general"):
                return
            facts = self._facts(error, other or target.chosen, rests=rests)
            decision = decide(facts, self._settings, self._routes.chance.random, self._routes.clock.now())
            if not decision.again:
                return
            self._is_drawn = facts.is_drawn
            if decision.wait > 0:
                with self._routes.budget.trying():  # it is the second one there
                    await self._routes.sleep(decision.wait)
                if self._run.asked.has_left():
                    return
            yield target if other is None else self._target(target.model, target.candidates, other)

    def _facts(self, error: GatewayError, place: ModelDeployment, *, rests: bool) -> FailedTry:
        return FailedTry(
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

    def _other_models(self, kind: Kind, *, only_well: bool = False) -> Iterator[Target]:
        """`only_well`: a model of which all deployments rest is no better."""
        for model in self._named(kind):
            try:
                candidates = self._routes.candidates(replace(self._run.asked, model=model))
            except GatewayError as fault:
                log.warning("fallback_cannot_be_asked", model=model, code=fault.code)
                continue
            if only_well and candidates.exhausted:
                continue
            self._models.append(model)
            yield self._target(model, candidates, candidates.first, kind)

    def _target(
        self, model: str, candidates: RoutingCandidates, chosen: ModelDeployment, kind: Kind | None = None
    ) -> Target:
        now = self._run.prepared.target
        first = now.chosen.origin if now.origin is None else now.origin
        return Target(model, candidates, chosen, now.number + 1, first, kind)

    def _named(self, kind: Kind) -> list[str]:
        """The models that may answer instead, and that this caller may ask."""
        asked, key = self._run.asked, self._run.asked.caller.key
        if not asked.fallbacks:
            return []
        names = instead_of(asked.model, self._run.prepared.request.model, kind, self._settings, self._models)
        return [name for name in names if key is None or key.may_ask(name)]

    def took(self, target: Target, error: GatewayError | None, before: Target) -> None:
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
        self, *, upstream: Upstream, preparer: RequestPreparer, settings: RoutingSettings, hooks: FeatureHooks
    ) -> None:
        self._upstream = upstream
        self._preparer = preparer
        self._settings = settings
        self._hooks = hooks

    async def whole(self, run: RequestRun, route: AttemptedRoute) -> JsonAnswer:
        """A whole answer. Raises GatewayError: as drawn in `errors`."""

        async def complete(prepared: PreparedRequest, attempt: RoutingAttempt) -> JsonAnswer:
            request = upstream_request(prepared, self._headers(prepared, route), run.scope)
            answer = await self._upstream.complete(prepared.wire.deployment, request)
            attempt.answered()
            usage = answer.body.get("usage")
            written = usage.get("completion_tokens") if isinstance(usage, dict) else None
            attempt.ended(None, written if isinstance(written, int) else 0)
            for hook in self._hooks.on_answer:
                answer = hook(prepared, answer)
            return answer

        return await self._mended(run, complete)

    async def opened(self, run: RequestRun, route: AttemptedRoute, stack: AsyncExitStack) -> ChunkStream:
        """A stream that has begun; `stack` holds it open. Raises as `whole`."""

        async def opening(prepared: PreparedRequest, attempt: RoutingAttempt) -> ChunkStream:
            request = upstream_request(prepared, self._headers(prepared, route), run.scope)
            opened = await stack.enter_async_context(self._upstream.stream(prepared.wire.deployment, request))
            attempt.answered()

            def ended(_: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
                attempt.ended(error, run.written)
                return False

            stack.push(ended)
            for hook in self._hooks.on_stream:
                opened = hook(prepared, opened)
            return opened

        return await self._mended(run, opening)

    async def _mended(self, run: RequestRun, call: Callable[[PreparedRequest, RoutingAttempt], Awaitable[T]]) -> T:
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
            except UpstreamRefused as refusal:
                run.turn_to(await self._preparer.mended(run, refusal))

    def _headers(self, prepared: PreparedRequest, route: AttemptedRoute) -> dict[str, str]:
        """The client's headers, and where one deployment may be asked twice, what tells it that this is one request."""
        headers = prepared.request.caller.headers
        if not self._settings.retries or not PROTOCOLS[prepared.wire.deployment.protocol].knows_keys:
            return headers
        return {**headers, KEY: route.key_of(prepared)}
