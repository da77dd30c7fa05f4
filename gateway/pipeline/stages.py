"""The stages of a request: prepared, attempted, settled (ADR 33), and the points between them at which features act
(ADR 35): the pipeline calls these, and imports no feature.

A stage is a frozen value. What grows while a request runs is in its `RequestRun`, which is only appended to: its client
may leave, and its process may end, at any moment.
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
from gateway.upstream.routing import RoutingCandidates, health

T = TypeVar("T")
BYTES_PER_TOKEN = 4
"""For estimates, in either direction."""
WHO_ANSWERED = "x-gateway-model"
"""The header that names a fallback model that answered."""


@record
class KeptFrame:
    """The frame of an unstored conversation as it was found: its JSON, in which forms are ranges of what the client
    sends, the artifacts' ids in it, and how many answers were given since it was written."""

    encoded: Mapping[str, Any]
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
    """A conversation as its model is to read it; `report` adds to the context built from it what was changed."""

    history: ConversationHistory
    report: Callable[[BuiltContext], BuiltContext] | None


OnInputs = Callable[["PreparedRequest", ConversationHistory, PromptBudget], Awaitable[ReadAs | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFeature:
    """One feature, by the points at which it acts; None where it does not act.

    Messages forwarded as they came have no context built (ADR 7): such requests skip `on_context`. A request with a
    feature that acts at `on_inputs` always gets a context.

    Attributes:
        needs: the attribute of a request that must be true for the feature to act on it; None: it acts on any.
        on_request: a request adapted to its target, before its conversation is read.
        on_history: a request whose conversation is rebuilt, before its context is built.
        on_inputs: a request whose context is to be built, the conversation to build it from, and its budget.
        on_context: a request whose context is built; returns a changed request to build the context for again, or None.
        on_payload: a request whose context is built; returns by how many tokens what is sent upstream is longer than
            was counted, negative if shorter.
        on_answer: the answer to one try, before anything else reads it.
        on_stream: the stream that one try has begun, before anything else reads it.
        on_refusal: a request that its upstream refused, and why; returns the request as it may be sent again.
        on_reply: what a target answered in the end, and a function that asks the target again.
        on_reply_stream: the stream with which a target answers in the end, and a function that asks the target again.
        on_bill: a request that was answered or has failed, with its bill, before both are committed.
        on_settled: an answered request, after it is committed. Nothing waits for what begins here.
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
    """The functions of features by the point at which they act, in the order of the features. A point without any costs
    an empty loop."""

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
        self._needed = attrgetter("request_id", *needs) if needs else None  # a single name alone yields no tuple
        self._chosen: dict[tuple[bool, ...], FeatureHooks] = {}

    def of(self, request: ChatRequest) -> "FeatureHooks":
        """Returns the hooks that act on a request: of features that have all they need, chosen once per combination."""
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
    """Where a request is sent.

    Attributes:
        model: the model's name there; may differ from the request's.
        chosen: the candidate that is asked.
        number: how many targets the request has had before.
        origin: that of the first target, if this is another one.
        kind: why another model is asked than before; None: it is the same.
    """

    model: str
    candidates: RoutingCandidates
    chosen: ModelDeployment
    number: int = 0
    origin: str | None = None
    kind: health.Kind | None = None


@record
class TargetWire:
    """How a target is addressed: `deployment` is the chosen one in the request's API, `fallback` the same by chat
    completions if it turns out not to speak that API. `asks_usage`: it takes `stream_options`, as far as is known.
    `trusts_clients`: it has not refused signed thoughts in the places where the client has them."""

    deployment: ModelDeployment
    fallback: ModelDeployment | None = None
    asks_usage: bool = True
    trusts_clients: bool = True


@record
class PreparedRequest:
    """A request that is ready to be sent to one target.

    `history` and `context` are None where a request is only relayed. `history` is also None when the request continues
    nothing stored and will not be stored. Both are None until preparation has filled them.
    """

    asked: ChatRequest
    """The request as it came; `request` is adapted to the target."""
    request: ChatRequest
    target: Target
    wire: TargetWire
    facts: ModelFacts
    budget: PromptBudget
    features: FeatureHooks = NO_FEATURES
    """The features that act on it."""
    history: ConversationHistory | None = None
    context: BuiltContext | None = None
    inlined: whole_files.InlinedFiles = whole_files.NO_INLINED_FILES
    """Stored files that are sent upstream in place of their ids, where there is no `context` to hold them."""
    recall: RecallRounds | None = None
    """The rounds in which its model reads what is left out, if it has the tool for that."""
    kept_frame: KeptFrame | None = None
    """What its model was sent before, if its conversation is not stored."""
    refused_budget: PromptBudget | None = None
    """The budget of a first prompt that upstream refused as too long; the request was then fitted once more."""
    surplus: int = 0
    """Tokens by which features, such as masking, make the prompt longer than its count; negative if shorter."""
    conversation_id: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        found = self.context.fitted.forwarded.messages if self.context else list(self.request.messages)
        target = self.target  # thoughts bound to the first origin are not sent to another
        is_foreign = target.origin is not None and target.chosen.origin != target.origin
        return message_forms.without_provider_fields(found) if is_foreign else found

    @property
    def prompt_bytes(self) -> int:
        """About how many bytes are forwarded: more than the request has if it continues its conversation by id."""
        tokens = self.context.fitted.tokens if self.context is not None else 0
        return max(self.request.size, BYTES_PER_TOKEN * tokens)

    @property
    def rounds(self) -> tuple[dict[str, Any], ...]:
        """The messages that follow in a call after rounds of the tool `recall`."""
        return self.recall.messages if self.recall is not None else ()

    @property
    def plan(self) -> PlanResult | None:
        """The planner's result, if one was asked: no planner is asked twice."""
        return self.context.plan if self.context is not None else None

    @property
    def is_fallback(self) -> bool:
        """Whether the model asked is not the one that the request names."""
        return self.request.model != self.asked.model

    def headers(self, answer: dict[str, str]) -> dict[str, str]:
        """Returns the headers of an answer, naming the model that gave it if that is not the one requested."""
        return {**answer, WHO_ANSWERED: self.request.model} if self.is_fallback else answer


@record
class PausedRequest:
    """A request that paused after a compaction, because its client wants to know of that before its model is asked.
    `at` is the stored message after which it continues."""

    request: ChatRequest
    at: str | None


def not_paused(result: T | PausedRequest) -> T:
    """Returns the result of a request that asks for no pauses."""
    if isinstance(result, PausedRequest):
        raise TypeError("a request that asks for no pauses was paused")
    return result


@record
class UpstreamAttempt:
    """One try of the primary model, mended refusals included.

    Attributes:
        route: of the deployment that was asked.
        began_at: when the first of all tries of one answer began, on the monotonic clock, in seconds. `asked_at`,
            `ended_at`: of this try alone; None: not known.
        cost: once it is booked: of a failed try that another followed, or of a round of `recall`.
        error: how it failed.
        is_over: it is booked; `cost` is None if it was free.
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
    """The model's answer in OpenAI's shape, and usage as upstream reported it (None if it did not). `charged`: the
    provider may charge for the call."""

    status: turn.TurnStatus
    completion: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error_code: str | None = None
    charged: bool = True
    error: dict[str, Any] | None = None
    """The error that was returned to the client, if one ended the answer."""
    fault: errors.GatewayError | None = None
    """The error that it failed with."""

    @classmethod
    def of(cls, answer: JsonAnswer) -> "UpstreamOutcome":
        """Builds the outcome of an answer that is not streamed."""
        usage = answer.body.get("usage")
        return cls("complete", answer.body, usage if isinstance(usage, dict) else None)

    @classmethod
    def failed(cls, code: str | None, error: errors.GatewayError | None, *, is_chargeable: bool) -> "UpstreamOutcome":
        """Builds the outcome of a call that returned nothing to its client. `error` None: nothing failed, or the
        client has left; `is_chargeable`: see `AttemptedRequest.is_chargeable`."""
        if error is None:
            return cls("failed", error_code=code, charged=is_chargeable)
        charged = is_chargeable and error.may_be_charged
        return cls("failed", usage=error.usage, error_code=code, charged=charged, fault=error)

    @classmethod
    def of_stream(
        cls, record: StreamRecord, status: turn.TurnStatus = "complete", error: str | None = None
    ) -> "UpstreamOutcome":
        """Builds the outcome of what a stream delivered. Usage reported before the end counts the prompt, and only part
        of the answer."""
        usage = record.usage
        if usage is not None and not (status == "complete" or record.asked_are_finished):
            usage = bill.of_prompt_alone(usage)
        return cls(status, record.completion(), usage, error)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The choices that have a message."""
        choices = (self.completion or {}).get("choices") or ()
        return [choice for choice in choices if isinstance(choice.get("message"), dict)]


SO_FAR = UpstreamOutcome("partial")
"""The outcome of a request that is still being answered."""
NO_ANSWER = partial(UpstreamOutcome, "failed")
"""The outcome of a call without any answer."""


@record
class AttemptedRequest:
    """A request with all calls made for it and their outcome: the input of its bill.

    Attributes:
        failed_costs: costs of calls that another followed, each priced as its own deployment charges: tries that
            failed, and rounds at a target that was then left.
        round_costs: costs of the finished rounds, each priced.
        internal: calls of internal models in their order. They are billed whatever becomes of the request.
        route: the name that was asked for, and all deployments that were asked, in their order.
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
    def has_unpriced_call(self) -> bool:
        """Whether the last call to the primary model still has to be priced: it was begun, and is neither a finished
        recall round nor a failed try that was followed."""
        return bool(self.attempts) and not self.attempts[-1].is_over

    @property
    def is_chargeable(self) -> bool:
        """Whether the provider may charge for the last call: it runs, or it failed and its cost is not booked yet."""
        error = self.attempts[-1].error if self.attempts else None
        return self.has_unpriced_call and (error is None or error.may_be_charged)

    @property
    def sent_at(self) -> float | None:
        """When the model was first asked for the last answer."""
        found, is_over = None, True
        for each in self.attempts:
            found = each.began_at if is_over else found
            is_over = each.cost is not None and each.error is None  # a round: the model was to be asked again
        return found


@record
class SettledRequest:
    """The bill of a request.

    `metadata` is `response_metadata` as it is stored, `document` the same as JSON, `known` the same as it was computed;
    `usage` has OpenAI's fields and the cost; `total` is in USD, None if a price is unknown; `cited` holds what the
    answer cites, and how many names were dropped (`turn.CITED_FIELDS`), if that was requested: it is content, which no
    ledger holds.
    """

    attempted: AttemptedRequest
    known: bill.ResponseMetadata
    metadata: dict[str, Any]
    document: bytes
    calls: tuple[bill.CallCost, ...]
    usage: dict[str, Any]
    total: Decimal | None
    costs: bill.BranchCosts | None = None
    """The costs of its branch, this request included."""
    cited: dict[str, Any] | None = None
    things: memory.NotedThings | None = None
    """The entities to remember from its turn."""

    def fields(self) -> dict[str, Any]:
        """Returns the top-level fields to add to an answer or a finish chunk."""
        answered = metadata.with_citations(metadata.in_answer(self.metadata), self.cited)
        document = self.document if answered is self.metadata else jsons.dumps(answered)
        return answer_fields(jsons.Fragment(document), self.known)


def answer_fields(metadata: Any, known: bill.ResponseMetadata) -> dict[str, Any]:
    """Returns the fields of an answer beside OpenAI's, around its `response_metadata`."""
    conversation = {"conversation": {"id": known.conversation_id}} if known.conversation_id else {}
    return {"response_metadata": metadata, **conversation, **({"agent": known.agent} if known.agent else {})}


class RequestRun:
    """What has happened to one request so far. It is only appended to, so that it can be billed at any moment."""

    def __init__(self, prepared: PreparedRequest) -> None:
        self.asked = prepared.asked
        self.prepared = prepared
        """The request as it was prepared last."""
        self.completion_id = ids.new_id("chatcmpl-")
        self.internal: list[bill.InternalCall] = []
        self.asking: list[bill.InternalCall] = []
        """Calls of internal models that were begun, each with only its prompt."""
        self.warnings: list[str] = []
        """Warnings of model calls, such as that a guard failed."""
        self.reported: list[dict[str, Any]] = []
        """The usage of the last call, if its answer is complete and guards are still checking it."""
        self.timings: dict[str, float] = {}
        self.noted_calls: tuple[Any, ...] = ()
        """The calls that the storage knows, in case this process dies."""
        self.upstream_id: str | None = None
        self.answer_tokens = 0
        """Tokens of its answer, when they are known."""
        self.is_delivered = False
        """Part of a streamed answer was sent to the client."""
        self.is_committing = False
        """Its commit is under way, and runs to its end even if the client leaves."""
        self._is_given_up = False
        self._attempts: list[UpstreamAttempt] = []
        self._answer_so_far: Callable[[], UpstreamOutcome] = NO_ANSWER

    @property
    def answer_so_far(self) -> UpstreamOutcome:
        """The last call's answer so far, whether or not it was sent to the client; `usage` as in `UpstreamOutcome`."""
        return self._answer_so_far()

    @property
    def scope(self) -> upstreams.CallScope:
        """The request and caller for which models are called."""
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
        """Whether its end is being recorded."""
        return self.is_committing or self._is_given_up

    def attempted(self, outcome: UpstreamOutcome = SO_FAR, prepared: PreparedRequest | None = None) -> AttemptedRequest:
        """Returns the request as attempted so far. `prepared`: for another target, which is to be asked next."""
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

    def continue_as(self, prepared: PreparedRequest) -> None:
        """Continues with the request as it is prepared now. What was paid for stays on the bill."""
        self.prepared = prepared

    def began(self, at: float, now: float | None = None) -> None:
        """Records that the model is being asked: from now on there is a bill, even if the client leaves."""
        prepared, self._answer_so_far = self.prepared, NO_ANSWER
        self.reported.clear()
        self._attempts.append(UpstreamAttempt(prepared.target, prepared.wire.deployment.route, at, asked_at=now))

    def failed(self, error: errors.GatewayError, now: float | None = None) -> None:
        """Marks the last try as failed; its possible cost is not booked yet."""
        self._attempts[-1] = replace(self._attempts[-1], error=error, ended_at=now)
        self._answer_so_far = partial(UpstreamOutcome, "failed", usage=error.usage)

    def withdraw_last_try(self) -> bool:
        """Forgets a try that was never sent, and returns True; has no effect if the one before it answered."""
        is_free = len(self._attempts) == 1 or self._attempts[-2].error is not None
        if is_free:
            del self._attempts[-1]
        return is_free

    def book_last_try(self, cost: bill.CallCost | None) -> None:
        """Books the last try's cost (None: it was free), as another follows: it failed, or it was a round of the tool
        `recall`."""
        self._attempts[-1] = replace(self._attempts[-1], cost=cost, is_over=True)

    def set_answer_reader(self, read: Callable[[], UpstreamOutcome]) -> None:
        """Sets the function that returns the last call's answer so far."""
        self._answer_so_far = read

    def set_upstream_id(self, upstream_id: str) -> None:
        """Sets the upstream's id of the answer."""
        self.upstream_id = upstream_id

    def delivered(self) -> None:
        """Marks that part of the answer was sent to the client."""
        self.is_delivered = True

    def set_answer_tokens(self, tokens: int) -> None:
        """Sets the number of tokens of the answer."""
        self.answer_tokens = tokens

    def claim_failure(self) -> bool:
        """Claims the recording of a failure. Returns True to the first caller, which must record it; False to others,
        and if no model was called or a commit is under way."""
        first = self.has_cost and not self.is_ending
        self._is_given_up = self._is_given_up or first
        return first

    def begin_commit(self) -> None:
        """Marks that the commit begins."""
        self.is_committing = True

    def abort_commit(self) -> None:
        """Marks that the commit has failed, and that another has to follow."""
        self.is_committing = False
