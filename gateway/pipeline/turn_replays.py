"""Replays turns of a conversation, one after another, each through the path of any request (guarantee §11.18): what is
stored is turned into requests by pure functions.

Nothing stored is changed: the answers are a branch. Each turn is committed with its place in the replay, so that a
later run resumes after the last finished one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.core import errors, jsons
from gateway.core.formats.stream_record import Chunks
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.jsons import Json
from gateway.core.scheduler import repeating
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import agents, conversation, past_turns, tool_steps, turn
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import BranchPoint
from gateway.pipeline.pipeline import LimitedPipeline
from gateway.pipeline.stages import not_paused
from gateway.storage import ConversationStore
from gateway.storage.conversations import PastReader, ReplayStore

CLIENT_ROLES = (*conversation.INSTRUCTION_ROLES, "user")
"""Roles of the messages that a client writes itself."""


@record
class ReplayedRequest:
    """A request to replay: the messages that it brings, system messages included, and who is asked. `model` is None
    where no model answered it here. `agent` is the chat's own field. `until`: when its answer was committed."""

    messages: tuple[Json, ...]
    model: str | None
    agent: Json | None
    until: datetime | None


@record
class ReplayedResult:
    """A stored tool result, with the name and arguments of the call that it answered."""

    name: str
    arguments: Any
    body: Json


@record
class TurnToReplay:
    """A turn with the requests to replay. Steps of tool loops are not among these: `results` answer the calls that the
    model makes again. `before` is the message before the turn on its own branch."""

    number: int
    asks: tuple[ReplayedRequest, ...]
    results: tuple[ReplayedResult, ...]
    before: str | None

    @property
    def has_tools(self) -> bool:
        return bool(self.results)


def to_replay(
    path: past_turns.ConversationPath,
    turns: Sequence[past_turns.PastTurn],
    bills: Mapping[str, past_turns.PastBill],
    change: past_turns.ReplayChanges,
) -> list[TurnToReplay]:
    """Converts past turns to turns to replay.
    `path`: the branch that they are of, with its turns whole; `bills`: of their requests, as far as they were paid
    here."""
    found = []
    for past in turns:
        begins = past.requests[0].before
        before = path.messages[begins - 1].message.message_id if begins else None
        asks = [_ask(path, request, bills, change) for request in past.requests if is_made_again(request)]
        found.append(TurnToReplay(past.number, tuple(asks), tuple(_results(past.messages)), before))
    return found


def single_request(
    path: past_turns.ConversationPath,
    request: past_turns.PastRequest,
    bills: Mapping[str, past_turns.PastBill],
    change: past_turns.ReplayChanges,
) -> tuple[ReplayedRequest, str | None]:
    """Builds a single past request, and the message that it followed: for an estimate. It includes tool results, and
    the calls that its client brought with them."""
    before = path.messages[request.before - 1].message.message_id if request.before else None
    return _ask(path, request, bills, change, roles=(*CLIENT_ROLES, "assistant", *tool_steps.RESULT_ROLES)), before


def is_made_again(request: past_turns.PastRequest) -> bool:
    """Returns whether a request is replayed: a step of a tool loop is not, as it follows from the model's calls."""
    said = [each for each in request.brought if each.message.role in CLIENT_ROLES]
    return bool(said) or (request.answer is not None and not request.brought)


def _ask(
    path: past_turns.ConversationPath,
    request: past_turns.PastRequest,
    bills: Mapping[str, past_turns.PastBill],
    change: past_turns.ReplayChanges,
    roles: Sequence[str] = CLIENT_ROLES,
) -> ReplayedRequest:
    bill = bills.get(request.request_id) if request.answer is not None else None
    stored = bill.completion.ledger if bill is not None else None
    last = request.answer or request.brought[-1]
    bodies = [each.message.body for each in request.brought if each.message.role in roles]
    return ReplayedRequest(
        messages=(*path.instructions_of(last), *bodies),
        model=change.model or (stored.model if stored is not None else None),
        agent=_agent(last, stored.metadata.get("agent") if stored is not None else None, change),
        until=last.committed_at,
    )


def _agent(last: past_turns.PathMessage, billed: Any, change: past_turns.ReplayChanges) -> Json | None:
    """Returns the agent that answered, with the changes for it."""
    name = last.message.agent
    if name is None:
        return None
    known = billed.get("type") if isinstance(billed, dict) else None
    return {"type": known or agents.CHAT, **change.agents.get(name, {}), "id": name}


def _results(messages: Sequence[past_turns.PathMessage]) -> list[ReplayedResult]:
    """Returns the results of a turn with the calls that they answer, in their order."""
    found: list[ReplayedResult] = []
    open_calls: list[Json] = []
    for each in messages:
        body = each.message.body
        if each.message.role not in tool_steps.RESULT_ROLES:
            open_calls = tool_steps.calls_of(body)
        elif call := tool_steps.take_call(open_calls, body):
            name, arguments = tool_steps.asked(call)
            found.append(ReplayedResult(name, comparable(arguments), body))
    return found


