"""Makes the bill from what was attempted (guarantee §6): `make_bill` is pure, and `UsageCount` counts what upstream did
not report, and learns from what it did report.
`OpenCalls` records a request in the ledger before its models are asked, and bills the open calls of processes that died
(guarantee §6.10, ADR 32)."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

from gateway.billing import cost, metadata, meter, passes, prompt_cache
from gateway.context.tokens import CounterRegistry, PromptReport
from gateway.context.window import counting
from gateway.core import errors, jsons, names, ports, processes
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.jsons import Json
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import bill, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chat import ModelFacts, PromptBudget
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.omitted_records import OmittedRecords
from gateway.pipeline.stages import (
    BYTES_PER_TOKEN,
    AttemptedRequest,
    PreparedRequest,
    RequestRun,
    SettledRequest,
    UpstreamOutcome,
    answer_fields,
)
from gateway.storage import ConversationStore

log = logs.get_logger("gateway.pipeline.billing")
OPEN_CALLS_ALIVE_FOR = timedelta(seconds=15)
"""How long other machines consider a process alive after a heartbeat."""
BEAT_SECONDS = 5.0
BEFORE_ANY_CALL = datetime.min.replace(tzinfo=UTC)
KILLED = "process_killed"
"""The error code of bills for processes that died."""


class OpenCalls:
    """The provisional bills of the calls that this process has begun."""

    def __init__(self, store: ConversationStore, clock: ports.Clock) -> None:
        self._store = store
        self._clock = clock
        self._process = ""
        self._alive_until: datetime | None = None
        self._looked_at, self._away_until = datetime.max.replace(tzinfo=UTC), BEFORE_ANY_CALL
        self._tasks = BackgroundTasks()

    async def begin(
        self, run: RequestRun, prepared: PreparedRequest, internal: bill.InternalCall | None = None
    ) -> None:
        """Stores that a model is about to be asked: the primary, or an internal one.
        `prepared`: for the target that is to be asked, or is being prepared.
        Raises StorageUnavailable: nothing was stored, and the request cannot continue without it."""
        if internal is not None:
            run.asking.append(internal)
        failed, rounds, asked = run.booked(prepared)
        internal_calls, asking, route = run.internal, run.asking, asked[-1]
        state = (len(failed), len(rounds), len(internal_calls), len(asking), route)
        if run.noted_calls == state:
            return
        run.noted_calls = state  # from here on it is written even if it is cancelled
        calls = [*failed, *rounds, *map(cost.price_internal, internal_calls)]
        if internal is not None:
            calls += map(cost.price_internal, asking[min(len(internal_calls), len(asking) - 1) :])
        else:
            context = prepared.context
            tokens = context.fitted.tokens if context is not None else prepared.request.size // BYTES_PER_TOKEN
            calls.append(priced_prompt(route, tokens, prepared.facts.prices))
        request = run.asked
        is_new = prepared.history is not None and prepared.history.created  # not stored yet: no bill can name it
        facts = {
            **request.on_ledger,
            "conversation_id": None if is_new else prepared.conversation_id,
            "completion_id": run.completion_id,
            "route": asked,
            "goal": request.options.goal.value,
        }
        try:
            await self.open(request.request_id, request.arrived_at, facts, calls)
        except errors.StorageReadOnly:
            raise
        except errors.StorageUnavailable:
            run.noted_calls = (*state, None)  # perhaps not written: the next try writes it
            if prepared.conversation_id is not None and request.store:
                raise

    async def open(self, request_id: str, at: datetime, facts: dict[str, Any], calls: list[bill.CallCost]) -> None:
        """Stores what a request's bill would be; `facts` are fields of the bill."""
        now = self._clock.now()
        self._process = self._process or processes.process_name()
        until = next_heartbeat(self._alive_until, now, OPEN_CALLS_ALIVE_FOR, BEAT_SECONDS)
        facts = {**facts, "at": at.isoformat(), "calls": [_as_json(call) for call in calls]}
        await self._store.open_call(turn.OpenCallRow(request_id, self._process, facts, until))
        self._alive_until = until or self._alive_until

    def close(self, request_id: str) -> None:
        """Deletes the provisional bill of a request that has nothing to bill."""
        self._tasks.start(self._closed(request_id))

    async def _closed(self, request_id: str) -> None:
        with contextlib.suppress(errors.StorageUnavailable):  # then it is billed at what it may have cost
            await self._store.open_call(turn.OpenCallRow(request_id, self._process))

    async def look(self) -> int:
        """Sends one heartbeat if this process has open calls, and bills those of dead processes; returns how many.
        Those that `spares` are not dead, unless this machine knows it."""
        found, now = await self._store.holders(), self._clock.now()
        if self._is_away():
            self._away_until = now
        self._looked_at = now
        if self._process in found:
            await self._store.beat(self._process, now + OPEN_CALLS_ALIVE_FOR)
            self._alive_until = now + OPEN_CALLS_ALIVE_FOR
        others = {name: until for name, until in found.items() if name != self._process}
        least = now + OPEN_CALLS_ALIVE_FOR if self.spares(OPEN_CALLS_ALIVE_FOR) else BEFORE_ANY_CALL
        dead = [name for name, until in others.items() if processes.is_dead(name, max(until or least, least), now)]
        billed = 0
        while dead and (written := await self._store.bill_open(dead, _entry)):
            billed += written
        if billed:
            log.warning("calls_of_a_killed_process_billed", bills=billed)
        return billed

    def spares(self, lifetime: timedelta) -> bool:
        """Returns whether this process cannot reach the storage, or could not until a `lifetime` ago (or time leapt):
        others may not have been able to say that they live."""
        return self._is_away() or self._clock.now() - self._away_until < lifetime

    def _is_away(self) -> bool:
        return self._clock.now() - self._looked_at > OPEN_CALLS_ALIVE_FOR

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for deletions under way."""
        await self._tasks.finish(seconds)


def next_heartbeat(until: datetime | None, now: datetime, lifetime: timedelta, seconds: float) -> datetime | None:
    """Returns until when a process is alive if it says so now; None while what it said last (`until`) is no older than
    the `seconds` between two heartbeats."""
    is_due = until is None or until - now < lifetime - timedelta(seconds=seconds)
    return now + lifetime if is_due else None


def priced_prompt(route: str, tokens: int, prices: dict[str, Decimal]) -> bill.CallCost:
    """Prices the prompt of a call that has not been answered yet."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return cost.price_call("primary", route, usage, prices, estimated=True)


