"""The way of a request: rebuild, collect, plan, fit, assemble, send, account, commit; streams go it too."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gateway.accounting.stream import ChunkRelay
from gateway.assembly.body import request_body, with_output_limit
from gateway.assembly.cache_breakpoints import wants_breakpoints, with_breakpoints
from gateway.config.settings import ContextSettings
from gateway.context.draft import NO_MATERIAL, BuiltContext
from gateway.context.manager import ContextManager, PlannerAccess
from gateway.errors import (
    ConversationNotFound,
    InvalidRequest,
    UpstreamInterrupted,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.history.frames import for_origin
from gateway.history.rebuild import RebuildOptions, asks_anew, build_llm_messages, lacks_earlier, spread, with_earlier
from gateway.models.conversation import UNREAD, ConversationRef, History
from gateway.models.exchange import ChatRequest, ChunkStream, JsonAnswer
from gateway.ports import ConversationStore, FileStore, Upstream
from gateway.turn.exchange import Exchange, Outcome
from gateway.turn.settlement import Settlement
from gateway.upstream.routing.router import ConfiguredRouter
from gateway.window.budget import Budget, budget_for, tightened

T = TypeVar("T")
USAGE_REFUSALS = (400, 404, 422)
USAGE_SECONDS = 10.0
"""How long a finished answer is held for the upstream's usage."""
END_SECONDS = 1.0
"""How long it is held once usage is known, for an upstream that neither says that it is done nor leaves."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: the body for the client, and upstream's headers that are relayed."""

    body: dict[str, Any]
    headers: dict[str, str]
    conversation_id: str | None
    cost: Any = None


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that has begun: relayed headers, and the chunks still to come."""

    headers: dict[str, str]
    conversation_id: str | None
    batches: AsyncGenerator[list[dict[str, Any]], None] = field(repr=False)
    _close: Callable[[], Awaitable[None]] = field(repr=False)

    async def aclose(self) -> None:
        """Ends the upstream call, wherever it is, and keeps what it cost; to be called in any case."""
        await self.batches.aclose()
        await self._close()


class Pipeline:
    """Answers chat requests. Holds no state between them but what its ports hold."""

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
    ) -> None:
        self._router = router
        self._upstream = upstream
        self._store = store
        self._files = files
        self._context = context
        self._settlement = settlement
        self._settings = settings
        self._match = match

    async def answer(self, request: ChatRequest) -> Completion:
        """The whole story of a request that is answered at once.

        Raises:
            GatewayError: as drawn in `errors.py`; what the failed call cost is in the ledger by then.
        """
        exchange = await self._prepare(request)
        async with self._settlement.guard(exchange):
            answer = await self._send(exchange, self._complete)
            outcome = Outcome.of(answer)
            bill = await self._settlement.settle(exchange, outcome)
        self._leave(exchange)
        body = {**answer.body, "id": exchange.completion_id, "usage": bill.usage, **bill.named()}
        return Completion(body, answer.headers, exchange.conversation_id, bill.total)

    async def stream(self, request: ChatRequest) -> StreamedAnswer:
        """The same for a stream: returns once upstream has begun to answer.

        Raises:
            GatewayError: nothing has been sent yet.
        """
        exchange = await self._prepare(request)
        stack = AsyncExitStack()
        async with self._settlement.guard(exchange):
            opened = await self._send(exchange, lambda e: stack.enter_async_context(self._open(e)))

        async def close() -> None:
            await stack.aclose()
            self._settlement.abandon(exchange)

        batches = self._relay(exchange, opened, stack)
        return StreamedAnswer(opened.headers, exchange.conversation_id, batches, close)

    async def dry_run(self, request: ChatRequest) -> dict[str, Any]:
        """What would be forwarded and what it would cost; no model is called, nothing is stored (guarantee §5)."""
        exchange = await self._prepare(request)
        async with self._settlement.guard(exchange):
            estimate = await self._settlement.estimate(exchange)
            await self._settlement.bill_dry_run(exchange)
        return estimate

    async def _prepare(self, request: ChatRequest) -> Exchange:
        """Steps 1 to 5: everything that happens before the primary model is called."""
        deployment = self._router.deployment(request.model, request.caller)
        facts = self._router.facts(request.model)
        if request.attachments and not _can_attach(request):
            text = "Attachments need a user message to stand with, and a context.mode other than off."
            raise InvalidRequest(text, param="attachments", code="invalid_value")
        if request.options.mode == "off":
            await self._check_conversation(request)
            return Exchange(request, deployment, facts, Budget(None, None), UNREAD, None)
        budget = budget_for(facts, request.forward, request.options.max_input_tokens, self._settings)
        exchange = Exchange(request, deployment, facts, budget, UNREAD, None)
        async with self._settlement.guard(exchange):
            await self._build(exchange)
        return exchange

    async def _build(self, exchange: Exchange) -> None:
        """Steps 1 to 5 where a context is made."""
        request, facts, budget = exchange.request, exchange.facts, exchange.budget
        clock, origin = self._settlement.clock, exchange.deployment.origin
        built = self._context.untouched(request, facts, budget) if not request.attachments else None
        history = UNREAD
        if built is None or request.store or not self._is_first(request):
            request = await self._context.with_content(request, self._files)
            how = RebuildOptions(request.store, self._match, brief=built is not None, budget_tokens=budget.tokens)
            history = await build_llm_messages(request, self._store, how)
        rebuilt = clock.monotonic()
        if built is None or not history.as_sent:
            history = for_origin(history, origin)
            history, built = await self._in_context(exchange, request, history, budget)
        exchange.request, exchange.history, exchange.built = request, history, built
        exchange.conversation_id = history.conversation_id
        exchange.timings["rebuild"] = rebuilt - request.started
        exchange.timings["plan"] = clock.monotonic() - rebuilt
        if request.store and not request.options.dry_run:
            await self._reserve(exchange)

    async def _in_context(
        self, exchange: Exchange, request: ChatRequest, history: History, budget: Budget
    ) -> tuple[History, BuiltContext]:
        """Steps 2 to 5. What is older than what was read is read where a question may need it: where a turn begins, or
        everything has to be decided anew."""
        tenant, most = request.caller.tenant, self._settings.recall_bytes
        if asks_anew(history):
            history = await with_earlier(history, self._store, tenant, most)
        asking = PlannerAccess(exchange.deployment, exchange.internal, exchange.built.made if exchange.built else None)
        built = await self._context(request, history, exchange.facts, budget, asking)
        if built.fitted.anew and lacks_earlier(history):
            history = await with_earlier(history, self._store, tenant, most)
            built = await self._context(request, history, exchange.facts, budget, replace(asking, made=built.made))
        return history, built

    def _is_first(self, request: ChatRequest) -> bool:
        """Whether there is nothing that it could continue."""
        named = request.conversation != ConversationRef()
        return not named and (self._match == "off" or all(m["role"] != "assistant" for m in request.messages))

    async def _check_conversation(self, request: ChatRequest) -> None:
        """Mode `off` does not look into conversations, but an unknown one is unknown all the same."""
        named = request.conversation.conversation_id
        if named and not await self._store.has_conversation(request.caller.tenant, named):
            raise ConversationNotFound("No such conversation.", param="conversation")

    async def _reserve(self, exchange: Exchange) -> None:
        """What will have to be stored can be: asked before the model is paid for (guarantee §3.6)."""
        history = exchange.history
        if history.session and history.conversation_id:
            tenant = exchange.request.caller.tenant
            exchange.conversation_id = await self._store.claim_session(tenant, history.session, history.conversation_id)
        elif exchange.request.claim is None or not exchange.request.claim.shared:  # the claim has shown it
            await self._store.reachable()

    async def _send(self, exchange: Exchange, call: Callable[[Exchange], Awaitable[T]]) -> T:
        """Step 6. If upstream says overflow all the same, one refit; if it refuses to report usage, once without."""
        exchange.sent_at = self._settlement.clock.monotonic()
        while True:
            try:
                return await call(exchange)
            except UpstreamOverflow as overflow:
                if exchange.overflowed or exchange.built is None:
                    self._settlement.overflowed(exchange)
                    raise
                exchange.overflowed = exchange.budget
                self._settlement.metrics.upstream_failed(exchange.request.model, overflow)
                await self._refit(exchange, exchange.built, overflow)
            except UpstreamRefused as refusal:
                asked = exchange.request.stream and exchange.ask_usage
                if not asked or refusal.status not in USAGE_REFUSALS or "stream_options" not in str(refusal.original):
                    raise
                self._settlement.metrics.upstream_failed(exchange.request.model, refusal)
                exchange.ask_usage = False

    async def _refit(self, exchange: Exchange, built: BuiltContext, overflow: UpstreamOverflow) -> None:
        if built.material is NO_MATERIAL:  # nobody has looked at its messages yet
            exchange.history = spread(exchange.request, exchange.history)
        budget = tightened(exchange.budget, built.fitted.tokens, overflow.reported, overflow.limit)
        request, history = exchange.request, exchange.history
        exchange.history, exchange.built = await self._in_context(exchange, request, history, budget)
        exchange.built.utilization.warnings.append("refitted_after_upstream_overflow")
        exchange.budget = budget

    async def _complete(self, exchange: Exchange) -> JsonAnswer:
        return await self._upstream.complete(exchange.deployment, self._body(exchange), exchange.headers)

    def _open(self, exchange: Exchange) -> Any:
        return self._upstream.stream(exchange.deployment, self._body(exchange), exchange.headers)

    def _body(self, exchange: Exchange) -> dict[str, Any]:
        exchange.called = True
        request, messages = exchange.request, exchange.messages
        if exchange.built is not None and wants_breakpoints(exchange.deployment, exchange.facts):
            goes_on = bool(exchange.conversation_id or any(message["role"] == "assistant" for message in messages))
            translated = exchange.deployment.protocol == "litellm"
            messages = with_breakpoints(messages, request.forward, goes_on=goes_on, translated=translated)
        return request_body(
            _forwarded(exchange),
            messages,
            exchange.deployment,
            stream=request.stream,
            ask_usage=exchange.ask_usage,
        )

    async def _relay(
        self, exchange: Exchange, opened: ChunkStream, stack: AsyncExitStack
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Chunks for the client; turn and bill are committed before the last of them (guarantee §3.6)."""
        request = exchange.request
        relay = ChunkRelay(exchange.completion_id, request.choices, request.include_usage)
        batches = opened.batches()

        def known() -> dict[str, Any]:
            return self._settlement.known(exchange)

        async with stack, self._settlement.guard(exchange, relay.record):
            while (batch := await _next(batches, relay)) is not None:
                if exchange.upstream_id is None:
                    exchange.upstream_id = next((chunk["id"] for chunk in batch if chunk.get("id")), None)
                if sent := relay.push(batch, known):
                    yield sent
                    exchange.delivered = True
            if not (relay.record.finished or opened.done):
                raise UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
            relay.conclude()
            outcome = Outcome.of_stream(relay.record)
            bill = await self._settlement.settle(exchange, outcome)
        self._leave(exchange)
        yield relay.final(bill.named(), bill.usage)

    def _leave(self, exchange: Exchange) -> None:
        """What an answered request leaves for later ones, once what it holds is stored."""
        built, named = exchange.built, exchange.conversation_id
        if built is not None and named:
            tenant = exchange.request.caller.tenant
            self._context.afterwards(built, lambda: self._store.has_conversation(tenant, named))


