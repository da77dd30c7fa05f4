"""The body of a replay, and the chat requests that it consists of (guarantee §11.18)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from gateway.api.fields import RequestFields, read
from gateway.api.request.gateway_fields import ContextField, Name, is_name
from gateway.api.request.validation import ModelName, RequestArrival, parse_chat_request
from gateway.core import errors, ids, jsons, ports
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import past_turns
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import BranchPoint, ConversationRef
from gateway.pipeline import turn_replays

OF_THE_REPLAY = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "n", "store", "metadata"),
        *("conversation", "attachments", "context", "agent"),
    }
)
"""Fields of a chat request that a replay sets itself, or that belong beside `parameters`."""
WHEN_RESUMED = frozenset({"replay_id", "move_head", "tool_results"})
MAX_REPLAY_TURNS = 2**31 - 1
Number = Annotated[int, Field(ge=1, le=MAX_REPLAY_TURNS)]


class ReplayAgentField(RequestFields):
    """What is to be other of one agent."""

    model_config = ConfigDict(extra="forbid")

    type: Name | None = None
    instruction: str | None = None
    instruction_file_text: str | None = None
    window: Annotated[int, Field(ge=0)] | None = None


class ToolResultField(RequestFields):
    """A result of a call that nobody could answer here."""

    model_config = ConfigDict(extra="forbid")

    tool_call_id: str
    content: str


class ReplayField(RequestFields):
    """What is to be other than it was; or a replay to go on with."""

    model_config = ConfigDict(extra="forbid")

    replay_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    model: ModelName | None = None
    from_turn: Number | None = None
    to_turn: Number | None = None
    agents: dict[str, ReplayAgentField] | None = None
    parameters: dict[str, Any] | None = Field(None, description="Further fields of each request, such as `tools`.")
    context: ContextField | None = None
    dry_run: bool | None = None
    move_head: bool | None = Field(None, description="The branch becomes the current one when all is done.")
    tool_results: list[ToolResultField] | None = None


BODY = TypeAdapter(ReplayField)


def replay_field(body: Json) -> ReplayField:
    """Parses the body of a replay. Raises InvalidRequest: a field breaks its rule; `param` names it."""
    fields = read(BODY, body)
    if fields.replay_id is not None:
        for name in body.keys() - WHEN_RESUMED:
            raise errors.invalid(name, "is that of the replay's beginning; with replay_id it cannot be given")
        return fields
    if fields.tool_results is not None:
        raise errors.invalid("tool_results", "go on with a replay; they need a replay_id")
    for name in fields.parameters or ():
        if name in OF_THE_REPLAY:
            raise errors.invalid(f"parameters.{name}", "is set by the replay itself")
    for name in ("session", "dry_run"):
        if fields.context is not None and getattr(fields.context, name) is not None:
            raise errors.invalid(f"context.{name}", "cannot be given for a replay")
    for name in fields.agents or ():
        if not is_name(name):
            raise errors.invalid("agents", "must be named by 1 to 128 printable characters")
    return fields


def asked_for(fields: ReplayField) -> past_turns.ReplayChanges:
    agents = {name: agent.model_dump(exclude_none=True) for name, agent in (fields.agents or {}).items()}
    context = fields.context.model_dump(exclude_none=True) if fields.context is not None else {}
    return past_turns.ReplayChanges(fields.model, agents, fields.parameters or {}, context)


def turns_asked_for(fields: ReplayField, turns: Sequence[past_turns.PastTurn]) -> Sequence[past_turns.PastTurn]:
    """Returns the turns from `from_turn` to `to_turn`. Raises InvalidRequest: there are none (`param`: the field)."""
    count = len(turns)
    if not count:
        raise errors.invalid("from_turn", "must be a turn, and this conversation has none")
    first, last = fields.from_turn or 1, fields.to_turn or count
    if first > count:
        raise errors.invalid("from_turn", f"must be at most {count}, the last turn")
    if last > count:
        raise errors.invalid("to_turn", f"must be at most {count}, the last turn")
    if last < first:
        raise errors.invalid("to_turn", f"must be at least from_turn, which is {first}")
    return turns[first - 1 : last]


def check_turns(turns: Sequence[turn_replays.TurnToReplay], change: past_turns.ReplayChanges) -> None:
    """Raises InvalidRequest: the replay lacks something that the turns need; it names an agent that does not answer in
    them; nothing is left that the first turn answers."""
    first = turns[0]
    if first.before is None and first.asks and not first.asks[0].messages:
        raise errors.invalid(
            "from_turn", f"must be a turn whose question is there: that of turn {first.number} was deleted"
        )
    asks = [(turn, ask) for turn in turns for ask in turn.asks]
    for turn, ask in asks:
        if ask.model is None:
            text = f"model is required: turn {turn.number} was not answered here."
            raise errors.InvalidRequest(text, param="model", code="missing_required_parameter")
    with_tools = [turn.number for turn in turns if turn.has_tools]
    if with_tools and "tools" not in change.parameters:
        text = f"parameters.tools is required: turn {with_tools[0]} called tools. An empty list: ask without them."
        raise errors.InvalidRequest(text, param="parameters.tools", code="missing_required_parameter")
    speakers = {ask.agent["id"] for _, ask in asks if ask.agent is not None}
    for name in change.agents:
        if name not in speakers:
            raise errors.invalid(f"agents.{name}", "names no agent that answers in these turns")


@record
class RequestMaker:
    """Makes the chat requests of a replay, validated as any other (`parse_chat_request`)."""

    replay: past_turns.ReplayRun
    caller: RequestCaller
    settings: Settings
    clock: ports.Clock
    has_left: Callable[[], bool]

    def __call__(
        self, ask: turn_replays.ReplayedRequest, messages: Sequence[Json], branch: BranchPoint, *, dry_run: bool = False
    ) -> ChatRequest:
        """Raises InvalidRequest: a field breaks a rule of chats; `param` names it as the body of the replay does."""
        asked = self.replay.asked
        parameters = {name: value for name, value in asked.parameters.items() if name != "tools" or value}
        context = {"planning": "never", **asked.context, "dry_run": True} if dry_run else asked.context
        body: Json = {**parameters, "model": ask.model, "messages": list(messages), "stream": True, "store": True}
        body |= {"conversation": self.replay.conversation_id, "context": context}
        if ask.agent is not None:
            body["agent"] = ask.agent
        clock, size = self.clock, len(jsons.dumps(body))
        arrival = RequestArrival(ids.new_id("req_"), clock.now(), clock.monotonic(), size, {}, self.has_left)
        try:
            request = parse_chat_request(body, {}, self.caller, self.settings, arrival)
        except errors.InvalidRequest as error:
            error.param = _as_named(error.param, ask, asked.parameters)
            raise
        return replace(request, conversation=ConversationRef(self.replay.conversation_id, branch=branch))


def _as_named(param: str | None, ask: turn_replays.ReplayedRequest, parameters: Mapping[str, Any]) -> str | None:
    """Returns the name that a field of a chat request has in the body of a replay."""
    head, _, rest = (param or "").partition(".")
    if head == "agent" and rest and ask.agent is not None:
        return f"agents.{ask.agent['id']}.{rest}"
    return f"parameters.{param}" if head.partition("[")[0] in parameters else param
