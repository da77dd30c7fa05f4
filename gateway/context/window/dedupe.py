"""A document that came more than once stands once in a window (guarantee §14.6).

The first that stands in it in full carries the text; later files say so, and attachments stay out of the block. Each
selection is looked at anew, so that another carries the text once the first has left.
"""

from dataclasses import replace

from gateway.core.types.artifacts import Artifact, ProcessingStrategy
from gateway.core.types.repeats import RepeatedDocument
from gateway.core.types.window import ArtifactRendering, WindowInputs, WindowSelection

MIN_CHARS = 200
"""A shorter document is hardly longer than the words that say where it stands."""
OF_A_PIN = "that of a pinned message"


def once(material: WindowInputs, selection: WindowSelection) -> WindowSelection:
    """The selection in which each document stands once in full. What earlier requests forwarded stays as it was."""
    window = _DedupedWindow(material, selection)
    for document in material.repeats.documents:
        window.show_once(document)
    return replace(selection, renderings=window.renderings, same=frozenset(window.same))


class _DedupedWindow:
    def __init__(self, material: WindowInputs, selection: WindowSelection) -> None:
        self._material, self._selection = material, selection
        self.renderings, self.same = dict(selection.renderings), set(selection.same)

    def show_once(self, document: RepeatedDocument) -> None:
        """Decides on one document. A block may show it by the id that a file has, too, so that ids tell no carrier."""
        here = [file for file in document.files if self._selection.has(file.place.message)]
        in_block = self._is_in_kept_block(document.content_id)
        carrier = self._pinned(document) or next((f.artifact_id for f in here if self._stays_in_full(f)), None)
        if carrier is None and in_block:
            carrier = document.attached.artifact_id if document.attached is not None else document.content_id
        full = [file for file in here if self._shown(file) is ProcessingStrategy.INCLUDE_FULL]
        if carrier is None and full:
            carrier = full.pop(0).artifact_id
        waiting = [file for file in here if self._shown(file) is None and self._material.repeats.said_same(file)]
        named_alone = [file for file in here if self._shown(file) is ProcessingStrategy.EXCLUDE]
        if carrier is not None:
            self._say_same([*full, *named_alone], carrier)
        else:  # a message that keeps its block keeps what it says of its own files, too
            parts = [file for file in here if self._stays_as_text(file)]
            said = [file for file in named_alone if self._material.repeats.said_same(file)]
            if parts:
                self._say_same(said, parts[0].artifact_id)
        if waiting and carrier is None and not self._is_told_elsewhere(here, waiting, document.attached):
            file = waiting.pop(0)  # that which carried the text was deleted
            carrier = file.artifact_id
            self.renderings[carrier] = ArtifactRendering(file, ProcessingStrategy.INCLUDE_FULL, file.content)
        self.same.update(file.artifact_id for file in waiting)
        if document.attached is not None and not in_block:
            is_native = any(map(self._selection.has, document.natives))
            self._hide(document.attached, carries=carrier is not None or is_native, is_here=bool(here))

    def _hide(self, attached: Artifact, *, carries: bool, is_here: bool) -> None:
        """Leaves an attachment out of the block where its document stands in a message: in full, as a PDF, or, if it is
        not new, as an earlier request left it."""
        name = attached.artifact_id
        if attached.pinned or name in self._selection.quoted:
            return
        is_named_alone = self._shown(attached) is ProcessingStrategy.EXCLUDE
        if carries or (is_here and (attached.historical or is_named_alone)):
            self.renderings.pop(name, None)
            self.same.add(name)

    def _is_kept(self, index: int) -> bool:
        """Whether the message stays in the form in which it was forwarded."""
        if self._material.messages[index].rendered is None:
            return False
        return self._selection.frozen or (self._selection.keeps_block and index == self._material.current)

    def _say_same(self, files: list[Artifact], carrier: str) -> None:
        for file in files:
            name = file.artifact_id
            can_change = not (file.pinned or len(file.content) <= MIN_CHARS or self._stays_in_full(file))
            if can_change and not self.renderings[name].same_as:
                self.renderings[name] = ArtifactRendering(file, ProcessingStrategy.EXCLUDE, same_as=carrier)
                self.same.add(name)

    def _shown(self, file: Artifact) -> ProcessingStrategy | None:
        """How it is shown in its message; None if as it was forwarded. What is quoted of it stands in the block."""
        rendering = self.renderings.get(file.artifact_id)
        return rendering.strategy if rendering and file.artifact_id not in self._selection.quoted else None

    def _stays_in_full(self, file: Artifact) -> bool:
        """Whether its message stays as it was forwarded, with all of its text."""
        shown = self._shown(file)
        is_full = shown is ProcessingStrategy.INCLUDE_FULL or (
            shown is None and not self._material.stands_reduced(file)
        )
        return is_full and self._stays_as_text(file)

    def _stays_as_text(self, file: Artifact) -> bool:
        """Whether its message stays as it was forwarded, with its text, or a part of it."""
        return self._is_kept(file.place.message or 0) and self._material.repeats.was_text(file)

    def _pinned(self, document: RepeatedDocument) -> str | None:
        """What any window has in full, in its message or in the memory message."""
        pinned = [file for file in document.files if file.pinned]
        inside = next((file.artifact_id for file in pinned if self._selection.has(file.place.message)), None)
        return inside or (OF_A_PIN if pinned or document.is_kept else None)

    def _is_in_kept_block(self, name: str) -> bool:
        """Whether a block that stays shows the document in full, attached or recalled."""
        messages = self._material.messages
        return any(
            name in message.shown_in_full and self._selection.has(index) and self._is_kept(index)
            for index, message in enumerate(messages)
        )

    def _is_told_elsewhere(self, here: list[Artifact], waiting: list[Artifact], attached: Artifact | None) -> bool:
        """Whether a part of it stands in another message, as an earlier request decided."""
        if len(here) > len(waiting):
            return True
        if attached is None or self._material.frame is None:
            return False
        decisions = self._material.frame.decisions
        return any(
            each.artifact_id == attached.content_id
            for index, message in enumerate(self._material.messages)
            if self._selection.has(index) and self._is_kept(index)
            for each in decisions.get(message.message_id or "", ())
        )
