"""Bills out of what was attempted, without a pipeline (guarantee §6)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest

from gateway.context.manager import BuiltContext
from gateway.core.errors import GatewayError, UpstreamTimeout, UpstreamUnreachable
from gateway.core.types.bill import CallCost, ContextUtilizationMetadata, InternalCall
from gateway.core.types.chat import ModelDeployment, ModelFacts, PromptBudget
from gateway.core.types.window import ForwardedMessages, PackedWindow, WindowSelection
from gateway.pipeline.billing import make_bill, metadata_of
from gateway.pipeline.stages import PreparedRequest, RequestRun, Target, TargetWire, UpstreamOutcome
from tests.unit.making import chat, user

LATE, DOWN = UpstreamTimeout("late"), UpstreamUnreachable("down")


def target(name: str, number: int = 0) -> Target:
    place = ModelDeployment(name, name, f"openai/{name}", f"http://{name}", "sk", operator_key=True)
    return Target(name, cast(Any, None), place, number)


def prepared(name: str = "gpt-4o", number: int = 0) -> PreparedRequest:
    asked, at = chat([user("hello")]), target(name, number)
    return PreparedRequest(
        asked, replace(asked, model=name), at, TargetWire(at.chosen), ModelFacts(name), PromptBudget(None, None)
    )


def call(name: str, usd: str, tokens: int = 1) -> CallCost:
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return CallCost("primary", f"openai/{name}", usage, Decimal(usd), Decimal(0))


def test_nothing_was_called() -> None:
    found = RequestRun(prepared()).attempted()
    assert (found.has_unpriced_call, found.is_chargeable, found.sent_at, found.route) == (
        False,
        False,
        None,
        ["gpt-4o", "openai/gpt-4o"],
    )
    made = make_bill(found, None, 1.0)
    assert (made.calls, made.total) == ((), Decimal(0))


@pytest.mark.parametrize(("error", "is_chargeable"), [(None, True), (LATE, True), (DOWN, False)])
def test_a_call_may_be_charged_until_its_end_is_accounted_for(error: GatewayError | None, is_chargeable: bool) -> None:
    run = RequestRun(prepared())
    run.began(1.0)
    if error is not None:
        run.failed(error)
    assert (run.attempted().has_unpriced_call, run.attempted().is_chargeable) == (True, is_chargeable)
    if error is not None:
        run.book_last_try(call("gpt-4o", "0.5") if error.may_be_charged else None)
        assert not run.attempted().is_chargeable


def test_failed_tries_rounds_answer_and_internal_calls_add_up() -> None:
    run = RequestRun(prepared())
    run.began(1.0)
    run.book_last_try(call("gpt-4o", "0.25", 3))
    run.began(2.0)
    run.failed(LATE)
    run.book_last_try(call("gpt-4o", "0.5"))
    run.began(2.0)
    run.internal.append(InternalCall("planner", "openai/mini", {"prompt_tokens": 1, "completion_tokens": 0}, {}))
    primary = call("gpt-4o", "1", 7)
    made = make_bill(run.attempted(UpstreamOutcome("complete")), (primary.usage, primary), 5.0)
    assert [(each.purpose, each.prompt_cost) for each in made.calls] == [
        ("failed_try", Decimal("0.5")),
        ("primary", Decimal("0.25")),
        ("primary", Decimal("1")),
        ("planner", None),
    ]
    assert made.usage["prompt_tokens"] == 10, "of the rounds and the answer, of no failed try"
    assert made.total is None, "the planner has no price"
    assert made.known.timings_ms["upstream"] == 3000.0, "since the last answer was asked for"


def test_s13_13_rounds_and_planners_are_a_loss_and_failed_tries_are_not() -> None:
    """A client that asks the model itself pays the first prompt and the last answer, and what failed before."""
    made = prepared()
    fitted = PackedWindow(
        WindowSelection(), ForwardedMessages(list(made.request.messages), []), 3, exact=False, breakdown={}
    )
    context = BuiltContext(fitted, ContextUtilizationMetadata("gpt-4o"), material=None)
    observed = replace(made.request, options=replace(made.request.options, mode="simple", economy="observe"))
    run = RequestRun(replace(made, request=observed, context=context))
    run.began(1.0)
    run.book_last_try(replace(call("gpt-4o", "0.25", 3), completion_cost=Decimal("0.125")))
    run.began(2.0)
    run.failed(LATE)
    run.book_last_try(call("gpt-4o", "0.5"))
    run.began(2.0)
    prices = {"input_cost_per_token": Decimal(2), "output_cost_per_token": Decimal(0)}
    run.internal.append(InternalCall("planner", "openai/mini", {"prompt_tokens": 1, "completion_tokens": 0}, prices))
    primary = replace(call("gpt-4o", "1", 7), completion_cost=Decimal("0.0625"))
    bills = [make_bill(run.attempted(UpstreamOutcome("complete")), (primary.usage, primary), 5.0)]
    direct = Decimal("0.5") + Decimal("0.25") + Decimal("0.0625")
    run.continue_as(replace(run.prepared, request=replace(observed, options=replace(observed.options, economy="off"))))
    bills.append(make_bill(run.attempted(UpstreamOutcome("complete")), (primary.usage, primary), 5.0))
    economics = bills[0].metadata["economics"]
    assert bills[0].total == Decimal("3.9375")
    assert (Decimal(economics["direct_cost"]), Decimal(economics["net_saving"])) == (direct, direct - Decimal("3.9375"))
    assert "economics" not in bills[1].metadata


def test_what_was_paid_at_a_target_that_was_left_is_a_failed_try() -> None:
    run = RequestRun(prepared())
    run.began(1.0)
    run.book_last_try(call("gpt-4o", "0.25"))
    run.began(2.0)
    run.failed(DOWN)
    run.continue_as(replace(prepared("other", 1), asked=run.asked))
    run.book_last_try(None)
    found = run.attempted()
    assert [(each.purpose, each.model) for each in found.failed_costs] == [("failed_try", "openai/gpt-4o")]
    assert (found.round_costs, found.route) == ((), ["gpt-4o", "openai/gpt-4o", "openai/other"])


def test_a_target_that_was_not_asked_is_on_no_route() -> None:
    run = RequestRun(prepared())
    run.continue_as(replace(prepared("other", 1), asked=run.asked))
    run.began(1.0)
    assert run.attempted().route == ["gpt-4o", "openai/other"]
    used = metadata_of(run.attempted(), 1.0).context_utilization
    assert used is not None
    assert used.warnings == ["answered_by_fallback"]


def test_a_bill_changes_nothing_that_it_is_made_of() -> None:
    run = RequestRun(prepared())
    run.warnings.append("guard_failed")
    run.began(1.0)
    attempted, primary = run.attempted(UpstreamOutcome("complete")), call("gpt-4o", "1")
    one, other = (make_bill(attempted, (primary.usage, primary), 2.0) for _ in range(2))
    assert one == other
    assert attempted == run.attempted(UpstreamOutcome("complete"))
    assert one.metadata["context_utilization"]["warnings"] == ["guard_failed"]


def test_a_failure_is_recorded_once_and_not_beside_a_commit() -> None:
    run = RequestRun(prepared())
    assert not run.claim_failure(), "nothing was called"
    run.began(1.0)
    run.begin_commit()
    assert not run.claim_failure()
    run.abort_commit()
    assert (run.claim_failure(), run.claim_failure(), run.is_ending) == (True, False, True)
