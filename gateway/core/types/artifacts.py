"""Artifacts: tool results and documents of any size that may enter a context, and the decisions for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.core.frozen_records import record

NO_DOCUMENTS: Mapping[int, str] = MappingProxyType({})
MAX_LABEL = 10_000
"""Characters of a title or a source, which are stored with the attachment."""


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
    SHAPE = "shape"
    """A new tool result in a shorter form; nothing of it is missing in the window (guarantee §4 I8)."""


PLANNED_STRATEGIES = tuple(each for each in ProcessingStrategy if each is not ProcessingStrategy.SHAPE)
"""Strategies that a plan may name."""
UNCHANGED = "Unchanged"
"""First word, after the bracket, of a line in a shaped result that replaces others."""


class ContextGoal(StrEnum):
    """What the answer is for; `reasoning` when the request has tools (guarantee §2)."""

    REASONING = "reasoning"
    SYNTHESIS = "synthesis"


FilePlace = tuple[int, int]
"""Indexes of a message and of a part of its content."""
LAST_EARLIER = -2
"""Index of the last message before those that can be forwarded."""


@record
class ArtifactPosition:
    """Where an artifact is in the conversation.

    Attributes:
        message: index of its message; None if it is in none, so that only the block of guarantee §4 I6 can show it.
        part: index of its part, if the message's content is a list.
        span: start and end of its characters, if it is a piece of a text.
    """

    message: int | None = None
    part: int | None = None
    span: tuple[int, int] | None = None


IN_NONE = ArtifactPosition()
"""The position of an artifact that is in no message."""


def cache_group(tenant: str, digest: str) -> str:
    """Returns the cache group of everything derived from a tenant's content (texts, summaries), by its digest."""
    return f"{tenant}:{digest}"


DEFAULT_KIND = "document"
"""The `attachment_type` of an attachment that names none."""
WORKFLOW_SPEC = "workflow_spec"
"""The `attachment_type` of the workflow that a request of the classic API is about (guarantee §11.10)."""


LARGE = "large_document"
"""Key in an artifact's metadata: the digest of the large document that holds its text (guarantee §14.7)."""
UNINDEXED = "unindexed"
"""Key in an artifact's metadata: the index of its large document is not finished."""


@record
class ToolCall:
    """The call behind a tool result that is shown as text: the result's stored `message_id`, the call's arguments."""

    message_id: str
    arguments: str


@dataclass(slots=True)  # frozen, each would take four times as long to create, and each message has one
class Artifact:
    """One tool result or document.

    Attributes:
        content: its text, possibly compacted; `size_chars` is the length of the original.
        historical: it belongs to an earlier turn.
        label: the source as models read it, if `source` changes from turn to turn (guarantee §4 I7).
        call: set for a tool result that is shown as text in the block, without its message (guarantee §3.3).
        arguments: the arguments with which a tool was called, as written.
        pinned: its message is pinned, so that every window contains it in full (guarantee §11.12).
        documents: texts of the parts of a tool result that are documents, by part number; `content` has them, too.
    """

    artifact_id: str
    artifact_type: ArtifactType
    content: str
    size_chars: int
    source: str
    timestamp: datetime | None = None
    title: str | None = None
    historical: bool = False
    place: ArtifactPosition = IN_NONE
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    call: ToolCall | None = None
    arguments: str = ""
    pinned: bool = False
    documents: Mapping[int, str] = field(default_factory=dict)

    @property
    def block_name(self) -> str:
        """Its name in lists of what a block shows: a tool result's message id, since two results may be equal; an
        attachment's content id, whatever artifact of the same content comes later."""
        return self.call.message_id if self.call else self.content_id

    @property
    def content_id(self) -> str:
        """Its id without the number that marks repeats of the same content."""
        return self.artifact_id.partition("-")[0]

    @property
    def is_file(self) -> bool:
        """Whether it is a file inside a message, a whole part of which is shown as text."""
        return self.place.part is not None and self.place.span is None

    @property
    def becomes_text(self) -> bool:
        """Whether its message holds a file whose text the model gets."""
        return self.is_file or bool(self.documents)

    @property
    def is_excerpt(self) -> bool:
        """Whether its content is only the parts of a large document that a question needs."""
        return LARGE in self.metadata

    @property
    def excerpt_of(self) -> str:
        """The digest of the large document of which it is an excerpt; "" if it is none."""
        return str(self.metadata.get(LARGE, ""))

    @property
    def origin(self) -> str | None:
        """The source named by the client that attached it; it is a label and is never fetched."""
        return self.metadata.get("label")

    @property
    def kind(self) -> str | None:
        """The type named by the client that attached it; None for a mere document."""
        kind = self.metadata.get("attachment_type")
        return kind if kind != DEFAULT_KIND else None

    @property
    def search_label(self) -> str:
        """Its title and its tool call's arguments: words that a question may use and its text may lack."""
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


MAX_QUERIES = 4
"""Most queries of a plan that are searched for beside the question (guarantee §5)."""


class ArtifactPlan(BaseModel):
    """Decisions for all artifacts of a request, by priority, and why."""

    model_config = ConfigDict(frozen=True)

    artifacts: tuple[ArtifactDecision, ...] = ()
    search_queries: tuple[str, ...] = ()
    reasoning: str = ""
    prompt: str = ""
    """The planner's prompt. It is content, and stored with the plan; the API never returns it."""


FILE_ID = re.compile(r"file-[\w-]{1,100}|file_[A-Za-z0-9]{16,100}", re.ASCII)
"""The form of file ids: ours and OpenAI's, and Anthropic's."""


class RequestAttachment(BaseModel):
    """A document or data sent with a request (guarantee §2); a string is its content, or the id of a file if it looks
    like one. `source` is a label and is never fetched.

    One of `content`, `attachment_id`, `file_id` (the same) and `file_data` (base64, or a data URL) says what it is.
    Once it is read, `content` is its text, and `file_id` stays where the file is one of the gateway's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    attachment_id: str | None = None
    file_id: str | None = None
    content: str | None = None
    file_data: str | None = None
    filename: str | None = None
    title: str | None = Field(default=None, max_length=MAX_LABEL)
    source: str | None = Field(default=None, max_length=MAX_LABEL)
    attachment_type: str = DEFAULT_KIND

    @model_validator(mode="before")
    @classmethod
    def _of_string(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return {"file_id": value.strip()} if FILE_ID.fullmatch(value.strip()) else {"content": value}
