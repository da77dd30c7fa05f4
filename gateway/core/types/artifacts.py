"""Artifacts: tool results and documents of any size that may enter a context, and what is decided for them."""

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
    """A new tool result in a shorter form, of which nothing is missing in the window (guarantee §4 I8)."""


PLANNED_STRATEGIES = tuple(each for each in ProcessingStrategy if each is not ProcessingStrategy.SHAPE)
"""Those that a plan may name."""
UNCHANGED = "Unchanged"
"""How a line of a shaped result begins that stands for others, behind its bracket."""


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
        span: its characters, if it is a stretch of a text.
    """

    message: int | None = None
    part: int | None = None
    span: tuple[int, int] | None = None


IN_NONE = ArtifactPosition()
"""In no message."""


def cache_group(tenant: str, digest: str) -> str:
    """The cache group of what is derived from a tenant's content (texts, summaries), by the digest of that content."""
    return f"{tenant}:{digest}"


DEFAULT_KIND = "document"
"""The `attachment_type` of an attachment that names none."""
WORKFLOW_SPEC = "workflow_spec"
"""That of the workflow which a request of the classic API is about (guarantee §11.10)."""


LARGE = "large_document"
"""In an artifact's metadata: the digest of the large document that has its text (guarantee §14.7)."""
UNINDEXED = "unindexed"
"""In its metadata: the index of that document is not finished."""


@record
class ToolCall:
    """The call behind a tool result that is shown as text: the result's stored `message_id`, the call's arguments."""

    message_id: str
    arguments: str


@dataclass(slots=True)  # frozen it would be four times as dear to make, for each message
class Artifact:
    """One tool result or document.

    Attributes:
        content: its text, possibly compacted; `size_chars` is the length of the original.
        historical: it belongs to an earlier turn.
        label: the source as models read it, where `source` changes from turn to turn (guarantee §4 I7).
        call: set for a tool result that is shown as text in the block, without its message (guarantee §3.3).
        arguments: the arguments with which a tool was called, as written.
        pinned: its message is pinned, so that it is in any window in full (guarantee §11.12).
        documents: of a tool result, what its parts that are documents say, by their numbers; `content` has it, too.
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
        """Its name in lists of what a block shows: the result's message id, since two tool results may say the same; an
        attachment's content id, whatever else of the same content turns up later."""
        return self.call.message_id if self.call else self.content_id

    @property
    def content_id(self) -> str:
        """Its id without the number that is added to repeats of the same content."""
        return self.artifact_id.partition("-")[0]

    @property
    def is_file(self) -> bool:
        """Whether it is a file inside a message, of which a whole part is shown as text."""
        return self.place.part is not None and self.place.span is None

    @property
    def becomes_text(self) -> bool:
        """Whether its message holds a file of which the model gets the text."""
        return self.is_file or bool(self.documents)

    @property
    def is_excerpt(self) -> bool:
        """Whether its content is but the parts of a large document that a question needs."""
        return LARGE in self.metadata

    @property
    def excerpt_of(self) -> str:
        """The digest of that large document; "" if there is none."""
        return str(self.metadata.get(LARGE, ""))

    @property
    def origin(self) -> str | None:
        """Where the client that attached it says it is from; it is a label and is never fetched."""
        return self.metadata.get("label")

    @property
    def kind(self) -> str | None:
        """What the client that attached it says it is, if that is more than a document."""
        kind = self.metadata.get("attachment_type")
        return kind if kind != DEFAULT_KIND else None

    @property
    def search_label(self) -> str:
        """Its title and the arguments it was got with: words that a question may use and its text may lack."""
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
"""Queries of a plan that are searched for beside the question (guarantee §5)."""


class ArtifactPlan(BaseModel):
    """Decisions for all artifacts of a request, by priority, and why."""

    model_config = ConfigDict(frozen=True)

    artifacts: tuple[ArtifactDecision, ...] = ()
    search_queries: tuple[str, ...] = ()
    reasoning: str = ""
    prompt: str = ""
    """What the planner was asked. It is content, and stored with the plan; no answer of the API has it."""


FILE_ID = re.compile(r"file-[\w-]{1,100}|file_[A-Za-z0-9]{16,100}", re.ASCII)
"""How ids of files look: ours and OpenAI's, and Anthropic's."""


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
