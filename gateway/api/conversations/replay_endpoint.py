"""`POST /v1/conversations/{id}/replay`: runs turns again on a branch, as server-sent events (guarantee §11.18)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator
from gateway.api.completion_handler import key_digest, keyed
from gateway.api.conversations.endpoint import SpentCost, as_spent
from gateway.api.conversations.replay_request import (
    ReplayField,
    RequestMaker,
    asked_for,
    check_turns,
    replay_field,
    turns_asked_for,
)
from gateway.api.conversations.turn_endpoints import NOTHING
from gateway.api.request.validation import check_conversation_id
from gateway.api.server import asgi
from gateway.api.server.middleware import note_fault
from gateway.api.shapes import AgentName, Json, NamedConversation, Usd, either, many, shape, shown
from gateway.billing import cost
from gateway.core import errors, ids, jsons, ports
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.types import bill, chat, keys, past_turns, turn
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import BranchPoint
from gateway.inspection import rebuilt_turns
from gateway.pipeline import Pipeline, turn_replays
from gateway.storage import ConversationStore
from gateway.storage.conversations import PastReader, ReplayStore


class CostRange(TypedDict):
    """The least and the most; null where a price is not known."""

    min: Usd
    max: Usd


RANGE = {"estimated_cost": CostRange}
CONVERSATION = {"conversation": NamedConversation}
EstimatedRequest = shape("EstimatedRequest", "One request.", {"model": str, **RANGE})
EstimatedTurn = shape("EstimatedTurn", "One turn.", {"turn": int, "requests": many(EstimatedRequest), **RANGE})
ReplayEstimate = shape(
    "ReplayEstimate",
    "What the turns would cost.",
    {"object": Literal["conversation.replay.dry_run"], **CONVERSATION, "turns": many(EstimatedTurn), **RANGE},
)
ReplayNotice = shape(
    "ReplayNotice",
    "Begin or end; with the figures of its branch at the end, those of earlier runs included.",
    {"object": Literal["conversation.replay"], "replay_id": str, **CONVERSATION, "from_turn to_turn turns?": int}
    | {"status": Literal["running", "complete", "needs_tool"], "head?": Literal["stays", "moved"]}
    | {"last_message_id?": str | None, "usage?": bill.UsageMetadata, "cost?": SpentCost},
)
ReplayDelta = shape(
    "ReplayDelta",
    "A piece of an answer.",
    {"object": Literal["conversation.replay.delta"], "turn": int, "content": str},
)


class ReplayedTurnObject(TypedDict):
    """What became of a turn, and what the requests of this run cost."""

    object: Literal["conversation.replay.turn"]
    turn: int
    status: Literal["complete", "needs_tool", "failed"]
    request_id: str | None
    request_ids: list[str]
    model: str | None
    agent: AgentName | None
    message: Json | None
    usage: bill.UsageMetadata
    cost: SpentCost
    calls: NotRequired[list[Json]]


ReplayEventObject = either(
    "ReplayEvent",
    *(ReplayNotice, ReplayDelta, ReplayedTurnObject),
    about="The replay begins or ends; a piece of an answer; what became of a turn.",
)


@dataclass(eq=False, slots=True, kw_only=True)
class ReplayEndpoint:
    """The endpoint: reads and validates a replay, hands it to the replayer, and sends the events that it reports."""

    replayer: turn_replays.TurnReplayer
    pipeline: Pipeline
    past: PastReader
    replays: ReplayStore
    store: ConversationStore
    auth: KeyAuthenticator
    settings: Settings
    clock: ports.Clock

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        got = await received(scope, receive, self.auth, self.settings.server.max_body_bytes)
        conversation_id = check_conversation_id(scope["path_params"]["conversation_id"])
        scope["gateway"]["conversation_id"] = conversation_id
        fields = replay_field(asgi.json_body(got.raw))
        client = scope.get(asgi.CLIENT)
        has_left = chat.never_leaves if client is None else client.has_left
        asking = _ReplayCaller(got.caller, conversation_id, has_left, scope=scope)
        if fields.replay_id is None and (keyed_request := keyed(scope)) is not None:
            asking = replace(asking, name=await self._named(asking, keyed_request.key))
        if fields.dry_run:
            answer = await asgi.until_disconnect(receive, self._estimate(asking, fields))
            await asgi.send_json(send, 200, answer, asgi.answer_headers(conversation_id))
            return
        await asgi.until_disconnect(receive, self._sent(asking, fields, scope, send))

    async def turn_of(self, tenant: str, conversation_id: str, request_id: str) -> int | None:
        """Finds the number of the turn on the current branch that a request belongs to; None: it belongs to none."""
        turns = rebuilt_turns.turns_of(rebuilt_turns.in_turns(await self.past.path(tenant, conversation_id)))
        return next((each.number for each in turns if request_id in {one.request_id for one in each.requests}), None)

    async def price(self, caller: RequestCaller, conversation_id: str, fields: ReplayField) -> CostRange:
        """Returns the `min` and `max` cost of such a replay in USD; None: not known.
        Raises GatewayError: the replay cannot be made."""
        estimate = await self._estimate(_ReplayCaller(caller, conversation_id, chat.never_leaves), fields)
        found: CostRange = estimate["estimated_cost"]
        return found

    async def run(
        self,
        caller: RequestCaller,
        conversation_id: str,
        fields: ReplayField,
        attempt: str,
        has_left: Callable[[], bool],
    ) -> list[str]:
        """Runs a replay to its end, at the caller's cost; returns the ids of the requests that it made.
        `attempt`: the replay's name; given again, it continues the same replay.
        Raises GatewayError: the replay cannot be made, or failed."""
        asking = _ReplayCaller(caller, conversation_id, has_left)
        asking = replace(asking, name=await self._named(asking, attempt))
        made: list[str] = []

        async def note(told: turn_replays.ReplayEvent) -> None:
            if isinstance(told, turn_replays.ReplayTurnEnd):
                made.extend(entry.request_id for entry in told.requests)

        await self._run(asking, fields, note)
        return made

    async def _named(self, asking: "_ReplayCaller", key: str) -> str:
        """Returns the name of the replay of an `Idempotency-Key`: sent again, the key continues the same replay."""
        own = jsons.canonical([asking.caller.tenant, asking.conversation_id, key]).decode()
        return f"replay_{key_digest(await self.store.secret(), own).hex()[:48]}"

    async def _known(self, asking: "_ReplayCaller", fields: ReplayField) -> ReplayField:
        """Returns the fields with the replay that the `Idempotency-Key` began, if it began one.
        Raises IdempotencyKeyMismatch: that replay was asked for otherwise."""
        tenant, conversation_id, name = asking.caller.tenant, asking.conversation_id, asking.name
        known = await self.replays.find_begun(tenant, conversation_id, name) if name is not None else None
        if known is None:
            return fields
        turns = (fields.from_turn or known.from_turn, fields.to_turn or known.to_turn)
        if known.asked != asked_for(fields) or turns != (known.from_turn, known.to_turn):
            raise errors.IdempotencyKeyMismatch
        return fields.model_copy(update={"replay_id": known.replay_id})

    async def _sent(self, asking: "_ReplayCaller", fields: ReplayField, scope: asgi.Scope, send: asgi.Send) -> None:
        """Runs a replay and sends its events. A fault after the first of them ends the stream without `[DONE]`
        (guarantee §7)."""
        stream = _ReplayEvents(send, asking.conversation_id)
        try:
            await stream.event(await self._run(asking, fields, stream.emit))
            last = asgi.STREAM_END
        except errors.GatewayError as error:
            if not stream.begun:
                raise
            note_fault(scope["gateway"], error)
            last = asgi.event(error.body())
        await send({"type": "http.response.body", "body": last})

    async def _run(self, asking: "_ReplayCaller", fields: ReplayField, send: turn_replays.Emit) -> Json:
        """Runs a replay, and returns its end as an event."""
        begun = False

        async def emit(told: turn_replays.ReplayEvent) -> None:
            nonlocal begun
            begun = True
            await send(told)

        fields = await self._known(asking, fields)
        is_new = fields.replay_id is None
        work = await (self._begun(asking, fields, emit) if is_new else self._resumed(asking, fields, emit))
        try:
            with self.auth.watch.holding(asking.scope, asking.caller):
                done = await self.replayer.run(work)
            return await self._end(asking, work.replay, done=done, move_head=bool(fields.move_head))
        finally:
            if is_new and not begun:  # nobody knows its name
                self.replayer.forget(work.replay.replay_id)

    async def _begun(
        self, asking: "_ReplayCaller", fields: ReplayField, emit: turn_replays.Emit
    ) -> turn_replays.ReplayWork:
        """Stores a new replay before any model is called."""
        planned, tenant = await self._planned(asking, fields), asking.caller.tenant
        await self.replays.begin(tenant, planned.replay)
        return turn_replays.ReplayWork(tenant, planned.replay, planned.turns, planned.make, emit)

    async def _resumed(
        self, asking: "_ReplayCaller", fields: ReplayField, emit: turn_replays.Emit
    ) -> turn_replays.ReplayWork:
        """Takes a stored replay to continue it in this request."""
        tenant, name = asking.caller.tenant, str(fields.replay_id)
        known = await self.replays.find_unspoilt(tenant, asking.conversation_id, name)
        path = rebuilt_turns.in_turns(await self.past.path(tenant, asking.conversation_id, known.source_id))
        past = rebuilt_turns.turns_of(path)[known.from_turn - 1 : known.to_turn]
        if len(past) <= known.to_turn - known.from_turn:
            raise errors.ReplayNotFound(past_turns.SPOILT, param="replay_id")
        turns = turn_replays.to_replay(path, past, await self.past.bills(tenant, path, past), known.asked)
        given = {each.tool_call_id: each.content for each in fields.tool_results or ()}
        replay = await self.replays.take(known)
        return turn_replays.ReplayWork(tenant, replay, turns, self._maker(asking, replay), emit, given)

    async def _planned(self, asking: "_ReplayCaller", fields: ReplayField) -> "_PlannedReplay":
        """Plans a new replay. Builds each request, so that an error in one is reported before anything is paid for."""
        tenant = asking.caller.tenant
        path = rebuilt_turns.in_turns(await self.past.path(tenant, asking.conversation_id))
        past = turns_asked_for(fields, rebuilt_turns.turns_of(path))
        source = str(path.messages[-1].message.message_id)
        numbers = past[0].number, past[-1].number
        replay = past_turns.ReplayRun(
            asking.name or ids.new_id("replay_"), asking.conversation_id, source, *numbers, asked_for(fields)
        )
        bills = await self.past.bills(tenant, path, past)
        turns, make = turn_replays.to_replay(path, past, bills, replay.asked), self._maker(asking, replay)
        check_turns(turns, replay.asked)
        for each in turns:
            for ask in each.asks:
                make(ask, ask.messages, BranchPoint(replay.replay_id, None, each.number))
                self.pipeline.check_model(str(ask.model), asking.caller)
        return _PlannedReplay(replay, turns, make, path, past, bills)

    def _maker(self, asking: "_ReplayCaller", replay: past_turns.ReplayRun) -> RequestMaker:
        return RequestMaker(replay, asking.caller, self.settings, self.clock, asking.has_left)

    async def _estimate(self, asking: "_ReplayCaller", fields: ReplayField) -> Json:
        """Estimates the cost of the turns, as if the answers were the same again. Nothing is stored."""
        replay, _, make, path, past, bills = await self._planned(asking, fields)
        found: list[Json] = []
        for past_turn in past:
            requests: list[ChatRequest] = []
            for request in past_turn.requests:
                if request.answer is None and not turn_replays.is_made_again(request):
                    continue  # results that nobody has answered yet
                ask, behind = turn_replays.single_request(path, request, bills, replay.asked)
                branch = BranchPoint(replay.replay_id, behind, past_turn.number, until=ask.until)
                requests.append(make(ask, ask.messages, branch, dry_run=True))
            estimates = await self.replayer.estimate(requests)
            costs = [{"model": each["model"], "estimated_cost": each["estimated_cost"]} for each in estimates]
            found.append({"turn": past_turn.number, "requests": costs, "estimated_cost": _together(costs)})
        return {
            "object": "conversation.replay.dry_run",
            "conversation": {"id": asking.conversation_id},
            "turns": found,
            "estimated_cost": _together(found),
        }

    async def _end(self, asking: "_ReplayCaller", replay: past_turns.ReplayRun, *, done: bool, move_head: bool) -> Json:
        """Returns the end of the replay as an event; its figures are those of the branch, earlier runs included."""
        tenant = asking.caller.tenant
        now = await self.replays.find(tenant, replay.conversation_id, replay.replay_id)
        path = rebuilt_turns.in_turns(await self.past.path(tenant, replay.conversation_id, now.at_id or NOTHING))
        turns = [turn for turn in rebuilt_turns.turns_of(path) if turn.number >= replay.from_turn]
        bills = await self.past.bills(tenant, path, turns)
        moved = done and move_head and await self.replays.move_head(now)
        return {
            **_notice(replay),
            "status": "complete" if done else "needs_tool",
            "turns": len(turns),
            "last_message_id": now.at_id,
            "head": "moved" if moved else "stays",
            **as_spent(*(each.spent for each in bills.values())),
        }


class _PlannedReplay(NamedTuple):
    """A new replay, its turns, and what they were: the branch that they are on, and their bills."""

    replay: past_turns.ReplayRun
    turns: list[turn_replays.TurnToReplay]
    make: RequestMaker
    path: past_turns.ConversationPath
    past: Sequence[past_turns.PastTurn]
    bills: dict[str, past_turns.PastBill]


@record
class _ReplayCaller:
    """Who asks, for which conversation, and whether they have left. `name`: the name of the replay, where an
    `Idempotency-Key` determines it. `scope`: that of the request; None: the web UI asks."""

    caller: RequestCaller
    conversation_id: str
    has_left: Callable[[], bool]
    name: str | None = None
    scope: asgi.Scope | None = None


class _ReplayEvents:
    """Sends the events of a replay. The status line waits for the first of them."""

    def __init__(self, send: asgi.Send, conversation_id: str) -> None:
        self._send = send
        self._conversation_id = conversation_id
        self.begun = False

    async def emit(self, told: turn_replays.ReplayEvent) -> None:
        if isinstance(told, turn_replays.ReplayBegun):
            await self.event({**_notice(told.replay), "status": "running"})
        elif isinstance(told, turn_replays.ReplayText):
            await self.event({"object": "conversation.replay.delta", "turn": told.turn, "content": told.text})
        else:
            await self.event(_as_turn(told))

    async def event(self, data: object) -> None:
        if not self.begun:
            self.begun = True
            await asgi.send_start(self._send, 200, {**asgi.EVENT_STREAM, **asgi.answer_headers(self._conversation_id)})
        await self._send({"type": "http.response.body", "body": asgi.event(data), "more_body": True})


def _notice(replay: past_turns.ReplayRun) -> Json:
    return {
        "replay_id": replay.replay_id,
        "object": "conversation.replay",
        "conversation": {"id": replay.conversation_id},
        **jsons.picked(replay, "from_turn", "to_turn"),
    }


def _as_turn(told: turn_replays.ReplayTurnEnd) -> ReplayedTurnObject:
    last = told.requests[-1] if told.requests else None
    return shown(
        ReplayedTurnObject,
        told,
        object="conversation.replay.turn",
        request_id=last.request_id if last is not None else None,
        request_ids=[entry.request_id for entry in told.requests],
        model=last.model if last is not None else None,
        agent=last.metadata.get("agent") if last is not None else None,
        calls=told.calls or None,
        **as_spent(*map(_spent, told.requests)),
    )


def _spent(entry: turn.LedgerEntry) -> bill.CostSums:
    usage, costs = entry.metadata.get("usage") or {}, entry.metadata.get("cost") or {}
    total, planning = costs.get("total_cost"), costs.get("planning_cost")
    return bill.CostSums(
        requests=1,
        prompt_tokens=int(usage.get("prompt_tokens", 0)),
        completion_tokens=int(usage.get("completion_tokens", 0)),
        cost_picousd=keys.picousd(Decimal(total or 0)),
        unpriced=int(total is None or planning is None),
        planning_cost_picousd=keys.picousd(Decimal(planning or 0)),
        estimated=int(bool(costs.get("estimated"))),
    )


def _together(parts: Sequence[Json]) -> CostRange:
    """Sums the least and the most costs; None when one of them is not known."""
    costs = [each["estimated_cost"] for each in parts]
    return {"min": cost.all_of(each["min"] for each in costs), "max": cost.all_of(each["max"] for each in costs)}
