"""The facts of a request that `should_use_llm_planning()` looks at (contract §5)."""

from collections.abc import Sequence
from datetime import datetime

from gateway.models.artifacts import Artifact
from gateway.models.exchange import ContextOptions
from gateway.models.selection import Fitted, Material, Unreduced
from gateway.planning.decision import PlanningFacts
from gateway.planning.window import Window

ALWAYS = "always"


def facts_of(
    options: ContextOptions,
    material: Material,
    fitted: Fitted | Unreduced,
    *,
    stored: int,
    budget: int | None,
    historical_turns: int,
    has_planner: bool = False,
    expensive_primary: bool = False,
) -> PlanningFacts:
    """Measured on what the context is made of.

    Args:
        fitted: the unreduced candidate, or, where no plan can come of it, what was fitted in its place.
        stored: so many of the material's messages were forwarded with an earlier request.
        budget: tokens; None if the window is unknown.
        historical_turns: how many turns back a historical artifact counts.
    """
    sizes = [artifact.size_chars for artifact in material.artifacts]
    undecided = without_standing(material, fitted, stored)
    turns = _Turns(material, historical_turns)
    return PlanningFacts(
        artifacts=len(sizes) or int(options.planning == ALWAYS and is_excerpted(material, fitted)),
        planning=options.planning,
        mode=options.mode,
        has_planner=has_planner,
        all_standing=not undecided,
        new_historical=any(artifact.historical and turns.hold(artifact) for artifact in undecided),
        total_chars=sum(sizes),
        largest_chars=max(sizes, default=0),
        tokens=fitted.tokens,
        budget=budget,
        expensive_primary=expensive_primary,
    )


def is_excerpted(material: Material, fitted: Fitted | Unreduced) -> bool:
    """Whether there are turns of which some may have to leave: what is quoted of these is an artifact, too, the only
    one that a plain chat has. A plan of it costs time in every turn of a long chat, so it is made only if asked for."""
    return fitted.anew and material.current > 0


def without_standing(material: Material, fitted: Fitted | Unreduced, stored: int) -> Sequence[Artifact]:
    """The artifacts for which nothing is decided yet. What was decided holds while the window is as it was forwarded:
    that they stand in it in full, or reduced, or that the pass which began it left them out; once something has to
    leave, nothing does (contract §4 I7)."""
    if fitted.anew:
        return material.artifacts
    window = Window.of(material, fitted)
    undecided = [artifact for artifact in material.artifacts if not _stands(artifact, window, stored)]
    return [a for a in undecided if not _is_out(a, window)] if _is_later_step(material, stored) else undecided


def _stands(artifact: Artifact, window: Window, stored: int) -> bool:
    if window.is_left_out(artifact, stored):
        return True
    index = artifact.place.message
    if index is not None:
        return index < stored and index in window.indexes
    return artifact.standing_name in window.in_earlier_blocks or window.decided(artifact) is not None


def _is_out(artifact: Artifact, window: Window) -> bool:
    """Whether nothing but a block of the current message could show it."""
    index = artifact.place.message
    return index is None or index not in window.indexes


def _is_later_step(material: Material, stored: int) -> bool:
    """Whether the turn under way has been forwarded before. What its block shows of what stands in no message of the
    window was fixed then (contract §4 I6): no plan can change it, and nobody is paid for one."""
    return material.frame is not None and material.current < stored


class _Turns:
    """The turns before the current one in which an artifact counts as historical."""

    def __init__(self, material: Material, count: int) -> None:
        begins = [i for i, message in enumerate(material.messages[: material.current]) if message.role == "user"]
        self._none = not count
        self._first = begins[-count] if 0 < count <= len(begins) else 0
        self._since: datetime | None = material.messages[self._first].created_at if self._first else None
        begun = bool(material.messages) and material.messages[material.current].message_id is not None
        self._until: datetime | None = material.messages[material.current].created_at if begun else None

    def hold(self, artifact: Artifact) -> bool:
        """Whether it is of one of them. What stands in no message goes by the time at which it came."""
        if self._none:
            return False
        if artifact.place.message is not None:
            return artifact.place.message >= self._first
        came = artifact.timestamp
        if came is None:
            return True
        is_current = self._until is not None and came >= self._until  # with the first step of the turn under way
        return not is_current and (self._since is None or came >= self._since)
