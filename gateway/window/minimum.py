"""What must be there when not everything fits: the current message and what stands with it (guarantee §4 I2, I5)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from gateway.errors import ContextLengthExceeded
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.window import Material, Rendering, Selection
from gateway.window.budget import Limits, Tools, in_full
from gateway.window.candidates import TranscriptMessage, Turn, of_each_content, run_of_turns, tool_steps
from gateway.window.counting import PromptCounter
from gateway.window.greedy import BLOCK_TOKENS, CHARS_PER_TOKEN, LABEL_TOKENS

# What stretches of messages take in a window, with their artifacts as pointers.


class TokenCosts:
    """Tokens of messages of one conversation; `placed` are its artifacts by the message that they stand in."""

    def __init__(self, material: Material, counting: PromptCounter, tools: Tools) -> None:
        self._material, self._counting, self._tools = material, counting, tools
        by_message: dict[int, list[Artifact]] = defaultdict(list)
        for artifact in material.placed:
            by_message[artifact.place.message or 0].append(artifact)
        self.placed: Mapping[int, Sequence[Artifact]] = dict(by_message)

    def of(self, stretch: Turn, left_out: frozenset[int], pointers: dict[str, Rendering]) -> int:
        """What a stretch of messages takes without those that are left out. System messages stand in any window."""
        messages = self._material.messages
        inside = (at for at in range(stretch.start, stretch.end) if at not in left_out)
        return sum(self._at(at, pointers) for at in inside if messages[at].role not in INSTRUCTION_ROLES)

    def fixed(self, left_out: frozenset[int], pointers: dict[str, Rendering]) -> Callable[[Turn], int]:
        """The same once it is decided what leaves and how artifacts are shown: each turn is counted once."""

        @cache
        def price(turn: Turn) -> int:
            return self.of(turn, left_out, pointers)

        return price

    def _at(self, index: int, pointers: dict[str, Rendering]) -> int:
        message, artifacts = self._material.messages[index], self.placed.get(index)
        if artifacts is None:
            return self._counting.message(message.body)
        here = tuple(replace(a, place=replace(a.place, message=0)) for a in artifacts)
        alone = Material(instructions=(), messages=(message,), current=-1, placed=here)
        forwarded = self._tools.assemble(alone, Selection(renderings=pointers, frozen=False))
        return sum(map(self._counting.message, forwarded.messages))


# Who has which part of the room above the floor (guarantee §4 I5; the heuristic of §5).


LITTLE_HELD, MOST_TURNS = 0.6, 0.9
"""Up to that part of everything that the room holds, turns have their share of it alone; where it holds nearly all,
they have most of it."""
BEST, BEST_SHARE = 3, 0.3
"""How many passages, the best, come before any turn, and the part of the room that they may take."""
KEPT_SHARE = 0.08
"""Part of the room for what a user asked to be kept to, and for how the conversation began."""
ROOMY = 1000
"""Room in which labels are no great matter."""
OLD_SHARE = 0.15
"""Part of the room that has to be left for what is old, so that only that is reduced."""
LATEST_SHARE = 0.4
"""Part of the room for the results of the latest tool step, which the model has not seen yet."""


def share_of_turns(share: float, room: float, material: Material, told: Iterable[TranscriptMessage]) -> float:
    """The part of the room for turns as they were: `share`, and the more the less has to be left out, since whatever
    is torn out of them is understood less well.

    Args:
        room: in tokens.
        told: all that may be quoted of messages.
    """
    if room < ROOMY and not material.artifacts:
        return 1.0  # labels would take more of it than they leave
    chars = sum(a.size_chars for a in material.searched) + sum(len(each.text) for each in told)
    held = min(1.0, room * CHARS_PER_TOKEN / max(1, chars))
    grown = max(0.0, (held - LITTLE_HELD) / (1 - LITTLE_HELD))
    return share + (MOST_TURNS - share) * grown if share < MOST_TURNS else share


def kept_tokens(room: float) -> float:
    """Tokens for what a user asked to be kept to."""
    kept = room * KEPT_SHARE
    if room >= ROOMY:
        kept += BLOCK_TOKENS + LABEL_TOKENS  # a block for them alone, if need be
    return kept


MOST_NAMED = 20
"""How many attached documents of which nothing is shown are still named."""


class Minimum:
    """The least that is forwarded: which messages have left (`left_out`), and how each artifact is shown of which
    nothing else is taken (`pointers`). `keeps_block`: the block that begins the turn under way stays as it was;
    `block_fixed`: it, or that there is none; `spares_current`: what is of that turn stands in full."""

    def __init__(
        self, material: Material, limits: Limits, counting: PromptCounter, tools: Tools, prices: TokenCosts
    ) -> None:
        self._material, self._counting, self._tools, self._prices = material, counting, tools, prices
        self._budget, self._target, self._filled = limits.tokens or 0, limits.aim, limits.filled or 0
        self.left_out = material.left
        self.keeps_block, self.block_fixed = material.has_block, material.is_block_fixed
        self.spares_current = False
        self.pointers = self._pointers()

    def laid(self, *, may_spare: bool) -> tuple[Selection, int]:
        """The floor, and its tokens. Once this is known, nothing of it changes.

        Args:
            may_spare: the turn under way may stand in full if what is old is enough to be reduced.

        Raises:
            ContextLengthExceeded: not even that fits.
        """
        floor, tokens = self._reached()
        if may_spare and self._spare_current():
            floor = self._least(self._material.current, self.pointers)
            tokens = self._counting.total(self._tools.assemble(self._material, floor))
        return floor, tokens

    def aim(self, tokens: int) -> int:
        """Tokens up to which it is filled above a floor of so many: where the block stays that fills a turn's first
        step, the results of its latest one may take what is else left free for later."""
        steps = tool_steps(self._material)
        wanted = int(self._wanted(steps[-1])) if self.keeps_block and steps else 0
        return max(self._target, tokens, min(self._filled, tokens + wanted))

    def _reached(self) -> tuple[Selection, int]:
        """System messages, the current message, and its tool steps as pointers; the oldest steps leave if they must."""
        steps = tool_steps(self._material)
        while True:
            selection = self._least(self._material.current, self.pointers)
            tokens = self._counting.total(self._tools.assemble(self._material, selection))
            most = self._target - self._wanted(steps[-1]) if len(steps) > 1 else self._budget
            if tokens <= most:
                return selection, tokens
            attached = {a.artifact_id for a in self._material.attached}
            if attached & self.pointers.keys():  # saying that they were left out is less than what has to be there
                self.pointers = {key: value for key, value in self.pointers.items() if key not in attached}
            elif len(steps) > 1:
                self._leave_out(steps, tokens - most)
            elif self.keeps_block:  # it cannot stay as it was fixed
                self.keeps_block = self.block_fixed = False
                self.left_out, steps = self._material.left, tool_steps(self._material)
                self.pointers = self._pointers()
            else:
                text = f"The current message and what must stand with it take {tokens} tokens"
                raise ContextLengthExceeded(f"{text}; the budget is {self._budget}.", param="messages")

    def _least(self, first: int, pointers: dict[str, Rendering]) -> Selection:
        left = frozenset(index for index in self.left_out if index >= first)
        return Selection(first, left, pointers, frozen=False, keeps_block=self.keeps_block)

    def _spare_current(self) -> bool:
        """Where reducing what is old is enough, what is of the turn under way stands in full, and no turn leaves (I5).
        That is so if it leaves a share of the room for the best of what is old."""
        here = self._material.current
        new = [a for a in (*self._material.attached, *self._material.placed) if not a.historical]
        shown = [a for a in of_each_content(new, here) if self._is_reduced(a)]
        others_old = any(a.historical for a in self._material.searched)
        if not (shown and others_old) or any(index >= here for index in self.left_out):
            return False
        pointers = self.pointers | {a.artifact_id: in_full(a, a.content) for a in shown}
        turns = run_of_turns(self._material)
        first = turns[0].start if turns else here
        forwarded = self._tools.assemble(self._material, self._least(first, pointers))
        if self._counting.fits(forwarded, int(self._target * (1 - OLD_SHARE))):
            self.pointers, self.spares_current = pointers, True
        return self.spares_current

    def _is_reduced(self, artifact: Artifact) -> bool:
        pointer = self.pointers.get(artifact.artifact_id)
        if pointer is None:  # one of too many to be named, or what stands in a block that is fixed
            return not (self.keeps_block or self.block_fixed)
        return pointer.strategy is ProcessingStrategy.EXCLUDE

    def _wanted(self, step: Turn) -> float:
        """Tokens to be kept for the results of the latest step while older steps can leave."""
        chars = sum(len(a.content) for at in range(step.start, step.end) for a in self._prices.placed.get(at, ()))
        return min(chars / CHARS_PER_TOKEN, self._target * LATEST_SHARE)

    def _leave_out(self, steps: list[Turn], excess: float) -> None:
        """Takes steps out of `steps`, oldest first, until `excess` tokens have left; the last one stays."""
        leaving: list[int] = []
        for step in steps[:-1]:
            if excess <= 0:
                break
            leaving.extend(range(step.start, step.end))
            excess -= self._prices.of(step, self.left_out, self.pointers)
        self.left_out |= frozenset(leaving)
        del steps[: sum(step.start in self.left_out for step in steps)]

    def _pointers(self) -> dict[str, Rendering]:
        """How artifacts are shown at least: those in messages, and attached ones where a block is written."""
        placed, attached = self._material.placed, [a for a in self._material.attached if not a.historical][:MOST_NAMED]
        if self.keeps_block:
            placed = tuple(a for a in placed if a.place.message != self._material.current)
        if self.block_fixed:
            attached = []
        return {a.artifact_id: _pointer(a) for a in (*placed, *attached)}


def _pointer(artifact: Artifact) -> Rendering:
    """What an artifact is reduced to at least; one that is no longer than its label stays as it is."""
    if len(artifact.content) <= 2 * LABEL_TOKENS and artifact.place.message is not None:
        return in_full(artifact, artifact.content)
    return Rendering(artifact, ProcessingStrategy.EXCLUDE)
