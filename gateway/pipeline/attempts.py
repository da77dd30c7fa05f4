"""Prepares a request for one target after another, until one answers: rebuilds the conversation, builds the context,
and reserves the possible cost in the budgets. After a failure, `AttemptedRoute` chooses the next target: another
deployment, or another model (ADR 29). All of that happens before the client receives anything (guarantee §12.6,
§12.7)."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import TypeVar

from gateway.billing import budgets, cost
from gateway.context import BuiltContext, PlannerAccess, whole_files
from gateway.conversations import message_forms, rebuild
from gateway.core import errors, ids, ports
from gateway.core.config import setting_sections
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import logs
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.types import bill, keys, upstreams
from gateway.core.types.chat import (
    ChatRequest,
    ChunkStream,
    JsonAnswer,
    ModelDeployment,
    ModelFacts,
    PromptBudget,
    RequestCaller,
    TurnBound,
)
from gateway.core.types.conversation import ConversationHistory
from gateway.pipeline import payload
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.settlement import RequestSettlement
from gateway.pipeline.stages import (
    KeptFrame,
    PausedRequest,
    PreparedRequest,
    RequestRun,
    Target,
    TargetWire,
    not_paused,
)
from gateway.upstream.routing import ConfiguredRouter, KnownProtocols, RoutingCandidates, health, protocols, router

T = TypeVar("T")
log = logs.get_logger("gateway.pipeline.attempts")
IDEMPOTENCY_KEY_HEADER = "idempotency-key"
UNDRAWN = nullcontext()
FORWARDED = re.compile(r"\Amessages\[.*")
USAGE_REFUSALS = (400, 404, 422)
"""Statuses with which upstreams refuse `stream_options`; their message names the field."""
SURPLUS_TRIES = 3
"""How often a context is rebuilt for the tokens that features add; they add fewer to a smaller context."""


class RequestPreparer:
    """Prepares requests for sending, and again where an upstream refuses them."""

    def __init__(self, *, settings: Settings, parts: PipelineParts, settlement: RequestSettlement) -> None:
        self._parts = parts
        self._settings = settings.context
        self._match = settings.conversation.match
        self._turns = TurnBound.of(settings.max_turns, settings.memory.oldest_share)
        self._protocols = KnownProtocols(parts.clock, settings.upstream.hosted_tools)
        self._settlement = settlement

    async def another(self, run: RequestRun, target: Target) -> PreparedRequest:
        """Prepares the request of `run` for another target, conversation and context included; `run` is unchanged.
        Raises GatewayError: that target cannot be asked."""
        before = run.prepared
        prepared = await self.for_target(run.asked, target)
        prepared = replace(prepared, conversation_id=before.conversation_id, inlined=before.inlined)
        if prepared.request.options.pauses:  # the trigger that its client set was not reached at the first target
            prepared = replace(prepared, budget=replace(prepared.budget, clear_above=None))
        if not prepared.request.is_relayed:
            prepared = await self.rebuilt(prepared)
            prepared = await self.with_surplus(run, not_paused(await self.built(run, prepared)))
        return prepared

    async def for_target(self, asked: ChatRequest, target: Target) -> PreparedRequest:
        """Adapts a request to its target, before its conversation is read.
        Raises InvalidRequest: the request needs what the target lacks; names the field."""
        facts = await self._parts.router.learn(target.model, target.chosen)
        request = asked if asked.model == target.model else replace(asked, model=target.model)
        if request.attachments and not _can_attach(request):
            text = "Attachments need a user message to stand with, and a context.mode other than off."
            raise errors.InvalidRequest(text, param="attachments", code="invalid_value")
        wire = TargetWire(target.chosen)
        if (native := request.native) is not None:
            if native.needs and self._parts.files.keeps(request.caller):
                native = protocols.needs_no_pictures(native)
            wire = TargetWire(*self._protocols.of(target.chosen, native))
            taken = self._protocols.taken(wire.deployment, native)
            request = request if taken is request.native else replace(request, native=taken)
        else:
            request = self._protocols.of_chat(target.chosen, request)
        if request.api == "messages" and wire.deployment.protocol != "anthropic":
            request = replace(request, forward=payload.writable(request.forward, facts))
        features, budget = self._parts.features.of(asked), self._budget(request, facts)
        prepared = PreparedRequest(asked, request, target, wire, facts, budget, features)
        for hook in features.on_request if request.options.mode != "off" else ():
            prepared = hook(prepared)
        return prepared

    def _budget(self, request: ChatRequest, facts: ModelFacts) -> PromptBudget:
        options = request.options
        if options.mode == "off":
            return PromptBudget(None, None, clear_above=options.clear_above)
        budget = payload.budget_for(facts, request.forward, options.max_input_tokens, self._settings)
        if self._turns is None and options.clear_above is None:
            return budget
        return replace(budget, turns=self._turns, clear_above=options.clear_above)

    async def rebuilt(self, prepared: PreparedRequest) -> PreparedRequest:
        """Rebuilds the conversation. If the request surely fits and its client sent all of it, the context is known as
        well: its messages are forwarded as they came."""
        with self._parts.spans("rebuild"):
            return await self._rebuilt(prepared)

    async def _rebuilt(self, prepared: PreparedRequest) -> PreparedRequest:
        request, history, kept = prepared.request, None, None
        budget = prepared.budget.cleared
        if request.attachments:
            request = await self._parts.attachments.with_contents(request)
        await self._parts.counters.ready(prepared.facts)
        as_sent = None
        if not prepared.features.on_inputs:  # these read the conversation in another form
            as_sent = self._parts.context.as_sent(request, prepared.facts, budget)
        # a conversation that is not stored may still have a frame, whichever `match` is configured
        if as_sent is None or request.store or not rebuild.starts_conversation(request, "tenant"):
            options = rebuild.RebuildOptions(
                request.store,
                self._match,
                fits_as_sent=as_sent is not None,
                budget_tokens=budget.tokens,
                before_lookup=partial(self._settlement.running.ended, request),
            )
            history = await rebuild.build_llm_messages(request, self._parts.store, options)
            candidates = prepared.target.candidates
            if history.created and history.conversation_id and not history.session and candidates.several:
                history = replace(history, conversation_id=candidates.named(partial(ids.new_id, ids.CONVERSATION)))
            if self._parts.frames is not None and not request.store:
                history, kept = await self._parts.frames.with_frame(request, history)
        context = as_sent if history is None or history.as_sent else None
        prepared = with_context(prepared, request, history, kept, context)
        for hook in prepared.features.on_history:
            prepared = await hook(prepared)
        return prepared

    async def storable(self, prepared: PreparedRequest) -> PreparedRequest:
        """Ensures that the request's turn can be stored, before a model is paid for (guarantee §3.6)."""
        request, history = prepared.request, prepared.history
        if not request.store or request.options.dry_run or history is None:
            return prepared
        if history.session and history.conversation_id:
            claimed = await self._parts.store.claim_session(
                request.caller.tenant, history.session, history.conversation_id
            )
            return replace(prepared, conversation_id=claimed)
        if request.claim is None or not request.claim.shared:  # the claim has proved it
            await self._parts.store.reachable()
        return prepared

    async def built(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest | PausedRequest:
        """Builds the context where one is needed, and once more for each feature that then changes the request.
        Raises ContextLengthExceeded: it cannot be made to fit."""
        if prepared.context is not None:
            return prepared
        made = await self._built_or_paused(run, prepared)
        for hook in prepared.features.on_context:
            again = hook(made) if isinstance(made, PreparedRequest) else None
            if again is not None:
                with suppress(errors.ContextLengthExceeded):
                    made = await self._built_or_paused(run, again)  # its planner is not asked twice
        return made

    async def _built_or_paused(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest | PausedRequest:
        """Builds the context to `clear_above` if the prompt can be cleared that far, else to the budget. If clearing
        starts a pass of which its client wants to know first, the request pauses.
        Raises ContextLengthExceeded: it cannot be made to fit."""
        options, wanted = prepared.request.options, prepared.budget.cleared
        if wanted is not prepared.budget:
            with suppress(errors.ContextLengthExceeded):
                made, built = await self._built_to(run, prepared, wanted)
                if built.fitted.new_pass and options.pauses:
                    return PausedRequest(made.request, made.history.parent_id if made.history else None)
                built.utilization.compacted = options.compacts and built.fitted.new_pass
                return replace(made, budget=wanted)
        return (await self._built_to(run, prepared, prepared.budget))[0]

    async def with_surplus(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest:
        """Refits the request until it holds the tokens that features add before sending, such as placeholders
        (guarantee §12.10): only what the client said is counted before.
        Raises ContextLengthExceeded: it cannot be made to fit."""
        hooks, budget = prepared.features.on_payload, prepared.budget
        if not hooks or prepared.context is None:
            return prepared
        counter = self._parts.counters.counter(prepared.facts)
        most = room = budget.tokens
        for left in range(SURPLUS_TRIES, -1, -1):
            surplus = sum([await hook(prepared, counter) for hook in hooks])
            prepared = replace(prepared, surplus=surplus)
            if most is None or room is None or not surplus or _tokens(prepared) <= most:
                return prepared
            room = min(room - 1, most - surplus)
            if room <= 0 or not left:
                break
            prepared = (await self._built_to(run, prepared, replace(budget, tokens=room)))[0]
        raise errors.ContextLengthExceeded(budget.overflow(_tokens(prepared)), param="messages")

    async def _built_to(
        self, run: RequestRun, prepared: PreparedRequest, budget: PromptBudget
    ) -> tuple[PreparedRequest, BuiltContext]:
        """Builds the context to a budget. `history` stays as it is stored: `new_frame` compares against it.

        In mode `off` the named conversation precedes the request, and nothing is managed: no window, no planner.
        """
        request, facts, context = prepared.request, prepared.facts, self._parts.context
        history = _whole_history(prepared)
        history = message_forms.for_origin(history, prepared.wire.deployment.origin)
        plan = prepared.plan if prepared.context is not None else run.prepared.plan
        begin = partial(self._settlement.open_calls.begin, run, prepared)
        held, scope = budgets.InternalReservation(request.admission), run.scope
        if request.admission is not None:
            scope = replace(scope, reserve=held.reserve)
            if not request.options.dry_run:
                held.beside(_charged(run, prepared) + (self._most(prepared, budget.tokens or 0)[0] or 0))
        access = PlannerAccess(prepared.wire.deployment, scope, plan, begin)
        shown, reports = history, []
        for hook in prepared.features.on_inputs:
            if (read := await hook(prepared, shown, budget)) is not None:
                shown = read.history
                reports.append(read.report)
        if request.options.mode == "off":
            options = replace(request.options, mode="simple", economy=bill.OFF, planning="never", whole=False)
            request = replace(request, options=options)
        built = await context.build(request, shown, facts, budget, access)
        for report in reports:
            built = report(built) if report is not None else built
        if prepared.recall is not None:
            built = replace(built, recalls=True)
        return with_context(prepared, prepared.request, history, prepared.kept_frame, built), built

    async def reserve(self, run: RequestRun, prepared: PreparedRequest, failed: bill.CallCost | None = None) -> None:
        """Reserves a request's maximum cost in budgets and limits: the prompt as counted plus the longest possible
        answer, multiplied by the number of calls that `recall` allows, and what its internal models and its failed
        tries, of which `failed` is not booked yet, have cost (guarantee §12.3). A dry run reserves that alone: there
        will be no bill of a primary call.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: the model must not be asked."""
        request = prepared.request
        if request.admission is None:
            return
        spent = _charged(run, prepared, failed)
        if request.options.dry_run:
            await request.admission.reserve(spent, 0)
            return
        prompt = self._prompt_at_most(prepared)
        most, output = self._most(prepared, prompt)
        await request.admission.reserve(None if most is None else most + spent, prompt + output)

    def _most(self, prepared: PreparedRequest, prompt: int) -> tuple[int | None, int]:
        """Returns the most that the primary model may cost in picodollars (None: no known price), and the tokens it
        may write, for a prompt of so many tokens."""
        request, facts = prepared.request, prepared.facts
        forward = {**prepared.wire.deployment.parameters, **request.forward}
        reserved = prepared.budget.reserved_output or self._settings.reserved_output_tokens
        output = budgets.most_output(forward, request.choices, facts.max_output_tokens, reserved)
        kinds = cost.dearer_kinds(facts.prices, forward, prepared.messages)
        most = budgets.most_cost(facts.prices, prompt, output, forward.get("service_tier"), kinds)
        if most is not None and prepared.recall is not None:
            most *= 1 + prepared.recall.left
        return most, output

    def _prompt_at_most(self, prepared: PreparedRequest) -> int:
        context = prepared.context
        if context is not None and context.fitted.tokens:
            return budgets.prompt_at_most(context.fitted.tokens, exact=context.fitted.exact)
        counter = self._parts.counters.counter(prepared.facts)
        tokens, exact = counter.estimate(prepared.messages)
        return budgets.prompt_at_most(tokens + counter.tools(prepared.request.forward), exact=exact)

    async def mended(self, run: RequestRun, refusal: errors.UpstreamRefused) -> PreparedRequest:
        """Mends a request that its target has refused, to be sent again: refitted (once) if it was too long; without
        what the upstream lacks, or thoughts that it does not know; or translated to chat completions.
        Raises UpstreamRefused: the given one, if nothing can be mended; an overflow gets the figures that are known;
        InvalidRequest: the request needs what no other API has."""
        prepared = run.prepared
        if isinstance(refusal, errors.UpstreamOverflow):
            return await self._refitted(run, refusal)
        if (bare := payload.without_unknown_thoughts(prepared, refusal)) is not None:
            return bare
        native, wire = prepared.request.native, prepared.wire
        is_unspoken = refusal.status in protocols.NOT_SPOKEN
        if native is not None and native.protocol == wire.deployment.protocol and is_unspoken:
            spoken = self._protocols.instead(wire.deployment, wire.fallback, native, refusal)
            return replace(prepared, wire=replace(wire, deployment=spoken, fallback=None))
        if native is not None and native.hosted and native.protocol == wire.deployment.protocol:
            with suppress(errors.UpstreamRefused):
                taken = self._protocols.without_refused(wire.deployment, native, refusal)
                return replace(prepared, request=replace(prepared.request, native=taken))
        for hook in prepared.features.on_refusal:
            if (again := hook(prepared, refusal)) is not None:
                return again
        asked = prepared.request.stream and wire.asks_usage
        if not asked or refusal.status not in USAGE_REFUSALS or "stream_options" not in str(refusal.original):
            raise refusal
        self._settlement.metrics.upstream_failed(prepared.request.model, refusal)
        return replace(prepared, wire=replace(wire, asks_usage=False))

    async def _refitted(self, run: RequestRun, overflow: errors.UpstreamOverflow) -> PreparedRequest:
        prepared, context = run.prepared, run.prepared.context
        request, facts, target = prepared.request, prepared.facts, prepared.target
        self._parts.router.refused(request.model, target.chosen, overflow.told_window)
        window = facts.context_window or facts.max_input_tokens
        if prepared.refused_budget or context is None or request.options.mode == "off":
            self._settlement.usage.learn_refusal(prepared)
            overflow.explain(window, context.fitted.tokens if context else None)
            raise overflow
        self._settlement.metrics.upstream_failed(request.model, overflow)
        budget = payload.tightened(prepared.budget, context.fitted.tokens, overflow.reported, overflow.limit)
        known = self._parts.router.facts(request.model, target.chosen)
        if known != facts:  # its window is known by now
            whole = self._budget(request, known)
            budget = replace(whole, tokens=min(whole.tokens or 1, budget.tokens or 1))
        again = replace(prepared, facts=known, refused_budget=prepared.budget)
        run.continue_as(again)
        try:
            made, built = await self._built_to(run, again, budget)
        except errors.ContextLengthExceeded:
            overflow.explain(window, context.fitted.tokens)
            raise overflow from None  # the upstream's error: its count is the one that caused the refusal
        built.utilization.warnings.append("refitted_after_upstream_overflow")
        return replace(made, budget=budget)


def with_context(
    prepared: PreparedRequest,
    request: ChatRequest,
    history: ConversationHistory | None,
    kept_frame: KeptFrame | None,
    context: BuiltContext | None,
) -> PreparedRequest:
    """Returns the request with its conversation and context. Built by hand, as each request passes here and
    `dataclasses.replace` takes ten times as long."""
    return PreparedRequest(
        asked=prepared.asked,
        request=request,
        target=prepared.target,
        wire=prepared.wire,
        facts=prepared.facts,
        budget=prepared.budget,
        features=prepared.features,
        history=history,
        context=context,
        inlined=prepared.inlined,
        recall=prepared.recall,
        kept_frame=kept_frame,
        refused_budget=prepared.refused_budget,
        surplus=prepared.surplus,
        conversation_id=prepared.conversation_id,
    )


def _charged(run: RequestRun, prepared: PreparedRequest, failed: bill.CallCost | None = None) -> int:
    """Returns the picodollars that were charged for the request so far; `failed`: a try that is not booked yet."""
    tries, rounds, _ = run.booked(prepared)
    calls = [*tries, *rounds, *map(cost.price_internal, run.internal), *([failed] if failed is not None else ())]
    return sum(keys.picousd(call.total or Decimal(0)) for call in calls)


def _tokens(prepared: PreparedRequest) -> int:
    return prepared.surplus + (prepared.context.fitted.tokens if prepared.context is not None else 0)


def _whole_history(prepared: PreparedRequest) -> ConversationHistory:
    """Returns the conversation from which a context is built: completed where its messages were to be forwarded as they
    came, and were not examined."""
    history, context = prepared.history, prepared.context
    if history is not None and context is not None and context.is_as_sent:
        return rebuild.completed_history(prepared.request, history)
    return history or rebuild.new_history(prepared.request)


def _can_attach(request: ChatRequest) -> bool:
    """Returns whether documents can be attached: their block heads the current user message, if there can be one."""
    has_user = any(message["role"] == "user" for message in request.messages)
    ref = request.conversation
    continues = ref.conversation_id or ref.session or ref.is_point
    return request.options.mode != "off" and bool(has_user or continues)


class ModelRoutes:
    """Knows where models are served, and how many requests are being answered."""

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
        """Selects the target that a request asks first.
        Raises ModelNotFound, Unauthorized, ModelNotAllowed: there is none, or none for this caller."""
        candidates = self.candidates(request)
        request.check_models()
        return Target(request.model, candidates, candidates.first)

    def candidates(self, request: ChatRequest) -> RoutingCandidates:
        """Returns where the request's model is served. Raises ModelNotFound, Unauthorized: nowhere for this caller."""
        alone = self._router.alone(request.model)
        return alone or self._router.candidates(request.model, request.caller, router.hint_of(request))

    def check_model(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Returns the deployment that serves a caller. Raises ModelNotFound, ModelNotAllowed, Unauthorized: none."""
        found = self._router.deployment(model, caller)
        caller.check_model(model)
        return found


class AnsweredRequests:
    """Counts the requests being answered: each is inside a `with` block of this object."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class AttemptedRoute:
    """The tries of one request for one answer, and the targets that may follow."""

    def __init__(self, routes: ModelRoutes, run: RequestRun) -> None:
        self._routes = routes
        self._settings = routes.settings
        self._run = run
        self._models = [run.asked.model]
        """Models that were asked, or could not be."""
        self._tries: list[ModelDeployment] = []
        self._is_drawn = False
        """The next try draws on the budget of retries."""
        self._passed_over: Target | None = None
        """A target that rests, and is asked once no other model answers."""
        self._key: tuple[PreparedRequest, str] | None = None

    def key_of(self, prepared: PreparedRequest) -> str:
        """Returns the `Idempotency-Key` of a body, the same as long as the same body is sent again."""
        if self._key is None or self._key[0] is not prepared:
            self._key = prepared, ids.new_id("idem_")
        return self._key[1]

    def trying(self) -> AbstractContextManager[None]:
        """Counts a try of the prepared target, and returns the context in which to ask it."""
        self._tries.append(self._run.prepared.target.chosen)
        return self._routes.budget.trying() if self._is_drawn else UNDRAWN

    async def healthy_models(self) -> AsyncIterator[Target]:
        """Yields healthy models to ask in place of one whose deployments are all resting."""
        is_exhausted = self._routes.has_fallbacks and self._run.prepared.target.candidates.exhausted
        self._passed_over = self._run.prepared.target if is_exhausted else None
        for target in (
            self._other_models("general", only_well=True) if is_exhausted and not self._run.is_delivered else ()
        ):
            yield target

    async def fallbacks(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Yields models to ask in place of one that cannot even be asked."""
        kind = health.kind_of(error, self._settings) if self._routes.has_fallbacks else None
        for target in self._other_models(kind) if kind is not None else ():
            yield target

    async def next_targets(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Yields targets to ask after an error, best first; a caller that takes one must ask it."""
        kind, left = health.kind_of(error, self._settings), self._seconds_left()
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
        last, self._passed_over = self._passed_over, None
        if last is not None and last.chosen not in self._tries and self._decide(error, last.chosen, rests=True).again:
            yield self._target(last.model, last.candidates, last.chosen)

    async def _other_tries(self, error: errors.GatewayError) -> AsyncIterator[Target]:
        """Yields targets of the same model: deployments not asked yet, else the last one again, after a wait."""
        target = self._run.prepared.target
        while True:
            other = target.candidates.next(target.chosen, error) if target.candidates.several else None
            rests = other is not None and target.candidates.rests(other)
            if other is not None and rests and self._routes.has_fallbacks and self._allowed_models("general"):
                self._passed_over = self._target(target.model, target.candidates, other)
                return
            decision = self._decide(error, other or target.chosen, rests=rests)
            if not decision.again:
                return
            if decision.wait > 0:
                with self._routes.budget.trying():  # it is the second try there
                    await self._routes.sleep(decision.wait)
                if self._run.asked.has_left():
                    return
            yield target if other is None else self._target(target.model, target.candidates, other)

    def _decide(self, error: errors.GatewayError, place: ModelDeployment, *, rests: bool) -> health.RetryDecision:
        """Decides whether to try a deployment next, and notes whether that draws on the budget of retries."""
        facts = health.FailedTry(
            error,
            len(self._tries),
            self._tries.count(place),
            begun=self._run.is_delivered,
            rests=rests,
            has_room=self._routes.budget.has_room(self._routes.answering.count),
            left=self._seconds_left(),
        )
        self._is_drawn = facts.is_drawn
        return health.decide(facts, self._settings, self._routes.chance.random, self._routes.clock.now())

    def _seconds_left(self) -> float | None:
        """Returns the seconds that the client still waits; None if it named no limit."""
        asked = self._run.asked
        return None if asked.patience is None else asked.started + asked.patience - self._routes.clock.monotonic()

    def _other_models(self, kind: health.Kind, *, only_well: bool = False) -> Iterator[Target]:
        """Yields fallback models. `only_well`: skips a model whose deployments are all resting."""
        for model in self._allowed_models(kind):
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
        candidates: RoutingCandidates,
        chosen: ModelDeployment,
        kind: health.Kind | None = None,
    ) -> Target:
        now = self._run.prepared.target
        first = now.chosen.origin if now.origin is None else now.origin
        return Target(model, candidates, chosen, now.number + 1, first, kind)

    def _allowed_models(self, kind: health.Kind) -> list[str]:
        """Returns the fallback models that this caller may ask."""
        asked, key = self._run.asked, self._run.asked.caller.key
        if not asked.fallbacks:
            return []
        names = health.instead_of(asked.model, self._run.prepared.request.model, kind, self._settings, self._models)
        return [name for name in names if key is None or key.may_ask(name)]

    def count_next(self, target: Target, error: errors.GatewayError | None, before: Target) -> None:
        """Counts a retry or a fallback in the metrics, and the error of the target before."""
        if error is not None:
            self._routes.metrics.upstream_failed(before.model, error)
        if target.kind is not None and target is not before:
            self._routes.metrics.fell_back(target.kind)
        elif error is not None:
            self._routes.metrics.retried(error)


class UpstreamSender:
    """Asks the target of a request; a refused request is mended and sent again."""

    def __init__(
        self, *, upstream: ports.Upstream, preparer: RequestPreparer, settings: setting_sections.RoutingSettings
    ) -> None:
        self._upstream = upstream
        self._preparer = preparer
        self._settings = settings

    async def whole(self, run: RequestRun, route: AttemptedRoute) -> JsonAnswer:
        """Asks for a whole answer. Raises GatewayError: see `core/errors`."""

        async def complete(prepared: PreparedRequest, attempt: health.WatchedAttempt) -> JsonAnswer:
            request = payload.upstream_request(prepared, self._headers(prepared, route), run.scope)
            answer = await self._upstream.complete(prepared.wire.deployment, request)
            attempt.answered()
            usage = answer.body.get("usage")
            written = usage.get("completion_tokens") if isinstance(usage, dict) else None
            attempt.ended(None, written if isinstance(written, int) else 0)
            for hook in prepared.features.on_answer:
                answer = hook(prepared, answer)
            return answer

        return await self._sent(run, complete)

    async def opened(self, run: RequestRun, route: AttemptedRoute, stack: AsyncExitStack) -> ChunkStream:
        """Opens a stream, and returns when it has begun; `stack` holds it open. Raises as `whole`."""

        async def opening(prepared: PreparedRequest, attempt: health.WatchedAttempt) -> ChunkStream:
            request = payload.upstream_request(prepared, self._headers(prepared, route), run.scope)
            opened = await stack.enter_async_context(self._upstream.stream(prepared.wire.deployment, request))
            attempt.answered()

            def ended(_: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
                attempt.ended(error, run.answer_tokens)
                return False

            stack.push(ended)
            for hook in prepared.features.on_stream:
                opened = hook(prepared, opened)
            return opened

        return await self._sent(run, opening)

    async def _sent(self, run: RequestRun, call: Callable[[PreparedRequest, health.WatchedAttempt], Awaitable[T]]) -> T:
        """Sends a request to its target, and again while what the target refuses can be mended. Raises as `whole`."""
        while True:
            prepared = run.prepared
            tokens = prepared.context.fitted.tokens if prepared.context is not None else 0
            attempt = prepared.target.candidates.began(prepared.target.chosen, tokens)
            try:
                try:
                    return await call(prepared, attempt)
                except BaseException as error:
                    attempt.ended(error)
                    if isinstance(error, errors.InvalidRequest) and error.param is not None:
                        context = prepared.context
                        if context is not None and context.fitted.forwarded.messages != list(run.asked.messages):
                            error.param = FORWARDED.sub("messages", error.param)  # the client's have other indexes
                    raise
            except errors.UpstreamRefused as refusal:
                run.continue_as(await self._preparer.mended(run, refusal))

    def _headers(self, prepared: PreparedRequest, route: AttemptedRoute) -> dict[str, str]:
        """Returns the client's headers, with an idempotency key where one deployment may be asked twice."""
        headers = prepared.request.caller.headers
        if not self._settings.retries or not upstreams.PROTOCOLS[prepared.wire.deployment.protocol].knows_keys:
            return headers
        return {**headers, IDEMPOTENCY_KEY_HEADER: route.key_of(prepared)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAttempts:
    """Prepares requests for their targets and asks these in turn until one answers."""

    preparer: RequestPreparer
    routes: ModelRoutes
    sender: UpstreamSender
    settlement: RequestSettlement
    files: ports.FileStore
    ready: Callable[[ModelDeployment], Awaitable[None]]

    async def whole_answer(self, run: RequestRun) -> JsonAnswer:
        """Asks for a whole answer. Raises GatewayError: that of the last target asked; see `core/errors`."""
        with self.routes.answering:
            return await self._asked(run, partial(self.sender.whole, run))

    async def opened_stream(self, run: RequestRun, stack: AsyncExitStack) -> ChunkStream:
        """Opens a stream, and returns when it has begun; `stack` holds it open, and releases that of a previous round.
        Raises as `whole_answer`."""
        await stack.aclose()
        stack.enter_context(self.routes.answering)
        try:
            return await self._asked(run, partial(self.sender.opened, run, stack=stack))
        except BaseException:
            await stack.aclose()
            raise

    async def make_ready(self, run: RequestRun) -> PausedRequest | None:
        """Prepares a request for sending, and reserves its cost in the budgets; returns why it paused, if it did.
        Raises GatewayError: it must not be sent, or cannot."""
        paused = await self._prepared(run)
        if paused is None:
            await self.preparer.reserve(run, run.prepared)
        return paused

    async def _prepared(self, run: RequestRun) -> PausedRequest | None:
        """Rebuilds the conversation and builds the context for the first target. If the request cannot be fitted to its
        model, it is prepared for a fallback model."""
        preparer, asked, clock = self.preparer, run.asked, self.settlement.clock
        if asked.is_relayed:
            run.continue_as(replace(run.prepared, inlined=await whole_files.inlined_files(asked, self.files)))
            return None
        began = clock.monotonic()
        rebuilt = await preparer.rebuilt(run.prepared)
        at = clock.monotonic()
        try:
            made = await preparer.built(run, rebuilt)
        except errors.ContextLengthExceeded as error:
            route = AttemptedRoute(self.routes, run)
            if not await self._prepare_next(run, route.fallbacks(error), route):
                raise
            made = run.prepared
        if isinstance(made, PausedRequest):
            await self.settlement.paused(run)
            return made
        if made.features.on_payload:
            run.continue_as(made)
            made = await preparer.with_surplus(run, made)
        run.timings.update(rebuild=at - began, plan=clock.monotonic() - at)
        conversation_id = made.history.conversation_id if made.history else None
        made = made if made.conversation_id == conversation_id else replace(made, conversation_id=conversation_id)
        run.continue_as(made)
        run.continue_as(await preparer.storable(made))
        self.settlement.running.enter(run)
        return None

    async def _asked(self, run: RequestRun, send: Callable[[AttemptedRoute], Awaitable[T]]) -> T:
        """Returns one answer: from the prepared target or, if that fails, from the next that may be asked.
        Raises GatewayError: that of the last target asked; see `core/errors`."""
        route, at = AttemptedRoute(self.routes, run), self.settlement.clock.monotonic()
        failed: tuple[PreparedRequest, errors.GatewayError] | None = None
        if self.routes.has_fallbacks:
            await self._prepare_next(run, route.healthy_models(), route)
        while True:
            await self.ready(run.prepared.wire.deployment)  # until then nobody is asked, so nothing is billed
            await self.settlement.open_calls.begin(run, run.prepared)
            run.began(at, self.settlement.clock.monotonic())
            try:
                with route.trying():
                    return await send(route)
            except errors.GatewayError as error:
                if type(error) is errors.InvalidRequest and run.withdraw_last_try():
                    if failed is None:
                        raise  # it was refused while its call was made: nobody was asked (guarantee §7)
                    # another provider's lack is no fault of the request: what the last one said counts
                    prepared, last = failed
                    run.continue_as(prepared)
                    if not await self._prepare_next(run, route.next_targets(last), route):
                        raise last from None
                    continue
                failed = run.prepared, error
                run.failed(error, self.settlement.clock.monotonic())
                if not await self._prepare_next(run, route.next_targets(error), route, error):
                    raise

    async def _prepare_next(
        self,
        run: RequestRun,
        targets: AsyncIterator[Target],
        route: AttemptedRoute,
        error: errors.GatewayError | None = None,
    ) -> bool:
        """Prepares the request for the first of these targets that can be asked; returns whether there was one.
        `error`: of the try before, if there was one."""
        before, cost = run.prepared.target, None
        async for target in targets:
            if error is not None and error.may_be_charged and cost is None:
                cost = await self.settlement.usage.of_failure(run, error)
            try:
                again = run.prepared if target is before else await self.preparer.another(run, target)
                await self.preparer.reserve(run, again, cost)  # it may be dearer
            except errors.GatewayError as fault:
                event = "deployment_cannot_be_asked" if target.kind is None else "fallback_cannot_be_asked"
                log.warning(event, model=target.model, code=fault.code)
                if target is before:
                    return False
                continue
            run.continue_as(again)
            if error is not None:
                run.book_last_try(cost)
            route.count_next(target, error, before)
            return True
        return False
