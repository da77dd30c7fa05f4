"""What stands in the window in full already, so that no passage of it is needed."""

from collections import defaultdict

from gateway.fitting.candidates import Candidate
from gateway.fitting.floor import Floor
from gateway.fitting.transcript import Said
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.selection import Material


class Standing:
    """Asked once a floor is laid, for a window that begins at message `first`. Passages of what stands in it are held
    back until it leaves again."""

    def __init__(self, material: Material, floor: Floor) -> None:
        self._floor = floor
        self._held: list[Candidate] = []
        self._same: dict[str, list[Artifact]] = defaultdict(list)
        for artifact in material.placed:
            self._same[artifact.content_id].append(artifact)

    def has(self, candidate: Candidate, first: int) -> bool:
        """Whether it is in the window in full already: as a message, too small to be reduced, or by another artifact
        that says the same."""
        of = candidate.of
        if isinstance(of, Said):
            return self._is_inside(candidate.message, first)
        if of.place.message is None and self._is_full(of):
            return True
        twins = self._same.get(of.content_id, ())
        return any(self._is_inside(each.place.message, first) and self._is_full(each) for each in twins)

    def absent(self, found: list[Candidate], first: int) -> list[Candidate]:
        """Those that do not stand in the window in full: asked once of what they are passages of. The others are
        held."""
        each = {id(c.of): c for c in found}
        absent = {key for key, one in each.items() if not self.has(one, first)}
        self._held += [c for c in found if id(c.of) not in absent]
        return [c for c in found if id(c.of) in absent]

    def released(self, first: int) -> list[Candidate]:
        """Those that were held and are absent from a window that has become smaller."""
        held, self._held = self._held, []
        return self.absent(held, first)

    def _is_inside(self, index: int | None, first: int) -> bool:
        return index is not None and index >= first and index not in self._floor.left_out

    def _is_full(self, artifact: Artifact) -> bool:
        pointer = self._floor.pointers.get(artifact.artifact_id)
        return pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL
