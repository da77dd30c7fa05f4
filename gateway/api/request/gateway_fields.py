"""The gateway's own fields of a chat: `context`, how it is made (guarantee §2), and `agent`, who answers (§11.1)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter

from gateway.api.fields import RequestFields, SessionName, read
from gateway.core import errors
from gateway.core.types import agents, bill, recall
from gateway.core.types.recall import Recall

MAX_TOOL_PATTERNS = 100
Mode = Literal["auto", "simple", "off"]
Planning = Literal["auto", "always", "never"]
MemoryMode = Literal["extracts", "summary", "both"]
ToolPatterns = Annotated[
    list[Annotated[str, Field(strict=True, min_length=1, max_length=200)]], Field(max_length=MAX_TOOL_PATTERNS)
]
Tokens = Annotated[int, Field(strict=True, ge=1, le=2**31)]
MAX_NAME_CHARS = 128
MAX_WINDOW = 1000


def _a_switch(value: Any) -> Any:
    """Validates a truth value: `Literal` would take 1 for true."""
    if not isinstance(value, bool) and value != recall.AUTO:
        raise ValueError("be 'auto', true or false")
    return value


RecallField = Annotated[Recall, BeforeValidator(_a_switch)]


class ModelsField(RequestFields):
    """`context.models`: internal models out of `model_list`; without one, those of the primary model's upstream."""

    model_config = ConfigDict(extra="forbid")

    context_planner: str | None = None
    summarizer: str | None = None


class ContextField(RequestFields):
    """`context`: how this request's context is made."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode | None = None
    planning: Planning | None = None
    goal: Literal["reasoning", "synthesis"] | None = None
    max_input_tokens: Tokens | None = None
    models: ModelsField | None = None
    session: SessionName | None = None
    dry_run: bool | None = None
    memory: MemoryMode | None = None
    recall: RecallField | None = None
    economy: bill.EconomyMode | None = None
    untouched_tools: ToolPatterns | None = None
    cite: bool | None = None
    profile: Literal["general", "creation", "search", "modification", "analysis", "off"] | None = None


def is_name(text: str) -> bool:
    """Returns whether the text can be the name of an agent."""
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and not text.isspace()


def _a_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"be 1 to {MAX_NAME_CHARS} printable characters")
    return text


Name = Annotated[str, AfterValidator(_a_name)]


class AgentField(RequestFields):
    """`agent`: who answers. A name alone means type `chat`."""

    model_config = ConfigDict(extra="forbid")

    id: Name
    type: Name = agents.CHAT
    instruction: str | None = None
    instruction_file_text: str | None = None
    window: Annotated[int, Field(ge=0, le=MAX_WINDOW)] | None = None
    prefill: bool | None = None


NAME, AGENT = TypeAdapter(Name), TypeAdapter(AgentField)


def agent_of(value: Any) -> agents.RequestAgent | None:
    """Parses `agent`; None for null. Raises InvalidRequest: it breaks a rule; `param` names the field."""
    if value is None:
        return None
    if isinstance(value, str):
        return agents.RequestAgent(read(NAME, value, "agent"))
    if not isinstance(value, dict):
        raise errors.invalid("agent", "must be a name or an object")
    fields = read(AGENT, value, "agent")
    if fields.window is not None and fields.type == agents.CHAT:
        raise errors.invalid("agent.window", f"is for agents of another type than {agents.CHAT}")
    if fields.prefill is False and fields.type == agents.CHAT:
        raise errors.invalid("agent.prefill", f"can be false for agents of another type than {agents.CHAT}")
    texts = (fields.instruction, fields.instruction_file_text)
    return agents.RequestAgent(fields.id, fields.type, *texts, fields.window, bool(fields.prefill))
