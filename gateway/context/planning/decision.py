"""Whether a planner is asked: `should_use_llm_planning()` and the facts that it looks at; then `weighed()`, whether its
plan can earn its price (guarantee §5, ADR 16)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from gateway.context.planning.record import WindowContents
from gateway.core.config.settings import ContextSettings
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chat import ContextOptions
from gateway.core.types.tool_steps import turn_starts
from gateway.core.types.window import FullPrompt, PackedWindow, WindowInputs


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """What is known of a request before anything of it is reduced. Sizes in characters, `tokens` and `budget` in
    tokens; `budget` is None if the window is unknown."""

    artifacts: int
    planning: str
    mode: str
    has_planner: bool
    all_standing: bool
    """Every artifact has a standing decision: one that an earlier request made, and that holds."""
    new_historical: bool
    """An artifact of the turns before the current one has none."""
    total_chars: int
    largest_chars: int
    tokens: int
    budget: int | None
    expensive_primary: bool
    must_leave: bool = False
    """Something has to leave the window anew."""
    unrecognised: bool = False
    """The next request of this client will not be known to go on with this one."""

    @property
    def budget_share(self) -> float:
        """How much of the budget the tokens take; nothing of an unknown one."""
        return self.tokens / self.budget if self.budget else 0.0


@dataclass(frozen=True, slots=True)
class PlanningDecision:
    """Whether to ask a planner, and which row of the table said so."""

    use: bool
    reason: str


NO_ARTIFACTS = "no_artifacts"
FORCED = "forced"
"""The request asked for a plan (`planning: always`)."""
NO_PLANNER = "no_planner"
NOTHING_TO_PLAN = "nothing_to_plan"
"""Not a reason of the table: a plan was called for, and could change nothing."""


class DecisionRow(NamedTuple):
    """One row of the table: its condition in words and as a function, and what it says."""

    condition: str
    holds: Callable[[PlanningFacts, ContextSettings], bool]
    use: bool
    reason: str


def _is_in_vain(facts: PlanningFacts, _: ContextSettings) -> bool:
    return facts.unrecognised and not facts.must_leave


TABLE = (
    DecisionRow("no artifacts", lambda f, _: f.artifacts == 0, False, NO_ARTIFACTS),
    DecisionRow("`context.planning` is `never`", lambda f, _: f.planning == "never", False, "disabled"),
    DecisionRow("`context.planning` is `always`", lambda f, _: f.planning == "always", True, FORCED),
    DecisionRow(
        "no planner, or mode `simple`", lambda f, _: not f.has_planner or f.mode == "simple", False, NO_PLANNER
    ),
    DecisionRow("every artifact has a standing decision", lambda f, _: f.all_standing, False, "standing"),
    DecisionRow("not recognised from request to request, and all fits", _is_in_vain, False, "not_recognised"),
    DecisionRow("a historical artifact has none", lambda f, _: f.new_historical, True, "historical_artifacts"),
    DecisionRow("total size is small", lambda f, s: f.total_chars < s.small_total_chars, False, "small_total"),
    DecisionRow(
        "tokens fit well, and a cheap primary model",
        lambda f, s: f.budget_share <= s.fits_share and not f.expensive_primary,
        False,
        "fits",
    ),
    DecisionRow("tokens are near the budget", lambda f, s: f.budget_share >= s.near_limit_share, True, "near_limit"),
    DecisionRow("expensive primary model", lambda f, _: f.expensive_primary, True, "expensive_primary"),
    DecisionRow("a large artifact", lambda f, s: f.largest_chars > s.large_artifact_chars, True, "large_artifact"),
    DecisionRow("otherwise", lambda _, __: True, False, "no_need"),
)
"""Guarantee §5's table: the first row that holds decides. The numbers are settings."""


def should_use_llm_planning(facts: PlanningFacts, settings: ContextSettings) -> PlanningDecision:
    """The first row of the table that holds; a pure function."""
    return next(PlanningDecision(row.use, row.reason) for row in TABLE if row.holds(facts, settings))


@dataclass(frozen=True, slots=True)
class PlanEconomics:
    """What asking a planner would cost and could bring. Money in USD, None where a price is unknown."""

    must_leave: bool
    """Something has to leave the window anew: a plan decides what. Where a client is not recognised that is so at each
    step: the first alone counts."""
    asked_this_turn: bool
    """An earlier step of the same turn has asked a planner."""
    stands: bool
    """What is decided now can hold in later requests; not with `store: false`."""
    price: Decimal | None = None
    """Of the planner's call."""
    saving: Decimal | None = None
    """The most that a plan could save, over all requests in which it is expected to stand."""
    resting: bool = False
    """The planner's last answers to this tenant were unusable."""

    @property
    def cannot_pay(self) -> bool:
        """Whether the price is more than what could be saved; unknown prices do not count."""
        return self.price is not None and self.saving is not None and self.price > self.saving