def _as_json(call: bill.CallCost) -> dict[str, Any]:
    """Returns the call's fields without deep copies, as each request writes one."""
    found = dict(zip(CALL_FIELDS, _fields_of(call), strict=True))
    for name in CALL_COST_FIELDS:
        if found[name] is not None:
            found[name] = str(found[name])
    return found


CALL_COST_FIELDS = ("prompt_cost", "completion_cost")
CALL_FIELDS = tuple(field.name for field in fields(bill.CallCost))
_fields_of = attrgetter(*CALL_FIELDS)
_fields_of_utilization = attrgetter(*(field.name for field in fields(bill.ContextUtilizationMetadata)))


def _call(found: dict[str, Any]) -> bill.CallCost:
    costs = {name: Decimal(found[name]) if found[name] is not None else None for name in CALL_COST_FIELDS}
    return bill.CallCost(**{**found, **costs, "estimated": True})


def _entry(request_id: str, facts: dict[str, Any]) -> turn.LedgerEntry:
    """Builds the bill of a request whose process died, from its prompts: its answer is unknown."""
    calls = tuple(map(_call, facts["calls"]))
    endpoint, goal = facts["endpoint"], facts.get("goal")
    known = bill.ResponseMetadata(
        request_id=request_id,
        conversation_id=facts["conversation_id"],
        upstream_id=None,
        model=facts["model"],
        routing_path=facts["route"],
        usage=None,
        cost=None,
        context_utilization=bill.ContextUtilizationMetadata(facts["model"], "passthrough", goal) if goal else None,
        timings_ms={},
    )
    metadata.add_bill(known, calls, cost.total_cost(calls))
    stored = metadata.response_metadata(known)
    if not goal:
        stored = {**stored, "context_utilization": None, "managed": False, "endpoint": endpoint}
    names = ("tenant", "conversation_id", "completion_id", "model", "stream", "end_user", "agent", "key_id", "project")
    return turn.LedgerEntry(
        request_id=request_id,
        status="failed",
        created_at=datetime.fromisoformat(facts["at"]),
        metadata=stored,
        calls=calls,
        error_code=KILLED,
        endpoint=endpoint,
        figures=cost.ledger_figures(stored, calls, is_metered=not goal),  # what was left out of the prompt is not known
        **{name: facts[name] for name in names},
    )


