"""What goes to an upstream, and for whom: a request of a model, and a call that is relayed."""

from collections.abc import AsyncIterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from gateway.core.types.bill import InternalCall
from gateway.core.types.chat import Headers, RequestCaller

OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
"""The fields with which a request names how long its answer may be."""
PER_USD = "guard_cost_per_usd"
"""A price of one, by which a guard's cost in USD is charged as any other call is (`billing.cost`)."""


@dataclass(frozen=True, slots=True)
class CallScope:
    """For whom a model is called, what for, and where it is noted (guarantee §12.9). `calls` are those that will be on
    the bill; `warnings` those of the answer; `reported` is the usage of answers that somebody still looks at."""

    caller: RequestCaller = field(default_factory=lambda: RequestCaller(""))
    request_id: str | None = None
    purpose: str = "primary"
    calls: list[InternalCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reported: list[dict[str, Any]] = field(default_factory=list)

    def made_for(self, purpose: str) -> "CallScope":
        """The same for a call that is made for something else; it is on the same bill."""
        return replace(self, purpose=purpose, reported=[])

    def charge(self, guard: str, usd: Decimal) -> None:
        """Puts what a guard cost on the bill."""
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "units": {"usd": usd}}
        self.calls.append(InternalCall("guard", f"guard/{guard}", usage, {PER_USD: Decimal(1)}))

    def reports(self, usage: Any) -> None:
        """Notes the usage of a whole answer, whoever gets that."""
        if isinstance(usage, dict):
            self.reported[:] = [usage]

    def warn(self, warning: str) -> None:
        """Notes a warning once."""
        if warning not in self.warnings:
            self.warnings.append(warning)


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What a model is asked. `body` is in the words of chat completions; `native` are the fields that the client said
    in the words of the API that the upstream speaks, None where its own API is another. `headers` are those of the
    client that go up."""

    body: dict[str, Any]
    native: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    scope: CallScope = field(default_factory=CallScope, repr=False)


@dataclass(frozen=True, slots=True)
class RelayedCall:
    """A request as it goes up. `target` is path and query below the upstream's base, percent-encoded as they came.

    A body of bytes can be sent again if no connection came about; one in pieces is sent as it arrives.
    """

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(repr=False)
    scope: CallScope = field(default_factory=CallScope, repr=False)
