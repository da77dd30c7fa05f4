"""Sessions with `context.economy`, over a provider that has a prompt cache and charges for it (guarantee §4 I7, §6)."""

import json
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.errors import InternalError
from gateway.core.ids import artifact_id
from gateway.core.types.turn import CompletionQuery
from tests.support.answers import assistant, system, there, tool_call, tool_result, user
from tests.support.documents import keeper, prose
from tests.support.economy import PAUSE, READING, WRITE, Agent, Json, World, agent, labels, store, tokens, world
from tests.support.marks import some_or_all

__all__ = ["agent", "store", "world"]

pytestmark = pytest.mark.in_turn("store")


async def test_s4_i7_a_cold_turn_clears_once_and_the_next_ones_keep_its_prefix(world: World, agent: Agent) -> None:
    await agent.turn(20)
    assert agent.breaks == []
    world.clock.at += PAUSE
    await agent.turn(6)
    assert agent.breaks == [21]
    cleared = labels(agent.forwarded[21])
    assert cleared[0] == 2
    assert all(labels(each) == cleared for each in agent.forwarded[21:])
    assert agent.bills[21]["economics"]["pass"] == "cold"
    assert agent.bills[21]["economics"]["cleared_tokens"] > 1000


async def test_s4_i7_after_hours_a_full_window_is_not_filled_to_the_brim(world: World, store: bool) -> None:
    """Frames of what is not stored are forgotten by then. That the conversation goes on is known all the same, so that
    one pass is enough for several turns. What is stored goes on as it was: its last pass has left room."""
    world.gateways[0].frames._shared = None  # its clock is the system's
    agent = Agent(world, store=store, max_input_tokens=12_000)
    await agent.turn(40)
    world.clock.at += timedelta(hours=2)
    before = len(agent.forwarded)
    await agent.turn(4)
    assert [number for number in agent.breaks if number >= before] == ([] if store else [before])


async def test_s4_i7_of_two_questions_about_one_history_each_fills_its_budget(world: World) -> None:
    """They are no session: the second one does not go on with what the first was answered."""
    told: list[Json] = [user("Read all of it.")]
    for number in range(40):
        call = tool_call(f"call_{number}", "read")
        told.append(assistant(None, tool_calls=[call]))
        told.append(tool_result(call["id"], keeper(number) + prose(number, 300)))
    told.append(assistant("All is read."))
    for question, after in (("Who keeps lamp 7?", timedelta(0)), ("And who keeps lamp 9?", timedelta(hours=3))):
        world.clock.at += after
        agent = Agent(world, store=False, max_input_tokens=6_000)
        agent.said = [*told, user(question)]
        await agent.ask()
        assert agent.bills[0]["context_utilization"]["tokens_used"] > 0.9 * 6_000


async def test_s4_i7_calls_without_their_inputs_stay_so(world: World, agent: Agent) -> None:
    """The pass leaves out what was written long ago, and later requests, after a restart too, begin with that."""
    agent.said.append(user("Build the harbour."))
    await agent.steps(6, words=5, name="write", content="The harbour has lamps. " * 200)
    await agent.steps(26, words=200)
    world.clock.at += PAUSE
    await agent.steps(3)
    await world.stop()
    await world.start()
    await agent.steps(3)
    assert agent.breaks == [32]
    written = [call["function"]["arguments"] for m in agent.forwarded[-1] for call in m.get("tool_calls") or ()][:6]
    assert all("characters are left out here" in each for each in written)
    assert agent.paid < agent.unmanaged


async def test_s4_i3_a_changed_result_of_a_step_that_has_left_is_not_forwarded_alone(world: World, store: bool) -> None:
    """Clients clear old results, too: here the last of three, after the window has no place for its step."""
    agent = Agent(world, store=store, max_input_tokens=3_000)
    agent.said.append(user("Read all of it."))
    for number in range(14):
        calls = [tool_call(f"call_{number}_{n}", "read") for n in range(3)]
        world.provider.answer = assistant(None, tool_calls=calls)
        await agent.ask()
        agent.said.append(world.provider.answer)
        agent.said += [tool_result(call["id"], prose(10 * number + n, 200)) for n, call in enumerate(calls)]
    gone = 4
    assert agent.said[gone] not in agent.forwarded[-1]
    agent.said[gone] = {**agent.said[gone], "content": "(cleared)"}
    await agent.ask()
    sent = agent.forwarded[-1]
    called = {call["id"] for each in sent for call in each.get("tool_calls") or ()}
    assert {each["tool_call_id"] for each in sent if each["role"] == "tool"} == called


