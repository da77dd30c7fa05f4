"""Settles requests: makes their bill, commits turn and bill, and notifies everything that learns from them. There is
always a bill: one that the storage did not take when its request ended waits in memory until it does (guarantee §6). A
request that continues one whose client has left waits for its commit (guarantee §3.7)."""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gateway.billing import budgets, cost, metadata
from gateway.core import errors, ports
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.instrumentation import logs
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import audit_log, bill, turn
from gateway.core.types.chain import ChainDigest
from gateway.core.types.chat import ChatRequest
from gateway.core.types.keys import HeldAdmission
from gateway.pipeline.billing import OpenCalls, UsageCount, make_bill, metadata_of, says
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.payload import output_limit
from gateway.pipeline.stages import RequestRun, SettledRequest, UpstreamOutcome
from gateway.pipeline.stored_turn import TurnRecorder, chain_of, plan_of, unlisted_in
from gateway.storage import ConversationStore

log = logs.get_logger("gateway.pipeline.settlement")
MAX_WAITING_BILLS = 10_000
"""Most waiting bills, of a few kilobytes each; beyond that the oldest are dropped."""
BILL_RETRY_SECONDS = 5.0
"""Between two retries while no other turn is committed."""


class TurnCommits:
    """Commits turns, each with its bill in one transaction; then notifies metrics, telemetry and budgets."""

    def __init__(
        self,
        store: ConversationStore,
        metrics: GatewayMetrics,
        telemetry: TelemetryHooks,
        spans: ports.Spans = contextlib.nullcontext,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._telemetry = telemetry
        self._spans = spans
        self._tasks = BackgroundTasks()
        self._late = _LateBills(store)
        self._writing: dict[str, turn.LedgerEntry] = {}

    async def commit(self, commit: turn.TurnCommit, admission: HeldAdmission | None) -> None:
        """Writes a turn and its bill. A bill that the storage does not take waits.
        `admission`: the request's reservations in budgets and limits.
        Raises StorageUnavailable: the turn is not stored; its bill waits."""
        entry = commit.ledger
        self._writing[entry.request_id] = entry
        try:
            with self._spans("commit"):
                await self._store.commit(commit)
            if admission is not None:
                budgets.billed(admission, entry)
            if self._telemetry.is_listening:
                self._telemetry.settled(commit)
        except errors.StorageUnavailable:
            lost = "turn_not_stored" if commit.turn is not None else None
            alone = replace(entry, error_code=entry.error_code or lost)
            claim = commit.claim if commit.turn is None else None
            late = turn.TurnCommit(alone, chains=commit.chains, claim=claim, again=True)
            self._late.add(late, budgets.owed(admission, entry) if admission is not None else None)
            self._metrics.billed(entry)
            if commit.turn is not None:
                raise
            log.warning("bill_not_recorded_yet", request_id=entry.request_id, waiting=len(self._late))
            return
        finally:
            del self._writing[entry.request_id]
        self._metrics.billed(entry)
        if self._late:
            self._tasks.start(self._late.record())

    async def drain(self, seconds: float, others: BackgroundTasks) -> set[str]:
        """Waits at shutdown for what is still being recorded, by `others` too. Bills that the storage does not take by
        then are logged; returns the ids of requests whose bills are being written."""
        await self._late.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await others.finish()
                await self._tasks.finish()
                await self._late.record()
        for entry in (*self._writing.values(), *self._late):
            log.warning("bill_not_recorded", **log_fields(entry))
        return set(self._writing)


class _LateBills:
    """Bills of turns whose content is lost: their clients were told that the turns were not stored."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._waiting: deque[turn.TurnCommit] = deque(maxlen=MAX_WAITING_BILLS)
        self._then: dict[str, Callable[[], None]] = {}
        self._retrying: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[turn.LedgerEntry]:
        return (commit.ledger for commit in self._waiting)

    def add(self, commit: turn.TurnCommit, then: Callable[[], None] | None = None) -> None:
        """Queues a bill. It is written with the next commit, or after `BILL_RETRY_SECONDS`; then `then` is called."""
        self._waiting.append(commit)
        if then is not None:
            self._then[commit.ledger.request_id] = then
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.create_task(self._retry())

    async def record(self) -> None:
        """Writes the waiting bills, until the storage fails again."""
        while self._waiting:
            commit = self._waiting.popleft()
            try:
                await self._store.commit(commit)
                if (then := self._then.pop(commit.ledger.request_id, None)) is not None:
                    then()
            except errors.StorageUnavailable:
                self._waiting.appendleft(commit)
                log.warning("bills_not_recorded_yet", waiting=len(self._waiting))
                return
            except asyncio.CancelledError:
                self._waiting.appendleft(commit)
                raise
            except Exception as fault:  # noqa: BLE001 - a bill that cannot be written must not keep back the others
                log.fault("bill_not_recorded", fault, **log_fields(commit.ledger))

    async def _retry(self) -> None:
        while self._waiting:
            await asyncio.sleep(BILL_RETRY_SECONDS)
            await self.record()

    async def stop(self) -> None:
        """Stops the timed retries."""
        if self._retrying is not None:
            self._retrying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._retrying


def log_fields(entry: turn.LedgerEntry) -> dict[str, object]:
    """Returns the log's fields for a lost bill: its request, model and figures."""
    figures = {name: entry.metadata.get(name) for name in ("usage", "cost")}
    return {"request_id": entry.request_id, "model": entry.model, **figures}


MAX_TURN_WAIT_SECONDS = 5.0
"""Longest wait of a request for the turn before it."""
LOOP_TURNS = 3
"""Turns of the event loop within which a closed connection is noticed."""
Key = tuple[Hashable, ...]


class RunningTurns:
    """Finds running turns by their conversation's name, and by the messages that their client will send next time.

    Knows only turns of this process: of other replicas a request sees only committed turns.
    """

    def __init__(self, seconds: float = MAX_TURN_WAIT_SECONDS) -> None:
        self._seconds = seconds
        self._running: defaultdict[str, dict[str, tuple[RequestRun, list[Key]]]] = defaultdict(dict)
        self._by_key: defaultdict[Key, dict[str, RequestRun]] = defaultdict(dict)
        self._ends: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return sum(map(len, self._running.values()))

    def enter(self, run: RequestRun) -> None:
        """Registers a running turn that will be stored, until `leave`."""
        prepared, request = run.prepared, run.prepared.request
        if prepared.conversation_id is None or request.options.dry_run:
            return
        tenant = request.caller.tenant
        end = _chain_key(request, chain_of(prepared).end)
        keys = [*_conversation_keys(request), (tenant, "id", prepared.conversation_id), end]
        if request.api is not None:
            keys.append((tenant, "answer", run.completion_id))
        self._running[tenant][request.request_id] = run, keys
        for key in keys:
            self._by_key[key][request.request_id] = run

    def leave(self, run: RequestRun) -> None:
        """Removes a turn that is committed, or never will be. Has no effect if the turn is not registered."""
        request_id, tenant = run.asked.request_id, run.asked.caller.tenant
        running = self._running.get(tenant)
        if running is None or request_id not in running:
            return
        _, keys = running.pop(request_id)
        if not running:
            del self._running[tenant]
        for key in keys:
            found = self._by_key[key]
            found.pop(request_id, None)
            if not found:
                del self._by_key[key]
        end = self._ends.pop(request_id, None)
        if end is not None:
            end.set()

    async def ended(self, request: ChatRequest, chain: Sequence[ChainDigest]) -> None:
        """Waits until every turn that the request continues is committed, if its client has left or its commit has
        begun, but no longer than `seconds`. A turn whose client is still reading is not awaited.
        `chain`: the chain digests after each message of the request."""
        if request.caller.tenant not in self._running:
            return
        keys = {*_conversation_keys(request), *(_chain_key(request, digest) for digest in chain)}
        if not self._found(keys):
            return
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._seconds):
                while leaving := [each for each in self._found(keys) if each.is_ending or each.asked.has_left()]:
                    await self._ends.setdefault(leaving[0].asked.request_id, asyncio.Event()).wait()
        except TimeoutError:
            return

    def answering(self, tenant: str, conversation_id: str) -> list[RequestRun]:
        """Lists the running turns of a conversation."""
        return self._found([(tenant, "id", conversation_id)])

    async def end_of(self, run: RequestRun) -> None:
        """Waits until a turn is committed, or never will be, but no longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._ends.setdefault(run.asked.request_id, asyncio.Event()).wait()

    def _found(self, keys: Iterable[Key]) -> list[RequestRun]:
        return [each for key in keys if key in self._by_key for each in self._by_key[key].values()]


def _conversation_keys(request: ChatRequest) -> list[Key]:
    """Returns the conversation's key under each name that the request gives."""
    tenant, ref = request.caller.tenant, request.conversation
    named = {"id": ref.conversation_id, "session": ref.session, "answer": ref.behind}
    return [(tenant, kind, name) for kind, name in named.items() if name is not None]


