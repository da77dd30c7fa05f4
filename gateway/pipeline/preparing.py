"""Prepares a request for a target: its conversation is rebuilt, its context made, and there is room in budgets for what
it may cost. Everything that happens before the primary model is called."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from gateway.billing.quota import call_costs
from gateway.context.manager import BuiltContext, PlannerAccess
from gateway.context.window import counting
from gateway.context.window.counting import PromptBudget, TurnBound
from gateway.conversations import message_forms, rebuild
from gateway.core import errors
from gateway.core.config.settings import Settings
from gateway.core.types import bill
from gateway.core.types.chat import ChatRequest, ModelFacts
from gateway.core.types.conversation import ConversationHistory
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.settlement import RequestSettlement
from gateway.pipeline.stages import KeptFrame, PausedRequest, PreparedRequest, RequestRun, Target, TargetWire
from gateway.upstream.routing import protocols
from gateway.upstream.routing.protocols import KnownProtocols

USAGE_REFUSALS = (400, 404, 422)
"""Statuses by which upstreams refuse `stream_options`; their message names the field."""


SURPLUS_TRIES = 3
"""How often a context is made again for what features put into it. What is left of it has less of that each time."""


class RequestPreparer:
    """Makes requests ready to be sent, and once more where an upstream refuses them."""

    def __init__(self, *, settings: Settings, parts: PipelineParts, settlement: RequestSettlement) -> None:
        self._parts = parts
        self._settings = settings.context
        self._match = settings.conversation.match
        self._turns = TurnBound.of(settings.max_turns, settings.memory.oldest_share)
        self._protocols = KnownProtocols(parts.clock, settings.upstream.hosted_tools)
        self._settlement = settlement

    async def another(self, run: RequestRun, target: Target) -> PreparedRequest:
        """Rebuilds and makes the context for another target than the one of `run`, which stays as it is.
        Raises GatewayError: it cannot be asked there."""
        before = run.prepared
        prepared = await self.for_target(run.asked, target)
        prepared = replace(prepared, conversation_id=before.conversation_id, own=before.own)
        if not prepared.request.is_proxied:
            prepared = await self.rebuilt(prepared)
            made = await self.built(run, prepared)
            if isinstance(made, PausedRequest):
                raise errors.GatewayError("compaction")
            prepared = await self.with_surplus(run, made)
        await self.reserve(prepared)  # it may be dearer
        return prepared

    async def for_target(self, asked: ChatRequest, target: Target) -> PreparedRequest:
        """A request as its target takes it, of which nothing is read yet.
        Raises InvalidRequest: it needs what the target has not; names the field."""
        await self._parts.router.learn(target.model, target.chosen)
        request = asked if asked.model == target.model else replace(asked, model=target.model)
        facts = self._parts.router.facts(target.model, target.chosen)
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
        if request.api == "messages" and wire.deployment.protocol != "anthropic":
            request = replace(request, forward=counting.writable(request.forward, facts))
        features, budget = self._parts.features.of(asked), self._budget(request, facts)
        prepared = PreparedRequest(asked, request, target, wire, facts, budget, features)
        for hook in features.on_request if request.options.mode != "off" else ():
            prepared = hook(prepared)
        return prepared

    def _budget(self, request: ChatRequest, facts: ModelFacts) -> PromptBudget:
        options = request.options
        if options.mode == "off":
            return PromptBudget(None, None, clear_above=options.clear_above)
        budget = counting.budget_for(facts, request.forward, options.max_input_tokens, self._settings)
        if self._turns is None and options.clear_above is None:
            return budget
        return replace(budget, turns=self._turns, clear_above=options.clear_above)

    async def rebuilt(self, prepared: PreparedRequest) -> PreparedRequest:
        """Rebuilds the conversation. If the request surely fits and its client sent all of it, the context is known,
        too: its messages are forwarded as they came."""
        with self._parts.spans("rebuild"):
            return await self._rebuilt(prepared)

    async def _rebuilt(self, prepared: PreparedRequest) -> PreparedRequest:
        request, history, kept = prepared.request, None, None
        budget = prepared.budget.cleared
        if request.attachments:
            request = await self._parts.attachments.with_contents(request)
        await self._parts.counters.ready(prepared.facts)
        as_sent = None
        if not prepared.features.on_inputs:  # which read a conversation otherwise than it came
            as_sent = self._parts.context.as_sent(request, prepared.facts, budget)
        # of what is not stored, a frame may be known, whoever's conversations are continued
        if as_sent is None or request.store or not rebuild.starts_conversation(request, "tenant"):
            options = rebuild.RebuildOptions(
                request.store,
                self._match,
                fits_as_sent=as_sent is not None,
                budget_tokens=budget.tokens,
                before_lookup=partial(self._settlement.running.ended, request),
            )
            history = await rebuild.build_llm_messages(request, self._parts.store, options)
            if self._parts.frames is not None and not request.store:
                history, kept = await self._parts.frames.put_over(request, history)
        context = as_sent if history is None or history.as_sent else None
        prepared = with_history(prepared, request, history, kept, context)
        for hook in prepared.features.on_history:
            prepared = await hook(prepared)
        return prepared

    async def storable(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request, once it is sure that its turn can be stored, before a model is paid for (guarantee §3.6)."""
        request, history = prepared.request, prepared.history
        if not request.store or request.options.dry_run or history is None:
            return prepared
        if history.session and history.conversation_id:
            claimed = await self._parts.store.claim_session(
                request.caller.tenant, history.session, history.conversation_id
            )
            return replace(prepared, conversation_id=claimed)
        if request.claim is None or not request.claim.shared:  # the claim has shown it
            await self._parts.store.reachable()
        return prepared

    async def built(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest | PausedRequest:
        """Makes the context where one is needed, with room made above `clear_above` where that can be done.
        Raises ContextLengthExceeded: it cannot be made to fit."""
        if prepared.context is not None:
            return prepared
        made = await self._built_within(run, prepared)
        for hook in prepared.features.on_context:
            again = hook(made) if isinstance(made, PreparedRequest) else None
            if again is not None:
                with suppress(errors.ContextLengthExceeded):
                    made = await self._built_within(run, again)  # its planner is not asked twice
        return made

    async def _built_within(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest | PausedRequest:
        options, wanted = prepared.request.options, prepared.budget.cleared
        if wanted is not prepared.budget:
            with suppress(errors.ContextLengthExceeded):
                made, built = await self._built(run, prepared, wanted)
                if built.fitted.new_pass and options.pauses:
                    return PausedRequest(made.request, made.history.parent_id if made.history else None)
                built.utilization.compacted = options.compacts and built.fitted.new_pass
                return replace(made, budget=wanted)
        return (await self._built(run, prepared, prepared.budget))[0]

    async def with_surplus(self, run: RequestRun, prepared: PreparedRequest) -> PreparedRequest:
        """The request so that it fits with what features put into what goes up, such as placeholders (guarantee
        §12.10): tokens are counted of what the client said.
        Raises ContextLengthExceeded: it cannot be made to."""
        hooks, budget = prepared.features.on_payload, prepared.budget
        if not hooks or prepared.context is None:
            return prepared
        counter = self._parts.counters.counter(prepared.facts)
        most = room = budget.tokens
        for _ in range(SURPLUS_TRIES + 1):
            surplus = sum([await hook(prepared, counter) for hook in hooks])
            prepared = replace(prepared, surplus=surplus)
            if most is None or room is None or not surplus or _tokens(prepared) <= most:
                return prepared
            room = min(room - 1, most - surplus)
            if room <= 0:
                break
            prepared = (await self._built(run, prepared, replace(budget, tokens=room)))[0]
        raise errors.ContextLengthExceeded(budget.overflow(_tokens(prepared)), param="messages")

    async def _built(
        self, run: RequestRun, prepared: PreparedRequest, budget: PromptBudget
    ) -> tuple[PreparedRequest, BuiltContext]:
        """Makes the context. `history` stays as it is stored: `new_frame` compares against it.

        In mode `off` the named conversation is put in front, and nothing is managed: no window, no model is asked.
        """
        request, facts, context = prepared.request, prepared.facts, self._parts.context
        history = _whole_history(prepared)
        history = message_forms.for_origin(history, prepared.wire.deployment.origin)
        plan = prepared.plan if prepared.context is not None else run.prepared.plan
        begin = partial(self._settlement.open_calls.begin, run, prepared)
        access = PlannerAccess(prepared.wire.deployment, run.scope, plan, begin)
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
        return with_history(prepared, prepared.request, history, prepared.kept_frame, built), built

    async def reserve(self, prepared: PreparedRequest) -> None:
        """Makes sure that budgets and limits have room for what a request may cost at the most: the prompt as counted
        plus the longest possible answer, multiplied by the number of calls that `recall` allows (guarantee §12.3).
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: the model must not be asked."""
        request, facts = prepared.request, prepared.facts
        if request.admission is None or request.options.dry_run:  # which no bill of a primary call would give back
            return
        prompt = self._prompt_at_most(prepared)
        reserved = prepared.budget.reserved_output or self._settings.reserved_output_tokens
        output = call_costs.most_output(request.forward, request.choices, facts.max_output_tokens, reserved)
        cost = call_costs.most_cost(facts.prices, prompt, output, request.forward.get("service_tier"))
        if cost is not None and prepared.recall is not None:
            cost *= 1 + prepared.recall.left
        await request.admission.reserve(cost, prompt + output)

    def _prompt_at_most(self, prepared: PreparedRequest) -> int:
        context = prepared.context
        if context is not None and context.fitted.tokens:
            return call_costs.prompt_at_most(context.fitted.tokens, exact=context.fitted.exact)
        counter = self._parts.counters.counter(prepared.facts)
        tokens, exact = counter.estimate(prepared.messages)
        return call_costs.prompt_at_most(tokens + counter.tools(prepared.request.forward), exact=exact)

    async def mended(self, run: RequestRun, refusal: errors.UpstreamRefused) -> PreparedRequest:
        """The request as it may be sent once more to a target that has refused it: fitted anew, once, if it was too
        long; without what the upstream has not; or by chat completions.
        Raises UpstreamRefused: this one, if it is of nothing that can be mended; an overflow with the figures that are
        known; InvalidRequest: the request needs what no other API has."""
        prepared = run.prepared
        if isinstance(refusal, errors.UpstreamOverflow):
            return await self._refitted(run, refusal)
        native, wire = prepared.request.native, prepared.wire
        if (
            native is not None
            and native.protocol == wire.deployment.protocol
            and refusal.status in protocols.NOT_SPOKEN
        ):
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
        budget = counting.tightened(prepared.budget, context.fitted.tokens, overflow.reported, overflow.limit)
        known = self._parts.router.facts(request.model, target.chosen)
        if known != facts:  # its window is known by now
            whole = self._budget(request, known)
            budget = replace(whole, tokens=min(whole.tokens or 1, budget.tokens or 1))
        again = replace(prepared, facts=known, refused_budget=prepared.budget)
        run.turn_to(again)
        try:
            made, built = await self._built(run, again, budget)
        except errors.ContextLengthExceeded:
            overflow.explain(window, context.fitted.tokens)
            raise overflow from None  # of two counts, the one that says so
        built.utilization.warnings.append("refitted_after_upstream_overflow")
        return replace(made, budget=budget)


def with_history(
    prepared: PreparedRequest,
    request: ChatRequest,
    history: ConversationHistory | None,
    kept_frame: KeptFrame | None,
    context: BuiltContext | None,
) -> PreparedRequest:
    """Returns the request with its conversation and context. Each request passes here, and `dataclasses.replace` takes
    ten times as long."""
    return PreparedRequest(
        prepared.asked,
        request,
        prepared.target,
        prepared.wire,
        prepared.facts,
        prepared.budget,
        prepared.features,
        history,
        context,
        prepared.own,
        prepared.recall,
        kept_frame,
        prepared.refused_budget,
        prepared.surplus,
        prepared.conversation_id,
    )


def _tokens(prepared: PreparedRequest) -> int:
    return prepared.surplus + (prepared.context.fitted.tokens if prepared.context is not None else 0)


def _whole_history(prepared: PreparedRequest) -> ConversationHistory:
    """The conversation that a context is made of: all of it also where messages were to go up as they came, and nobody
    looked into them."""
    history, context = prepared.history, prepared.context
    if history is not None and context is not None and context.is_as_sent:
        return rebuild.completed_history(prepared.request, history)
    return history or rebuild.new_history(prepared.request)


def _can_attach(request: ChatRequest) -> bool:
    """Documents enter through the block at the head of the current user message; a conversation may have one."""
    has_user = any(message["role"] == "user" for message in request.messages)
    ref = request.conversation
    continues = ref.conversation_id or ref.session or ref.is_point
    return request.options.mode != "off" and bool(has_user or continues)
