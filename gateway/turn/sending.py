"""Asks the model: mends what an upstream refuses, tries again, and has another model answer instead (ADR 29).

All of that happens before anything has gone to the client (guarantee §12.6, §12.7).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from gateway.base.ids import new_id
from gateway.config.routing import RoutingSettings
from gateway.errors import ContextLengthExceeded, GatewayError, UpstreamOverflow, UpstreamRefused
from gateway.models.exchange import ChunkStream, Deployment, JsonAnswer
from gateway.models.provider_facts import PROTOCOLS
from gateway.models.recall import never_offered, own_tools
from gateway.models.routing import Attempt
from gateway.ports import Upstream
from gateway.telemetry.logs import get_logger
from gateway.turn.body import upstream_request
from gateway.turn.echoes import without_echoes
from gateway.turn.exchange import Exchange
from gateway.turn.settlement import Settlement
from gateway.turn.tries import Contexts, Failure, Tries
from gateway.upstream.routing.fallbacks import Kind, has_fallbacks, instead_of, kind_of
from gateway.upstream.routing.protocols import NOT_SPOKEN, Protocols
from gateway.upstream.routing.retries import Failed, RetryBudget, decide

T = TypeVar("T")
log = get_logger("gateway.turn.sending")
USAGE_REFUSALS = (400, 404, 422)
"""Statuses by which upstreams refuse `stream_options`; their message names the field."""
KEY = "idempotency-key"


class Sender:
    """Sends requests whose context is made."""

    def __init__(
        self,
        upstream: Upstream,
        settlement: Settlement,
        protocols: Protocols,
        settings: RoutingSettings,
        contexts: Contexts,
    ) -> None:
        self._upstream = upstream
        self._settlement = settlement
        self._protocols = protocols
        self._settings = settings
        self._contexts = contexts
        self.budget = RetryBudget(settings.retry_share, settings.retry_minimum)
        self._has_fallbacks = has_fallbacks(settings)
        self.under_way = 0
        """Requests that are being answered."""
        self.random = random.Random().random
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def whole(self, exchange: Exchange) -> JsonAnswer:
        """A whole answer.

        Raises:
            GatewayError: as drawn in `errors`, of who was asked last.
        """
        self.under_way += 1
        try:
            return await self._answered(exchange, self._complete)
        finally:
            self.under_way -= 1

    async def opened(self, exchange: Exchange, stack: AsyncExitStack) -> ChunkStream:
        """A stream that has begun; `stack` holds it open.

        Raises: as `whole`.
        """

        async def opening(exchange: Exchange, attempt: Attempt) -> ChunkStream:
            request = upstream_request(exchange, self._headers(exchange))
            stream = self._upstream.stream(exchange.deployment, request)
            opened = await stack.enter_async_context(stream)
            stack.push(_ending(attempt, exchange))
            return opened

        self.under_way += 1
        try:
            opened = await self._answered(exchange, opening)
        except BaseException:
            self._leave()
            raise
        stack.callback(self._leave)
        return opened

    def _leave(self) -> None:
        self.under_way -= 1

    async def instead(self, exchange: Exchange, error: GatewayError) -> bool:
        """Makes the exchange ready for another model, where the one that it names cannot even be asked; False if there
        is none."""
        kind = kind_of(error, self._settings) if self._has_fallbacks else None
        return kind is not None and await self._another_model(exchange, kind, [exchange.asked.model], None)

    async def _answered(self, exchange: Exchange, call: Callable[[Exchange, Attempt], Awaitable[T]]) -> T:
        tries = Tries([exchange.asked.model])
        if self._has_fallbacks and exchange.candidates.exhausted and not exchange.delivered:
            await self._another_model(exchange, "general", tries.models, None, only_well=True)
        exchange.sent_at, exchange.key = self._settlement.clock.monotonic(), None
        while True:
            await self._settlement.open_calls.begin(exchange)
            exchange.called = True  # from here on there is a bill, even if the client leaves
            tries.at.append(exchange.chosen)
            try:
                if not tries.is_drawn:
                    return await self._mended(exchange, call)
                with self.budget.trying():
                    return await self._mended(exchange, call)
            except GatewayError as error:
                if not await self._goes_on(Failure(exchange, error, self._settlement), tries):
                    raise

    async def _goes_on(self, failure: Failure, tries: Tries) -> bool:
        """Whether to ask anew after an error: the exchange is ready for it then."""
        exchange = failure.exchange
        exchange.is_out = failure.error.may_be_charged
        kind, left = kind_of(failure.error, self._settings), self._left(exchange)
        if kind is None or exchange.delivered or exchange.asked.has_left() or (left is not None and left <= 0):
            return False
        if kind == "general" and await self._another_try(failure, tries):
            return True
        tries.is_drawn = False
        return self._has_fallbacks and await self._another_model(exchange, kind, tries.models, failure)

    async def _another_try(self, failure: Failure, tries: Tries) -> bool:
        """Makes the exchange ready for another try of the same model: at a deployment that was not asked yet, else
        where it was asked last; False if none is worthwhile.

        Raises:
            GatewayError: this one, as the client has left meanwhile.
        """
        exchange, candidates = failure.exchange, failure.exchange.candidates
        while True:
            other = candidates.next(exchange.chosen, failure.error) if candidates.several else None
            rests = other is not None and candidates.rests(other)
            if rests and self._has_fallbacks and self._named(exchange, "general", tries.models):
                return False
            facts = self._facts(failure, tries, other or exchange.chosen, rests=rests)
            decision = decide(facts, self._settings, self.random, self._settlement.clock.now())
            if not decision.again:
                return False
            tries.is_drawn = facts.is_drawn
            await failure.count()
            if other is not None and not await self._at(exchange, other):
                continue
            if decision.wait > 0:
                with self.budget.trying():  # it is the second one there
                    await self.sleep(decision.wait)
                if exchange.asked.has_left():
                    raise failure.error
            failure.book()
            self._settlement.metrics.retried(failure.error)
            return True

    def _facts(self, failure: Failure, tries: Tries, place: Deployment, *, rests: bool) -> Failed:
        exchange = failure.exchange
        return Failed(
            failure.error,
            len(tries.at),
            tries.of(place),
            begun=exchange.delivered,
            rests=rests,
            has_room=self.budget.has_room(self.under_way),
            left=self._left(exchange),
        )

    def _left(self, exchange: Exchange) -> float | None:
        """Seconds that its client still waits; None if it does not say."""
        asked = exchange.asked
        return None if asked.patience is None else asked.started + asked.patience - self._settlement.clock.monotonic()

    async def _at(self, exchange: Exchange, other: Deployment) -> bool:
        """Makes the exchange ready for another deployment of the same model; False if that cannot be asked."""
        request = replace(exchange.asked, model=exchange.request.model) if exchange.is_instead else exchange.asked
        try:
            anew = await self._contexts.anew(exchange, request, exchange.candidates, other)
        except GatewayError as fault:
            log.warning("deployment_cannot_be_asked", model=request.model, code=fault.code)
            return False
        exchange.turn_to(anew)
        return True

    async def _another_model(
        self,
        exchange: Exchange,
        kind: Kind,
        tried: list[str],
        failure: Failure | None,
        *,
        only_well: bool = False,
    ) -> bool:
        """Makes the exchange ready for the next model that may answer instead; False if there is none.

        Args:
            tried: gets the models that this looks at.
            failure: of the model before, if it was asked.
            only_well: a model of which all deployments rest is no better.
        """
        for model in self._named(exchange, kind, tried):
            request = replace(exchange.asked, model=model)
            try:
                candidates = self._contexts.candidates(request)
                if only_well and candidates.exhausted:
                    continue
                tried.append(model)
                if failure is not None:
                    await failure.count()
                anew = await self._contexts.anew(exchange, request, candidates, candidates.first)
            except GatewayError as fault:
                log.warning("fallback_cannot_be_asked", model=model, code=fault.code)
                continue
            exchange.turn_to(anew)
            if failure is not None:
                failure.book()
            self._settlement.metrics.fell_back(kind)
            return True
        return False

    def _named(self, exchange: Exchange, kind: Kind, tried: Sequence[str]) -> list[str]:
        """The models that may answer instead, and that this caller may ask."""
        asked, key = exchange.asked, exchange.asked.caller.key
        if not asked.fallbacks:
            return []
        names = instead_of(asked.model, exchange.request.model, kind, self._settings, tried)
        return [name for name in names if key is None or key.may_ask(name)]

    async def _mended(self, exchange: Exchange, call: Callable[[Exchange, Attempt], Awaitable[T]]) -> T:
        """One try. If upstream says overflow all the same, one refit; if it refuses to report usage, once without; if
        it has no endpoint for the request's API, by chat completions."""
        while True:
            tokens = exchange.built.fitted.tokens if exchange.built is not None else 0
            attempt = exchange.candidates.began(exchange.chosen, tokens)
            exchange.is_out = True
            try:
                try:
                    return await call(exchange, attempt)
                except BaseException as error:
                    attempt.ended(error)
                    raise
            except UpstreamOverflow as overflow:
                await self._refitted(exchange, overflow)
            except UpstreamRefused as refusal:
                self._mend(exchange, refusal)
            exchange.key = None  # what is sent next is another body

    def _mend(self, exchange: Exchange, refusal: UpstreamRefused) -> None:
        """
        Raises:
            UpstreamRefused: this one, if it is of nothing that can be left out.
            InvalidRequest: the request needs what no other API has.
        """
        native = exchange.request.native
        if native is not None and native.protocol == exchange.deployment.protocol and refusal.status in NOT_SPOKEN:
            exchange.deployment = self._protocols.instead(exchange.deployment, exchange.fallback, native, refusal)
            exchange.fallback = None
            return
        if native is not None and native.hosted and native.protocol == exchange.deployment.protocol:
            with suppress(UpstreamRefused):
                taken = self._protocols.without_refused(exchange.deployment, native, refusal)
                exchange.request = replace(exchange.request, native=taken)
                return
        if _is_of_tools(exchange, refusal):
            forward = never_offered(exchange.request.forward)
            exchange.request, exchange.recall = replace(exchange.request, forward=forward), None
            return
        asked = exchange.request.stream and exchange.ask_usage
        if not asked or refusal.status not in USAGE_REFUSALS or "stream_options" not in str(refusal.original):
            raise refusal
        self._settlement.metrics.upstream_failed(exchange.request.model, refusal)
        exchange.ask_usage = False

    async def _refitted(self, exchange: Exchange, overflow: UpstreamOverflow) -> None:
        """
        Raises:
            UpstreamOverflow, ContextLengthExceeded: this one, with the figures that are known; or it cannot be fitted.
        """
        self._contexts.refused(exchange, overflow)
        is_managed = exchange.request.options.mode != "off"
        window = exchange.facts.context_window or exchange.facts.max_input_tokens
        counted = exchange.built.fitted.tokens if exchange.built else None
        if exchange.refused_budget or exchange.built is None or not is_managed:
            self._settlement.learn_refusal(exchange)
            overflow.explain(window, counted)
            raise overflow
        self._settlement.metrics.upstream_failed(exchange.request.model, overflow)
        try:
            await self._contexts.refit(exchange, exchange.built, overflow)
        except ContextLengthExceeded:
            overflow.explain(window, counted)
            raise overflow from None  # of two counts, the one that says so

    async def _complete(self, exchange: Exchange, attempt: Attempt) -> JsonAnswer:
        agent = exchange.request.agent
        request = upstream_request(exchange, self._headers(exchange))
        answer = await self._upstream.complete(exchange.deployment, request)
        attempt.answered()
        usage = answer.body.get("usage")
        written = usage.get("completion_tokens") if isinstance(usage, dict) else None
        attempt.ended(None, written if isinstance(written, int) else 0)
        return without_echoes(answer) if agent is not None and agent.echoes else answer

    def _headers(self, exchange: Exchange) -> dict[str, str]:
        """The client's headers, and where one deployment may be asked twice, what tells it that this is one request."""
        headers = exchange.request.caller.headers
        if not self._settings.retries or not PROTOCOLS[exchange.deployment.protocol].knows_keys:
            return headers
        if exchange.key is None:
            exchange.key = new_id("idem_")
        return {**headers, KEY: exchange.key}


def _ending(
    attempt: Attempt, exchange: Exchange
) -> Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], bool]:
    """What tells at the end of a stream that the attempt is over, and how."""
    attempt.answered()

    def ended(_: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        attempt.ended(error, exchange.written)
        return False

    return ended


def _is_of_tools(exchange: Exchange, refusal: UpstreamRefused) -> bool:
    """Whether a model that takes no tools refuses the one that the gateway gave it."""
    recall, forward = exchange.recall, exchange.request.forward
    is_new = recall is not None and not recall.paid and not own_tools(forward)
    return is_new and refusal.status in USAGE_REFUSALS and "tool" in str(refusal.original)
