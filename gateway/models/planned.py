"""A planner's plan on its way to where it is followed (contract §5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.models.artifacts import ArtifactPlan


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner's plan as fitting follows it, with the summaries that were made for it.

    `plan` has its decisions by priority, for artifacts of this request only; what it does not name gets the
    heuristic's decision. `summaries` are by artifact, each shorter than the artifact. `trusted`: without the guards of
    contract §5 (`context.trust_planner`).
    """

    plan: ArtifactPlan
    summaries: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = False
