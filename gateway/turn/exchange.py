"""The state of one request on its way, and the outcome of its upstream call."""

from dataclasses import dataclass, field
from typing import Any

from gateway.accounting.stream import StreamRecord
from gateway.assembly.profiles import Profile
from gateway.base.ids import new_id
from gateway.context.report import BuiltContext
from gateway.errors import GatewayError
from gateway.models.bill import CallCost, InternalCall
from gateway.models.conversation import History
from gateway.models.exchange import ChatRequest, Deployment, JsonAnswer, ModelFacts
from gateway.models.recall import RecallRounds
from gateway.models.turn import TurnStatus
from gateway.window.budget import Budget


@dataclass(slots=True)
class Exchange:
    """One request between its preparation and its settlement.

    `history` and `built` are None until they are made. Both stay None where a request is only passed on; `history` does
    where nothing that is stored, or will be, belongs to it.
    """

    request: ChatRequest
    deployment: Deployment
    facts: ModelFacts
    budget: Budget
    history: History | None = None
    built: BuiltContext | None = None
    completion_id: str = field(default_factory=lambda: new_id("chatcmpl-"))
    conversation_id: str | None = None
    upstream_id: str | None = None
    fallback: Deployment | None = None
    """The same deployment in the inner form's words, if it turns out not to speak the request's API."""
    sent: list[dict[str, Any]] | None = None
    """The messages as they went up last, without marks for caches; None before."""
    ask_usage: bool = True
    refused_budget: Budget | None = None
    """The budget of a first prompt that upstream refused as too long; the request was then fitted once more."""
    recall: RecallRounds | None = None
    """The rounds in which its model reads what is left out, where it has the tool for it."""
    heard: StreamRecord | None = None
    """What the model has said in a round of a stream of which nothing may have gone to the client yet."""
    profile: Profile | None = None
    """The prompt profile in front of its messages, where profiles are configured."""
    called: bool = False
    """A call of the primary model was begun: it is on the bill."""
    delivered: bool = False
    """Something of a streamed answer has gone to the client."""
    committing: bool = False
    """Its commit is under way: it runs to its end, whoever leaves."""
    given_up: bool = False
    """Its failure is recorded, or about to be."""
    sent_at: float | None = None
    timings: dict[str, float] = field(default_factory=dict)
    internal: list[InternalCall] = field(default_factory=list)
    """Calls of internal models in their order. They are billed whatever becomes of the request."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is forwarded."""
        return self.built.fitted.forwarded.messages if self.built else list(self.request.messages)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """What stands behind them in a call that follows rounds of the tool `recall`."""
        return self.recall.messages if self.recall is not None else []

    @property
    def paid(self) -> list[CallCost]:
        """The rounds that are over, each priced."""
        return self.recall.paid if self.recall is not None else []


@dataclass(frozen=True, slots=True)
class Outcome:
    """The model's answer as OpenAI shapes it, and usage as upstream reported it (None if it did not). `charged`: the
    provider may charge for the call."""

    status: TurnStatus
    completion: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error_code: str | None = None
    charged: bool = True
    error: dict[str, Any] | None = None
    """The error that its client was told, where it broke off by one."""

    @classmethod
    def of(cls, answer: JsonAnswer) -> "Outcome":
        """The outcome of an answer that is not streamed."""
        usage = answer.body.get("usage")
        return cls("complete", answer.body, usage if isinstance(usage, dict) else None)

    @classmethod
    def of_stream(cls, record: StreamRecord, status: TurnStatus = "complete", error: str | None = None) -> "Outcome":
        """The outcome of what a stream delivered. Usage that is reported before the end counts only part of it."""
        whole = status == "complete" or record.asked_are_finished
        return cls(status, record.completion(), record.usage if whole else None, error)


class Paused(GatewayError):
    """Room was made for a request, and its client wants to know that before its model is asked. `at` is the stored
    message behind which it goes on."""

    def __init__(self, request: ChatRequest, at: str | None) -> None:
        super().__init__("compaction")
        self.request = request
        self.at = at
