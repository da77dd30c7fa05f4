"""What a guard is: for those who write one (docs/guards.md).

A package names its guard by an entry point of the group `gateway.guards`. The entry point is called with the options of
its entry in the configuration, a dict, and gives the guard.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

GROUP = "gateway.guards"


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call of a model. `purpose` says what for: `primary` is the model that the client asked for; `planner`,
    `summarizer` and `embedder` are internal; `relayed` is a call that is not managed. `model` is the name that the
    provider knows. `body` is what is sent, in the words of OpenAI's chat completions whichever API the client and the
    provider speak; of an embedder or a relayed call it is the body of that endpoint. It must not be changed."""

    purpose: str
    model: str
    tenant: str
    request_id: str | None
    body: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages; none where the endpoint has no such field."""
        found = self.body.get("messages")
        return found if isinstance(found, list) else []

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The definitions of tools."""
        found = self.body.get("tools")
        return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Said:
    """Text of an answer that the client has not got yet. `before` is what it got of this choice, its last 4,000
    characters. `is_last`: nothing more of this choice is to come."""

    choice: int
    text: str
    before: str = ""
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a guard decides. Nothing set: all may pass as it is.

    `refused` is the reason, which the client is told: it gets a 400 `content_refused`. `body` is what is sent in the
    place of the call's, `text` what the client gets in the place of what was said. `cost` is what the guard itself
    cost, in USD; it goes on the bill."""

    refused: str | None = None
    body: Mapping[str, Any] | None = None
    text: str | None = None
    cost: Decimal | None = None


PASS = Verdict()


class Guard(Protocol):
    """Looks at calls of models. One that has no `after` does not hold up streams; one that has no `before` sees answers
    alone. Both may raise anything: that counts as a failure, as does being late."""

    async def before(self, call: GuardedCall) -> Verdict:
        """Before a body is sent."""
        ...

    async def after(self, call: GuardedCall, said: Said) -> Verdict:
        """Before the client gets a text: all of a choice, or of a stream a piece of it."""
        ...
