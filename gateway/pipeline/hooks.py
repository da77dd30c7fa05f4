"""Where features act on a request. The pipeline calls these points, and imports no feature (ADR 35)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.context.manager import BuiltContext
from gateway.context.window.counting import PromptBudget
from gateway.core.errors import UpstreamRefused
from gateway.core.ports import TokenCounter
from gateway.core.types.chat import ChunkStream, JsonAnswer
from gateway.core.types.conversation import ConversationHistory
from gateway.pipeline.stages import PreparedRequest, RequestRun, SettledRequest

OnRequest = Callable[[PreparedRequest], PreparedRequest]
OnHistory = Callable[[PreparedRequest], Awaitable[PreparedRequest]]
OnContext = Callable[[PreparedRequest], PreparedRequest | None]
OnPayload = Callable[[PreparedRequest, TokenCounter], Awaitable[int]]
OnAnswer = Callable[[PreparedRequest, JsonAnswer], JsonAnswer]
OnStream = Callable[[PreparedRequest, ChunkStream], ChunkStream]
OnRefusal = Callable[[PreparedRequest, UpstreamRefused], PreparedRequest | None]
OnReply = Callable[[RequestRun, JsonAnswer, Callable[[], Awaitable[JsonAnswer]]], Awaitable[JsonAnswer]]
OnReplyStream = Callable[[RequestRun, ChunkStream, Callable[[], Awaitable[ChunkStream]]], ChunkStream]
OnBill = Callable[[SettledRequest], Awaitable[SettledRequest]]
OnSettled = Callable[[PreparedRequest], None]


class ReadAs(NamedTuple):
    """A conversation as its model is to read it; `report` adds to its context what became of the conversation."""

    history: ConversationHistory
    report: Callable[[BuiltContext], BuiltContext] | None


OnInputs = Callable[[PreparedRequest, ConversationHistory, PromptBudget], Awaitable[ReadAs | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFeature:
    """One feature, by the points at which it acts; None where it does not.

    No context is made of messages that go up as they came (ADR 7): such requests pass neither `on_inputs` nor
    `on_context`.

    Attributes:
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


class FeatureHooks:
    """What features do, by the point at which they do it, in the order of the features. A point that nobody acts at
    costs an empty loop."""

    def __init__(self, features: Sequence[RequestFeature] = ()) -> None:
        self.on_request = tuple(each.on_request for each in features if each.on_request is not None)
        self.on_history = tuple(each.on_history for each in features if each.on_history is not None)
        self.on_inputs = tuple(each.on_inputs for each in features if each.on_inputs is not None)
        self.on_context = tuple(each.on_context for each in features if each.on_context is not None)
        self.on_payload = tuple(each.on_payload for each in features if each.on_payload is not None)
        self.on_answer = tuple(each.on_answer for each in features if each.on_answer is not None)
        self.on_stream = tuple(each.on_stream for each in features if each.on_stream is not None)
        self.on_refusal = tuple(each.on_refusal for each in features if each.on_refusal is not None)
        self.on_reply = tuple(each.on_reply for each in features if each.on_reply is not None)
        self.on_reply_stream = tuple(each.on_reply_stream for each in features if each.on_reply_stream is not None)
        self.on_bill = tuple(each.on_bill for each in features if each.on_bill is not None)
        self.on_settled = tuple(each.on_settled for each in features if each.on_settled is not None)


NO_FEATURES = FeatureHooks()
