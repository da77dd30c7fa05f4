"""The interface of guards, for their authors (docs/guards.md).

A package names its guard by an entry point of the group `gateway.guards`. The entry point is called with the options of
its entry in the configuration, a dict, and returns the guard.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

from gateway.core.frozen_records import record

GROUP = "gateway.guards"


@record
class GuardedCall:
    """A call of a model. `purpose`: `primary` is the model that the client asked for; `planner`, `summarizer` and
    `embedder` are internal; `relayed` is a call that is not managed. `model` is the provider's name for it. `body` is
    what is sent, in the shape of OpenAI's chat completions whichever API the client and the provider speak; for an
    embedder or a relayed call it is the body of that endpoint. It must not be changed."""

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


@record
class Said:
    """Text of an answer that the client has not received yet. `before`: the last 4,000 characters of this choice that
    the client has received. `is_last`: nothing more of this choice follows."""

    choice: int
    text: str
    before: str = ""
    is_last: bool = True


@record
class Verdict:
    """A guard's decision. With nothing set, everything passes unchanged.

    `refused` is the reason, which is returned to the client in a 400 `content_refused`. `body` replaces the call's
    body, `text` replaces the text for the client. `cost` is the guard's own cost, in USD; it is added to the bill."""

    refused: str | None = None
    body: Mapping[str, Any] | None = None
    text: str | None = None
    cost: Decimal | None = None


PASS = Verdict()


class Guard(Protocol):
    """Checks calls of models. A guard without `after` does not delay streams; one without `before` sees only answers.
    Both may raise anything: that counts as a failure, as does being late."""

    async def before(self, call: GuardedCall) -> Verdict:
        """Checks a body before it is sent."""

    async def after(self, call: GuardedCall, said: Said) -> Verdict:
        """Checks a text before the client receives it: all of a choice, or a piece of it if streamed."""
