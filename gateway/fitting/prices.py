"""What stretches of messages take in a window, with their artifacts as pointers."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from gateway.fitting.candidates import Turn
from gateway.fitting.count import Counting
from gateway.fitting.tools import Tools
from gateway.models.artifacts import Artifact
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.selection import Material, Rendering, Selection


class Prices:
    """Tokens of messages of one conversation; `placed` are its artifacts by the message that they stand in."""

    def __init__(self, material: Material, counting: Counting, tools: Tools) -> None:
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
