"""Whether what a plan saves is worth what it cost (contract §5: a plan is followed where it is worth its price)."""

from collections.abc import Sequence
from decimal import Decimal

from gateway.accounting.cost import price_internal
from gateway.accounting.economics import compare, expected_requests
from gateway.drafts import Draft
from gateway.fitting.count import Counting
from gateway.models.economics import Comparison
from gateway.models.selection import Fitted, Forwarded
from gateway.models.spending import InternalCall

PLANNING = ("planner", "summarizer")


def comparison(draft: Draft, planned: Fitted, calls: Sequence[InternalCall]) -> Comparison:
    """Compares a context without a plan with one that follows it, over all requests that will forward it.

    Args:
        calls: those of internal models that this request has made.
    """
    costs = [price_internal(call).total for call in calls if call.purpose in PLANNING]
    known = [cost for cost in costs if cost is not None]
    answers = draft.material.turns_before + sum(each.role == "assistant" for each in draft.material.messages)
    return compare(
        draft.asked.facts.prices,
        candidate_tokens=draft.fitted.tokens,
        saved_tokens=draft.fitted.tokens - planned.tokens,
        invalidated_tokens=_invalidated(draft.unreduced.forwarded, planned.forwarded, draft),
        requests=expected_requests(answers),
        planning_cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def _invalidated(before: Forwarded, now: Forwarded, draft: Draft) -> int:
    """Tokens that an earlier request forwarded and that no longer stand where a provider cached them: from the first
    message on that differs."""
    old = [
        message
        for index, message in zip(before.indexes, before.messages, strict=True)
        if index < 0 or index < draft.asked.history.stored
    ]
    if len(old) == sum(index < 0 for index in before.indexes):
        return 0  # nothing was forwarded before
    same = 0
    for one, other in zip(old, now.messages, strict=False):
        if one != other:
            break
        same += 1
    return _tokens(old[same:], draft.counting)


def _tokens(messages: Sequence[dict[str, object]], counting: Counting) -> int:
    return sum(map(counting.message, messages))
