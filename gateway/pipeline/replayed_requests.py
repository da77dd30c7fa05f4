"""Makes past turns into requests that can be made again (guarantee §11.18). Pure: what is stored in, requests out."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.types.agents import CHAT
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.past_turns import (
    ConversationPath,
    PastBill,
    PastRequest,
    PastTurn,
    PathMessage,
    ReplayChanges,
    ReplayedRequest,
    ReplayedResult,
    TurnToReplay,
)
from gateway.core.types.tool_steps import RESULT_ROLES, asked, calls_of, take_call

SAID = (*INSTRUCTION_ROLES, "user")
"""Roles of what a client says itself."""
Json = dict[str, Any]


def to_replay(
    path: ConversationPath, turns: Sequence[PastTurn], bills: Mapping[str, PastBill], change: ReplayChanges
) -> list[TurnToReplay]:
    """These turns as they are made again.
    `path`: the branch that they are of, with its turns whole; `bills`: of their requests, as far as they were paid
    here."""
    found = []
    for turn in turns:
        begins = turn.requests[0].before
        before = path.messages[begins - 1].message.message_id if begins else None
        asks = [_ask(path, request, bills, change) for request in turn.requests if is_made_again(request)]
        found.append(TurnToReplay(turn.number, tuple(asks), tuple(_results(turn.messages)), before))
    return found


def single_request(
    path: ConversationPath, request: PastRequest, bills: Mapping[str, PastBill], change: ReplayChanges
) -> tuple[ReplayedRequest, str | None]:
    """A past request by itself, and the message behind which it went on: for an estimate. Tool results are in it, and
    the calls that its client brought with them."""
    before = path.messages[request.before - 1].message.message_id if request.before else None
    return _ask(path, request, bills, change, roles=(*SAID, "assistant", *RESULT_ROLES)), before


def is_made_again(request: PastRequest) -> bool:
    """Whether it is no step of a tool loop: those follow from what the model calls."""
    said = [each for each in request.brought if each.message.role in SAID]
    return bool(said) or (request.answer is not None and not request.brought)


def _ask(
    path: ConversationPath,
    request: PastRequest,
    bills: Mapping[str, PastBill],
    change: ReplayChanges,
    roles: Sequence[str] = SAID,
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


def _agent(last: PathMessage, billed: Any, change: ReplayChanges) -> Json | None:
    """Who answers: who did, with what is to be other of that agent."""
    name = last.message.agent
    if name is None:
        return None
    known = billed.get("type") if isinstance(billed, dict) else None
    return {"type": known or CHAT, **change.agents.get(name, {}), "id": name}


def _results(messages: Sequence[PathMessage]) -> list[ReplayedResult]:
    """The results of a turn with the calls that they answer, in their order."""
    found: list[ReplayedResult] = []
    open_calls: list[Json] = []
    for each in messages:
        body = each.message.body
        if each.message.role not in RESULT_ROLES:
            open_calls = calls_of(body)
        elif call := take_call(open_calls, body):
            found.append(ReplayedResult(asked(call)[0], comparable(asked(call)[1]), body))
    return found


def comparable(arguments: str) -> Any:
    """Arguments as they are compared: as JSON values, else as the text that they are."""
    try:
        return jsons.loads_exact(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments


def answered_calls(
    calls: Sequence[Json], results: Sequence[ReplayedResult], used: Sequence[Json], given: Mapping[str, str]
) -> tuple[list[Json], list[Json]]:
    """The results of these calls as messages, in the order of the calls, and the calls that have none.
    `results`: those of the turn that is made again; each answers one call; `used`: the calls that were answered
    already; `given`: results that the client brings, by the ids of calls."""
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
    """The first result of the same call, taken out."""
    name, arguments = asked(call)[0], comparable(asked(call)[1])
    for number, result in enumerate(left):
        if (result.name, result.arguments) == (name, arguments):
            return left.pop(number)
    return None
