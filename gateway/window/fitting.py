"""What one fit works with: the material, its limits, the counter, and the steps that window does not import."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gateway.models.artifacts import MAX_QUERIES, Artifact, ArtifactPlan, ProcessingStrategy
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Forwarded, Material, Planned, Rendering, Selection
from gateway.window.budget import Limits
from gateway.window.counting import PromptCounter

CHARS_PER_TOKEN = 4.5
"""Characters of an average token of o200k_base in English prose: for guesses that a count checks later."""
LABEL_TOKENS = 55
"""Tokens of the label of an item in the block (id, type, source, title, what is shown), roughly. A wrong guess shows
when the selection is counted."""
NO_PLAN = Planned(ArtifactPlan())


@dataclass(frozen=True, slots=True)
class Tools:
    """The steps that fitting calls, passed in because steps do not import each other: wording, ranking of passages,
    and lossless compaction of a text."""

    assemble: Callable[[Material, Selection], Forwarded]
    relevance: Relevance
    compact: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Fitting:
    """One fit of one request."""

    material: Material
    limits: Limits
    counting: PromptCounter
    tools: Tools
    planned: Planned = NO_PLAN

    def assemble(self, selection: Selection) -> Forwarded:
        """The selection as it would be forwarded."""
        return self.tools.assemble(self.material, selection)

    def tokens(self, selection: Selection) -> int:
        """The exact count of the selection as it would be forwarded."""
        return self.counting.total(self.assemble(selection))

    def fitted(self, selection: Selection, forwarded: Forwarded | None = None, *, exact: bool = True) -> Fitted:
        """The selection with its tokens, counted or estimated."""
        forwarded = forwarded or self.assemble(selection)
        count = self.counting.exact(forwarded) if exact else self.counting.estimate(forwarded)
        return Fitted(selection, forwarded, count.total, exact, count.breakdown)

    def fitted_within(self, tokens: int, selection: Selection, forwarded: Forwarded | None = None) -> Fitted | None:
        """The selection if it fits, else None. If its bytes alone prove that it fits, it is only estimated."""
        forwarded = forwarded or self.assemble(selection)
        if self.counting.upper_bound(forwarded) <= tokens:
            return self.fitted(selection, forwarded, exact=False)
        return self.fitted(selection, forwarded) if self.counting.fits(forwarded, tokens) else None

    @property
    def searches(self) -> tuple[str, ...]:
        """The plan's search queries, then its queries for single artifacts."""
        plan = self.planned.plan
        queries = (*plan.search_queries, *(decision.extraction_query or "" for decision in plan.artifacts))
        return tuple(dict.fromkeys(query for query in queries if query.strip()))[:MAX_QUERIES]

    def compacted(self, *fields: str) -> "Fitting":
        """The same with the artifacts in these fields of the material compacted, which loses nothing (guarantee §4 I5).
        `size_chars` stays the original size, since labels say how much of that was left out."""
        changed: dict[str, Any] = {}
        for name in fields:
            artifacts: tuple[Artifact, ...] = getattr(self.material, name)
            changed[name] = tuple(replace(each, content=self.tools.compact(each.content)) for each in artifacts)
        return replace(self, material=replace(self.material, **changed))


def in_full(artifact: Artifact) -> Rendering:
    """An artifact shown in full, as its content is now: original or compacted."""
    return Rendering(artifact, ProcessingStrategy.INCLUDE_FULL, artifact.content)
