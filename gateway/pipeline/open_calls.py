"""What the ledger knows of a request before its models are asked, and the bills of processes that died meanwhile
(guarantee §6.10, ADR 32)."""

import asyncio
import contextlib
import os
from dataclasses import fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

from gateway.billing.cost import ledger_figures, price_call, price_internal, total_cost
from gateway.billing.metadata import add_bill, response_metadata
from gateway.conversations.rebuild import end_user_of
from gateway.core.errors import StorageReadOnly, StorageUnavailable
from gateway.core.ids import new_id
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import Clock
from gateway.core.tasks import BackgroundTasks
from gateway.core.types.bill import CallCost, ContextUtilizationMetadata, InternalCall, ResponseMetadata
from gateway.core.types.turn import LedgerEntry, OpenCallRow
from gateway.pipeline.stages import BYTES_PER_TOKEN, PreparedRequest, RequestRun
from gateway.storage.store import ConversationStore

log = get_logger("gateway.pipeline.billing")
ALIVE_FOR = timedelta(seconds=15)
"""How long a process counts as alive after each heartbeat, on other machines than its own."""
BEAT_SECONDS = 5.0
KILLED = "process_killed"
"""The error code of their bills."""


class OpenCalls:
    """Of this process."""

    def __init__(self, store: ConversationStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._process = ""
        self._alive_until: datetime | None = None
        self._tasks = BackgroundTasks()

    async def begin(self, run: RequestRun, prepared: PreparedRequest, internal: InternalCall | None = None) -> None:
        """Returns once the storage knows that a model is about to be asked: the primary, or an internal one.
        `prepared`: for the target that is to be asked, or is being prepared.
        Raises StorageUnavailable: it does not, and the request cannot go on without it."""
        if internal is not None:
            run.asking.append(internal)
        known = run.attempted(prepared=prepared)
        failed, paid, asking, route = known.failed, known.paid, run.asking, prepared.wire.deployment.route
        state = (len(failed), len(paid), len(known.internal), len(asking), route)
        if run.opened == state:
            return
        run.opened = state  # it may be cancelled from here on, and is written all the same
        calls = [*failed, *paid, *map(price_internal, known.internal)]
        if internal is not None:
            calls += map(price_internal, asking[min(len(known.internal), len(asking) - 1) :])
        else:
            calls.append(priced_prompt(route, _prompt_tokens(prepared), prepared.facts.prices))
        request, key = run.asked, run.asked.caller
        is_new = prepared.history is not None and prepared.history.created  # then there is none that a bill could name
        facts = {
            "tenant": key.tenant,
            "conversation_id": None if is_new else prepared.conversation_id,
            "completion_id": run.completion_id,
            "model": request.model,
            "stream": request.stream,
            "end_user": end_user_of(request.forward, request.caller),
            "agent": request.agent.agent_id if request.agent is not None else None,
            "key_id": key.key_id,
            "project": key.project,
            "endpoint": request.api,
            "route": known.route,
            "goal": request.options.goal.value,
        }
        try:
            await self.open(request.request_id, request.arrived_at, facts, calls)
        except StorageReadOnly:
            raise
        except StorageUnavailable:
            if prepared.conversation_id is not None and request.store:
                raise

    async def open(self, request_id: str, at: datetime, facts: dict[str, Any], calls: list[CallCost]) -> None:
        """Writes down what a request's bill would be; `facts` are fields of it."""
        now = self._clock.now()
        self._process = self._process or process_name()
        until = self._alive_until
        is_due = until is None or until - now < ALIVE_FOR - timedelta(seconds=BEAT_SECONDS)
        until = now + ALIVE_FOR if is_due else None
        facts = {**facts, "at": at.isoformat(), "calls": [_as_json(call) for call in calls]}
        await self._store.open_call(OpenCallRow(request_id, self._process, facts, until))
        self._alive_until = until or self._alive_until

    def close(self, request_id: str) -> None:
        """There is nothing to bill."""
        self._tasks.start(self._closed(request_id))

    async def _closed(self, request_id: str) -> None:
        with contextlib.suppress(StorageUnavailable):  # then it is billed as what it may have cost
            await self._store.open_call(OpenCallRow(request_id, self._process))

    async def look(self) -> int:
        """One heartbeat, where any call of this process is open, and the bills of processes that died; how many."""
        found, now = await self._store.holders(), self._clock.now()
        if self._process in found:
            await self._store.beat(self._process, now + ALIVE_FOR)
            self._alive_until = now + ALIVE_FOR
        others = {name: until for name, until in found.items() if name != self._process}
        dead = [name for name, until in others.items() if is_dead(name, until, now)]
        billed = 0
        while dead and (written := await self._store.bill_open(dead, _entry)):
            billed += written
        if billed:
            log.warning("calls_of_a_killed_process_billed", bills=billed)
        return billed

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for what is being deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tasks.finish()


def priced_prompt(route: str, tokens: int, prices: dict[str, Decimal]) -> CallCost:
    """A call of which nothing has come yet."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return price_call("primary", route, usage, prices, estimated=True)


def process_name() -> str:
    """This process's name. On Linux it says where and since when it runs, so that its end is seen on this machine at
    once; there is one such process at most, ever."""
    try:
        return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}"[:64]
    except OSError:
        return new_id("proc_")


def is_dead(name: str, until: datetime | None, now: datetime) -> bool:
    """Whether a process has died: as this machine knows, or by its heartbeats."""
    parts = name.split(":")
    with contextlib.suppress(OSError):
        if len(parts) == 3 and parts[0] == _machine():
            return _started(int(parts[1])) != parts[2]
    return until is None or until <= now


def _machine() -> str:
    """Of one boot, and one namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").replace("-", "")[:20]
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Clock ticks after the boot; "" if there is no such process, or it has ended and nobody was told yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _prompt_tokens(prepared: PreparedRequest) -> int:
    if prepared.context is not None:
        return prepared.context.fitted.tokens
    return prepared.request.size // BYTES_PER_TOKEN


def _as_json(call: CallCost) -> dict[str, Any]:
    """Its fields, without copies: each request writes one."""
    found = dict(zip(CALL_FIELDS, _fields_of(call), strict=True))
    for name in COSTS:
        if found[name] is not None:
            found[name] = str(found[name])
    return found


COSTS = ("prompt_cost", "completion_cost")
CALL_FIELDS = tuple(field.name for field in fields(CallCost))
_fields_of = attrgetter(*CALL_FIELDS)


def _call(found: dict[str, Any]) -> CallCost:
    costs = {name: Decimal(found[name]) if found[name] is not None else None for name in COSTS}
    return replace(CallCost(**{**found, **costs}), estimated=True)


def _entry(request_id: str, facts: dict[str, Any]) -> LedgerEntry:
    """The bill of a request whose process died: its prompts, as what came of an answer is not known."""
    calls = tuple(map(_call, facts["calls"]))
    endpoint, goal = facts["endpoint"], facts.get("goal")
    known = ResponseMetadata(
        request_id=request_id,
        conversation_id=facts["conversation_id"],
        upstream_id=None,
        model=facts["model"],
        routing_path=facts["route"],
        usage=None,
        cost=None,
        context_utilization=ContextUtilizationMetadata(facts["model"], "passthrough", goal) if goal else None,
        timings_ms={},
    )
    add_bill(known, calls, total_cost(calls))
    metadata = response_metadata(known)
    if not goal:
        metadata = {**metadata, "context_utilization": None, "managed": False, "endpoint": endpoint}
    names = ("tenant", "conversation_id", "completion_id", "model", "stream", "end_user", "agent", "key_id", "project")
    return LedgerEntry(
        request_id=request_id,
        status="failed",
        created_at=datetime.fromisoformat(facts["at"]),
        metadata=metadata,
        calls=calls,
        error_code=KILLED,
        endpoint=endpoint,
        figures=ledger_figures(metadata, calls, is_metered=not goal),  # what was left out of it is not known
        **{name: facts[name] for name in names},
    )
