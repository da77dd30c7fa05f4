"""What one fit works with: the material, its limits, the counter, and the steps that window does not import."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gateway.models.artifacts import MAX_QUERIES, Artifact, ArtifactPlan, ProcessingStrategy
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Forwarded, Material, Planned, Rendering, Selection
from gateway.window.budget import Limits
from gateway.window.counting import PromptCounter
from gateway.window.once import once

CHARS_PER_TOKEN = 4.5
"""Characters of an average token of o200k_base in English prose: for guesses that a count checks later."""
LABEL_TOKENS = 55
"""Tokens of the label of an item in the block (id, type, source, title, what is shown), roughly. A wrong guess shows
when the selection is counted."""
MARK_CHARS = 10
"""Characters that stand for one mark of what is left out, when tokens are only guarded against."""
MOST_LABEL_CHARS = 4000
"""Characters left out from which a label and the marks of what is missing surely take fewer tokens than they save."""
NO_PLAN = Planned(ArtifactPlan())


class Worded(Protocol):
    """Words an artifact as an item, in the block and for files, or for its own place."""

    def __call__(self, rendering: Rendering, *, as_item: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """The steps that fitting calls, passed in because steps do not import each other: wording of a whole selection,
    ranking of passages, lossless compaction of a text, and wording of one artifact."""

    assemble: Callable[[Material, Selection], Forwarded]
    relevance: Relevance
    compact: Callable[[str], str]
    worded: Worded


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
        return self.tools.assemble(self.material, self._once(selection))

    def _once(self, selection: Selection) -> Selection:
        """The selection in which repeated documents stand once."""
        return once(self.material, selection) if self.material.repeats.documents else selection

    def tokens(self, selection: Selection) -> int:
        """The exact count of the selection as it would be forwarded."""
        return self.counting.total(self.assemble(selection))

    def fitted(self, selection: Selection, forwarded: Forwarded | None = None, *, exact: bool = True) -> Fitted:
        """The selection with its tokens, counted or estimated; what came more than once stands once in it."""
        selection = self._once(selection)
        forwarded = forwarded or self.assemble(selection)
        count = self.counting.exact(forwarded) if exact else self.counting.estimate(forwarded)
        return Fitted(selection, forwarded, count.total, exact, count.breakdown, estimated=count.estimated)

    def fitted_within(self, tokens: int, selection: Selection, forwarded: Forwarded | None = None) -> Fitted | None:
        """The selection if it fits, else None. If its bytes alone prove that it fits, it is only estimated."""
        forwarded = forwarded or self.assemble(selection)
        if self.counting.upper_bound(forwarded) <= tokens:
            return self.fitted(selection, forwarded, exact=False)
        return self.fitted(selection, forwarded) if self.counting.fits(forwarded, tokens) else None

    def unless_longer(self, rendering: Rendering, *, in_block: bool) -> Rendering:
        """The rendering; or the whole artifact, where the label and the gaps of an extract or a summary take no fewer
        tokens than what they leave out (guarantee §4 I6)."""
        artifact = rendering.artifact
        if rendering.strategy in (ProcessingStrategy.INCLUDE_FULL, ProcessingStrategy.EXCLUDE):
            return rendering
        beside = sum(map(len, rendering.headings)) + len(rendering.spans) * MARK_CHARS
        if len(artifact.content) - rendering.shown_chars > MOST_LABEL_CHARS + beside:
            return rendering
        whole = in_full(artifact)
        as_item = in_block or artifact.is_file
        texts = (self.tools.worded(each, as_item=as_item) for each in (rendering, whole))
        shown, full = map(self.counting.text, texts)
        return whole if full <= shown else rendering

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
            changed[name] = tuple(
                each if each.pinned else replace(each, content=self.tools.compact(each.content)) for each in artifacts
            )
        return replace(self, material=replace(self.material, **changed))


HUGE_CHARS = 1_000_000
"""Characters from which a text is worth a look before it is put into a message: each message is a copy of it."""


def without_hopeless(selection: Selection, counting: PromptCounter, tokens: int) -> tuple[Selection, int]:
    """The selection without huge texts that surely have more than `tokens` tokens together, and a lower bound of their
    tokens: 0 if they may fit."""
    huge = {
        name: counting.least_text(rendering.text)
        for name, rendering in selection.renderings.items()
        if rendering.strategy is ProcessingStrategy.INCLUDE_FULL and len(rendering.text) >= HUGE_CHARS
    }
    least = sum(huge.values())
    if least <= tokens:
        return selection, 0
    return replace(selection, renderings={k: v for k, v in selection.renderings.items() if k not in huge}), least


def in_full(artifact: Artifact) -> Rendering:
    """An artifact shown in full, as its content is now: original or compacted. Of a large document all that was read of
    it, which is an extract."""
    if artifact.is_excerpt:
        span = (0, len(artifact.content))
        return Rendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=(span,), headings=("",))
    return Rendering(artifact, ProcessingStrategy.INCLUDE_FULL, artifact.content)
