"""How much more a request would have taken with everything included (guarantee §5, ADR 16)."""

from typing import Any

from gateway.context.draft import Draft
from gateway.models.bill import LeftOut
from gateway.models.window import Fitted, Forwarded
from gateway.window.counting import PromptCounter


def left_out(draft: Draft, fitted: Fitted, *, follows_plan: bool) -> LeftOut | None:
    """What a request is spared; None if nothing was left out of this conversation, by a plan or by a pass.

    Each frame says how much was left out up to it, so that only what this request changes is counted: beside a window
    that stands, what a plan takes from new artifacts, and what a question brings back. A pass decides all anew, so the
    whole is counted anew, by samples where it is long. More than the model's window was never to be sent.

    Args:
        fitted: what is forwarded.
        follows_plan: it is as a plan says.
    """
    before = draft.material.frame.left_out_tokens if draft.material.frame else 0
    if not (before or fitted.new_pass or follows_plan):
        return None
    counting, whole, sent = draft.counting, draft.unreduced.forwarded, fitted.forwarded
    same, _ = frozen_prefix(draft, fitted)
    unchanged, stored = counting.nearly(Forwarded(same, [])), draft.source.history.stored
    if not fitted.new_pass:
        change = _difference(counting, whole, sent)
        return LeftOut(before + change, max(0, change), unchanged)
    everything = before + counting.nearly(whole)
    window = draft.source.facts.max_input_tokens or draft.source.budget.context_window
    tokens = (everything if window is None else min(everything, window)) - counting.total(sent)
    fresh = counting.nearly(_since(whole, stored)) - counting.nearly(_since(sent, stored))
    return LeftOut(tokens, min(max(0, fresh), max(0, tokens)), unchanged)


def spared_tokens(draft: Draft, fitted: Fitted) -> int:
    """Tokens that a plan leaves out beyond what the heuristic does."""
    one, other = draft.fitted.forwarded, fitted.forwarded
    if one.indexes == other.indexes:  # the rest of the messages is the same, and may only be estimated
        return _difference(draft.counting, one, other)
    return draft.fitted.tokens - fitted.tokens


def frozen_prefix(draft: Draft, fitted: Fitted) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages that an earlier request forwarded, so that a provider may have cached them: those with which this
    one begins, too, and the others."""
    before, stored = draft.unreduced.forwarded, draft.source.history.stored
    if not any(0 <= index < stored for index in before.indexes):
        return [], []  # nothing but system messages was there before
    old = [message for index, message in zip(before.indexes, before.messages, strict=True) if index < stored]
    same = 0
    for one, other in zip(old, fitted.forwarded.messages, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return old[:same], old[same:]


def _difference(counting: PromptCounter, whole: Forwarded, sent: Forwarded) -> int:
    """Tokens by which the messages of one are longer than the same messages of the other."""
    pairs = zip(whole.messages, sent.messages, strict=True)
    differing = [(one, other) for one, other in pairs if one is not other and one != other]
    return sum(counting.message(one) - counting.message(other) for one, other in differing)


def _since(forwarded: Forwarded, stored: int) -> Forwarded:
    """Its messages that no earlier request forwarded."""
    new = [message for i, message in zip(forwarded.indexes, forwarded.messages, strict=True) if i >= stored]
    return Forwarded(new, [])
