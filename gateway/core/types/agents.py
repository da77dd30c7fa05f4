"""Agents that share a conversation: who speaks, and what an agent is given to read (guarantee §11.1 to §11.5); requests
to internal models and their answers (guarantee §5)."""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.core.frozen_records import record
from gateway.core.types.bill import Purpose

CHAT = "chat"
"""The type whose messages stay as they are: nothing is assembled for it."""
PLAIN = "plain"
"""The type used in place of an unknown one."""
ECHOING_TYPES = frozenset({"google-gemini"})
"""Types whose answers may hold the question, as messages of the role `user`."""
MAX_TEAM_TASK_BYTES = 5 * 1024
PERSON, ASSISTANT = "user", "assistant"
"""Speakers of messages that name none."""


@record
class RequestAgent:
    """The agent that answers a request.

    `agent_type` selects the assembler. `instruction` and `instruction_file_text` are its own, and are not stored.
    `window`: how many messages before the current one it gets; None: the configured number. `prefill`: if it reads
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
        """Whether an assembler renders its prompt."""
        return self.agent_type != CHAT

    @property
    def changes_messages(self) -> bool:
        """Whether its prompt differs from the messages as they are."""
        return self.is_assembled or bool(self.instruction or self.instruction_file_text)

    @property
    def echoes(self) -> bool:
        """Whether its answers may contain its question."""
        return self.agent_type in ECHOING_TYPES

    def as_json(self) -> dict[str, str]:
        """Returns the agent's id and type, as answers and bills name it."""
        return {"id": self.agent_id, "type": self.agent_type}


@record
class PromptContextMessage:
    """An earlier message as an agent reads it: without markers, with its speaker's name. A `pinned` one is not dropped
    when the budget is short."""

    speaker: str
    content: str
    message_id: str | None = None
    pinned: bool = False


@record
class AssemblerInput:
    """All that an assembler renders. Messages come without markers and repeats, the oldest first.

    `max_bytes`: of all sections together, in UTF-8. If they take more, the oldest context that is not pinned is
    dropped.
    """

    context_messages: tuple[PromptContextMessage, ...]
    current_message: str
    team_task: str | None
    system_instruction: str | None
    instruction_file_text: str | None
    max_bytes: int


@record
class AssemblerOutput:
    """`prompt` is the user message; `system_flag` the system message before it, if the type has one. `dropped`: how
    many of the oldest unpinned context messages did not fit."""

    prompt: str
    system_flag: str | None = None
    dropped: int = 0


class Assembler(Protocol):
    """Renders the prompt of agents of one type: a pure function, which third parties may add (docs/agents.md)."""

    def __call__(self, given: AssemblerInput, /) -> AssemblerOutput: ...


def cut_team_task(text: str) -> str:
    """Cuts a team task to `MAX_TEAM_TASK_BYTES` of UTF-8, at a character boundary."""
    return text.encode("utf-8", "surrogatepass")[:MAX_TEAM_TASK_BYTES].decode("utf-8", "ignore")


def system_body(given: AssemblerInput) -> str:
    """Joins the instruction and the text of its file by a blank line; empty if there is neither."""
    parts = [part.strip() for part in (given.system_instruction, given.instruction_file_text) if part]
    return "\n\n".join(part for part in parts if part)


def _is_text(answer: str) -> bool:
    return bool(answer.strip())


class InternalModelFailed(Exception):
    """An internal model gave no usable answer; the message is the `fallback_reason`."""


class OverBudget(InternalModelFailed):
    """The request's budget for internal calls is used up. Another request may make the same call."""


@record
class InternalAnswer:
    """An internal model's answer. `is_cut`: it ended early, at `max_tokens` or by a filter."""

    text: str
    is_cut: bool = False


@record
class InternalRequest:
    """One call of an internal model. `purpose` is `planner` or `summarizer`; `schema` is OpenAI's `json_schema` for
    answers that must follow one; `is_useful` decides whether an answer can be used, for the metrics."""

    purpose: Purpose
    messages: list[dict[str, Any]]
    max_tokens: int
    timeout_seconds: float
    schema: dict[str, Any] | None = None
    is_useful: Callable[[str], bool] = _is_text