HOSTED_TOOL_LEFT_OUT = "hosted_tool_left_out"
UNKNOWN_FIELD = "unknown_field"
MAX_FIELD_CHARS = 80
"""Characters of a field's name in a warning."""
BY_FALLBACK = "answered_by_fallback"
"""Warns that another model answered than the one that the request names."""


Priced = tuple[Json, bill.CallCost]
"""The usage of a call, and the priced call."""


def make_bill(
    attempted: AttemptedRequest, primary: Priced | None, now: float, unlisted: OmittedRecords | None = None
) -> SettledRequest:
    """Makes the bill of a request.
    `primary`: the last call to the primary model: neither a recall round nor a failed try that was retried; `now`: on
    the monotonic clock, in seconds; `unlisted`: records that the stored bill may omit (ADR 19)."""
    answering = [*[(call.usage, call) for call in attempted.round_costs], *([primary] if primary is not None else ())]
    usages = [usage for usage, _ in answering]
    calls = (*attempted.failed_costs, *[call for _, call in answering], *map(cost.price_internal, attempted.internal))
    sums = cost.total_cost(calls)
    known, costs = metadata_of(attempted, now), None
    metadata.add_bill(known, calls, sums)
    prepared = attempted.prepared
    used, context = known.context_utilization, prepared.context
    if used is not None and context is not None and usages:
        used.economics = cost.as_realised(used.economics, context.left_out, usages[0], prepared.facts.prices)
    if used is not None:
        known.economics, costs = _meter(prepared, calls, sums[0].total_cost)
    stored = metadata.response_metadata(known, unlisted)
    usage = metadata.extended_usage(cost.usage_together(usages), calls, sums)
    return SettledRequest(attempted, known, stored, jsons.dumps(stored), calls, usage, sums[0].total_cost, costs)


def _meter(
    prepared: PreparedRequest, calls: Sequence[bill.CallCost], billed: Decimal | None
) -> tuple[Json | None, bill.BranchCosts | None]:
    """Compares what the client's own request would have cost with what was billed (guarantee §6), where that is
    informative, and adds to the sums of its branch; None where the meter is off, or a price is unknown. Messages sent
    elsewhere are not metered: their cost is unknown."""
    context, options = prepared.context, prepared.request.options
    if context is None or billed is None or options.sent_elsewhere or bill.OFF in (options.mode, options.economy):
        return None, None
    note, history = context.economy, prepared.history
    answering = [call for call in calls if call.purpose == "primary"]
    is_planned = any(call.purpose not in bill.MODEL_PURPOSES for call in calls)
    is_asked_for = note is not None or options.held_out is not None
    is_reported = len(answering) > 1 or is_planned or is_asked_for or context.left_out is not None
    before = history.costs if history is not None else None
    used_at = history.used_at if history is not None else None
    try:
        found_bounces = _Bounces.of(prepared, before)
        request = meter.MeteredRequest(
            model=prepared.request.model,
            usage=answering[0].usage if answering else {},
            prices=prepared.facts.prices,
            primary=_without_rounds(calls, answering),
            billed=billed,
            counted=context.fitted.tokens,
            left=context.left_out,
            rewritten=context.fitted.new_pass or (note is not None and note.passed is not None),
            at=prepared.request.arrived_at.timestamp(),
            head=sum(context.fitted.breakdown.get(part, 0) for part in ("system", "tools")),
            idle=used_at is not None and prepared.request.arrived_at - used_at > prompt_cache.LIFETIME,
            bounced=found_bounces.tokens,
            has_new_head=partial(_has_new_head, prepared, before),
        )
        is_reported = is_reported or bool(found_bounces.tokens)
        report, costs = meter.metered(
            request, note or bill.EconomyNote(options.economy), before, is_reported=is_reported
        )
        if found_bounces.cut or costs.cut or costs.bounced:
            costs = passes.with_marks(costs, found_bounces.cut, found_bounces.marks)
    except Exception as fault:  # noqa: BLE001 - a fault costs the meter, not the paid answer
        log.fault("economy_failed", fault, step="meter", request_id=prepared.request.request_id)
        return None, None
    if not report:
        return None, costs
    if note is None:  # nothing could leave for economy
        report.pop("estimated_saving", None)
    if options.held_out is not None and not options.dry_run:
        report["holdout"] = options.held_out
    return report, costs