async def test_s4_i7_over_replicas_and_a_restart(world: World, agent: Agent) -> None:
    await world.start()
    await agent.turn(15)
    world.clock.at += PAUSE
    await agent.turn(3)
    cleared = labels(agent.forwarded[-1])
    await world.stop()
    await world.start()
    await agent.turn(3)
    assert agent.breaks == [16]
    assert cleared
    assert labels(agent.forwarded[-1]) == cleared


async def test_s4_i7_a_replica_that_was_not_asked_for_long_knows_that_the_cache_is_warm(
    world: World, store: bool
) -> None:
    """It is the latest use of the conversation that counts, on whichever replica that was."""
    await world.start()
    agent, replicas = Agent(world, store=store), world.gateways
    world.gateways = replicas[:1]
    await agent.turn(15)
    world.clock.at += PAUSE
    world.gateways = replicas[1:]
    await agent.turn(18)
    world.gateways = replicas[:1]
    await agent.turn(18)
    world.gateways = replicas
    assert agent.breaks == [16]
    assert [n for n, each in enumerate(agent.economics) if each.get("pass") == "cold"] == [15]


async def test_s4_i7_what_was_cut_and_called_for_again_stays_the_next_time(world: World, agent: Agent) -> None:
    """Others of its age leave."""
    await agent.turn(20)
    world.clock.at += PAUSE
    await agent.turn(2)
    assert 2 in labels(agent.forwarded[-1])
    call, result = json.loads(json.dumps(agent.said[1:3]))
    call["tool_calls"][0]["id"] = result["tool_call_id"] = "again"
    agent.said.append(user("Go on."))
    world.provider.answer = call
    await agent.ask()
    again = len(agent.said) + 1
    agent.said += [call, result]
    await agent.steps(20)
    (bounced,) = [each["bounced"] for each in agent.economics if "bounced" in each]
    assert bounced["tokens"] == pytest.approx(tokens(result), rel=0.1)
    assert Decimal(bounced["cost"]) == bounced["tokens"] * WRITE
    world.clock.at += PAUSE
    await agent.turn(1)
    cleared = labels(agent.forwarded[-1])
    assert again + 2 in cleared
    assert again not in cleared


async def test_s6_12_what_comes_back_by_another_call_is_a_bounce_and_stays(world: World, agent: Agent) -> None:
    """Its digest is the same. Later than ten answers it is none, and neither is what was never cut."""
    await agent.turn(20)
    world.clock.at += PAUSE
    await agent.turn(1)
    cut = labels(agent.forwarded[-1])
    for number, steps in ((cut[0], 1), (len(agent.said) - 2, 9), (cut[1], 20)):
        call, result = json.loads(json.dumps([agent.said[1], agent.said[number]]))
        call["tool_calls"][0] |= {"id": f"again_{number}", "function": {"name": "cat", "arguments": f'"{number}"'}}
        result = {**result, "role": "tool", "tool_call_id": f"again_{number}"}
        world.provider.answer = call
        agent.said.append(user("Go on."))
        await agent.ask()
        agent.said += [call, result]
        await agent.steps(steps)
    assert sum("bounced" in each for each in agent.economics) == 1
    world.clock.at += PAUSE
    agent.said.append(user("Go on."))
    await agent.steps(1)
    texts = [each["content"] for each in agent.forwarded[-1]]
    assert agent.said[cut[0]]["content"] in texts
    assert agent.said[cut[1]]["content"] not in texts


