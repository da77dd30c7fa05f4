"""Agents that share a conversation: who speaks, and what an agent is given to read (guarantee §11.1 to §11.5); requests
to internal models and their answers (guarantee §5)."""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.core.frozen_records import record
from gateway.core.types.bill import Purpose

CHAT = "chat"
"""The type whose messages stay as they are: nothing is assembled for it."""
PLAIN = "plain"
"""The type that stands in for one that nobody knows."""
ECHOING_TYPES = frozenset({"google-gemini"})
"""Types whose answers may hold the question, as messages of the role `user`."""
MAX_TEAM_TASK_BYTES = 5 * 1024
PERSON, ASSISTANT = "user", "assistant"
"""Who spoke, where a message does not say."""


@record
class RequestAgent:
    """Who answers a request.

    `agent_type` chooses the assembler. `instruction` and `instruction_file_text` are its own, and are not stored.
    `window`: how many messages before the current one it gets; None: the configured number. `prefill`: where it reads
    sections, an assistant message at the end of a request is the beginning of its answer, not what it answers.
    """

    agent_id: str
    agent_type: str = CHAT
    instruction: str | None = None
    instruction_file_text: str | None = None
    window: int | None = None
    prefill: bool = False

    @property
    def is_assembled(self) -> bool:
        """Whether an assembler words what it reads."""
        return self.agent_type != CHAT

    @property
    def changes_messages(self) -> bool:
        """Whether it reads anything but the messages as they are."""
        return self.is_assembled or bool(self.instruction or self.instruction_file_text)

    @property
    def echoes(self) -> bool:
        """Whether its answers may hold its question."""
        return self.agent_type in ECHOING_TYPES

    def as_json(self) -> dict[str, str]:
        """As answers and bills name it."""
        return {"id": self.agent_id, "type": self.agent_type}


@record
class PromptContextMessage:
    """An earlier message as an agent reads it: without markers, with the name of who said it. One that is `pinned` is
    not dropped for lack of room."""

    speaker: str
    content: str
    message_id: str | None = None
    pinned: bool = False


@record
class AssemblerInput:
    """All that an assembler words. Messages have lost their markers and repeats already; the oldest comes first.

    `max_bytes`: of all sections together, in UTF-8. Where they take more, the oldest context that is not
    pinned leaves.
    """

    context_messages: tuple[PromptContextMessage, ...]
    current_message: str
    team_task: str | None
    system_instruction: str | None
    instruction_file_text: str | None
    max_bytes: int


@record
class AssemblerOutput:
    """`prompt` is the user message; `system_flag` the system message before it, where the type has one. `dropped`: how
    many of the oldest context messages, those pinned not among them, had no room."""

    prompt: str
    system_flag: str | None = None
    dropped: int = 0


class Assembler(Protocol):
    """Words what an agent of one type reads: a pure function, which third parties may add (docs/agents.md)."""

    def __call__(self, given: AssemblerInput, /) -> AssemblerOutput: ...


def cut_team_task(text: str) -> str:
    """As much of a team task as is kept: its longest beginning of whole characters within the limit."""
    return text.encode("utf-8", "surrogatepass")[:MAX_TEAM_TASK_BYTES].decode("utf-8", "ignore")


def system_body(given: AssemblerInput) -> str:
    """The instruction and the text of its file with a blank line between them; empty where there is neither."""
    parts = [part.strip() for part in (given.system_instruction, given.instruction_file_text) if part]
    return "\n\n".join(part for part in parts if part)


def _is_text(answer: str) -> bool:
    return bool(answer.strip())


class InternalModelFailed(Exception):
    """An internal model gave no answer that can be used; the message is the `fallback_reason`."""


class OverBudget(InternalModelFailed):
    """The request's budget for internal calls is used up. Another request may ask the model the same."""


@record
class InternalAnswer:
    """What an internal model answered. `is_cut`: it broke off before its end, at `max_tokens` or by a filter."""

    text: str
    is_cut: bool = False


@record
class InternalRequest:
    """One call of an internal model. `purpose` is `planner` or `summarizer`; `schema` is OpenAI's `json_schema` for
    answers that have to keep one; `is_useful` says whether an answer can be used, for the metrics."""

    purpose: Purpose
    messages: list[dict[str, Any]]
    max_tokens: int
    timeout_seconds: float
    schema: dict[str, Any] | None = None
    is_useful: Callable[[str], bool] = _is_text
