"""The stages of a request: prepared, attempted, settled (ADR 33), and the points between them at which features act
(ADR 35): the pipeline calls these, and imports no feature.

A stage is a frozen value: nobody writes into what another has made. What grows while a request runs, as its client may
leave and its process may end at any moment, stands in its `RequestRun`, which is only added to.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from gateway.billing import metadata
from gateway.context import BuiltContext, PlanResult, whole_files
from gateway.conversations import message_forms
from gateway.core import errors, ids, jsons, ports
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.frozen_records import record
from gateway.core.types import bill, memory, turn, upstreams
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, ModelDeployment, ModelFacts, PromptBudget
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.recall import RecallRounds
from gateway.upstream.routing import health

T = TypeVar("T")
BYTES_PER_TOKEN = 4
"""Of a prompt that is only estimated, either way."""
WHO_ANSWERED = "x-gateway-model"
"""The header that names the model that answered instead of another."""


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """The frame of a conversation that is not stored, as it was found: its JSON, in which forms are ranges of what the
    client sends, the artifacts' ids in it, and how many answers were given since it was written."""

    said: Mapping[str, Any]
    ids: tuple[str, ...]
    behind: int


OnRequest = Callable[["PreparedRequest"], "PreparedRequest"]
OnHistory = Callable[["PreparedRequest"], Awaitable["PreparedRequest"]]
OnContext = Callable[["PreparedRequest"], "PreparedRequest | None"]
OnPayload = Callable[["PreparedRequest", ports.TokenCounter], Awaitable[int]]
OnAnswer = Callable[["PreparedRequest", JsonAnswer], JsonAnswer]
OnStream = Callable[["PreparedRequest", ChunkStream], ChunkStream]
OnRefusal = Callable[["PreparedRequest", errors.UpstreamRefused], "PreparedRequest | None"]
OnReply = Callable[["RequestRun", JsonAnswer, Callable[[], Awaitable[JsonAnswer]]], Awaitable[JsonAnswer]]
OnReplyStream = Callable[["RequestRun", ChunkStream, Callable[[], Awaitable[ChunkStream]]], ChunkStream]
OnBill = Callable[["SettledRequest"], Awaitable["SettledRequest"]]
OnSettled = Callable[["PreparedRequest"], None]


class ReadAs(NamedTuple):
    """A conversation as its model is to read it; `report` adds to its context what became of the conversation."""

    history: ConversationHistory
    report: Callable[[BuiltContext], BuiltContext] | None