class PlanVeto(NamedTuple):
    """One reason not to ask, in words and as a function. `also_forced`: it holds against `planning: always`, too."""

    condition: str
    holds: Callable[[PlanEconomics], bool]
    reason: str
    also_forced: bool = False


OBJECTIONS = (
    PlanVeto("this turn has asked already", lambda p: p.asked_this_turn, "asked_this_turn", also_forced=True),
    PlanVeto("nothing that is decided could stand", lambda p: not p.stands, "nothing_stands"),
    PlanVeto("asking costs more than it could save", lambda p: p.cannot_pay, "cannot_pay"),
    PlanVeto("the planner's last answers were unusable", lambda p: p.resting, "planner_resting"),
)
"""They count while nothing has to leave; the first that holds is the reason."""


def weighed(decision: PlanningDecision, prospects: PlanEconomics) -> PlanningDecision:
    """The table's decision, or not to ask for the first objection that holds; a pure function."""
    if not decision.use or prospects.must_leave:
        return decision
    forced = decision.reason == FORCED
    counted = (each for each in OBJECTIONS if each.also_forced or not forced)
    return next((PlanningDecision(False, each.reason) for each in counted if each.holds(prospects)), decision)


def facts_of(
    options: ContextOptions,
    material: WindowInputs,
    unreduced: FullPrompt,
    *,
    stored: int,
    budget: int | None,
    historical_turns: int,
    has_planner: bool = False,
    expensive_primary: bool = False,
    unrecognised: bool = False,
) -> PlanningFacts:
    """The facts of a request.

    Args:
        stored: how many of the material's messages were forwarded with an earlier request.
        budget: in tokens; None if the window is unknown.
        historical_turns: how many turns back a historical artifact counts.
    """
    same = unreduced.selection.same
    sizes = [artifact.size_chars for artifact in material.artifacts if artifact.artifact_id not in same]
    undecided = without_standing(material, unreduced, stored)
    turns = _HistoricalTurns(material, historical_turns)
    return PlanningFacts(
        artifacts=len(sizes) or int(unreduced.new_pass and may_be_planned(options, material)),
        planning=options.planning,
        mode=options.mode,
        has_planner=has_planner,
        all_standing=not undecided,
        new_historical=any(artifact.historical and turns.has(artifact) for artifact in undecided),
        total_chars=sum(sizes),
        largest_chars=max(sizes, default=0),
        tokens=unreduced.tokens,
        budget=budget,
        expensive_primary=expensive_primary,
        must_leave=unreduced.new_pass,
        unrecognised=unrecognised,
    )


def may_be_planned(options: ContextOptions, material: WindowInputs) -> bool:
    """Whether there is anything to plan: artifacts, or old turns where they have to leave. What is quoted of these is
    an artifact, too, the only one that a plain chat has; a plan of it would cost time in every turn of a long chat, so
    it is made only with `planning: always`."""
    return bool(material.artifacts) or (options.planning == "always" and material.current > 0)


def without_standing(material: WindowInputs, fitted: PackedWindow | FullPrompt, stored: int) -> Sequence[Artifact]:
    """The artifacts without a standing decision. A decision (shown in full, reduced, or left out by the pass with which
    the window began) holds while the window is as it was forwarded; once something has to leave, none does
    (guarantee §4 I7)."""
    if fitted.new_pass:
        return material.artifacts
    window, same = WindowContents.of(material, fitted), fitted.selection.same
    others = (artifact for artifact in material.artifacts if artifact.artifact_id not in same)
    undecided = [artifact for artifact in others if not _is_decided(artifact, window, stored)]
    if material.frame is None or material.current >= stored:
        return undecided
    # A later step of a turn: what its block shows was fixed with the first (guarantee §4 I6). No plan can change it,
    # and nobody is paid for one.
    return [a for a in undecided if a.place.message is not None and a.place.message in window.indexes]


def _is_decided(artifact: Artifact, window: WindowContents, stored: int) -> bool:
    if window.is_left_out(artifact, stored):
        return True
    index = artifact.place.message
    if index is not None:
        return index < stored and index in window.indexes
    return artifact.block_name in window.in_earlier_blocks or window.decided(artifact) is not None


class _HistoricalTurns:
    """The turns before the current one in which an artifact counts as historical."""

    def __init__(self, material: WindowInputs, count: int) -> None:
        begins = turn_starts(message.role for message in material.messages[: material.current])
        self._none = not count
        self._first = begins[-count] if 0 < count <= len(begins) else 0
        self._since: datetime | None = material.messages[self._first].created_at if self._first else None
        begun = bool(material.messages) and material.messages[material.current].message_id is not None
        self._until: datetime | None = material.messages[material.current].created_at if begun else None

    def has(self, artifact: Artifact) -> bool:
        """Whether an artifact is of one of them; one that is in no message, by the time at which it came."""
        if self._none:
            return False
        if artifact.place.message is not None:
            return artifact.place.message >= self._first
        came = artifact.timestamp
        if came is None:
            return True
        is_current = self._until is not None and came >= self._until  # with the first step of the turn under way
        return not is_current and (self._since is None or came >= self._since)