def _has_new_head(prepared: PreparedRequest, before: bill.BranchCosts | None) -> bool:
    sent = before.sent if before is not None else None
    tools = prompt_cache.tools_of(prepared.request)
    return sent is not None and prompt_cache.has_new_head(sent, tools, prepared.messages)


@record
class _Bounces:
    """What a request's pass has cut, and the tokens and marks of earlier cuts that came back."""

    cut: Sequence[Artifact] = ()
    tokens: int = 0
    marks: Sequence[bytes] = ()

    @classmethod
    def of(cls, prepared: PreparedRequest, costs: bill.BranchCosts | None) -> "_Bounces":
        context, history = prepared.context, prepared.history
        material, counting = (context.material, context.counting) if context is not None else (None, None)
        if context is None or history is None or material is None or counting is None:
            return cls()
        note, fitted = context.economy, context.fitted
        is_pass = fitted.new_pass or fitted.moved or (note is not None and note.passed is not None)
        cut = passes.newly_cut(material, fitted) if is_pass else ()
        if costs is None or not costs.cut:
            return cls(cut)
        sent = dict(zip(fitted.forwarded.indexes, fitted.forwarded.messages, strict=True))
        again = passes.read_again(material, history.stored, costs)
        found = [
            (sent[at], passes.marks(each)[0]) for each in again if (at := each.place.message) is not None and at in sent
        ]
        found += [(dict(message), mark) for message, mark in passes.recalled(prepared.rounds, costs)]
        return cls(cut, sum(counting.message(message) for message, _ in found), [mark for _, mark in found])


def _without_rounds(calls: Sequence[bill.CallCost], answering: Sequence[bill.CallCost]) -> Decimal:
    """Returns what a client that asks the primary model directly would have paid: it has no rounds of `recall` between
    the first prompt and the last answer (guarantee §10.11)."""
    paid = [call.total for call in calls if call.purpose == bill.FAILED_TRY]
    if answering:
        paid += [answering[0].prompt_cost, answering[-1].completion_cost]
    return sum([cost for cost in paid if cost is not None], Decimal(0))


def first_fields(attempted: AttemptedRequest, now: float) -> Json:
    """Returns the fields of a stream's first chunk: ids, plan and budget."""
    known = metadata_of(attempted, now)
    metadata.add_planning(known, attempted.internal)
    return answer_fields(metadata.begun(metadata.response_metadata(known)), known)


def metadata_of(attempted: AttemptedRequest, now: float) -> bill.ResponseMetadata:
    """Builds the metadata of a request, without usage and cost."""
    prepared = attempted.prepared
    request, context, sent_at = prepared.request, prepared.context, attempted.sent_at
    timings = {name: round(1000 * seconds, 3) for name, seconds in attempted.timings.items()}
    timings["upstream"] = round(1000 * (now - sent_at), 3) if sent_at is not None else 0.0
    timings["total"] = round(1000 * (now - request.started), 3)
    used = context.utilization if context is not None else None
    if used is None or request.options.mode == "off":
        strategy = used.strategy if used is not None else "passthrough"
        used = bill.ContextUtilizationMetadata(request.model, strategy, request.options.goal.value)
    used = bill.ContextUtilizationMetadata(*_fields_of_utilization(used))  # a bill may be made twice
    used.warnings = list(dict.fromkeys((*used.warnings, *warnings_of(attempted))))
    if prepared.recall is not None:
        used.recall = prepared.recall.as_json(len(attempted.round_costs))
    return bill.ResponseMetadata(
        request_id=request.request_id,
        conversation_id=prepared.conversation_id,
        upstream_id=attempted.upstream_id,
        model=prepared.asked.model,
        routing_path=attempted.route,
        usage=None,
        cost=None,
        context_utilization=used,
        timings_ms={"rebuild": 0.0, "plan": 0.0, **timings},
        agent=request.agent.as_json() if request.agent is not None else None,
    )


