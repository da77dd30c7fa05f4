"""For whom models are called at the moment, as guards have to know it (guarantee §12.9).

A call of a model says where it goes and what is sent, but not who asks. That stands in a context variable, set where a
request begins and inherited by all that is done for it. Without guards nobody sets it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal

from gateway.models.bill import InternalCall

PER_USD = "guard_cost_per_usd"
"""A price of one, by which a guard's cost in USD is charged as any other call is (`accounting.cost`)."""


@dataclass(frozen=True, slots=True)
class GuardScope:
    """Who asks, what for, and where it is noted. `calls` are those that will be on the bill; `warnings` those of the
    answer."""

    tenant: str
    request_id: str | None = None
    purpose: str = "primary"
    calls: list[InternalCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def charge(self, guard: str, usd: Decimal) -> None:
        """Puts what a guard cost on the bill."""
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "units": {"usd": usd}}
        self.calls.append(InternalCall("guard", f"guard/{guard}", usage, {PER_USD: Decimal(1)}))

    def warn(self, warning: str) -> None:
        """Notes a warning once."""
        if warning not in self.warnings:
            self.warnings.append(warning)


NOBODY = GuardScope("")
SCOPE: ContextVar[GuardScope] = ContextVar("gateway_guard_scope", default=NOBODY)


@contextmanager
def made_for(purpose: str, calls: list[InternalCall]) -> Iterator[None]:
    """Marks the calls of models within: what they are made for, and whose bill they are on."""
    scope = SCOPE.get()
    if scope is NOBODY:
        yield
        return
    token = SCOPE.set(replace(scope, purpose=purpose, calls=calls))
    try:
        yield
    finally:
        SCOPE.reset(token)
