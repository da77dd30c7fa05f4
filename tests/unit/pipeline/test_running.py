"""Turns under way, and who waits for them (guarantee §3.7)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.conversations.rebuild import new_history, sent_chain
from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.types.chat import ChatRequest, ModelDeployment, ModelFacts, PromptBudget
from gateway.core.types.conversation import ConversationRef
from gateway.pipeline.settlement import RunningTurns
from gateway.pipeline.stages import PreparedRequest, RequestRun, Target, TargetWire
from gateway.upstream.routing.health import HealthWatch
from gateway.upstream.routing.router import SingleDeployment
from tests.unit.making import assistant, chat, user

NAMED = ConversationRef("conv_1")


def request(number: int, *messages: dict[str, Any], ref: ConversationRef = NAMED, **more: Any) -> ChatRequest:
    return replace(chat(messages), request_id=f"req_{number}", conversation=ref, **more)


def under_way(running: RunningTurns, made: ChatRequest) -> RequestRun:
    deployment = ModelDeployment(made.model, made.model, "route", "base", None, operator_key=False)
    target = Target(made.model, SingleDeployment(deployment, HealthWatch(RoutingSettings(), SystemClock())), deployment)
    prepared = PreparedRequest(
        made, made, target, TargetWire(deployment), ModelFacts(made.model), PromptBudget(None, None)
    )
    run = RequestRun(replace(prepared, history=new_history(made), conversation_id="conv_1"))
    running.enter(run)
    return run


def fails(run: RequestRun) -> None:
    run.began(0.0)
    assert run.claim_failure()


ENDS: dict[str, Callable[[RequestRun], None]] = {"committing": RequestRun.begin_commit, "given_up": fails}


def waiter(running: RunningTurns, made: ChatRequest) -> "asyncio.Task[None]":
    return asyncio.ensure_future(running.ended(made, sent_chain(made).digests))


async def is_waiting(task: "asyncio.Task[None]") -> bool:
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()


@pytest.mark.parametrize("state", ["committing", "given_up", "left"])
@pytest.mark.parametrize("named", [True, False])
async def test_who_goes_on_from_it_waits_for_its_end(state: str, named: bool) -> None:
    running = RunningTurns()
    run = under_way(running, request(1, user("a"), has_left=lambda: state == "left"))
    if state != "left":
        ENDS[state](run)
    sent = [user("b")] if named else [user("a"), assistant("par"), user("b")]
    task = waiter(running, request(2, *sent, ref=NAMED if named else ConversationRef()))
    assert await is_waiting(task)
    running.leave(run)
    await task
    assert not len(running)


async def test_nobody_else_waits() -> None:
    """Another conversation, other words, another tenant, another user; and nobody for a turn that is still read."""
    running = RunningTurns()
    run = under_way(running, request(1, user("a")))
    assert not await is_waiting(waiter(running, request(2, user("b"))))
    run.begin_commit()
    nameless = ConversationRef()
    others = [
        request(2, user("b"), ref=ConversationRef("conv_2")),
        request(3, user("b"), ref=ConversationRef(session="conv_1")),
        request(4, user("other"), assistant("par"), user("b"), ref=nameless),
        request(5, user("a"), assistant("par"), ref=nameless, forward={"user": "ann"}),
    ]
    stranger = request(6, user("b"))
    others.append(replace(stranger, caller=replace(stranger.caller, tenant="other")))
    for other in others:
        assert not await is_waiting(waiter(running, other))


async def test_it_waits_no_longer_than_it_may() -> None:
    running = RunningTurns(seconds=0.0)
    run = under_way(running, request(1, user("a")))
    run.begin_commit()
    await running.ended(request(2, user("b")), ())
    assert len(running) == 1
    running.leave(run)
    running.leave(run)
    assert not len(running)
    await running.ended(request(3, user("b")), ())


async def test_a_session_and_two_that_are_leaving() -> None:
    running, ref = RunningTurns(), ConversationRef(session="s")
    turns = [under_way(running, request(number, user(str(number)), ref=ref)) for number in (1, 2)]
    for each in turns:
        fails(each)
    tasks = [waiter(running, request(number, user("b"), ref=each)) for number, each in ((3, ref), (4, NAMED))]
    running.leave(turns[1])
    assert all([await is_waiting(task) for task in tasks])
    running.leave(turns[0])
    await asyncio.gather(*tasks)
