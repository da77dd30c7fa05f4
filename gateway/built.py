"""A context that was made for a request."""

from dataclasses import dataclass

from gateway.context_planning import PlanMade
from gateway.embeddings.afterwards import Remains
from gateway.fitting.count import Counting
from gateway.models.artifacts import Artifact
from gateway.models.metadata import ContextUtilizationMetadata
from gateway.models.selection import Fitted, Material
from gateway.relevance.finder import PassageFinder

NO_MATERIAL = Material(instructions=(), messages=(), current=0)


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """What is forwarded, what is to be remembered of it, and the figures of how it came about."""

    fitted: Fitted
    utilization: ContextUtilizationMetadata
    material: Material
    new_attachments: tuple[Artifact, ...] = ()
    counting: Counting | None = None
    cached: tuple[str, ...] = ()
    """Digests of contents of which the cache keeps something."""
    indexed: PassageFinder | None = None
    """What was indexed, to be kept once this request is stored."""
    remains: Remains | None = None
    """What is kept for later questions once this one is answered."""
    made: PlanMade | None = None
    """What came of asking a planner, for whoever has to build the same request's context again."""
