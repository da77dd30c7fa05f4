"""`should_use_llm_planning()`: the table of guarantee §5, first condition that holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.config.settings import ContextSettings
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.exchange import ContextOptions
from gateway.models.frames import FrozenDecision
from gateway.models.window import Fitted, Material, Unreduced

# What stands in the window already, as earlier requests decided it (guarantee §4 I7, §5).


STRONGEST = (ProcessingStrategy.SUMMARIZE, ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.INCLUDE_FULL)
"""A summary with extracts beside it is told as a summary, an extract beside a pointer as an extract."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which messages of a conversation are forwarded, which artifacts stand in full in blocks, new or earlier, and what
    was decided before for those that stand in the window: by message and artifact, or in blocks by artifact alone.
    `passed`: the window began with a pass, which left out what is older; `decided_on` names what it decided on of what
    stands in no message. `keeps_block`: a pass left the block of the turn under way as it was (guarantee §4 I6), and
    `in_kept_block` stands there in full.
    """

    indexes: frozenset[int]
    in_block: frozenset[str]
    in_earlier_blocks: frozenset[str]
    decisions: Mapping[tuple[int | None, str], FrozenDecision]
    passed: bool = False
    decided_on: frozenset[str] = frozenset()
    keeps_block: bool = False
    in_kept_block: frozenset[str] = frozenset()

    @classmethod
    def of(cls, material: Material, fitted: Fitted | Unreduced) -> "Window":
        indexes = frozenset(fitted.forwarded.indexes)
        earlier = frozenset(name for i in indexes if i >= 0 for name in material.messages[i].standing)
        frame = None if fitted.anew else material.frame
        keeps_block = fitted.anew and fitted.selection.keeps_block and material.current in indexes
        return cls(
            indexes,
            frozenset(fitted.forwarded.shown_in_full),
            earlier,
            _decisions(material, fitted, indexes),
            passed=frame is not None,
            decided_on=frame.decided if frame is not None else frozenset(),
            keeps_block=keeps_block,
            in_kept_block=frozenset(material.messages[material.current].standing if keeps_block else ()),
        )

    def decided(self, artifact: Artifact) -> FrozenDecision | None:
        """What earlier requests decided, where that still stands: in its message and beside it in blocks."""
        name = artifact.content_id
        beside = self.decisions.get((None, name))
        if artifact.place.message is None or artifact.place.message not in self.indexes:
            return beside
        own = self.decisions.get((artifact.place.message, name))
        return together(own, beside) if own is not None and beside is not None else own

    def kept(self, artifact: Artifact) -> FrozenDecision | None:
        """What the block that a pass left as it was shows of it, whatever the pass decided besides."""
        return self.decisions.get((None, artifact.content_id)) if self.keeps_block else None

    def is_kept_in_full(self, artifact: Artifact) -> bool:
        """Whether that block is where it stands, in full."""
        index = artifact.place.message
        return artifact.block_name in self.in_kept_block and (index is None or index not in self.indexes)

    def is_left_out(self, artifact: Artifact, stored: int) -> bool:
        """Whether the pass with which the window began decided to show nothing of it, and nothing does.

        Args:
            stored: so many messages are of earlier requests.
        """
        index = artifact.place.message
        if index is not None:
            return self.passed and index < stored and index not in self.indexes
        return artifact.block_name in self.decided_on and self.is_gone(artifact)

    def is_gone(self, artifact: Artifact) -> bool:
        """Whether nothing of it stands in the window."""
        if artifact.place.message is not None:
            return artifact.place.message not in self.indexes
        return artifact.block_name not in self.in_block | self.in_earlier_blocks


def _decisions(
    material: Material, fitted: Fitted | Unreduced, indexes: frozenset[int]
) -> Mapping[tuple[int | None, str], FrozenDecision]:
    if material.frame is None:
        return {}
    if fitted.anew:  # but for the block of the turn under way, if that was kept
        indexes = indexes & {material.current} if fitted.selection.keeps_block else frozenset()
    found: dict[tuple[int | None, str], FrozenDecision] = {}
    placed = {(artifact.place.message, artifact.content_id) for artifact in material.placed}
    for index in sorted(i for i in indexes if i >= 0):
        for each in material.frame.decisions.get(material.messages[index].message_id or "", ()):
            place = index if (index, each.artifact_id) in placed else None
            before = found.get((place, each.artifact_id))
            found[place, each.artifact_id] = each if before is None else together(before, each)
    return found


def together(one: FrozenDecision, other: FrozenDecision) -> FrozenDecision:
    """What stands of the same artifact in two places: no block repeats what the window holds (guarantee §4 I6)."""
    strategies = {one.strategy, other.strategy}
    strongest = next((each.value for each in STRONGEST if each.value in strategies), one.strategy)
    return FrozenDecision(one.artifact_id, strongest, one.shown_chars + other.shown_chars)


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


# The facts of a request that `should_use_llm_planning()` looks at (guarantee §5).


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
    leave, nothing does (guarantee §4 I7)."""
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
    return artifact.block_name in window.in_earlier_blocks or window.decided(artifact) is not None


def _is_out(artifact: Artifact, window: Window) -> bool:
    """Whether nothing but a block of the current message could show it."""
    index = artifact.place.message
    return index is None or index not in window.indexes


def _is_later_step(material: Material, stored: int) -> bool:
    """Whether the turn under way has been forwarded before. What its block shows of what stands in no message of the
    window was fixed then (guarantee §4 I6): no plan can change it, and nobody is paid for one."""
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