async def test_s6_12_what_recall_reads_soon_after_it_was_cut_is_a_bounce(world: World, store: bool) -> None:
    agent = Agent(world, store=store, recall=True)
    await agent.turn(20)
    world.clock.at += PAUSE
    agent.said.append(user("Go on."))
    await agent.steps(1)
    cut = labels(agent.forwarded[-1])[0]
    wanted = artifact_id(agent.said[cut]["content"])
    function = {"name": "recall", "arguments": json.dumps({"artifact_id": wanted})}
    calls = [{"id": "r", "type": "function", "function": function}]
    answers: list[Json] = [assistant("Done."), assistant(None, tool_calls=calls)]
    gateway = world.gateways[0]
    gateway.upstream._answers = lambda _: answers.pop()
    agent.said.append(user("What was in it?"))
    await agent.ask()
    bill = agent.bills[-1]
    assert bill["context_utilization"]["recall"]["rounds"] == 1
    assert bill["economics"]["bounced"]["tokens"] > 300
    agent.said.append(assistant("Done."))
    gateway.upstream._answers = lambda _: world.provider.answer
    world.clock.at += PAUSE
    agent.context = {**agent.context, "max_input_tokens": 6000}
    await agent.turn(1)
    sent = "\n".join(str(each["content"]) for each in agent.forwarded[-1])
    assert agent.said[cut]["content"] in sent, "it is worth its room"
    assert agent.said[cut + 2]["content"] not in sent


async def test_s4_i7_who_keeps_the_cache_alive_loses_nothing(world: World, agent: Agent) -> None:
    """A client's own sign of life is a request like any other."""
    await agent.turn(15)
    for _ in range(3):
        world.clock.at += timedelta(minutes=4)
        said = list(agent.said)
        agent.said.append(user("."))
        await agent.ask()
        agent.said = said
    world.clock.at += timedelta(minutes=4)
    await agent.turn(2)
    assert not any(map(labels, agent.forwarded))


async def test_s4_i7_a_branch_begins_with_what_was_forwarded_before_it(world: World, agent: Agent) -> None:
    await agent.turn(15)
    world.clock.at += PAUSE
    await agent.turn(3)
    await agent.turn(2)
    cleared = agent.forwarded[-1]
    last = max(number for number, each in enumerate(agent.said) if each["role"] == "user")
    del agent.said[last:]
    await agent.turn(1, "Something else.")
    assert labels(agent.forwarded[-1]) == labels(cleared)


@pytest.mark.chaos
async def test_s4_i7_warm_passes_are_paid_out_of_what_was_saved(world: World, agent: Agent) -> None:
    await agent.turn(25)
    world.clock.at += PAUSE
    await agent.turn(60)
    passes = [each["pass"] for each in agent.economics if "pass" in each]
    assert passes[:2] == ["cold", "paid"]
    assert len(agent.breaks) == len(passes)
    saved = [Decimal(each["net_saving"]) for each in agent.economics]
    assert min(saved) < 0, "a pass costs when it is made"
    assert all(sum(saved[:n]) >= -Decimal("0.005") * agent.unmanaged for n in range(len(saved)))


async def test_s4_i7_a_session_that_is_full_late_is_hardly_dearer(agent: Agent) -> None:
    """Whenever it ends behind that; what made room stays as it is, until a pass pays that decides all anew."""
    agent.said.append(user("Mend the lock."))
    await agent.steps(16)
    await agent.steps(1, words=1500, name="bash")
    await agent.steps(1, words=500, name="bash")
    assert agent.breaks == []
    agent.context["max_input_tokens"] = agent.bills[-1]["context_utilization"]["tokens_used"] + 300
    for _ in range(3):
        await agent.steps(1, words=500, name="bash")
        assert agent.paid <= Decimal("1.01") * agent.unmanaged
    first, *later = agent.forwarded[-3:]
    assert labels(first) == [2 * 17]
    assert [each["pass"] for each in agent.economics if "pass" in each][:1] == ["paid"]
    assert all(each[: len(first)] == first for each in later)
    told = sum(Decimal(each["net_saving"]) for each in agent.economics)
    assert abs(agent.unmanaged - agent.paid - told) < Decimal("0.002") * agent.unmanaged


