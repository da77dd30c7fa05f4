"""What a tenant's own past is looked up for, and what of it is found (guarantee §10.12)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.entities import MemoryEntity
from gateway.core.types.report_lists import ConversationLine


@dataclass(frozen=True, slots=True)
class ConversationTexts:
    """What was read of a conversation: messages of its current branch, oldest first, and attached documents.

    Attributes:
        size: bytes of the messages and characters of the documents, together.
        complete: nothing was left unread because of its size.
    """

    messages: tuple[ConversationMessage, ...]
    documents: tuple[Artifact, ...]
    size: int
    complete: bool


@dataclass(frozen=True, slots=True)
class PastExcerpt:
    """A passage that a search found.

    Attributes:
        speaker: the role of whoever said it, an agent's name, or `tool` or `document`.
        artifact_id: of the tool result or document that it is in; None of what was said.
        title: the tool's name or the document's title.
    """

    speaker: str
    text: str
    artifact_id: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class FoundConversation:
    """A conversation with the passages that bear on the query, the best first."""

    line: ConversationLine
    excerpts: tuple[PastExcerpt, ...]


@dataclass(frozen=True, slots=True)
class FoundPast:
    """The conversations that bear on a query, the best first, and the things that it names.

    Attributes:
        searched: how many conversations were read, and `size` of what.
        complete: there was no more to read.
    """

    conversations: Sequence[FoundConversation]
    things: Sequence[MemoryEntity]
    searched: int
    size: int
    complete: bool


@dataclass(frozen=True, slots=True)
class ArtifactExtract:
    """What is shown of an artifact: characters `start` to `end` of it, or with `passages` those that a question calls
    for; where neither leaves anything out, all of it."""

    artifact: Artifact
    conversation_id: str
    text: str
    start: int
    end: int
    passages: bool

    @property
    def complete(self) -> bool:
        """Whether it is the artifact as it is."""
        return not self.passages and self.start == 0 and self.end == self.of

    @property
    def of(self) -> int:
        """Characters that it has."""
        return self.artifact.size_chars if self.artifact.is_excerpt else len(self.artifact.content)
