"""The way of a request: rebuild, collect, plan, fit, assemble, send, account, commit. Streams take the same road."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.config.routing import RoutingSettings
from gateway.config.settings import ContextSettings
from gateway.context.manager import ContextManager, PlannerAccess
from gateway.context.planner import plan_of_then
from gateway.context.report import BuiltContext
from gateway.context.whole_files import passed_on
from gateway.errors import ContextLengthExceeded, InvalidRequest, UpstreamOverflow
from gateway.history.frames import for_origin
from gateway.history.rebuild import (
    RebuildOptions,
    build_llm_messages,
    completed_history,
    new_history,
    starts_conversation,
)
from gateway.models.exchange import Caller, ChatRequest, ChunkStream, Deployment
from gateway.models.memory import EXTRACTS
from gateway.models.routing import Candidates, hint_of
from gateway.ports import Spans, Upstream
from gateway.ports.documents import FileStore
from gateway.storage.store import ConversationStore
from gateway.turn.body import as_it_goes_up
from gateway.turn.echoes import StreamWithoutEchoes
from gateway.turn.exchange import Exchange, Outcome, Paused
from gateway.turn.guarded import GuardedTurns
from gateway.turn.recalled_stream import StreamWithRecall
from gateway.turn.recaller import Recaller, offered
from gateway.turn.rolling_summaries import RollingSummaries
from gateway.turn.sending import Sender
from gateway.turn.settlement import Settlement
from gateway.turn.streaming import Receiver, StreamedAnswer, relay
from gateway.turn.unstored_frames import UnstoredFrames
from gateway.upstream.routing.protocols import Protocols, needs_no_pictures
from gateway.upstream.routing.router import ConfiguredRouter
from gateway.window.budget import Budget, TurnBound, budget_for, cleared_above, tightened, writable

DEFAULT_ROUTING = RoutingSettings()


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: the body for the client, and upstream's headers that are relayed."""

    body: dict[str, Any]
    headers: dict[str, str]
    conversation_id: str | None
    cost: Decimal | None = None