@pytest.mark.parametrize(("mode", "clears"), [("simple", True), ("off", False)])
async def test_s2_mode_off_clears_nothing_of_the_conversation_that_it_names(
    world: World, mode: str, clears: bool
) -> None:
    agent = Agent(world, store=True)
    await agent.turn(16)
    world.clock.at += PAUSE
    named = agent.bills[-1]["conversation_id"]
    context = {"mode": mode, "economy": "auto"}
    said = [user("Go on.")]
    body = {"model": "m", "messages": said, "tools": [READING], "conversation": named, "context": context}
    await world.gateways[0].ask(body)
    sent = world.gateways[0].upstream.sent[-1]["messages"]
    assert len(sent) == len(agent.said) + 1
    assert bool(labels(sent)) == clears


async def test_s4_i6_what_was_cleared_comes_back_in_small(world: World, agent: Agent) -> None:
    """A question that calls for it gets a passage of it, not a twentieth of the budget."""
    agent.said.append(user("Go on."))
    await agent.steps(1)
    agent.said[-1]["content"] = "\n\n".join(f"{keeper(37)} In {number} {prose(number, 200)}" for number in range(60))
    await agent.steps(15)
    world.clock.at += PAUSE
    await agent.turn(1)
    assert 2 in labels(agent.forwarded[-1])
    await agent.turn(0, "Who is called the keeper of lamp 37, and when?")
    asked = agent.forwarded[-1][-1]["content"]
    assert keeper(37) in asked
    assert len(asked) < 6000


async def test_s4_i6_what_a_cold_turn_asks_for_stands(world: World, agent: Agent) -> None:
    agent.said.append(user("Go on."))
    await agent.steps(1)
    whole = agent.said[-1]["content"] = "\n\n".join(f"{keeper(n)} In {n} {prose(n, 200)}" for n in range(60))
    await agent.turn(15)
    world.clock.at += PAUSE
    first = len(agent.forwarded)
    await agent.turn(4, "Who is called the keeper of lamp 37, and when?")
    assert agent.bills[first]["economics"]["pass"] == "cold"
    assert agent.breaks == [first]
    assert labels(agent.forwarded[first])
    assert agent.forwarded[first][2]["content"] == whole


async def test_s4_i6_where_no_price_is_known_what_comes_back_is_as_without_economy(world: World) -> None:
    agent = Agent(world, store=False)
    agent.model = "unpriced"
    for number in range(14):
        said = "\n\n".join(f"{keeper(number)} In {year} {prose(year, 100)}" for year in range(40))
        await agent.turn(2, f"Note this of lamp {number}.\n\n{said}")
    await agent.turn(0, "Who is called the keeper of lamp 3, and when?")
    asked = agent.forwarded[-1][-1]["content"]
    assert keeper(3) in asked
    assert len(asked) > 4000


