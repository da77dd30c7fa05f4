"""Runs the configured guards, each under its deadline and a breaker (guarantee §12.9)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Any

from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.setting_sections import GuardEntry
from gateway.core.errors import ContentRefused, GuardUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.plugins import load_plugin
from gateway.core.ports import Clock
from gateway.core.tasks import Cooldown
from gateway.core.types.upstreams import CallScope
from gateway.pipeline.guards.api import GROUP, PASS, GuardedCall, Said, Verdict

log = get_logger("gateway.pipeline.guards")
FAILURES = 3
"""In a row, after which a guard rests."""
GUARD_COOLDOWN_SECONDS = 30.0
MAX_GUARD_COST_USD = Decimal(1000)
"""A guard that says that it cost more is mistaken."""
Ask = Callable[..., Awaitable[Verdict]]


class RunningGuard:
    """One guard of this process."""

    def __init__(self, entry: GuardEntry, guard: Any, clock: Clock) -> None:
        self.entry = entry
        self.before: Ask | None = getattr(guard, "before", None)
        self.after: Ask | None = getattr(guard, "after", None)
        self._clock = clock
        self._cooldown = Cooldown(FAILURES, GUARD_COOLDOWN_SECONDS)

    async def asked(self, scope: CallScope, ask: Ask, *about: Any) -> Verdict:
        """What it decides; of one that fails, is late or rests, that all may pass where it is `open`.
        Raises ContentRefused: it refuses; GuardUnavailable: it cannot be asked, and is `closed`."""
        verdict = None
        began = self._clock.monotonic()
        if not self._cooldown.remaining(began):
            try:
                async with asyncio.timeout(self.entry.timeout):
                    verdict = _checked(await ask(*about))
                self._cooldown.answered(began)
            except Exception as fault:  # noqa: BLE001 - code of others may fail in any way
                log.fault("guard_failed", fault, guard=self.entry.name)
                if self._cooldown.failed(self._clock.monotonic()):
                    self._cooldown.failures = 0  # afterwards it may fail as often again
        name = self.entry.name
        if verdict is None:
            if self.entry.on_failure == "closed":
                raise GuardUnavailable(f"The guard {name} cannot be asked; try again.")
            scope.warn(f"guard_failed:{name}")
            return PASS
        if verdict.cost:
            scope.charge(name, verdict.cost)
        if verdict.refused is not None:
            raise ContentRefused(f"Refused by the guard {name}: {verdict.refused}")
        return verdict


class GuardChain:
    """The guards in their order: each is shown what the one before it left."""

    def __init__(self, guards: Sequence[RunningGuard]) -> None:
        self._before = [guard for guard in guards if guard.before is not None]
        self._after = [guard for guard in guards if guard.after is not None]

    @property
    def hold(self) -> int:
        """Characters of a stream that are held until they are shown to the guards; 0: none looks at answers."""
        return min((guard.entry.hold for guard in self._after), default=0)

    async def before(self, call: GuardedCall, scope: CallScope) -> Mapping[str, Any]:
        """The body that is sent. Raises ContentRefused, GuardUnavailable: it is not sent."""
        for guard in self._before:
            assert guard.before is not None
            verdict = await guard.asked(scope, guard.before, call)
            if verdict.body is not None:
                call = GuardedCall(call.purpose, call.model, call.tenant, call.request_id, verdict.body)
        return call.body

    async def after(self, call: GuardedCall, said: Said, scope: CallScope) -> str:
        """The text that the client gets.
        Raises ContentRefused, GuardUnavailable: it gets none; the model's call is charged."""
        for guard in self._after:
            assert guard.after is not None
            try:
                verdict = await guard.asked(scope, guard.after, call, said)
            except (ContentRefused, GuardUnavailable) as error:
                error.may_be_charged = True
                raise
            if verdict.text is not None:
                said = Said(said.choice, verdict.text, said.before, said.is_last)
        return said.text


def _checked(verdict: Any) -> Verdict:
    """Raises TypeError: it is no verdict."""
    if not isinstance(verdict, Verdict):
        raise TypeError("a guard answers with a Verdict")
    body, cost = verdict.body, verdict.cost
    if body is not None and not isinstance(body, Mapping):
        raise TypeError("the body of a Verdict is a dict")
    if cost is not None and not (isinstance(cost, Decimal) and cost.is_finite() and 0 <= cost <= MAX_GUARD_COST_USD):
        raise TypeError("the cost of a Verdict is a Decimal of USD")
    return verdict


def open_chain(entries: Sequence[GuardEntry], clock: Clock) -> GuardChain:
    """The guards of the configuration.
    Raises ConfigurationError: no installed package has a guard of that name, or it cannot be made."""
    known = {found.name: found for found in entry_points(group=GROUP)}
    guards = []
    for number, entry in enumerate(entries):
        if entry.name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"guards[{number}].name: no guard {entry.name!r} is installed; there is: {names}")
        try:
            guard = load_plugin(known[entry.name])(entry.options)
        except Exception as fault:
            text = f"guards[{number}]: {entry.name}: {type(fault).__name__}: {fault}"
            raise ConfigurationError(text) from fault
        guards.append(RunningGuard(entry, guard, clock))
    return GuardChain(guards)