def comparable(arguments: str) -> Any:
    """Parses arguments for comparison: as JSON values, else as the text itself."""
    try:
        return jsons.loads_exact(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments


def answered_calls(
    calls: Sequence[Json], results: Sequence[ReplayedResult], used: Sequence[Json], given: Mapping[str, str]
) -> tuple[list[Json], list[Json]]:
    """Returns the results of these calls as messages, in the order of the calls, and the calls without a result.
    `results`: those of the replayed turn; each answers one call; `used`: the calls that were answered already; `given`:
    results that the client brings, by the ids of calls."""
    left = list(results)
    for call in used:
        _take(left, call)
    found, missing = [], []
    for call in calls:
        name = str(call.get("id"))
        stored = _take(left, call)
        if name in given:
            found.append({"role": "tool", "tool_call_id": name, "content": given[name]})
        elif stored is not None and "id" in call:
            found.append({**stored.body, "role": "tool", "tool_call_id": name})
        else:
            missing.append(call)
    return found, missing


def _take(left: list[ReplayedResult], call: Json) -> ReplayedResult | None:
    """Takes the first result of the same call out of the list."""
    name, arguments = tool_steps.asked(call)
    wanted = name, comparable(arguments)
    for number, result in enumerate(left):
        if (result.name, result.arguments) == wanted:
            return left.pop(number)
    return None


log = logs.get_logger("gateway.pipeline.turn_replays")
HOLD_SECONDS = 20.0
"""Between two heartbeats of the process that runs a replay."""
Make = Callable[[ReplayedRequest, Sequence[Json], BranchPoint], ChatRequest]
"""Makes the chat request that asks an agent or model, with these messages, on that branch."""


@record
class ReplayBegun:
    """The first model has begun to answer."""

    replay: past_turns.ReplayRun


@record
class ReplayText:
    """A piece of an answer."""

    turn: int
    text: str


Entries = tuple[turn.LedgerEntry, ...]
"""Entries of the ledger."""


@record
class ReplayTurnEnd:
    """The outcome of a turn: its requests so far, the last answer, and the calls that cannot be answered here."""

    turn: int
    status: Literal["complete", "needs_tool", "failed"]
    requests: Entries = ()
    message: Json | None = None
    calls: tuple[Json, ...] = ()


ReplayEvent = ReplayBegun | ReplayText | ReplayTurnEnd
Emit = Callable[[ReplayEvent], Awaitable[None]]


@record
class ReplayWork:
    """A replay to run: `turns` are all of the replay, `make` makes requests, `given` are tool results that the client
    brings, by the ids of calls."""

    tenant: str
    replay: past_turns.ReplayRun
    turns: Sequence[TurnToReplay]
    make: Make
    emit: Emit
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _ReplayState:
    """The state of a replay after the message `at`. `open_calls` are those of that message; `used` are the calls of the
    same request that were answered already."""

    at: str | None
    open_calls: list[Json] = field(default_factory=list)
    used: list[Json] = field(default_factory=list)
    begun: bool = False
    requests: list[turn.LedgerEntry] = field(default_factory=list)
    message: Json | None = None


@dataclass(slots=True)
class TurnReplayer:
    """Runs replays. It holds no state between them."""

    _pipeline: LimitedPipeline
    _store: ConversationStore
    _replays: ReplayStore
    _past: PastReader
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    async def run(self, work: ReplayWork) -> bool:
        """Replays the turns after the last finished one. Returns whether all are done; else a tool is needed.
        Raises GatewayError: a turn failed; nothing was emitted if that was before the first model began to answer."""
        replay = work.replay
        async with self._held(replay.replay_id):
            state, number, first = await self._resumed(work)
            for turn in work.turns[number:]:
                try:
                    done = await self._turn(work, turn, first, state)
                except errors.GatewayError:
                    if state.begun:
                        await work.emit(ReplayTurnEnd(turn.number, "failed", tuple(state.requests)))
                    raise
                if not done:
                    return False
                first = 0
        return True

    async def estimate(self, requests: Sequence[ChatRequest]) -> list[Json]:
        """Estimates what each of these requests would cost; no primary model is called."""
        return [not_paused(await self._pipeline.dry_run(request)) for request in requests]

    def forget(self, replay_id: str) -> None:
        """Forgets a replay of which nothing is done, in the background."""
        self._tasks.start(self._noted(self._replays.drop(replay_id), replay_id))

    async def close(self) -> None:
        """Waits for pending notes on replays."""
        await self._tasks.finish()

    async def _resumed(self, work: ReplayWork) -> tuple[_ReplayState, int, int]:
        """Finds where to resume: the state, the index of the turn, and of the request in it."""
        replay = work.replay
        if replay.at_id is None or replay.turn is None or replay.request is None:
            return _ReplayState(work.turns[0].before if work.turns else None), 0, 0
        index = replay.turn - replay.from_turn
        path = await self._past.path(work.tenant, replay.conversation_id, replay.at_id)
        state = _ReplayState(replay.at_id)
        state.open_calls, state.used = _calls_under_way(path.messages)
        if state.open_calls:
            return state, index, replay.request
        is_last = replay.request + 1 >= len(work.turns[index].asks)
        return (state, index + 1, 0) if is_last else (state, index, replay.request + 1)

    async def _turn(self, work: ReplayWork, turn: TurnToReplay, first: int, state: _ReplayState) -> bool:
        """Replays the requests of a turn from number `first` on. Returns whether all of them were answered."""
        state.requests = []
        for number, ask in enumerate(turn.asks[first:], first):
            missing = await self._ask(work, turn, number, ask, state)
            if missing:
                done = tuple(state.requests)
                await work.emit(ReplayTurnEnd(turn.number, "needs_tool", done, state.message, tuple(missing)))
                return False
        await work.emit(ReplayTurnEnd(turn.number, "complete", tuple(state.requests), state.message))
        return True

    async def _ask(
        self, work: ReplayWork, turn: TurnToReplay, number: int, ask: ReplayedRequest, state: _ReplayState
    ) -> list[Json]:
        """Asks until there is an answer without calls. Returns the calls that cannot be answered here."""
        messages = list(ask.messages)
        while True:
            if state.open_calls:
                results, missing = answered_calls(state.open_calls, turn.results, state.used, work.given)
                if missing:
                    await _begin(work, state)
                    return missing
                state.used += state.open_calls
                messages = results
            branch = BranchPoint(work.replay.replay_id, state.at, turn.number, number, ask.until)
            await self._send(work, work.make(ask, messages, branch), turn.number, state)
            if not state.open_calls:
                state.used = []
                return []

    async def _send(self, work: ReplayWork, request: ChatRequest, turn: int, state: _ReplayState) -> None:
        """Sends one request and reads back what was stored of it."""
        answer = not_paused(await self._pipeline.stream(request))
        try:
            await _begin(work, state)
            await answer.send_to(_ReplayReceiver(work.emit, turn))
        finally:
            await answer.aclose()
        replay = await self._replays.find_unspoilt(work.tenant, work.replay.conversation_id, work.replay.replay_id)
        stored = await self._store.find_completion(work.tenant, request.request_id)
        message = _message(stored)
        if stored is None or message is None:  # deleted meanwhile: the bill stays
            raise errors.ConversationNotFound("The conversation was deleted.", param="conversation_id")
        state.at, state.message, state.open_calls = replay.at_id, message, tool_steps.calls_of(message)
        state.requests.append(stored.ledger)

    @asynccontextmanager
    async def _held(self, replay_id: str) -> AsyncIterator[None]:
        """Holds the taken replay until the end of the block. Whoever learns of its end may continue it at once."""

        async def hold() -> None:
            await self._replays.hold(replay_id)

        try:
            async with repeating(HOLD_SECONDS, hold, name="replay"):
                yield
        finally:
            await self._tasks.finished(self._noted(self._replays.release(replay_id), replay_id))

    async def _noted(self, note: Coroutine[Any, Any, None], replay_id: str) -> None:
        try:
            await note
        except errors.StorageUnavailable:
            log.warning("replay_not_released", replay_id=replay_id)  # its hold expires soon


async def _begin(work: ReplayWork, state: _ReplayState) -> None:
    if not state.begun:
        state.begun = True
        await work.emit(ReplayBegun(work.replay))


class _ReplayReceiver:
    """Takes a streamed answer (adapter of `StreamReceiver`) and emits its text."""

    writes_at_once = False

    def __init__(self, emit: Emit, turn: int) -> None:
        self._emit = emit
        self._turn = turn

    async def send(self, chunks: Chunks) -> None:
        pieces = [
            choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"] if "delta" in choice
        ]
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        if text:
            await self._emit(ReplayText(self._turn, text))

    def write(self, chunks: Chunks) -> bool:
        raise NotImplementedError("it is told that nothing is written at once")


def _message(stored: turn.StoredCompletion | None) -> Json | None:
    choices = (stored.completion or {}).get("choices") if stored is not None else None
    message = choices[0].get("message") if choices else None
    return message if isinstance(message, dict) else None


def _calls_under_way(messages: Sequence[past_turns.PathMessage]) -> tuple[list[Json], list[Json]]:
    """Returns the calls of the last message, and those of the steps right before it, which were answered."""
    bodies = [each.message.body for each in messages]
    open_calls = tool_steps.calls_of(bodies[-1]) if bodies else []
    used: list[Json] = []
    for body in reversed(bodies[:-1]):
        if body.get("role") not in tool_steps.RESULT_ROLES and not tool_steps.calls_of(body):
            break
        used += tool_steps.calls_of(body)
    return open_calls, used