OnInputs = Callable[["PreparedRequest", ConversationHistory, PromptBudget], Awaitable[ReadAs | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFeature:
    """One feature, by the points at which it acts; None where it does not.

    No context is made of messages that go up as they came (ADR 7): such requests do not pass `on_context`. A
    request with a feature that acts at `on_inputs` always gets a context.

    Attributes:
        needs: the attribute of a request that has to be true for the feature to act on it; None: it acts on any.
        on_request: a request as its target takes it, of which nothing is read yet.
        on_history: a request whose conversation is rebuilt, before its context is made.
        on_inputs: a request whose context is to be made, the conversation that it is made of, and its budget.
        on_context: a request whose context is made; returns a changed request to build the context for again, or None.
        on_payload: a request whose context is made; by how many tokens what goes up is longer than was counted, below
            0 if it is shorter.
        on_answer: what one try was answered, before anybody looks at it.
        on_stream: the same of a stream that has begun.
        on_refusal: a request that its upstream refused, and why; the request as it may be sent once more.
        on_reply: what a target answered in the end, and a function that asks the target again.
        on_reply_stream: the same of a stream that has begun.
        on_bill: a request that was answered or has failed, with its bill, before both are committed.
        on_settled: an answered request, once it is committed. Nobody waits for what begins here.
    """

    needs: str | None = None
    on_request: OnRequest | None = None
    on_history: OnHistory | None = None
    on_inputs: OnInputs | None = None
    on_context: OnContext | None = None
    on_payload: OnPayload | None = None
    on_answer: OnAnswer | None = None
    on_stream: OnStream | None = None
    on_refusal: OnRefusal | None = None
    on_reply: OnReply | None = None
    on_reply_stream: OnReplyStream | None = None
    on_bill: OnBill | None = None
    on_settled: OnSettled | None = None


def _acting(hooks: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(each for each in hooks if each is not None)


class FeatureHooks:
    """What features do, by the point at which they do it, in the order of the features. A point that nobody acts at
    costs an empty loop."""

    def __init__(self, features: Sequence[RequestFeature] = ()) -> None:
        self.on_request = _acting(each.on_request for each in features)
        self.on_history = _acting(each.on_history for each in features)
        self.on_inputs = _acting(each.on_inputs for each in features)
        self.on_context = _acting(each.on_context for each in features)
        self.on_payload = _acting(each.on_payload for each in features)
        self.on_answer = _acting(each.on_answer for each in features)
        self.on_stream = _acting(each.on_stream for each in features)
        self.on_refusal = _acting(each.on_refusal for each in features)
        self.on_reply = _acting(each.on_reply for each in features)
        self.on_reply_stream = _acting(each.on_reply_stream for each in features)
        self.on_bill = _acting(each.on_bill for each in features)
        self.on_settled = _acting(each.on_settled for each in features)
        self._features = features
        needs = [each.needs for each in features if each.needs is not None]
        self._needed = attrgetter("request_id", *needs) if needs else None  # of one name alone nobody gets a tuple
        self._chosen: dict[tuple[bool, ...], FeatureHooks] = {}

    def of(self, request: ChatRequest) -> "FeatureHooks":
        """Returns what acts on a request: features that have all that they need, chosen once for each combination."""
        if self._needed is None:
            return self
        has = tuple(map(bool, self._needed(request)))
        found = self._chosen.get(has)
        if found is None:
            wanted = [each for each in self._features if each.needs is None or attrgetter(each.needs)(request)]
            found = self._chosen[has] = FeatureHooks(wanted)
        return found


NO_FEATURES = FeatureHooks()


@record
class Target:
    """Where a request is asked.

    Attributes:
        model: the name that it is asked by; it may be another than the request's.
        chosen: the one of the candidates that is asked.
        number: how many targets the request has turned to before.
        origin: of the first of them, once it is another.
        kind: why another model is to answer than the one before; None: it is the same.
    """

    model: str
    candidates: upstreams.RoutingCandidates
    chosen: ModelDeployment
    number: int = 0
    origin: str | None = None
    kind: health.Kind | None = None


@record
class TargetWire:
    """How a target is spoken to: `deployment` is the chosen one as it speaks the request's API, `fallback` the same by
    chat completions, should it turn out not to. `asks_usage`: it takes `stream_options`, as far as is known."""

    deployment: ModelDeployment
    fallback: ModelDeployment | None = None
    asks_usage: bool = True


@record
class PreparedRequest:
    """A request that is ready to be sent to one target.

    `history` and `context` are None where a request is only passed on. `history` is also None when the request
    continues nothing stored and will not be stored. Both are None until preparation has filled them.
    """

    asked: ChatRequest
    """The request as it came: `request` is what became of it for the target."""
    request: ChatRequest
    target: Target
    wire: TargetWire
    facts: ModelFacts
    budget: PromptBudget
    features: FeatureHooks = NO_FEATURES
    """Those that act on it."""
    history: ConversationHistory | None = None
    context: BuiltContext | None = None
    own: whole_files.OwnFiles = whole_files.NO_OWN_FILES
    """Files kept here that go up in the place of their ids, where there is no `context` to say so."""
    recall: RecallRounds | None = None
    """The rounds in which its model reads what is left out, where it has the tool for it."""
    kept_frame: KeptFrame | None = None
    """What its model was sent before, where its conversation is not stored."""
    refused_budget: PromptBudget | None = None
    """The budget of a first prompt that upstream refused as too long; the request was then fitted once more."""
    surplus: int = 0
    """By how many tokens features make the prompt longer than its count, as by masking; negative if shorter."""
    conversation_id: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        found = self.context.fitted.forwarded.messages if self.context else list(self.request.messages)
        target = self.target  # of another origin than the first, thoughts that are bound to that stay behind
        is_foreign = target.origin is not None and target.chosen.origin != target.origin
        return message_forms.without_provider_fields(found) if is_foreign else found

    @property
    def prompt_bytes(self) -> int:
        """About how many bytes are forwarded: more than the request has where its conversation goes on by its id."""
        tokens = self.context.fitted.tokens if self.context is not None else 0
        return max(self.request.size, BYTES_PER_TOKEN * tokens)

    @property
    def rounds(self) -> tuple[dict[str, Any], ...]:
        """What stands behind them in a call that follows rounds of the tool `recall`."""
        return self.recall.messages if self.recall is not None else ()

    @property
    def plan(self) -> PlanResult | None:
        """What a planner was asked for: no planner is asked twice."""
        return self.context.plan if self.context is not None else None

    @property
    def is_instead(self) -> bool:
        """Whether another model is asked than the one that the request names."""
        return self.request.model != self.asked.model

    def headers(self, answer: dict[str, str]) -> dict[str, str]:
        """The headers of an answer, with who gave it where that is not whom the request names."""
        return {**answer, WHO_ANSWERED: self.request.model} if self.is_instead else answer


@record
class PausedRequest:
    """Room was made for a request, and its client wants to know that before its model is asked. `at` is the stored
    message behind which it goes on."""

    request: ChatRequest
    at: str | None


def not_paused(result: T | PausedRequest) -> T:
    """What came of a request that asks for no pauses."""
    if isinstance(result, PausedRequest):
        raise TypeError("a request that asks for no pauses was paused")
    return result


@record
class UpstreamAttempt:
    """One try of the primary model, mended refusals included.

    Attributes:
        route: of the deployment that was asked.
        began_at: when it was to be answered: of all tries of one answer the first one's, on the monotonic clock, in
            seconds. `asked_at`, `ended_at`: of this try alone; None: not known.
        cost: once it is accounted for: of a failed one that was followed by another, and of a round of `recall`.
        error: how it failed.
        is_over: it is accounted for; `cost` is None where it was free.
    """

    target: Target
    route: str
    began_at: float
    cost: bill.CallCost | None = None
    error: errors.GatewayError | None = None
    is_over: bool = False
    asked_at: float | None = None
    ended_at: float | None = None


@record
class UpstreamOutcome:
    """The model's answer as OpenAI shapes it, and usage as upstream reported it (None if it did not). `charged`: the
    provider may charge for the call."""

    status: turn.TurnStatus
    completion: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error_code: str | None = None
    charged: bool = True
    error: dict[str, Any] | None = None
    """The error that its client was told, where it broke off by one."""
    fault: errors.GatewayError | None = None
    """What it failed by."""

    @classmethod
    def of(cls, answer: JsonAnswer) -> "UpstreamOutcome":
        """The outcome of an answer that is not streamed."""
        usage = answer.body.get("usage")
        return cls("complete", answer.body, usage if isinstance(usage, dict) else None)

    @classmethod
    def failed(cls, code: str | None, error: errors.GatewayError | None, *, is_out: bool) -> "UpstreamOutcome":
        """The outcome of a call that gave its client nothing. `error` None: the client has left. `is_out`: see
        `AttemptedRequest.is_out`."""
        if error is None:
            return cls("failed", error_code=code, charged=is_out)
        charged = is_out and error.may_be_charged
        return cls("failed", usage=error.usage, error_code=code, charged=charged, fault=error)

    @classmethod
    def of_stream(
        cls, record: StreamRecord, status: turn.TurnStatus = "complete", error: str | None = None
    ) -> "UpstreamOutcome":
        """The outcome of what a stream delivered. Usage that is reported before the end counts only part of it."""
        whole = status == "complete" or record.asked_are_finished
        return cls(status, record.completion(), record.usage if whole else None, error)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The choices that have a message."""
        choices = (self.completion or {}).get("choices") or ()
        return [choice for choice in choices if isinstance(choice.get("message"), dict)]


SO_FAR = UpstreamOutcome("partial")
"""Of a request that is still being answered."""
SAID_NOTHING = partial(UpstreamOutcome, "failed")
"""Of a call that has said nothing."""


@record
class AttemptedRequest:
    """A request, all that was asked for it, and what came of it: what its bill is made of.

    Attributes:
        failed_costs: what calls cost that another followed, each priced as its own deployment charges: tries that
            failed, and rounds at a target that was then left.
        round_costs: what the rounds cost that are over, each priced.
        internal: calls of internal models in their order. They are billed whatever becomes of the request.
        route: the name that was asked for, and all that were asked, in their order.
    """

    prepared: PreparedRequest
    completion_id: str
    attempts: tuple[UpstreamAttempt, ...]
    failed_costs: tuple[bill.CallCost, ...]
    round_costs: tuple[bill.CallCost, ...]
    internal: tuple[bill.InternalCall, ...]
    route: list[str]
    outcome: UpstreamOutcome
    upstream_id: str | None
    warnings: tuple[str, ...]
    timings: dict[str, float]

    @property
    def is_called(self) -> bool:
        """Whether the last call to the primary model is still to be priced: it was begun, and is neither a finished
        recall round nor a failed try that was followed."""
        return bool(self.attempts) and not self.attempts[-1].is_over

    @property
    def is_out(self) -> bool:
        """Whether the provider may charge for the last call: it runs, or it failed and its cost is not booked yet."""
        error = self.attempts[-1].error if self.attempts else None
        return self.is_called and (error is None or error.may_be_charged)

    @property
    def sent_at(self) -> float | None:
        """When the model was asked for the last answer: its first try."""
        found, is_over = None, True
        for each in self.attempts:
            found = each.began_at if is_over else found
            is_over = each.cost is not None and each.error is None  # a round: the model was to be asked again
        return found


@record
class SettledRequest:
    """The bill of a request.

    `metadata` is `response_metadata` as it is stored, `document` the same as JSON, `known` the same as it was computed;
    `usage` has OpenAI's fields and the cost; `total` is in USD, None if a price is unknown; `cited` what its answer
    cites, and how many names were dropped (`turn.CITED_FIELDS`), where that was asked for: content, no ledger has
    it.
    """

    attempted: AttemptedRequest
    known: bill.ResponseMetadata
    metadata: dict[str, Any]
    document: bytes
    calls: tuple[bill.CallCost, ...]
    usage: dict[str, Any]
    total: Decimal | None
    costs: bill.BranchCosts | None = None
    """What its branch has cost with it."""
    cited: dict[str, Any] | None = None
    things: memory.NotedThings | None = None
    """What is to be remembered of its turn."""

    def fields(self) -> dict[str, Any]:
        """The top-level fields that an answer or a finish chunk gets."""
        told = metadata.with_citations(metadata.in_answer(self.metadata), self.cited)
        document = self.document if told is self.metadata else jsons.dumps(told)
        return answer_fields(jsons.Fragment(document), self.known)


def answer_fields(metadata: Any, known: bill.ResponseMetadata) -> dict[str, Any]:
    """The fields of an answer beside OpenAI's, around its `response_metadata`."""
    conversation = {"conversation": {"id": known.conversation_id}} if known.conversation_id else {}
    return {"response_metadata": metadata, **conversation, **({"agent": known.agent} if known.agent else {})}


class RequestRun:
    """What has happened to one request so far. It is only added to, so that a bill can be made of it at any moment."""

    def __init__(self, prepared: PreparedRequest) -> None:
        self.asked = prepared.asked
        self.prepared = prepared
        """The request as it was prepared last."""
        self.completion_id = ids.new_id("chatcmpl-")
        self.internal: list[bill.InternalCall] = []
        self.asking: list[bill.InternalCall] = []
        """Calls of internal models that were begun, each as its prompt alone."""
        self.warnings: list[str] = []
        """What calls of models have to say, such as that a guard failed."""
        self.reported: list[dict[str, Any]] = []
        """The usage of the last call, where its answer has come whole and is still looked at."""
        self.timings: dict[str, float] = {}
        self.noted_calls: tuple[Any, ...] = ()
        """Which calls the storage knows of, should this process die."""
        self.upstream_id: str | None = None
        self.written = 0
        """Tokens of its answer, once they are known."""
        self.is_delivered = False
        """Something of a streamed answer has gone to the client."""
        self.is_committing = False
        """Its commit is under way: it runs to its end, whoever leaves."""
        self._is_given_up = False
        self._attempts: list[UpstreamAttempt] = []
        self._said: Callable[[], UpstreamOutcome] = SAID_NOTHING

    @property
    def said(self) -> UpstreamOutcome:
        """What the last call has said so far, whether or not it has gone to the client; usage as an outcome has it."""
        return self._said()

    @property
    def scope(self) -> upstreams.CallScope:
        """For whom models are called."""
        return upstreams.CallScope(
            self.asked.caller,
            self.asked.request_id,
            calls=self.internal,
            warnings=self.warnings,
            reported=self.reported,
        )

    @property
    def has_cost(self) -> bool:
        """Whether any model was called for it."""
        return bool(self._attempts or self.internal)

    @property
    def is_ending(self) -> bool:
        """Whether what became of it is being written down."""
        return self.is_committing or self._is_given_up

    def attempted(self, outcome: UpstreamOutcome = SO_FAR, prepared: PreparedRequest | None = None) -> AttemptedRequest:
        """What it is by now. `prepared`: for another target, which is to be asked next."""
        prepared = prepared or self.prepared
        failed_costs, round_costs, route = self.booked(prepared)
        name = outcome.completion.get("id") if outcome.completion is not None else None
        return AttemptedRequest(
            prepared,
            self.completion_id,
            tuple(self._attempts),
            failed_costs=tuple(failed_costs),
            round_costs=tuple(round_costs),
            internal=tuple(self.internal),
            route=route,
            outcome=outcome,
            upstream_id=name if isinstance(name, str) else self.upstream_id,
            warnings=tuple(self.warnings),
            timings=self.timings,
        )

    def booked(self, prepared: PreparedRequest) -> tuple[list[bill.CallCost], list[bill.CallCost], list[str]]:
        """Returns `failed_costs`, `round_costs` and `route` of `AttemptedRequest`, so far."""
        number, left = prepared.target.number, dict[int, str]()
        failed_costs, round_costs = list[bill.CallCost](), list[bill.CallCost]()
        for each in self._attempts:
            if each.target.number < number:
                left[each.target.number] = each.route
            if each.cost is not None and each.error is None and each.target.number == number:
                round_costs.append(each.cost)
            elif each.cost is not None:
                failed_costs.append(replace(each.cost, purpose=bill.FAILED_TRY))
        return failed_costs, round_costs, [self.asked.model, *left.values(), prepared.wire.deployment.route]

    def turn_to(self, prepared: PreparedRequest) -> None:
        """Goes on with the request as it is prepared now. What was paid for stays on the bill."""
        self.prepared = prepared

    def began(self, at: float, now: float | None = None) -> None:
        """The model is asked from here on: there is a bill, even if the client leaves."""
        prepared, self._said = self.prepared, SAID_NOTHING
        self.reported.clear()
        self._attempts.append(UpstreamAttempt(prepared.target, prepared.wire.deployment.route, at, asked_at=now))

    def failed(self, error: errors.GatewayError, now: float | None = None) -> None:
        """The last try has failed; what it may have cost is not accounted for."""
        self._attempts[-1] = replace(self._attempts[-1], error=error, ended_at=now)
        self._said = partial(UpstreamOutcome, "failed", usage=error.usage)

    def followed(self, cost: bill.CallCost | None) -> None:
        """The last try has cost so much (None: it was free), and another follows: it failed, or it was a round of the
        tool `recall`."""
        self._attempts[-1] = replace(self._attempts[-1], cost=cost, is_over=True)

    def hears(self, said: Callable[[], UpstreamOutcome]) -> None:
        """The last call is answered by this, as far as it has come."""
        self._said = said

    def named(self, upstream_id: str) -> None:
        """Upstream calls the answer so."""
        self.upstream_id = upstream_id

    def delivered(self) -> None:
        """Something of the answer has gone to the client."""
        self.is_delivered = True

    def wrote(self, tokens: int) -> None:
        """The answer has so many tokens."""
        self.written = tokens

    def gives_up(self) -> bool:
        """Returns True once: the caller must then record the failure. False if no model was called, or a commit is
        under way."""
        first = self.has_cost and not self.is_ending
        self._is_given_up = self._is_given_up or first
        return first

    def commits(self, *, now: bool = True) -> None:
        """Its commit begins, or (`now` False) has failed so that another has to follow."""
        self.is_committing = now
