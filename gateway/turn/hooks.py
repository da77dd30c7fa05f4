"""Where features act on a request. The pipeline calls these points, and imports no feature (ADR 35)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gateway.models.exchange import ChunkStream, JsonAnswer
from gateway.ports import TokenCounter
from gateway.turn.stages import Prepared, Settled

OnHistory = Callable[[Prepared], Awaitable[Prepared]]
OnPayload = Callable[[Prepared, TokenCounter], Awaitable[int]]
OnAnswer = Callable[[Prepared, JsonAnswer], JsonAnswer]
OnStream = Callable[[Prepared, ChunkStream], ChunkStream]
OnBill = Callable[[Settled], Awaitable[Settled]]
OnSettled = Callable[[Prepared], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature, by the points at which it acts; None where it does not.

    Attributes:
        on_history: a request whose conversation is rebuilt, before its context is made.
        on_payload: a request whose context is made; by how many tokens what goes up is longer than was counted, below
            0 if it is shorter.
        on_answer: what one try was answered, before anybody looks at it.
        on_stream: the same of a stream that has begun.
        on_bill: a request that was answered or has failed, with its bill, before both are committed.
        on_settled: an answered request, once it is committed. Nobody waits for what begins here.
    """

    on_history: OnHistory | None = None
    on_payload: OnPayload | None = None
    on_answer: OnAnswer | None = None
    on_stream: OnStream | None = None
    on_bill: OnBill | None = None
    on_settled: OnSettled | None = None


class FeatureHooks:
    """What features do, by the point at which they do it, in the order of the features. A point that nobody acts at
    costs an empty loop."""

    def __init__(self, features: Sequence[Feature] = ()) -> None:
        self.on_history = tuple(each.on_history for each in features if each.on_history is not None)
        self.on_payload = tuple(each.on_payload for each in features if each.on_payload is not None)
        self.on_answer = tuple(each.on_answer for each in features if each.on_answer is not None)
        self.on_stream = tuple(each.on_stream for each in features if each.on_stream is not None)
        self.on_bill = tuple(each.on_bill for each in features if each.on_bill is not None)
        self.on_settled = tuple(each.on_settled for each in features if each.on_settled is not None)


NO_FEATURES = FeatureHooks()
