"""Guarantee §5's table, row by row in its order: the first condition that holds decides."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.context.planning.decision import (
    DECISION_TABLE,
    OBJECTIONS,
    PlanEconomics,
    PlanningDecision,
    PlanningFacts,
    should_use_llm_planning,
    weighed,
)
from gateway.core.config.settings import ContextSettings

BARE = PlanningFacts(
    artifacts=1, planning="auto", mode="auto", has_planner=True, all_standing=False, new_historical=False,
    total_chars=6000, largest_chars=6000, tokens=80, budget=100, expensive_primary=False,
)  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "all_standing": True, "new_historical": True, "total_chars": 10, "largest_chars": 90_000, "tokens": 99,
    "expensive_primary": True,
}  # fmt: skip
UNKNOWN: dict[str, Any] = {"all_standing": False, "unrecognised": True}

ROWS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("no artifacts", {"artifacts": 0}, False, "no_artifacts"),
    ("no artifacts, though forced", {"artifacts": 0, "planning": "always"}, False, "no_artifacts"),
    ("never", {**EVERYTHING, "planning": "never"}, False, "disabled"),
    ("always", {**EVERYTHING, "planning": "always", "has_planner": False, "mode": "simple"}, True, "forced"),
    ("no planner", {**EVERYTHING, "has_planner": False}, False, "no_planner"),
    ("mode simple", {**EVERYTHING, "mode": "simple"}, False, "no_planner"),
    ("all standing", EVERYTHING, False, "standing"),
    ("not recognised", {**EVERYTHING, **UNKNOWN}, False, "not_recognised"),
    ("not recognised, and forced", {**EVERYTHING, **UNKNOWN, "planning": "always"}, True, "forced"),
    (
        "not recognised, and it does not fit",
        {**EVERYTHING, **UNKNOWN, "must_leave": True},
        True,
        "historical_artifacts",
    ),
    ("historical", {**EVERYTHING, "all_standing": False}, True, "historical_artifacts"),
    ("4,999 characters in all", {"total_chars": 4999, "tokens": 99, "expensive_primary": True}, False, "small_total"),
    ("70 % of the budget", {"tokens": 70, "largest_chars": 90_000}, False, "fits"),
    ("an unknown window", {"budget": None, "tokens": 10**9, "largest_chars": 90_000}, False, "fits"),
    ("90 % of the budget, 5,000 characters in all", {"tokens": 90, "total_chars": 5000}, True, "near_limit"),
    ("90 % of the budget of an expensive model", {"tokens": 90, "expensive_primary": True}, True, "near_limit"),
    ("over the budget", {"tokens": 500}, True, "near_limit"),
    ("70 % of the budget of an expensive model", {"tokens": 70, "expensive_primary": True}, True, "expensive_primary"),
    ("89 % of the budget of an expensive model", {"tokens": 89, "expensive_primary": True}, True, "expensive_primary"),
    ("an unknown window of an expensive model", {"budget": None, "expensive_primary": True}, True, "expensive_primary"),
    ("71 % of the budget, 10,001 characters in one", {"tokens": 71, "largest_chars": 10_001}, True, "large_artifact"),
    ("10,000 characters in one", {"largest_chars": 10_000}, False, "no_need"),
    ("89 % of the budget", {"tokens": 89}, False, "no_need"),
]


@pytest.mark.parametrize(("facts", "use", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_s5_the_first_row_that_holds_decides(facts: dict[str, Any], use: bool, reason: str) -> None:
    decision = should_use_llm_planning(replace(BARE, **facts), ContextSettings())
    assert (decision.use, decision.reason) == (use, reason)


def test_s5_these_are_all_rows_of_the_table_in_its_order() -> None:
    assert [row.reason for row in DECISION_TABLE] == list(dict.fromkeys(reason for *_, reason in ROWS))


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("small_total_chars", 6001, "small_total"),
        ("fits_share", 0.8, "fits"),
        ("near_limit_share", 0.8, "near_limit"),
        ("large_artifact_chars", 5999, "large_artifact"),
    ],
)
def test_every_number_is_configurable(setting: str, value: float, reason: str) -> None:
    assert should_use_llm_planning(BARE, ContextSettings()).reason == "no_need"
    configured = ContextSettings.model_validate({setting: value})
    assert should_use_llm_planning(BARE, configured).reason == reason


HOPEFUL = PlanEconomics(must_leave=False, asked_this_turn=False, stands=True, price=Decimal(1), saving=Decimal(1))
HOPELESS: dict[str, Any] = {"asked_this_turn": True, "stands": False, "price": Decimal(2), "resting": True}
WEIGHED: list[tuple[str, dict[str, Any], str, str]] = [
    ("it may pay", {}, "large_artifact", "large_artifact"),
    ("an unknown price", {"price": None}, "large_artifact", "large_artifact"),
    ("an unknown saving", {"price": Decimal(2), "saving": None}, "large_artifact", "large_artifact"),
    ("something has to leave", {**HOPELESS, "must_leave": True}, "near_limit", "near_limit"),
    ("asked already", HOPELESS, "near_limit", "asked_this_turn"),
    ("asked already, though forced", HOPELESS, "forced", "asked_this_turn"),
    ("forced", {**HOPELESS, "asked_this_turn": False}, "forced", "forced"),
    ("store: false", {**HOPELESS, "asked_this_turn": False}, "near_limit", "nothing_stands"),
    ("too dear", {"price": Decimal(2), "resting": True}, "expensive_primary", "cannot_pay"),
    ("resting", {"resting": True}, "expensive_primary", "planner_resting"),
]


@pytest.mark.parametrize(
    ("prospects", "wanted", "reason"), [row[1:] for row in WEIGHED], ids=[row[0] for row in WEIGHED]
)
def test_s5_what_the_table_wants_is_weighed(prospects: dict[str, Any], wanted: str, reason: str) -> None:
    found = weighed(PlanningDecision(True, wanted), replace(HOPEFUL, **prospects))
    assert found == PlanningDecision(reason == wanted, reason)


def test_s5_weighing_never_asks_where_the_table_does_not() -> None:
    refused = PlanningDecision(False, "fits")
    assert weighed(refused, HOPEFUL) == refused
    assert {each.reason for each in OBJECTIONS} == {reason for *_, wanted, reason in WEIGHED if reason != wanted}