class Pipeline:
    """Answers chat requests. It holds nothing between them but what its collaborators hold."""

    def __init__(
        self,
        router: ConfiguredRouter,
        upstream: Upstream,
        store: ConversationStore,
        files: FileStore,
        context: ContextManager,
        settlement: Settlement,
        settings: ContextSettings,
        match: str,
        protocols: Protocols,
        recaller: Recaller,
        summaries: RollingSummaries | None = None,
        routing: RoutingSettings = DEFAULT_ROUTING,
        turns: TurnBound | None = None,
    ) -> None:
        self._turns = turns
        self._router = router
        self._store = store
        self._files = files
        self._context = context
        self._settlement = settlement
        self._settings = settings
        self._match = match
        self._protocols = protocols
        self._recaller = recaller
        self._summaries = summaries
        self._sender = Sender(upstream, settlement, protocols, routing, self)
        self.spans: Spans = nullcontext
        self.guarded: GuardedTurns | None = None
        self.reserve: Callable[[Exchange], Awaitable[None]] | None = None
        """Called before a model is asked for a request that budgets or limits apply to."""
        self.frames: UnstoredFrames | None = None
        """What models were sent of conversations that are not stored."""

    async def answer(self, request: ChatRequest) -> Completion:
        """Answers a request at once.

        Raises:
            GatewayError: as drawn in `errors`; what the failed call cost is in the ledger by then.
        """
        exchange = await self._prepare(request)
        async with self._settlement.recording_failure(exchange):
            await self._reserve_cost(exchange)
            answer = await self._sender.whole(exchange)
            if exchange.recall is not None:
                answer = await self._recaller.answered(exchange, answer, lambda: self._sender.whole(exchange))
            bill = await self._settlement.settle(exchange, Outcome.of(answer))
        self._keep(exchange)
        body = {**answer.body, "id": exchange.completion_id, "usage": bill.usage, **bill.fields()}
        return Completion(body, exchange.headers(answer.headers), exchange.conversation_id, bill.total)

    async def stream(self, request: ChatRequest) -> StreamedAnswer:
        """Answers a request by a stream; returns once upstream has begun to answer.

        Raises:
            GatewayError: nothing has been sent yet.
        """
        exchange = await self._prepare(request)
        stack = AsyncExitStack()

        async def opening() -> ChunkStream:
            await stack.aclose()  # of a round before
            return await self._sender.opened(exchange, stack)

        async with self._settlement.recording_failure(exchange):
            await self._reserve_cost(exchange)
            opened = await opening()

        if exchange.recall is not None:
            opened = StreamWithRecall(opened, exchange, self._recaller, opening)
        if request.agent is not None and request.agent.echoes:
            opened = StreamWithoutEchoes(opened)

        async def close() -> None:
            await stack.aclose()
            self._settlement.abandon(exchange)

        async def send_to(receiver: Receiver) -> None:
            await relay(receiver, exchange, opened, stack, self._settlement, lambda: self._keep(exchange))

        return StreamedAnswer(exchange.headers(opened.headers), exchange.conversation_id, send_to, close)

    def check_model(self, model: str, caller: Caller) -> None:
        """
        Raises:
            ModelNotFound, ModelNotAllowed, Unauthorized: this caller cannot be answered by it.
        """
        self._deployment(model, caller)

    def _deployment(self, model: str, caller: Caller) -> Deployment:
        found = self._router.deployment(model, caller)
        caller.check_model(model)
        return found

    async def count(self, request: ChatRequest) -> int:
        """Tokens of a request's prompt as it was sent.

        Raises:
            ModelNotFound, ModelNotAllowed, Unauthorized: this caller cannot be answered by its model.
        """
        deployment = self._deployment(request.model, request.caller)
        await self._router.learn(request.model, deployment)
        return await self._context.count(request, self._router.facts(request.model, deployment))

    async def dry_run(self, request: ChatRequest) -> dict[str, Any]:
        """What would be forwarded and what it would cost. The primary model is not called; nothing is stored but the
        bill of internal models (guarantee §5)."""
        exchange = await self._prepare(request)
        async with self._settlement.recording_failure(exchange):
            estimate = await self._settlement.estimate(exchange, as_it_goes_up(exchange).messages)
            await self._settlement.bill_dry_run(exchange)
        return estimate

    async def _prepare(self, request: ChatRequest) -> Exchange:
        """Steps 1 to 5: everything that happens before the primary model is called."""
        self._store.check_writable()
        candidates = self.candidates(request)
        for name in (request.model, *request.options.models.values()):  # a key's models are also those that plan for it
            request.caller.check_model(name)
        for fields in (request.forward, request.native.fields if request.native is not None else {}):
            request.caller.check_models_of(fields)
        await self._router.learn(request.model, candidates.first)
        exchange = self._open_exchange(request, candidates, candidates.first)
        if request.is_proxied:
            exchange.own = await passed_on(request, self._files)
            return exchange
        async with self._settlement.recording_failure(exchange):
            started, clock = request.started, self._settlement.clock
            with self.spans("rebuild"):
                await self._rebuild(exchange)
            rebuilt = clock.monotonic()
            if exchange.built is None:
                try:
                    exchange.built = await self._first_build(exchange)
                except ContextLengthExceeded as error:
                    if not await self._sender.instead(exchange, error):
                        raise
            if self.guarded is not None:
                await self.guarded.make_room(exchange, self._build)
            exchange.timings = {"rebuild": rebuilt - started, "plan": clock.monotonic() - rebuilt}
            exchange.conversation_id = exchange.history.conversation_id if exchange.history else None
            await self._check_storable(exchange)
            self._settlement.running.enter(exchange)
        return exchange

    def _open_exchange(self, request: ChatRequest, candidates: Candidates, deployment: Deployment) -> Exchange:
        asked = request
        facts = self._router.facts(request.model, deployment)
        if request.attachments and not _can_attach(request):
            text = "Attachments need a user message to stand with, and a context.mode other than off."
            raise InvalidRequest(text, param="attachments", code="invalid_value")
        spoken, fallback = deployment, None
        if request.native is not None:
            native = request.native
            if native.needs and self._files.keeps(request.caller):
                native = needs_no_pictures(native)
                request = replace(request, native=native)
            spoken, fallback = self._protocols.of(deployment, native)
            taken = self._protocols.taken(spoken, native)
            if taken is not native:
                request = replace(request, native=taken)
        if request.api == "messages" and spoken.protocol != "anthropic":
            request = replace(request, forward=writable(request.forward, facts))
        if request.options.mode == "off":
            budget = Budget(None, None)
            return Exchange(request, spoken, facts, budget, asked, candidates, deployment, fallback=fallback)
        budget = budget_for(facts, request.forward, request.options.max_input_tokens, self._settings)
        budget = replace(budget, turns=self._turns)
        recall = None
        if request.options.recall and not request.options.whole:
            request, budget, recall = offered(request, spoken, facts, budget, self._settings)
        made = Exchange(request, spoken, facts, budget, asked, candidates, deployment, fallback=fallback)
        made.recall = recall
        return made

    async def _rebuild(self, exchange: Exchange) -> None:
        """Step 1. If the request surely fits and its client sent all of the conversation, this also sets `built`: its
        messages are forwarded as they came, and steps 2 to 5 are skipped."""
        request = exchange.request
        budget = cleared_above(exchange.budget, request.options.clear_above)
        as_sent = await self._context.as_sent(request, exchange.facts, budget)
        # of what is not stored, a frame may be known, whoever's conversations are continued
        if as_sent is None or request.store or not starts_conversation(request, "tenant"):
            exchange.request = request = await self._context.with_content(request, self._files)
            fits = as_sent is not None
            options = RebuildOptions(
                request.store,
                self._match,
                fits_as_sent=fits,
                budget_tokens=budget.tokens,
                before_lookup=partial(self._settlement.running.ended, request),
            )
            history = await build_llm_messages(request, self._store, options)
            if self.frames is not None:
                history, exchange.kept_frame = await self.frames.put_over(request, history)
            exchange.history = await self._context.with_things(request, history)
        if exchange.history is None or exchange.history.as_sent:
            exchange.built = as_sent

    async def _first_build(self, exchange: Exchange) -> BuiltContext:
        """Steps 2 to 5, with room made above `clear_above` where that can be done."""
        wanted = cleared_above(exchange.budget, exchange.request.options.clear_above)
        if wanted is not exchange.budget:
            with suppress(ContextLengthExceeded):
                built = await self._build(exchange, wanted)
                exchange.budget = wanted
                if built.fitted.new_pass and exchange.request.options.pauses:
                    raise Paused(exchange.request, exchange.history.parent_id if exchange.history else None)
                built.utilization.compacted = exchange.request.options.compacts and built.fitted.new_pass
                return built
        return await self._build(exchange, exchange.budget)

    async def _build(self, exchange: Exchange, budget: Budget) -> BuiltContext:
        """Steps 2 to 5. `exchange.history` stays without frames: `new_frame` compares against it.

        In mode `off` the named conversation is put in front, and nothing is managed: no window, no model is asked.
        """
        request = exchange.request
        if request.options.mode == "off":
            request = replace(request, options=replace(request.options, mode="simple", planning="never", whole=False))
        history = exchange.history or new_history(request)
        exchange.history = for_origin(history, exchange.deployment.origin)
        plan = exchange.built.plan if exchange.built else exchange.plan
        if request.options.what_if is not None:
            plan = plan_of_then(request.options.what_if, trusted=self._settings.trust_planner)
        begin = partial(self._settlement.open_calls.begin, exchange)
        access = PlannerAccess(exchange.deployment, exchange.scope, plan, begin)
        build = self._context.build_for_agent if exchange.request.is_worded else self._context.build
        exchange.profile = profile = self._context.profile(exchange.request, exchange.history, exchange.facts)
        if profile is None:
            return await build(request, exchange.history, exchange.facts, budget, access)
        in_front = ({"role": "system", "content": profile.text},) if profile.text else ()
        history = replace(exchange.history, instructions=(*in_front, *exchange.history.instructions))
        built = await build(request, history, exchange.facts, budget, access)
        built.utilization.profile = profile.as_json()
        return built

    async def _check_storable(self, exchange: Exchange) -> None:
        """Makes sure, before the model is paid for, that the turn can be stored (guarantee §3.6)."""
        request, history = exchange.request, exchange.history
        if not request.store or request.options.dry_run or history is None:
            return
        if history.session and history.conversation_id:
            claimed = await self._store.claim_session(request.caller.tenant, history.session, history.conversation_id)
            exchange.conversation_id = claimed
        elif request.claim is None or not request.claim.shared:  # the claim has shown it
            await self._store.reachable()

    async def _reserve_cost(self, exchange: Exchange) -> None:
        """Makes sure that budgets and limits have room for what is about to be asked (guarantee §12.3)."""
        if exchange.request.admissions and self.reserve is not None:
            await self.reserve(exchange)

    def candidates(self, request: ChatRequest) -> Candidates:
        """See `Contexts.candidates`."""
        alone = self._router.alone(request.model)
        if alone is not None:
            return alone
        return self._router.candidates(request.model, request.caller, hint_of(request))

    async def anew(self, exchange: Exchange, request: ChatRequest, candidates: Candidates, at: Deployment) -> Exchange:
        """Steps 1 to 5 for another deployment or model, see `Contexts.anew`."""
        await self._router.learn(request.model, at)
        made = self._open_exchange(request, candidates, at)
        made.internal = exchange.internal
        made.plan = exchange.built.plan if exchange.built is not None else exchange.plan
        if not request.is_proxied:
            await self._rebuild(made)
            if made.built is None:
                made.built = await self._first_build(made)
            if self.guarded is not None:
                await self.guarded.make_room(made, self._build)
        await self._reserve_cost(made)  # it may be dearer
        return made

    def refused(self, exchange: Exchange, overflow: UpstreamOverflow) -> None:
        """See `Contexts.refused`."""
        self._router.refused(exchange.request.model, exchange.chosen, overflow.told_window)

    async def refit(self, exchange: Exchange, built: BuiltContext, overflow: UpstreamOverflow) -> None:
        """See `Contexts.refit`."""
        exchange.refused_budget = exchange.budget
        if built.is_as_sent and exchange.history is not None:
            exchange.history = completed_history(exchange.request, exchange.history)
        budget = tightened(exchange.budget, built.fitted.tokens, overflow.reported, overflow.limit)
        request, facts = exchange.request, self._router.facts(exchange.request.model, exchange.chosen)
        if facts != exchange.facts:  # its window is known by now
            exchange.facts = facts
            known = budget_for(facts, request.forward, request.options.max_input_tokens, self._settings)
            budget = replace(known, tokens=min(known.tokens or 1, budget.tokens or 1))
        exchange.built = await self._build(exchange, budget)
        exchange.built.utilization.warnings.append("refitted_after_upstream_overflow")
        exchange.budget = budget

    def _keep(self, exchange: Exchange) -> None:
        """What an answered request leaves for later ones, once it is stored."""
        built, conversation_id = exchange.built, exchange.conversation_id
        exchange.candidates.remember(exchange.completion_id, exchange.chosen)
        if built is not None and conversation_id:
            tenant = exchange.request.caller.tenant
            self._context.keep(built, lambda: self._store.has_conversation(tenant, conversation_id))
            if self._summaries is not None and exchange.request.options.memory != EXTRACTS:
                self._summaries.after(exchange)


def _can_attach(request: ChatRequest) -> bool:
    """Documents enter through the block at the head of the current user message; a conversation may have one."""
    has_user = any(message["role"] == "user" for message in request.messages)
    ref = request.conversation
    continues = ref.conversation_id or ref.session or ref.is_point
    return request.options.mode != "off" and bool(has_user or continues)
