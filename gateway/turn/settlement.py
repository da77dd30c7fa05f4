"""Prices an exchange and commits turn and bill in one transaction. Whatever happens, there is a bill (guarantee §6)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from gateway.accounting.cost import estimated_cost, ledger_figures, price_internal, total_cost, usage_together
from gateway.accounting.economics import as_realised
from gateway.accounting.metadata import (
    add_bill,
    add_planning,
    begun,
    extended_usage,
    figures,
    in_answer,
    response_metadata,
    with_citations,
    with_plan,
)
from gateway.accounting.stream import StreamRecord
from gateway.base import jsons
from gateway.base.tasks import BackgroundTasks, offload_if
from gateway.context.citing import cited
from gateway.economy.sums import metered
from gateway.errors import GatewayError, InternalError, StorageUnavailable
from gateway.history.recognition import end_user_of
from gateway.models.bill import OF_MODELS, CallCost, ContextUtilizationMetadata, ResponseMetadata, anonymous
from gateway.models.chain import ChainKey
from gateway.models.conversation import INLINE_MESSAGES
from gateway.models.recall import RecallRounds
from gateway.models.standing import Unlisted, unlisted_among
from gateway.models.things import user_place
from gateway.models.turn import LedgerEntry, StoredTurn, TurnCommit
from gateway.planning.loops import ToolLoops
from gateway.ports import Clock, Spans
from gateway.quota.costs import billed, owed
from gateway.storage.store import ConversationStore
from gateway.telemetry.hooks import Hooks
from gateway.telemetry.logs import get_logger
from gateway.telemetry.metrics import Metrics
from gateway.tokens.counter import CounterRegistry
from gateway.turn.exchange import Exchange, Outcome
from gateway.turn.late_bills import LateBills, named
from gateway.turn.open_calls import OpenCalls
from gateway.turn.prefixes import Prefixes
from gateway.turn.running import RunningTurns
from gateway.turn.stored_turn import chain_keys, plan_of, stored_turn
from gateway.turn.unstored_frames import UnstoredFrames
from gateway.turn.usage import UsageCount
from gateway.window.budget import output_limit

log = get_logger("gateway.turn.settlement")
CHAIN_BYTES = 2**20
"""The chain of a larger body is hashed in a thread."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The figures of a settled exchange, as its client gets them.

    `document` is `response_metadata` as JSON, written once for the answer and for the ledger where both have the same;
    `usage` has OpenAI's fields and the cost; `total` is in USD, None if a price is unknown.
    """

    document: bytes
    usage: dict[str, Any]
    conversation_id: str | None
    total: Decimal | None
    agent: dict[str, str] | None = None

    def fields(self) -> dict[str, Any]:
        """The top-level fields that an answer or a finish chunk gets."""
        return _answer_fields(jsons.Fragment(self.document), self.conversation_id, self.agent)


def _answer_fields(metadata: Any, conversation_id: str | None, agent: dict[str, str] | None) -> dict[str, Any]:
    conversation = {"conversation": {"id": conversation_id}} if conversation_id else {}
    return {"response_metadata": metadata, **conversation, **({"agent": agent} if agent else {})}


class Settlement:
    """Accounts for exchanges and commits them."""

    def __init__(
        self,
        store: ConversationStore,
        counters: CounterRegistry,
        clock: Clock,
        metrics: Metrics,
        match: str,
        hooks: Hooks | None = None,
    ) -> None:
        self._store = store
        self._match = match
        self.metrics = metrics
        self.hooks = hooks or Hooks()
        self.usage = UsageCount(counters)
        self.clock = clock
        self._tasks = BackgroundTasks()
        self._late = LateBills(store)
        self._prefixes = Prefixes()
        self.open_calls = OpenCalls(store, clock)
        self.running = RunningTurns()
        self._settling: dict[str, Exchange] = {}
        self._committing: dict[str, LedgerEntry] = {}
        self.spans: Spans = contextlib.nullcontext
        self.frames: UnstoredFrames | None = None
        """What models were sent of conversations that are not stored."""
        self.loops: ToolLoops | None = None
        """What is known of tool loops whose clients are not recognised."""

    def first_chunk_fields(self, exchange: Exchange) -> dict[str, Any]:
        """The fields of a stream's first chunk: ids, plan and budget."""
        metadata = self._metadata(exchange)
        add_planning(metadata, exchange.internal)
        return _answer_fields(begun(response_metadata(metadata)), exchange.conversation_id, metadata.agent)

    async def settle(self, exchange: Exchange, outcome: Outcome) -> Bill:
        """Prices the call and commits turn and bill in one transaction.

        Raises:
            StorageUnavailable: the turn could not be stored: the client must not be told that it was.
        """
        request_id = exchange.request.request_id
        self._settling[request_id] = exchange
        try:
            return await self._settle(exchange, outcome)
        finally:
            self._settling.pop(request_id, None)

    async def _settle(self, exchange: Exchange, outcome: Outcome) -> Bill:
        completion = outcome.completion or {}
        if isinstance(completion.get("id"), str):
            exchange.upstream_id = completion["id"]
        calls = (*exchange.failed, *exchange.paid)
        usages = [call.usage for call in exchange.paid]
        if exchange.called:
            usage, primary = await self.usage.priced(exchange, outcome)
            usages.append(usage)
            exchange.written = int(usage["completion_tokens"])
            calls = (*calls, primary)
        calls = (*calls, *map(price_internal, exchange.internal))
        usage = usage_together(usages)
        sums = total_cost(calls)
        known = self._metadata(exchange)
        add_bill(known, calls, sums)
        if exchange.built is not None and usages:
            used, left = exchange.built.utilization, exchange.built.left_out
            used.economics = as_realised(used.economics, left, usages[0], exchange.facts.prices)
            known.economics = self._meter(exchange, usages[0], calls, sums[0].total_cost)
        exchange.request.log_facts.update(figures(known))
        metadata = response_metadata(known, await self._unlisted(exchange))
        document = jsons.dumps(metadata)
        if exchange.request.options.cite and outcome.status != "failed":
            exchange.cited = await cited(completion, exchange.built, exchange.rounds, exchange.request)
            exchange.request.log_facts["citations"] = len(exchange.cited["citations"])
            exchange.request.log_facts["citations_dropped"] = exchange.cited["citations_dropped"]
        await self._commit(exchange, outcome, metadata, document, calls)
        if outcome.status != "failed":
            large = exchange.request.size >= CHAIN_BYTES
            if (reason := await offload_if(large, self._prefixes.broken, exchange)) is not None:
                self.metrics.prefix_broken(exchange.asked.model, reason)
        if (told := with_citations(in_answer(metadata), exchange.cited)) is not metadata:
            document = jsons.dumps(told)
        usage, total = extended_usage(usage, calls, sums), sums[0].total_cost
        return Bill(document, usage, exchange.conversation_id, total, known.agent)

    def _meter(
        self, exchange: Exchange, usage: dict[str, Any], calls: Sequence[CallCost], billed: Decimal | None
    ) -> dict[str, Any] | None:
        """What the client's own request would have cost beside what was billed (guarantee §6); the branch's sums go
        with its answer. None where nothing is economised, or a price is unknown."""
        built, history = exchange.built, exchange.history
        if built is None or built.economy is None or history is None or billed is None:
            return None
        primary = [call.total for call in calls if call.purpose in OF_MODELS]
        economics, exchange.costs = metered(
            built.economy,
            history.costs,
            model=exchange.request.model,
            usage=usage,
            prices=exchange.facts.prices,
            primary=sum((cost for cost in primary if cost is not None), Decimal(0)),
            billed=billed,
            counted=built.fitted.tokens,
            left=built.left_out,
            rewritten=built.economy.passed is not None or built.fitted.new_pass,
        )
        return economics

    async def settle_round(self, exchange: Exchange, rounds: RecallRounds, outcome: Outcome) -> None:
        """Notes what a round of the tool `recall` cost; the next call of the model is still to be made."""
        rounds.paid.append((await self.usage.priced(exchange, outcome))[1])
        exchange.called = False

    @asynccontextmanager
    async def recording_failure(self, exchange: Exchange, record: StreamRecord | None = None) -> AsyncIterator[None]:
        """Records what an exchange cost, and what was delivered of it, if the body fails or is cancelled.

        Args:
            record: of a stream, what was delivered so far.
        """
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if self._may_record(exchange):
                self._tasks.start(self._record_failure(exchange, record, None))
            raise
        except GatewayError as error:
            recorded = self._may_record(exchange) and await self._record_failure(exchange, record, error)
            if recorded and exchange.conversation_id:
                error.headers = {**error.headers, "x-conversation-id": exchange.conversation_id}
            raise
        except Exception as error:  # a fault of our own must not lose the bill, nor show its insides
            log.fault("exchange_failed", error, request_id=exchange.request.request_id)
            fault = InternalError("The gateway failed to answer this request.")
            if self._may_record(exchange):
                await self._record_failure(exchange, record, fault)
            raise fault from error

    async def estimate(self, exchange: Exchange, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer to a dry run: the messages that would go up, the bill of internal models, and the least and most
        that the primary call would cost."""
        if exchange.history is None or exchange.history.created:
            exchange.conversation_id = None
        forward = exchange.request.forward
        most = output_limit(forward)[1] or exchange.facts.max_output_tokens
        most = most * exchange.request.choices if most else None
        # It loads a vocabulary at first, and a prompt may be long: streams of other requests must not wait for that.
        prompt = await asyncio.to_thread(self.usage.prompt_tokens, exchange)
        tier = forward.get("service_tier")
        costs = estimated_cost(exchange.facts.prices, prompt, most, tier if isinstance(tier, str) else None)
        calls, metadata = tuple(map(price_internal, exchange.internal)), self._metadata(exchange)
        add_bill(metadata, calls, total_cost(calls))
        return {
            "object": "context.dry_run",
            "model": exchange.asked.model,
            "messages": messages,
            "response_metadata": with_plan(response_metadata(metadata), plan_of(exchange)),
            "estimated_cost": costs,
        }

    async def bill_dry_run(self, exchange: Exchange) -> None:
        """Records the bill of a dry run's internal models, and why they were asked; nothing else is kept of it
        (guarantee §5) but, for messages that are sent elsewhere, their frame."""
        if exchange.internal and exchange.built:
            used = exchange.built.utilization
            records = [anonymous(record) for record in used.artifacts_processed]
            utilization = replace(used, artifacts_processed=records)
            exchange.built = replace(exchange.built, utilization=utilization)
            exchange.conversation_id = None
            await self.settle(exchange, Outcome("complete"))
        elif exchange.request.options.sent_elsewhere and self.frames is not None:
            await self.frames.keep(exchange)

    def learn_refusal(self, exchange: Exchange) -> None:
        """Learns from a prompt that upstream refused although it was to fit."""
        self.usage.learn_refusal(exchange)

    def abandon(self, exchange: Exchange) -> None:
        """Records an exchange whose client has left; does nothing once it is settled."""
        if self._may_record(exchange):
            self._tasks.start(self._record_failure(exchange, None, None))

    def _may_record(self, exchange: Exchange) -> bool:
        """Whether the caller is to record the failure: once, if any model was called and no commit is under way. What
        leaves no bill gives back what it held."""
        has_cost = bool(exchange.called or exchange.paid or exchange.failed or exchange.internal)
        if not has_cost and not exchange.committing and exchange.request.admission is not None:
            exchange.request.admission.closed()
        if not has_cost and exchange.opened:
            self.open_calls.close(exchange.request.request_id)
        first = has_cost and not exchange.committing and not exchange.given_up
        exchange.given_up = exchange.given_up or first
        return first

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for what is still being recorded. Bills that the storage does not take by then go to the
        log."""
        await self._late.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tasks.finish()
                await self._late.record()
        await self.open_calls.drain(seconds)
        for entry in (*self._committing.values(), *self._late):
            log.warning("bill_not_recorded", **named(entry))
        for request_id in self._settling.keys() - self._committing.keys():  # it was still being counted
            log.warning("bill_not_recorded", request_id=request_id, model=self._settling[request_id].request.model)

    async def _record_failure(
        self, exchange: Exchange, record: StreamRecord | None, error: GatewayError | None
    ) -> bool:
        """Records a turn that did not end well: `partial` if something was delivered, else `failed`. Returns whether it
        could be stored."""
        code = error.code if error else "client_disconnected"
        if error is not None:
            self.metrics.upstream_failed(exchange.request.model, error)
        outcome = Outcome.failed(code, error, is_out=exchange.is_out)
        try:
            if record is not None and record.begun and exchange.delivered:
                told = error.body()["error"] if error is not None else None
                outcome = replace(Outcome.of_stream(record, "partial", code), error=told)
            await self.settle(exchange, outcome)
            return True
        except StorageUnavailable:
            log.warning("turn_not_stored", request_id=exchange.request.request_id, status=outcome.status)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with the answer, the bill is kept
            log.fault("turn_not_kept", fault, request_id=exchange.request.request_id)
            exchange.built = None
            with contextlib.suppress(StorageUnavailable):
                await self.settle(exchange, Outcome("failed", error_code=code))
        finally:
            self.running.leave(exchange)
            if not exchange.committing and exchange.request.admission is not None:
                exchange.request.admission.closed()
        return False

    async def _commit(
        self,
        exchange: Exchange,
        outcome: Outcome,
        metadata: dict[str, Any],
        document: bytes,
        calls: tuple[CallCost, ...],
    ) -> None:
        request, model = exchange.request, exchange.asked.model
        turn = await self._turn(exchange, outcome) if exchange.conversation_id and exchange.built else None
        chains = await self._chains(exchange, outcome)
        if self.frames is not None and outcome.status != "failed":
            await self.frames.keep(exchange)
        await self._note_loop(exchange, outcome)
        entry = LedgerEntry(
            request_id=request.request_id,
            tenant=request.caller.tenant,
            conversation_id=exchange.conversation_id,
            completion_id=exchange.completion_id,
            model=model,
            status=outcome.status,
            stream=request.stream,
            created_at=request.arrived_at,
            metadata=metadata,
            document=document,
            calls=calls,
            error_code=outcome.error_code,
            end_user=end_user_of(request.forward),
            agent=request.agent.agent_id if request.agent is not None else None,
            key_id=request.caller.key_id,
            project=request.caller.project,
            endpoint=request.api,
            figures=ledger_figures(metadata, calls),
        )
        exchange.committing = True  # from here on it runs to its end, whoever leaves
        self._committing[request.request_id] = entry
        await self._tasks.finished(self._written(exchange, TurnCommit(entry, turn, chains, request.claim)))

    async def _written(self, exchange: Exchange, commit: TurnCommit) -> None:
        entry, turn, request = commit.ledger, commit.turn, exchange.request
        try:
            with self.spans("commit"):
                await self._store.commit(commit)
            if request.admission is not None:
                billed(request.admission, entry)
            if self.hooks.is_listening:
                self.hooks.settled(commit)
        except StorageUnavailable:
            billed_alone = replace(entry, error_code=entry.error_code or "turn_not_stored")
            claim = request.claim if turn is None else None
            late = TurnCommit(billed_alone, chains=commit.chains, claim=claim, again=True)
            self._late.add(late, owed(request.admission, entry) if request.admission is not None else None)
            if turn is not None:
                raise
            log.warning("bill_not_recorded_yet", request_id=request.request_id, waiting=len(self._late))
            return
        except Exception:  # the answer cannot be stored as it is; its bill still can
            exchange.committing = False
            raise
        finally:
            del self._committing[request.request_id]
            if exchange.committing:
                self.metrics.billed(entry)
                self.running.leave(exchange)
        if self._late:
            self._tasks.start(self._late.record())

    async def _turn(self, exchange: Exchange, outcome: Outcome) -> StoredTurn:
        """What is stored of the turn."""
        messages = exchange.history.messages if exchange.history else ()
        place, memory = None, exchange.request.memory
        user = end_user_of(exchange.request.forward) if memory is not None and memory.scope == "user" else None
        if user is not None:
            place = user_place(await self._store.secret(), exchange.request.caller.tenant, user)
        return await offload_if(len(messages) >= INLINE_MESSAGES, stored_turn, exchange, outcome, place)

    async def _unlisted(self, exchange: Exchange) -> Unlisted | None:
        """What need not stand in the stored bill, as stored messages tell it again (ADR 19)."""
        history, built = exchange.history, exchange.built
        if built is None or built.material is None or exchange.conversation_id is None:
            return None
        if history is None or history.unproven:  # what such a client sent need not be, to the letter, what is stored
            return None
        records = built.utilization.artifacts_processed
        if not any(record.standing for record in records):
            return None
        material = built.material
        long = len(material.messages) >= INLINE_MESSAGES
        return await offload_if(long, unlisted_among, records, material.messages, material.current, history.notes)

    async def _chains(self, exchange: Exchange, outcome: Outcome) -> tuple[ChainKey, ...]:
        """The keys by which the conversation is recognised; stored also where no content is (guarantee §3.2)."""
        if self._match == "off" or outcome.status == "failed":
            return ()
        try:
            secret = await self._store.secret()
        except StorageUnavailable:
            return ()  # nothing can be stored, so nothing can be recognised
        return await offload_if(exchange.request.size >= CHAIN_BYTES, chain_keys, exchange, outcome, secret)

    async def _note_loop(self, exchange: Exchange, outcome: Outcome) -> None:
        choices = (outcome.completion or {}).get("choices") or ()
        answers = [choice["message"] for choice in choices if isinstance(choice.get("message"), dict)]
        if self.loops is None or outcome.status == "failed":
            return
        request, history, built = exchange.request, exchange.history, exchange.built
        messages = request.messages if history is None else [message.body for message in history.messages]
        asked = built is not None and built.plan is not None
        await self.loops.note(request.caller.tenant, messages, answers, asked=asked)

    def _metadata(self, exchange: Exchange) -> ResponseMetadata:
        request = exchange.request
        now = self.clock.monotonic()
        timings = {name: round(1000 * seconds, 3) for name, seconds in exchange.timings.items()}
        timings["upstream"] = round(1000 * (now - exchange.sent_at), 3) if exchange.sent_at is not None else 0.0
        timings["total"] = round(1000 * (now - request.started), 3)
        utilization = exchange.built.utilization if exchange.built else None
        if utilization is None or request.options.mode == "off":
            strategy = utilization.strategy if utilization else "passthrough"
            utilization = ContextUtilizationMetadata(request.model, strategy, request.options.goal.value)
        exchange.tell_warnings(utilization)
        if exchange.recall is not None:
            utilization.recall = exchange.recall.as_json()
        return ResponseMetadata(
            request_id=request.request_id,
            conversation_id=exchange.conversation_id,
            upstream_id=exchange.upstream_id,
            model=exchange.asked.model,
            routing_path=exchange.route,
            usage=None,
            cost=None,
            context_utilization=utilization,
            timings_ms={"rebuild": 0.0, "plan": 0.0, **timings},
            agent=request.agent.as_json() if request.agent is not None else None,
        )