def _chain_key(request: ChatRequest, digest: ChainDigest) -> Key:
    """Returns the key of what was said up to a message, as guarantee §3.2 recognises it."""
    return request.caller.tenant, request.users, digest.said


def _is_first(run: RequestRun) -> bool:
    """Returns whether a run's turn is to be the first of its conversation, which is not stored yet."""
    return run.prepared.history is not None and run.prepared.history.created


PAUSED = UpstreamOutcome.failed("compaction", None, is_chargeable=False)
"""The outcome of a request that paused because its client wants to know of a compaction first."""


class RequestSettlement:
    """Bills requests and commits them."""

    def __init__(self, *, parts: PipelineParts, match: str) -> None:
        """`match`: what conversations are recognised by (`conversation.match`)."""
        self.clock = parts.clock
        self.metrics = parts.metrics
        self.open_calls = OpenCalls(parts.store, parts.clock)
        self.running = RunningTurns()
        self.usage = UsageCount(parts.counters)
        self._store = parts.store
        self._recorder = TurnRecorder(parts.store, match, parts.frames, parts.loops)
        self._commits = TurnCommits(parts.store, parts.metrics, parts.hooks, parts.spans)
        self._tasks = BackgroundTasks()
        self._settling: dict[str, RequestRun] = {}

    async def settle(self, run: RequestRun, outcome: UpstreamOutcome) -> SettledRequest:
        """Makes the bill, and commits turn and bill in one transaction.
        Raises StorageUnavailable: the turn could not be stored, and must not be reported to the client as stored."""
        request_id = run.asked.request_id
        self._settling[request_id] = run
        try:
            settled = await self._billed(run, outcome)
            commit = await self._recorder.commit_of(settled)
            run.begin_commit()  # from here on it runs to its end, even if the client leaves
            await self._tasks.finished(self._written(run, commit, settled))
            return settled
        finally:
            self._settling.pop(request_id, None)

    async def delete_conversation(
        self, tenant: str, conversation_id: str, by: audit_log.AuditActor | None = None
    ) -> bool:
        """Deletes a conversation (see `ConversationStore.delete_conversation`), also while its first turn is under way
        in this process: that is then not stored. One that is being committed is waited for."""
        run = next(filter(_is_first, self.running.answering(tenant, conversation_id)), None)
        is_new = run is not None and not run.is_ending and run.asked.request_id not in self._settling
        if run is not None and (history := run.prepared.history) is not None and is_new:
            run.continue_as(replace(run.prepared, history=replace(history, created=False)))
        elif run is not None:
            await self.running.end_of(run)
        return await self._store.delete_conversation(tenant, conversation_id, by, is_new=is_new)

    async def _billed(self, run: RequestRun, outcome: UpstreamOutcome) -> SettledRequest:
        attempted, request = run.attempted(outcome), run.prepared.request
        primary = await self.usage.priced(run, outcome) if attempted.has_unpriced_call else None
        if primary is not None:
            run.set_answer_tokens(int(primary[0]["completion_tokens"]))
        unlisted = await unlisted_in(run.prepared)
        settled = make_bill(attempted, primary, self.clock.monotonic(), unlisted)
        request.log_facts.update(metadata.figures(settled.known))
        for hook in run.prepared.features.on_bill:
            settled = await hook(settled)
        return settled

    async def _written(self, run: RequestRun, commit: turn.TurnCommit, settled: SettledRequest) -> None:
        try:
            await self._commits.commit(commit, run.prepared.request.admission)
            await self._recorder.keep(settled)
        except errors.StorageUnavailable:
            raise
        except Exception:  # the answer cannot be stored as it is; its bill still can
            run.abort_commit()
            raise
        finally:
            if run.is_committing:
                self.running.leave(run)

    async def failed(self, run: RequestRun, record: StreamRecord | None, error: BaseException) -> None:
        """Records a failure according to the error that ended the request.
        Raises InternalError: the fault is our own; it must neither lose the bill nor reveal internals."""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.abandon(run, record, errors.cancellation_code(error))
        elif isinstance(error, errors.GatewayError):
            error.has_bill = run.has_cost
            recorded = self._claim_failure(run) and await self._tasks.finished(self._record_failure(run, record, error))
            if recorded and run.prepared.conversation_id:
                error.headers = {**error.headers, "x-conversation-id": run.prepared.conversation_id}
        elif isinstance(error, Exception):
            log.fault("exchange_failed", error, request_id=run.asked.request_id)
            fault = errors.InternalError("The gateway failed to answer this request.")
            if self._claim_failure(run):
                await self._tasks.finished(self._record_failure(run, record, fault))
            raise fault from error

    def abandon(self, run: RequestRun, record: StreamRecord | None = None, code: str = errors.CLIENT_LEFT) -> None:
        """Records a request whose client has left, or that was cancelled for another reason, `code`; does nothing if it
        is already settled."""
        if self._claim_failure(run):
            self._tasks.start(self._record_failure(run, record, code))

    async def paused(self, run: RequestRun) -> None:
        """Records the cost of a request that paused after a compaction, before its model was asked."""
        if self._claim_failure(run):
            await self._tasks.finished(self._recorded(run, PAUSED))

    def _claim_failure(self, run: RequestRun) -> bool:
        """Returns whether the caller must record the failure, as nobody else will. Releases what the request held if it
        leaves no bill."""
        if not run.has_cost and not run.is_committing:
            self.running.leave(run)
            if run.asked.admission is not None:
                run.asked.admission.closed()
            if run.noted_calls:
                self.open_calls.close(run.asked.request_id)
        return run.claim_failure()

    async def _record_failure(
        self, run: RequestRun, record: StreamRecord | None, ended: errors.GatewayError | str
    ) -> bool:
        """Records a turn that ended badly: `partial` if something was delivered, else `failed`. Returns whether it
        could be stored. To be run as a task: nobody else records it if the client leaves meanwhile.
        `ended`: the error, or the code of a request that was cancelled."""
        error, code = (None, ended) if isinstance(ended, str) else (ended, ended.code)
        if error is not None:
            self.metrics.upstream_failed(run.prepared.request.model, error)
        said = run.answer_so_far
        failed = UpstreamOutcome.failed(code, error, is_chargeable=run.attempted().is_chargeable)
        usage = failed.usage or said.usage or next(iter(run.reported), None)
        outcome = failed = replace(failed, usage=usage, charged=failed.charged or says(said))
        if record is not None and record.begun and run.is_delivered:
            error_body = error.body()["error"] if error is not None else None
            outcome = replace(failed, status="partial", completion=record.completion(), error=error_body)
        return await self._recorded(run, outcome, failed)

    async def _recorded(self, run: RequestRun, *outcomes: UpstreamOutcome) -> bool:
        """Settles a request with the first of these outcomes that can be stored; returns whether it was the first of
        all."""
        try:
            for number, each in enumerate(outcomes):
                try:
                    await self.settle(run, each)
                    return number == 0
                except errors.StorageUnavailable:
                    log.warning("turn_not_stored", request_id=run.asked.request_id, status=each.status)
                    break
                except Exception as fault:  # noqa: BLE001 - whatever is wrong with the answer, the bill is kept
                    log.fault("turn_not_kept", fault, request_id=run.asked.request_id)
                    run.continue_as(replace(run.prepared, context=None))
        finally:
            self.running.leave(run)
            if not run.is_committing and run.asked.admission is not None:
                run.asked.admission.closed()
        return False

    async def estimate(self, run: RequestRun, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the answer to a dry run: the messages that would be sent upstream, the bill of internal models, and
        the least and most that the primary call would cost."""
        prepared = run.prepared
        if prepared.history is None or prepared.history.created:
            prepared = replace(prepared, conversation_id=None)
        request, facts = prepared.request, prepared.facts
        most = output_limit(request.forward)[1] or facts.max_output_tokens
        most = most * request.choices if most else None
        # The first call loads a vocabulary, and a prompt may be long: streams of other requests must not wait for that.
        prompt = await asyncio.to_thread(self.usage.prompt_tokens, prepared)
        tier = request.forward.get("service_tier")
        kinds = cost.dearer_kinds(facts.prices, request.forward, messages)
        costs = cost.estimated_cost(facts.prices, prompt, most, tier if isinstance(tier, str) else None, kinds)
        attempted = run.attempted(prepared=prepared)
        calls = tuple(map(cost.price_internal, attempted.internal))
        known = metadata_of(attempted, self.clock.monotonic())
        metadata.add_bill(known, calls, cost.total_cost(calls))
        return {
            "object": "context.dry_run",
            "model": prepared.asked.model,
            "messages": messages,
            "response_metadata": metadata.with_plan(metadata.response_metadata(known), plan_of(prepared)),
            "estimated_cost": costs,
            "prompt_tokens": prompt,
        }

    async def bill_dry_run(self, run: RequestRun) -> None:
        """Records the bill of a dry run's internal models, and why they were asked; nothing else is stored of it
        (guarantee §5) except, for messages that are sent elsewhere, their frame."""
        context = run.prepared.context
        if run.internal and context is not None:
            records = [bill.anonymous(record) for record in context.utilization.artifacts_processed]
            context = replace(context, utilization=replace(context.utilization, artifacts_processed=records))
            run.continue_as(replace(run.prepared, context=context, conversation_id=None))
            await self.settle(run, UpstreamOutcome("complete"))
        elif run.asked.options.sent_elsewhere:
            await self._recorder.keep_frame(run.prepared)

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for what is being recorded. Bills that the storage does not take by then are logged."""
        writing = await self._commits.drain(seconds, self._tasks)
        await self.open_calls.drain(seconds)
        for request_id in self._settling.keys() - writing:  # it was still being counted
            model = self._settling[request_id].prepared.request.model
            log.warning("bill_not_recorded", request_id=request_id, model=model)


class FailureRecording:
    """Records what a request cost and delivered if the body of a `with` block fails or is cancelled. A generator
    instead would cost each request ten calls. `record`: of a stream, what was delivered so far."""

    __slots__ = ("_record", "_run", "_settlement")

    def __init__(self, settlement: RequestSettlement, run: RequestRun, record: StreamRecord | None = None) -> None:
        self._settlement, self._run, self._record = settlement, run, record

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            await self._settlement.failed(self._run, self._record, error)