@pytest.mark.parametrize(
    "step",
    [
        f"gateway.pipeline.{name}"
        for name in ("billing.meter.metered", "unstored_frames._used", "unstored_frames.bill.BranchCosts.of_text")
    ],
)
async def test_s4_a_fault_of_the_meter_costs_no_answer(
    world: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    agent = Agent(world, store=False)
    await agent.turn(3)
    monkeypatch.setattr(step, broken)
    await agent.turn(3)
    assert [bill["cost"]["total_cost"] > 0 for bill in agent.bills] == [True] * 8


async def test_s6_what_a_fault_took_off_a_bill_is_in_no_net_saving(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bill is kept without its context: nobody knows what was left out."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    agent = Agent(world, store=True)
    await agent.turn(2)
    monkeypatch.setattr("gateway.pipeline.stored_turn.stored_turn", broken)
    agent.said.append(user("Go on."))
    with pytest.raises(InternalError):
        await agent.ask()
    page = there(await world.gateways[0].store.list_completions("tenant", CompletionQuery(limit=1, newest_first=True)))
    (failed,) = page.found
    assert failed.ledger.calls[0].total
    assert (failed.ledger.status, there(failed.ledger.figures).net_saving) == ("failed", None)


@pytest.mark.parametrize("economy", ["auto", "observe"])
async def test_s6_the_meter_says_what_the_provider_would_have_charged(world: World, store: bool, economy: str) -> None:
    agent = Agent(world, store=store, economy=economy)
    for _ in range(3):
        await agent.turn(18)
        world.clock.at += PAUSE
    unmetered = [bill for bill in agent.bills if "economics" not in bill]
    assert len(unmetered) == 1, "the first request has no tool result"
    direct = sum(Decimal(each["direct_cost"]) for each in agent.economics)
    saved = sum(Decimal(each["net_saving"]) for each in agent.economics)
    whole = agent.unmanaged - Decimal(str(unmetered[0]["cost"]["total_cost"]))
    assert abs(direct - whole) <= Decimal("0.02") * whole
    assert abs(saved - (agent.unmanaged - agent.paid)) <= Decimal("0.02") * whole
    if economy == "observe":
        assert (saved, agent.breaks) == (0, [])
        assert sum(Decimal(each["estimated_saving"]) for each in agent.economics) > Decimal("0.1") * whole
    else:
        assert saved > Decimal("0.1") * whole


async def test_s6_the_meter_knows_from_where_on_an_edited_history_is_written_again(world: World) -> None:
    """Also the second time: the answers behind the first edit are copies, of which no bill is known."""
    agent = Agent(world, store=True, max_input_tokens=8_000)
    agent.said.append(user("Read all of it."))
    await agent.steps(30)
    for number in (24, 32):
        agent.said[number] = {**agent.said[number], "content": "(cleared)"}
        await agent.steps(3)
    saved = sum(Decimal(each["net_saving"]) for each in agent.economics)
    assert abs(saved - (agent.unmanaged - agent.paid)) <= Decimal("0.02") * agent.unmanaged


@pytest.mark.chaos
async def test_s6_the_meter_knows_the_models_between_which_a_session_goes(world: World, store: bool) -> None:
    """Where a pass is made meanwhile, too: each model would still have had in its cache what it was sent last."""
    agent = Agent(world, store=store, max_input_tokens=6_000)
    for model in ("m", "other") * 4:
        agent.model = model
        await agent.turn(12)
    assert agent.breaks, "passes for room"
    saved = sum(Decimal(each["net_saving"]) for each in agent.economics)
    assert abs(saved - (agent.unmanaged - agent.paid)) <= Decimal("0.04") * agent.unmanaged


async def test_s4_i7_a_plain_chat_has_no_economics(world: World) -> None:
    agent = Agent(world, store=True)
    await agent.turn(0)
    await agent.turn(0)
    assert agent.economics == []


@pytest.mark.parametrize("seed", some_or_all(range(6), (0, 1, 5)))
async def test_s4_whatever_pauses_there_are_the_invariants_hold_and_nobody_pays_more(world: World, seed: int) -> None:
    """I1 to I7 with passes for money and for room, in sessions that go on after pauses of any length."""
    chance = random.Random(seed)
    budget = chance.choice([12_000, 30_000, 150_000])
    agent = Agent(world, store=bool(seed % 2), max_input_tokens=budget)
    for _ in range(4):
        await agent.turn(chance.randrange(2, 12))
        world.clock.at += timedelta(minutes=chance.choice([0, 1, 4, 6, 20]))
    for number, messages in enumerate(agent.forwarded):
        used = agent.bills[number]["context_utilization"]
        assert used["tokens_used"] <= budget
        calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    made = {n for n, bill in enumerate(agent.bills) if "pass" in bill.get("economics", {})}
    if budget == 150_000:
        assert set(agent.breaks) == made
        assert agent.paid <= Decimal("1.01") * agent.unmanaged
    assert made <= set(agent.breaks)


async def test_s6_11_sessions_with_the_same_head_are_metered_as_they_are_charged(world: World, store: bool) -> None:
    """They keep its cache alive for one another, not what each has of its own."""
    one, other = Agent(world, store=store), Agent(world, store=store)
    one.said, other.said = ([system(prose(1, 2000))] for _ in range(2))
    other.direct = one.direct
    for _ in range(3):
        await one.turn(10)
        for _ in range(2):
            world.clock.at += timedelta(minutes=4)
            await other.turn(1, "Look around.")
    await one.turn(10)
    metered = sum(Decimal(each["net_saving"]) for each in one.economics)
    saving = one.unmanaged - one.paid
    assert one.unmanaged * Decimal("0.1") < saving
    assert abs(metered - saving) < one.unmanaged * Decimal("0.02"), f"{metered} is told of {saving}"
