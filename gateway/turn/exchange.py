"""The state of one request on its way, and the outcome of its upstream call."""

from dataclasses import dataclass, field, replace
from typing import Any

from gateway.accounting.stream import StreamRecord
from gateway.assembly.own_files import NO_OWN_FILES, OwnFiles
from gateway.assembly.profiles import Profile
from gateway.base.ids import new_id
from gateway.base.names import near_miss
from gateway.context.planner import PlanResult
from gateway.context.report import BuiltContext
from gateway.errors import GatewayError
from gateway.history.frames import without_provider_fields
from gateway.models.bill import FAILED_TRY, CallCost, ContextUtilizationMetadata, InternalCall
from gateway.models.conversation import History
from gateway.models.economy import BranchCosts
from gateway.models.exchange import ChatRequest, Deployment, JsonAnswer, ModelFacts
from gateway.models.frames import KeptFrame
from gateway.models.recall import RecallRounds
from gateway.models.routing import Candidates
from gateway.models.turn import TurnStatus
from gateway.models.upstream import CallScope
from gateway.window.budget import Budget

LEFT_OUT = "hosted_tool_left_out"
UNKNOWN_FIELD = "unknown_field"
MAX_NAME = 80
"""Characters of a field's name in a warning."""
BY_FALLBACK = "answered_by_fallback"
"""The warning of a bill that another model was asked than the one that the request names."""
WHO_ANSWERED = "x-gateway-model"
"""The header that names the model that answered instead of another."""


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
    asked: ChatRequest
    """The request as it came: `request` is what became of it for the model that is asked, which may be another."""
    candidates: Candidates
    chosen: Deployment
    """The one of them that is asked; `deployment` is the same as it speaks the request's API."""
    left: list[str] = field(default_factory=list)
    """Routes of the deployments that were asked before and failed, in their order."""
    failed: list[CallCost] = field(default_factory=list)
    """Their calls that may have been charged, each priced as its own deployment charges."""
    home: str | None = None
    """The origin of the deployment that was chosen first, once another is."""
    plan: PlanResult | None = None
    """Of a context that was made for a model before: no planner is asked twice."""
    key: str | None = None
    """The `Idempotency-Key` of the body that is tried, where it may be sent twice."""
    history: History | None = None
    built: BuiltContext | None = None
    own: OwnFiles = NO_OWN_FILES
    """Files kept here that go up in the place of their ids, where there is no `built` to say so."""
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
    cited: dict[str, Any] | None = None
    """What its answer cites, and how many names were dropped (`models.turn.CITED`), once it has come, where that was
    asked for. It is content: no ledger has it."""
    kept_frame: KeptFrame | None = None
    """What its model was sent before, where its conversation is not stored."""
    profile: Profile | None = None
    """The prompt profile in front of its messages, where profiles are configured."""
    called: bool = False
    """A call of the primary model was begun: it is on the bill."""
    is_out: bool = False
    """That call, or another, is under way, or its end is not accounted for: it may have been charged."""
    delivered: bool = False
    """Something of a streamed answer has gone to the client."""
    committing: bool = False
    """Its commit is under way: it runs to its end, whoever leaves."""
    given_up: bool = False
    """Its failure is recorded, or about to be."""
    sent_at: float | None = None
    written: int = 0
    """Tokens of its answer, once they are known."""
    timings: dict[str, float] = field(default_factory=dict)
    internal: list[InternalCall] = field(default_factory=list)
    """Calls of internal models in their order. They are billed whatever becomes of the request."""

    asking: list[InternalCall] = field(default_factory=list)
    """Calls of internal models that were begun, each as its prompt alone."""
    opened: tuple[Any, ...] = ()
    """Which calls the storage knows of, should this process die."""

    guard_warnings: list[str] = field(default_factory=list)
    """What calls of models have to say, such as that a guard failed."""
    costs: BranchCosts | None = None
    """What its branch has cost with it, once it is settled."""
    surplus: int = 0
    """Tokens that the prompt has more than was counted, as placeholders stand in it; below 0: fewer."""

    @property
    def scope(self) -> CallScope:
        """For whom models are called."""
        request = self.request
        return CallScope(request.caller, request.request_id, calls=self.internal, warnings=self.guard_warnings)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is forwarded."""
        found = self.built.fitted.forwarded.messages if self.built else list(self.request.messages)
        return without_provider_fields(found) if self.is_foreign else found

    def tell_warnings(self, utilization: ContextUtilizationMetadata) -> None:
        """Puts the warnings that are not about its context on the bill, those that it does not have."""
        found = list(self.guard_warnings)
        for admission in self.request.admissions[-1:]:
            found += admission.warnings
        if self.is_instead:
            found.append(BY_FALLBACK)
        found += [f"{LEFT_OUT}: {kind} (upstream.hosted_tools)" for kind in self.without_hosted]
        found += [f"{UNKNOWN_FIELD}: {name} (did you mean {meant}?)" for name, meant in self.near_misses]
        if not found:
            return
        utilization.warnings += [each for each in dict.fromkeys(found) if each not in utilization.warnings]

    @property
    def near_misses(self) -> list[tuple[str, str]]:
        """Fields that went up untouched and look like the gateway's own, each with the one that it looks like."""
        native = self.asked.native
        names = dict.fromkeys((*self.asked.forward, *(native.fields if native is not None else ())))
        return [(name[:MAX_NAME], meant) for name in names if (meant := near_miss(name)) is not None]

    @property
    def without_hosted(self) -> list[str]:
        """The types of the request's hosted tools and calls that its upstream has not."""
        native, asked = self.request.native, self.asked.native
        if native is None or asked is None or (native.hosted and native.protocol == self.deployment.protocol):
            return []
        return [kind for _, kind in asked.hosted]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """What stands behind them in a call that follows rounds of the tool `recall`."""
        return self.recall.messages if self.recall is not None else []

    @property
    def paid(self) -> list[CallCost]:
        """The rounds that are over, each priced."""
        return self.recall.paid if self.recall is not None else []

    @property
    def is_foreign(self) -> bool:
        """Whether it goes to another origin than was chosen first: thoughts that are bound to that stay behind."""
        return self.home is not None and self.chosen.origin != self.home

    @property
    def is_instead(self) -> bool:
        """Whether another model is asked than the one that the request names."""
        return self.request.model != self.asked.model

    @property
    def route(self) -> list[str]:
        """The name that was asked for, and all that were asked, in their order."""
        return [self.asked.model, *self.left, self.deployment.route]

    def headers(self, answer: dict[str, str]) -> dict[str, str]:
        """The headers of an answer, with who gave it where that is not whom the request names."""
        return {**answer, WHO_ANSWERED: self.request.model} if self.is_instead else answer

    def turn_to(self, other: "Exchange") -> None:
        """Goes on with what was made for another deployment or model. What was paid for stays on the bill."""
        self.home = self.home or self.chosen.origin
        if self.called:
            self.left.append(self.deployment.route)
        self.failed += [replace(call, purpose=FAILED_TRY) for call in self.paid]
        self.request, self.facts, self.budget = other.request, other.facts, other.budget
        self.candidates, self.chosen, self.deployment = other.candidates, other.chosen, other.deployment
        self.fallback, self.recall, self.profile = other.fallback, other.recall, other.profile
        self.history, self.built, self.plan = other.history, other.built, other.plan
        self.kept_frame = other.kept_frame
        self.sent = self.refused_budget = self.heard = self.key = None
        self.ask_usage = True


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
    def failed(cls, code: str | None, error: GatewayError | None, *, is_out: bool) -> "Outcome":
        """The outcome of a call that gave its client nothing; None: the client has left, perhaps while a call was
        out."""
        if error is None:
            return cls("failed", error_code=code, charged=is_out)
        return cls("failed", usage=error.usage, error_code=code, charged=error.may_be_charged)

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
