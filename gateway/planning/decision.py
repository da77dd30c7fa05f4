"""`should_use_llm_planning()`: the table of contract §5, first condition that holds."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.settings import ContextSettings


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """Measured on the unreduced candidate. `budget` None: the window is unknown and nothing is near a limit."""

    artifacts: int
    planning: str
    mode: str
    has_planner: bool
    all_standing: bool
    new_historical: bool
    total_chars: int
    largest_chars: int
    tokens: int
    budget: int | None
    expensive_primary: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to plan with a model, and which row of the table said so."""

    use: bool
    reason: str


Row = tuple[Callable[[PlanningFacts, ContextSettings], bool], bool, str]

TABLE: tuple[Row, ...] = (
    (lambda f, s: f.artifacts == 0, False, "no_artifacts"),
    (lambda f, s: f.planning == "never", False, "disabled"),
    (lambda f, s: f.planning == "always", True, "forced"),
    (lambda f, s: not f.has_planner or f.mode == "simple", False, "no_planner"),
    (lambda f, s: f.all_standing, False, "standing"),
    (lambda f, s: f.new_historical, True, "historical_artifacts"),
    (lambda f, s: f.total_chars < s.small_total_chars, False, "small_total"),
    (lambda f, s: _share(f) <= s.fits_share and not f.expensive_primary, False, "fits"),
    (lambda f, s: _share(f) >= s.near_limit_share, True, "near_limit"),
    (lambda f, s: f.expensive_primary, True, "expensive_primary"),
    (lambda f, s: f.largest_chars > s.large_artifact_chars, True, "large_artifact"),
)


def should_use_llm_planning(facts: PlanningFacts, settings: ContextSettings) -> Decision:
    """A pure function of the facts; `settings` holds the table's numbers."""
    for holds, use, reason in TABLE:
        if holds(facts, settings):
            return Decision(use, reason)
    return Decision(False, "no_need")


def _share(facts: PlanningFacts) -> float:
    return facts.tokens / facts.budget if facts.budget else 0.0