async def _next(batches: AsyncGenerator[list[dict[str, Any]], None], relay: ChunkRelay) -> list[dict[str, Any]] | None:
    """The next chunks, or None at the end; once every choice is finished, no fault and no silence keeps the answer
    from its client."""
    if not relay.record.complete:
        return await anext(batches, None)
    try:
        async with asyncio.timeout(USAGE_SECONDS if relay.record.usage is None else END_SECONDS):
            return await anext(batches, None)
    except (TimeoutError, UpstreamInterrupted, UpstreamTimeout):
        return None


def _can_attach(request: ChatRequest) -> bool:
    """Documents enter through the block at the head of the current user message; a conversation may have one."""
    has_user = any(message["role"] == "user" for message in request.messages)
    continues = request.conversation.conversation_id or request.conversation.session
    return request.options.mode != "off" and bool(has_user or continues)


def _forwarded(exchange: Exchange) -> dict[str, Any]:
    """The client's fields, and how long the answer may become where the provider has to be told."""
    budget, built = exchange.budget, exchange.built
    if built is None:
        return exchange.request.forward
    return with_output_limit(
        exchange.request.forward,
        exchange.deployment,
        exchange.facts,
        window=budget.context_window,
        prompt=built.fitted.tokens,
        reserved=budget.reserved_output,
        refitted=exchange.overflowed is not None,
    )
