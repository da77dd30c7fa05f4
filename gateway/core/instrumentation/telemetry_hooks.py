"""Reports events to third-party code (guarantee §11.6).

A hook is a function that takes an event as a `dict`. Packages register hooks as entry points of the group
`context_gateway.hooks`; the name of an entry point is that of its event, or begins with it and a dot. Hooks run after
the answer, one after the other in a thread of their own: a slow or failing hook delays nobody.
"""

import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from queue import Empty, Full, Queue
from typing import Any, Literal

from gateway.core.instrumentation.logs import get_logger
from gateway.core.plugins import load_plugin, plugins_of
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.keys import SpendingAccount
from gateway.core.types.turn import TurnCommit

log = get_logger("gateway.core.instrumentation.telemetry_hooks")
HOOKS_GROUP = "context_gateway.hooks"
MAX_TELEMETRY_QUEUE = 1000
"""Events that wait for their hooks; further ones are lost, with one line in the log."""
Event = Literal["message_added", "team_task_changed", "request_settled", "budget_exceeded"]
TELEMETRY_EVENTS: tuple[Event, ...] = ("message_added", "team_task_changed", "request_settled", "budget_exceeded")
SETTLED_FACTS = (
    *("tenant", "request_id", "completion_id", "conversation_id", "model", "agent", "status", "error_code"),
)
"""Fields of a request's entry in the ledger that its event has, too."""
Hook = Callable[[dict[str, Any]], Any]


class TelemetryHooks:
    """The hooks of this process. Until `start`, no event is reported."""

    def __init__(self) -> None:
        self._waiting: Queue[tuple[Event, dict[str, Any]] | None] = Queue(MAX_TELEMETRY_QUEUE)
        self._hooks: dict[Event, list[tuple[str, Hook]]] = {}
        self._thread: threading.Thread | None = None
        self.lost = 0
        """Events that were not reported, as too many were waiting."""
        self.is_listening = False
        """Whether an event may have a hook; also true while hooks are being loaded."""

    @property
    def waiting(self) -> int:
        """Events that wait for their hooks."""
        return self._waiting.qsize()

    def start(self) -> None:
        """Starts a thread that loads the hooks and then runs them; it ends if there are none."""
        self.is_listening = True
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Waits until all events have been reported, at most so many seconds."""
        if self._thread is None:
            return
        until = time.monotonic() + seconds
        try:
            self._waiting.put(None, timeout=seconds)
        except Full:
            return
        self._thread.join(max(0.0, until - time.monotonic()))

    def settled(self, commit: TurnCommit) -> None:
        """Reports that a request's bill and turn are stored."""
        if not self.is_listening:
            return
        entry, turn = commit.ledger, commit.turn
        if turn is not None and entry.status != "failed":
            added = (*turn.new_messages, *(answer.message for answer in turn.answers))
            self.added(entry.tenant, turn.conversation_id, added)
        facts = {name: getattr(entry, name) for name in SETTLED_FACTS}
        self._tell("request_settled", {**facts, "response_metadata": entry.metadata})

    def added(self, tenant: str, conversation_id: str, messages: tuple[ConversationMessage, ...]) -> None:
        """Reports that messages are stored."""
        for message in messages if self.is_listening else ():
            facts = {
                "tenant": tenant,
                "conversation_id": conversation_id,
                "id": message.message_id,
                "agent": message.agent,
                "status": message.status,
                "message": message.body,
            }
            self._tell("message_added", facts)

    def team_task_changed(self, tenant: str, conversation_id: str, team_task: str | None) -> None:
        """Reports that a conversation has another team task, or none."""
        facts = {"tenant": tenant, "conversation_id": conversation_id, "team_task": team_task}
        self._tell("team_task_changed", facts)

    def budget_exceeded(self, account: SpendingAccount, budget: int, spent: int, *, hard: bool) -> None:
        """Reports that a budget is used up; sums in picodollars. Each process reports it once per period."""
        if not self.is_listening:
            return
        holder = account.holder
        facts = {
            "holder": holder.kind,
            "name": holder.name or None,
            "tenant": holder.tenant or None,
            "period": account.period,
            "hard": hard,
            "budget_usd": str(Decimal(budget).scaleb(-12)),
            "spent_usd": str(Decimal(spent).scaleb(-12)),
            "resets_at": account.resets_at.isoformat() if account.resets_at is not None else None,
        }
        self._tell("budget_exceeded", facts)

    def _tell(self, event: Event, facts: Mapping[str, Any]) -> None:
        if not self.is_listening:
            return
        try:
            self._waiting.put_nowait((event, {"event": event, **facts}))
        except Full:
            if not self.lost:
                log.warning("hook_events_lost", waiting=MAX_TELEMETRY_QUEUE)
            self.lost += 1

    def _run(self) -> None:
        self._load()
        if not self._hooks:
            self.is_listening = False
            self._forget()
            return
        while (waiting := self._waiting.get()) is not None:
            event, facts = waiting
            for name, hook in self._hooks.get(event, ()):
                try:
                    hook(deepcopy(facts))
                except (Exception, CancelledError, SystemExit) as fault:  # noqa: BLE001 - code of others
                    log.fault("hook_failed", fault, hook=name)

    def _load(self) -> None:
        for entry in plugins_of(HOOKS_GROUP):
            event = next((each for each in TELEMETRY_EVENTS if entry.name.partition(".")[0] == each), None)
            if event is None:
                log.warning("hook_unknown", hook=entry.name, known=", ".join(TELEMETRY_EVENTS))
                continue
            try:
                self._hooks.setdefault(event, []).append((entry.name, load_plugin(entry)))
            except Exception as fault:  # noqa: BLE001 - as above
                log.fault("hook_failed", fault, hook=entry.name)
        self._hooks = {event: hooks for event, hooks in self._hooks.items() if hooks}

    def _forget(self) -> None:
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            pass