def warnings_of(attempted: AttemptedRequest) -> list[str]:
    """Returns the warnings of a bill that are not about the request's context."""
    prepared, found = attempted.prepared, list(attempted.warnings)
    for admission in prepared.request.admissions[-1:]:
        found += admission.warnings
    if prepared.is_fallback:
        found.append(BY_FALLBACK)
    left_out = list(prepared.request.left_out)
    native, asked, fields = prepared.request.native, prepared.asked.native, dict.fromkeys(prepared.asked.forward)
    if native is not None and asked is not None:
        is_served = native.hosted and native.protocol == prepared.wire.deployment.protocol
        left_out += [kind for _, kind in asked.hosted] if not is_served else []
        fields |= dict.fromkeys(asked.fields)
    found += [f"{HOSTED_TOOL_LEFT_OUT}: {kind} (upstream.hosted_tools)" for kind in left_out]
    # An unknown field sent upstream may be a misspelt field of the gateway's own.
    missed = [(name[:MAX_FIELD_CHARS], meant) for name in fields if (meant := names.near_miss(name)) is not None]
    return found + [f"{UNKNOWN_FIELD}: {name} (did you mean {meant}?)" for name, meant in missed]


class UsageCount:
    """Prices calls of the primary model by what upstream reported, else by what is counted here; reports calibrate the
    counts."""

    def __init__(self, counters: CounterRegistry) -> None:
        self._counters = counters
        self._tasks = BackgroundTasks()

    async def priced(self, run: RequestRun, outcome: UpstreamOutcome) -> Priced:
        """Prices the request's last call of the primary model at its deployment's rates."""
        usage, estimated = await self._usage(run, outcome)
        tier, prepared = (outcome.completion or run.answer_so_far.completion or {}).get("service_tier"), run.prepared
        known = {**usage, "service_tier": tier} if isinstance(tier, str) else usage
        prices = prepared.facts.prices if outcome.charged else {**bill.UNCHARGED, **prepared.facts.prices}
        return usage, cost.price_call("primary", prepared.wire.deployment.route, known, prices, estimated=estimated)

    async def of_failure(self, run: RequestRun, error: errors.GatewayError) -> bill.CallCost:
        """Prices a call that failed and may have been charged, when another call follows."""
        said = replace(run.answer_so_far, usage=error.usage or run.answer_so_far.usage)
        return replace((await self.priced(run, said))[1], purpose=bill.FAILED_TRY)

    async def _usage(self, run: RequestRun, outcome: UpstreamOutcome) -> tuple[Json, bool]:
        """Returns the usage, and whether it was counted here because upstream did not report it."""
        if not outcome.charged:
            return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, False
        reported = outcome.usage or {}
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        answered = bill.is_figure(completion) and (completion or not says(run.answer_so_far))
        if bill.is_figure(prompt) and prompt and answered:
            self._learn(run.prepared, prompt, cached=sum(bill.cache_tokens(reported)))
            return reported, False
        said = run.answer_so_far.completion or {}
        # It loads a vocabulary at first, and an answer may be long: streams of other requests must not wait for that.
        return await asyncio.to_thread(self._counted, run.prepared, said, reported), True

    def _counted(self, prepared: PreparedRequest, said: Json, reported: Json) -> Json:
        """Counts what upstream did not report. Zero tokens for a prompt, or for an answer with content, count as not
        reported."""
        prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if not (bill.is_figure(prompt) and prompt):
            prompt = self.prompt_tokens(prepared)
        if not (bill.is_figure(completion) and completion):
            counter = self._counters.counter(prepared.facts)
            messages = [choice.get("message") or {} for choice in said.get("choices", ())]
            completion = sum(max(0, counter.message(message) - counter.message({})) for message in messages)
        total = bill.usage_of({"prompt_tokens": prompt, "completion_tokens": completion}).total_tokens
        return {**reported, "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}

    def prompt_tokens(self, prepared: PreparedRequest) -> int:
        """Counts the tokens of what is forwarded."""
        counter, context = self._counters.counter(prepared.facts), prepared.context
        further = prepared.surplus + sum(counter.message(message) for message in prepared.rounds)
        if context is not None and context.fitted.exact:
            return context.fitted.tokens + further
        tools = counter.tools(prepared.request.forward)
        return counting.REPLY_TOKENS + tools + further + sum(counter.message(message) for message in prepared.messages)

    def learn_refusal(self, prepared: PreparedRequest) -> None:
        """Learns that a prompt has more tokens than the budget, however few were counted: upstream refused it twice.
        Errors often give no figures, or those of prompt and answer together."""
        if prepared.refused_budget is not None and prepared.refused_budget.tokens is not None:
            self._learn(prepared, prepared.refused_budget.tokens + 1, cached=0)

    def _learn(self, prepared: PreparedRequest, reported: int, *, cached: int) -> None:
        """Calibrates by prompts that were counted exactly and hold only text: pictures are counted by formulas. A
        report that with its cached tokens exceeds the count of the model's own tokenizer includes them already."""
        context, budget = prepared.context, prepared.budget.tokens
        if prepared.surplus:  # what was sent is not what was counted
            return
        if context is None or budget is None or prepared.rounds or context.utilization.cleared:
            return
        messages, counting, forward = prepared.messages, context.counting, prepared.request.forward
        has_tools = any(map(forward.get, ("tools", "functions", "response_format")))
        if not context.fitted.exact:
            is_plain = not (has_tools or cached or prepared.refused_budget)
            if is_plain and self._counters.takes_small(prepared.facts, context.fitted.forwarded.messages):
                self._tasks.start(self._learn_small(prepared.facts, reported, prepared.budget, messages))
            return
        if counting is None or _has_media(messages):
            return
        calls = sum(len(message.get("tool_calls") or ()) for message in messages)
        number = len(messages)
        tokens = context.fitted.tokens - counting.added_per_message * number
        counted = round(tokens / counting.margin) + counting.saved_per_call * calls
        report = PromptReport(
            counted,
            reported,
            budget,
            prepared.budget.context_window,
            cached=cached > 0 and not (counting.is_own and reported + cached > counted),
            refused=prepared.refused_budget is not None,
            messages=number,
            calls=calls,
            has_tools=has_tools,
        )
        self._counters.learn(prepared.facts, report)

    async def _learn_small(self, facts: ModelFacts, reported: int, budget: PromptBudget, messages: list[Json]) -> None:
        """Calibrates by a small prompt that surely fitted and so was never counted. Runs in the background: it reveals
        what upstream adds to each message, for later prompts."""

        def counted() -> int:
            counter = self._counters.counter(facts)
            return counting.REPLY_TOKENS + sum(counter.plain(message) or 0 for message in messages)

        tokens, most = await asyncio.to_thread(counted), budget.tokens or 0
        report = PromptReport(tokens, reported, most, budget.context_window, messages=len(messages))
        if not report.is_large:
            self._counters.learn(facts, report)


def says(outcome: UpstreamOutcome) -> bool:
    """Returns whether an answer has any content."""
    messages = [choice["message"] for choice in outcome.answers]
    return any(value for message in messages for name, value in message.items() if name != "role")


def _has_media(messages: Sequence[Json]) -> bool:
    contents = (message.get("content") for message in messages)
    lists = (content for content in contents if type(content) is list)
    return any(part.get("type") in ("image_url", "input_audio") for content in lists for part in dicts_of(content))
