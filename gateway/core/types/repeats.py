"""Documents that came more than once: as files of messages, attached, as PDFs that a model reads itself (guarantee
§14.6)."""

from dataclasses import dataclass

from gateway.core.types.artifacts import Artifact


@dataclass(frozen=True, slots=True)
class RepeatedDocument:
    """One document that came more than once.

    Attributes:
        files: those of messages that are shown as text, oldest first.
        attached: the attachment that it is, too; None where it is none.
        natives: indexes of the messages in which it goes up as the PDF that it is.
        is_kept: it is a file of a pinned message, too, that can only stand in the memory message.
    """

    content_id: str
    files: tuple[Artifact, ...]
    attached: Artifact | None = None
    natives: tuple[int, ...] = ()
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class RepeatedDocuments:
    """The repeated documents of a request, and how earlier requests forwarded their files, by message and part.

    Attributes:
        as_text: files of which the forwarded message has the text, or a part of it.
        as_same: files of which it says that the same document stands elsewhere.
    """

    documents: tuple[RepeatedDocument, ...] = ()
    as_text: frozenset[tuple[int, int]] = frozenset()
    as_same: frozenset[tuple[int, int]] = frozenset()

    def said_same(self, artifact: Artifact) -> bool:
        """Whether that was said of this file."""
        place = artifact.place
        return place.message is not None and place.part is not None and (place.message, place.part) in self.as_same

    def was_text(self, artifact: Artifact) -> bool:
        """Whether its text was forwarded."""
        place = artifact.place
        return place.message is not None and place.part is not None and (place.message, place.part) in self.as_text

    def natives_of(self, content_id: str) -> tuple[int, ...]:
        """The messages in which it goes up as the PDF that it is."""
        return next((each.natives for each in self.documents if each.content_id == content_id), ())


NO_REPEATS = RepeatedDocuments()
