"""Artifacts: any tool result or document, of any size, that may enter a context (contract, Terms)."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class ArtifactType(StrEnum):
    TOOL_RESULT = "tool_result"
    DOCUMENT = "document"
    CONVERSATION = "conversation"


class ProcessingStrategy(StrEnum):
    """What happens to an artifact on its way into the context (guarantee §5)."""

    INCLUDE_FULL = "include_full"
    SUMMARIZE = "summarize"
    RAG_EXTRACT = "rag_extract"
    EXCLUDE = "exclude"


class ContextGoal(StrEnum):
    """What the answer is for; `reasoning` when the request has tools (guarantee §2)."""

    REASONING = "reasoning"
    SYNTHESIS = "synthesis"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an artifact is in the conversation.

    `message` is an index into the conversation's messages; None: it is in none and can only enter through the block of
    guarantee §4 I6. `part` is an index into that message's content parts, `span` its characters in that text.
    """

    message: int | None = None
    part: int | None = None
    span: tuple[int, int] | None = None


def cache_group(tenant: str, digest: str) -> str:
    """The name under which a cache keeps all that was made of a tenant's content: texts, summaries, vectors."""
    return f"{tenant}:{digest}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call behind a tool result that is given to the model as text: the id of the stored result, and the call's
    arguments."""

    message_id: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """One tool result or document.

    `content` is its text, `size_chars` the length of that. `label` is the source as a model reads it, where it must not
    change from turn to turn (guarantee §4 I7). `call` belongs to a result that is given as text, without its message
    (guarantee §3.3). `arguments` are what a tool was called with, as written.
    """

    artifact_id: str
    artifact_type: ArtifactType
    content: str
    size_chars: int
    source: str
    timestamp: datetime | None = None
    title: str | None = None
    historical: bool = False
    place: Place = Place()
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    call: ToolCall | None = None
    arguments: str = ""

    @property
    def standing_name(self) -> str:
        """Its name in a block: the message's id for a tool result, as two may say the same, else `content_id`."""
        return self.call.message_id if self.call else self.content_id

    @property
    def content_id(self) -> str:
        """Its id without the number that distinguishes artifacts of the same content."""
        return self.artifact_id.partition("-")[0]

    @property
    def search_label(self) -> str:
        """Title and arguments: words that a question may use and the text may lack."""
        return " ".join(each for each in (self.title, self.arguments) if each)


class ArtifactDecision(BaseModel):
    """What was decided for one artifact."""

    model_config = ConfigDict(frozen=True)

    artifact_id: str
    strategy: ProcessingStrategy
    priority: int = 1
    relevance_rationale: str = ""
    summarization_focus: str | None = None
    extraction_query: str | None = None


class ArtifactPlan(BaseModel):
    """Decisions for all artifacts of a request, by priority, and why."""

    model_config = ConfigDict(frozen=True)

    artifacts: tuple[ArtifactDecision, ...] = ()
    search_queries: tuple[str, ...] = ()
    reasoning: str = ""


class RequestAttachment(BaseModel):
    """A document or data sent with a request (guarantee §2); `source` is a label and is never fetched."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    attachment_id: str | None = None
    content: str | None = None
    title: str | None = None
    source: str | None = None
    attachment_type: str = "document"
