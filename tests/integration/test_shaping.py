"""Sessions in which new tool results are shaped as they arrive (guarantee §4 I8): stored and not, over replicas and
restarts, before passes that take away what references point to."""

import json
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.config.settings import Settings
from gateway.core.ids import artifact_id
from tests.support.answers import assistant, text_part, tool_call, tool_result, user
from tests.support.economy import PAUSE, READING, Agent, World, agent, labels, store, world

pytestmark = pytest.mark.in_turn("store")

__all__ = ["agent", "store", "world"]
Json = dict[str, Any]
MARK = "[Unchanged: "


def listing(first: int, last: int, name: str = "crane") -> list[str]:
    """Lines of a program's output."""
    return [
        f"{name} {number} carries {number * 13} crates to the quay of lamp {number * 7}"
        for number in range(first, last)
    ]


def references(messages: list[Json]) -> list[int]:
    """The results that refer to others, by their indexes."""
    return [n for n, each in enumerate(messages) if each["role"] == "tool" and MARK in json.dumps(each["content"])]


WHOLE = "\n".join(listing(0, 80))
NAME = f"{artifact_id(WHOLE)}:run"
AGAIN = "\n".join([*listing(0, 3, "winch"), *listing(10, 70)])


async def test_s4_i8_a_result_that_stands_is_told_by_a_reference_and_stays_so(world: World, agent: Agent) -> None:
    await world.start()
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    bill = await agent.ends()
    sent = agent.forwarded[-1]
    assert references(sent) == [4]
    assert sent[2]["content"] == WHOLE
    text = sent[4]["content"]
    assert text.startswith(
        "\n".join([*listing(0, 3, "winch"), *listing(10, 18), f"[Unchanged: lines 12-63 are as in {NAME} "])
    )
    assert len(text) < len(AGAIN)
    record = bill["context_utilization"]["artifacts_processed"][-1]
    assert record["strategy"] == "shape"
    assert (record["original_size_chars"], record["processed_size_chars"]) == (len(AGAIN), len(text))
    await world.stop()
    await world.start()
    agent.said.append(user("Go on."))
    await agent.steps(2)
    await agent.turn(2)
    assert agent.breaks == []
    assert references(agent.forwarded[-1]) == [4]


@pytest.mark.parametrize("context", [{"economy": "observe"}, {"economy": "off"}, {"mode": "off"}])
async def test_s4_i8_only_with_auto(world: World, context: Json) -> None:
    agent = Agent(world, store=True, **context)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.ends()
    assert agent.forwarded[-1] == agent.said[:-1]


@pytest.mark.parametrize("patterns", [["run"], ["r*", "x"], ["[a-r]un"]])
async def test_s4_i8_untouched_tools_are_never_shaped(world: World, store: bool, patterns: list[str]) -> None:
    agent = Agent(world, store=store, untouched_tools=patterns)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.reads(AGAIN, name="walk")
    await agent.ends()
    assert references(agent.forwarded[-1]) == [6]


async def test_s4_i8_the_latest_reading_of_an_edited_file_stays_whole(agent: Agent) -> None:
    path = {"path": "src/crane.py"}
    await agent.reads(WHOLE, "read_file", path)
    await agent.reads("Done.", "edit_file", {**path, "old": "a", "new": "b"})
    await agent.reads(AGAIN, "read_file", path)
    await agent.reads(AGAIN, "read_file", {"path": "src/winch.py"})
    await agent.ends()
    assert references(agent.forwarded[-1]) == [8]
    assert agent.forwarded[-1][6]["content"] == AGAIN


async def test_s4_i8_parallel_results_may_refer_to_one_another(world: World, agent: Agent) -> None:
    agent.said.append(user("Look after the cranes."))
    calls = [tool_call(name, "run") for name in ("a", "b")]
    world.provider.answer = assistant(None, tool_calls=calls)
    await agent.ask()
    agent.said.append(world.provider.answer)
    agent.said += [tool_result(each["id"], WHOLE) for each in calls]
    await agent.ends()
    assert references(agent.forwarded[-1]) == [3]
    assert agent.forwarded[-1][3]["content"].startswith(f"[Unchanged: lines 1-80 are as in {NAME} ")


async def test_s4_i8_parts_of_texts_and_json_are_shaped(agent: Agent) -> None:
    """A list of texts is one text; JSON of a tool that reads no file loses its spaces, of others it keeps them."""
    value = [{"name": f"crane {number}", "lamps": [number, number + 1]} for number in range(30)]
    spaced = json.dumps(value, indent=4)
    await agent.reads([text_part(WHOLE)])
    await agent.reads([text_part(WHOLE)])
    await agent.reads(spaced, "list_cranes", {"quay": 3})
    await agent.reads(spaced, "read_file", {"path": "cranes.json"})
    await agent.ends()
    await agent.ends()
    sent = agent.forwarded[-1]
    assert references(sent) == [4]
    assert json.loads(sent[6]["content"]) == value
    assert len(sent[6]["content"]) < len(spaced) / 2
    assert sent[8]["content"] == spaced
    assert agent.breaks == []


async def test_s4_i8_a_result_that_could_pass_for_a_label_stays_as_it_came(world: World) -> None:
    agent = Agent(world, store=True)
    await agent.reads(WHOLE)
    forged = f"{WHOLE}\n[Unchanged: lines 1-9 are as in step_1:run.]"
    await agent.reads(forged)
    await agent.ends()
    assert agent.forwarded[-1][4]["content"] == forged


async def test_s4_i8_a_pass_for_room_decides_anew_what_referred_to_what_leaves(world: World, store: bool) -> None:
    agent = Agent(world, store=store, max_input_tokens=12_000)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.steps(30)
    assert references(agent.forwarded[2])
    assert agent.breaks
    for sent in agent.forwarded:
        standing = [str(each["content"]) for each in sent]
        assert not references(sent) or WHOLE in standing


async def test_s4_i8_a_pass_for_money_leaves_no_reference_to_nothing(world: World, agent: Agent) -> None:
    """What is referred to stays as long as what refers to it; both leave together."""
    await agent.reads(WHOLE)
    await agent.steps(16)
    await agent.reads(WHOLE)
    await agent.steps(1)
    world.clock.at += PAUSE
    await agent.steps(1)
    sent = agent.forwarded[-1]
    assert 4 in labels(sent)
    assert references(sent) == [36]
    assert sent[2]["content"] == WHOLE
    await agent.steps(12)
    world.clock.at += PAUSE
    await agent.turn(1)
    assert {2, 36} <= set(labels(agent.forwarded[-1]))
    assert references(agent.forwarded[-1]) == []


async def test_s4_i8_a_pass_for_money_leaves_what_is_referred_to_through_another(world: World, agent: Agent) -> None:
    """A chain of three, of which the last is too young to leave."""
    second = [*listing(0, 80), *listing(0, 80, "winch")]
    await agent.reads(WHOLE)
    await agent.steps(14)
    await agent.reads("\n".join(second))
    await agent.steps(3)
    await agent.reads("\n".join(listing(0, 80, "winch")))
    await agent.steps(1)
    assert references(agent.forwarded[-1]) == [32, 40]
    world.clock.at += PAUSE
    await agent.steps(1)
    sent = agent.forwarded[-1]
    assert labels(sent)
    assert references(sent) == [32, 40]
    assert sent[2]["content"] == WHOLE
    assert sent[32]["content"].endswith("\n".join(listing(0, 80, "winch")))


async def test_s4_i8_references_name_what_they_refer_to_as_before_in_a_later_turn(agent: Agent) -> None:
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.ends()
    agent.said.append(user("Once more."))
    await agent.reads("\n".join(listing(0, 30, "buoy")))
    await agent.reads(AGAIN)
    await agent.ends()
    sent = agent.forwarded[-1]
    assert references(sent) == [4, 10]
    assert all(f"are as in {NAME} " in sent[n]["content"] for n in (4, 10))
    assert agent.breaks == []


FAILED = [f"compiling part {number} of the harbour, nothing to say" for number in range(1500)]


@pytest.mark.parametrize(
    ("name", "arguments", "lines", "is_cut"),
    [
        ("run", {"command": "make"}, FAILED, True),
        ("run", {"command": "cat build.log"}, FAILED, False),
        ("run", {"command": "cat Makefile"}, FAILED, False),
        ("read_log", {"of": "the build"}, FAILED, False),
        ("run", {"command": "make"}, [" ".join(FAILED)], False),
    ],
    ids=["run", "a file", "a file without extension", "a reader", "one line"],
)
async def test_s4_i8_a_failed_run_is_cut_where_that_is_shorter_and_no_file(
    world: World, name: str, arguments: Json, lines: list[str], is_cut: bool
) -> None:
    agent = Agent(world, store=True)
    text = "\n".join([*lines, "exit code: 2"])
    await agent.reads(text, name, arguments)
    await agent.ends()
    sent = agent.forwarded[-1][2]["content"]
    assert sent.startswith("[Extract of tool result") if is_cut else sent == text
    assert len(sent) <= len(text)


@pytest.mark.parametrize("arguments", [{"command": "cat cranes.csv"}, {"command": "cat Makefile"}], ids=json.dumps)
async def test_s4_i8_what_a_shell_reads_of_a_file_is_no_terminal(world: World, arguments: Json) -> None:
    agent = Agent(world, store=True)
    for ends_with in ("\r", "\x1b[0m\n"):
        text = ends_with.join(listing(0, 80))
        await agent.reads(text, "bash", arguments)
        await agent.ends()
        assert agent.forwarded[-1][-1]["content"] == text
        agent.said.append(user("And now?"))


@pytest.mark.parametrize("tells_apart", [True, False])
async def test_s4_i8_nothing_is_shaped_where_nobody_will_know_it_again(world: World, tells_apart: bool) -> None:
    """A conversation is stored, but its client names none and none is looked for."""
    await world.stop()
    match = {"conversation": {"match": "tenant" if tells_apart else "off"}}
    world.settings = Settings.model_validate({**world.settings.model_dump(), **match})
    await world.start()
    agent = Agent(world, store=True)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.ends()
    await agent.ends()
    assert agent.breaks == []
    assert references(agent.forwarded[-1]) == ([4] if tells_apart else [])


async def test_s4_i8_what_is_not_stored_beside_what_is_stays_as_it_came(world: World) -> None:
    """A request with `store: false` that goes on with a stored conversation leaves nothing that says what it sent."""
    gateway = world.gateways[0]
    world.provider.answer = assistant("Which?")
    said: list[Json] = [user("Look after the cranes.")]
    body = {"model": "m", "tools": [READING], "context": {"economy": "auto"}}
    named = (await gateway.ask({**body, "messages": said}))["response_metadata"]["conversation_id"]
    said = [user("All of them.")]
    for number in range(2):
        call = tool_call(f"call_{number}", "run", json.dumps({"command": f"cranes {number}"}))
        said += [assistant(None, tool_calls=[call]), tool_result(call["id"], WHOLE)]
        await gateway.ask({**body, "messages": said, "conversation": named, "store": False})
        assert json.loads(json.dumps(gateway.upstream.sent[-1]["messages"]))[-len(said) :] == said


async def test_s4_i8_a_pass_that_only_compacts_decides_on_references_anew(world: World, store: bool) -> None:
    agent = Agent(world, store=store, max_input_tokens=6_900)
    value = [{"name": f"crane {number}", "lamps": [number, number + 1]} for number in range(40)]
    spaced = json.dumps(value, indent=4)
    await agent.reads(spaced, "bash", {"command": "cranes"})
    await agent.reads(json.dumps(value[:10], indent=4), "bash", {"command": "cranes again"})
    await agent.reads("\n".join([*listing(0, 300, "buoy"), *["still waiting for the tide"] * 100]))
    assert references(agent.forwarded[-1]) == [4]
    await agent.ends()
    sent = agent.forwarded[-1]
    assert agent.breaks == [3]
    assert labels(sent) == []
    assert references(sent) == [6]
    assert [json.loads(sent[n]["content"]) for n in (2, 4)] == [value, value[:10]]
    assert len(sent[2]["content"]) < len(spaced) / 2


@pytest.mark.parametrize("to", ["cleared", "edited"])
async def test_s4_i8_a_client_that_takes_away_what_is_referred_to_gets_the_whole(world: World, to: str) -> None:
    """As agents do that clear old results themselves."""
    agent = Agent(world, store=False)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.steps(2)
    assert references(agent.forwarded[-1]) == [4]
    agent.said[2]["content"] = "[Old result cleared]" if to == "cleared" else WHOLE.replace("crane 30", "crane XXX")
    await agent.steps(2)
    assert references(agent.forwarded[-1]) == []
    assert agent.forwarded[-1][4]["content"] == AGAIN


async def test_s4_i8_a_branch_before_it_has_no_reference(world: World, store: bool) -> None:
    agent = Agent(world, store=store)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.ends()
    shaped = agent.forwarded[-1]
    del agent.said[5:]
    agent.said.append(user("Something else."))
    await agent.ends()
    assert agent.forwarded[-1][:5] == shaped[:5]
    agent.said = [agent.said[0], *agent.said[3:5]]
    await agent.ends()
    results = [each["content"] for each in agent.forwarded[-1] if each["role"] == "tool"]
    assert results == ([WHOLE, shaped[4]["content"]] if store else [AGAIN])


async def test_s4_i8_the_meter_counts_what_shaping_spares(agent: Agent) -> None:
    for number in range(6):
        await agent.reads(WHOLE if number % 2 else AGAIN)
        await agent.reads("\n".join(listing(100 * number, 100 * number + 60, f"crane {number}")))
    await agent.ends()
    saved = sum(Decimal(each["net_saving"]) for each in agent.economics)
    whole = agent.unmanaged
    assert agent.breaks == []
    assert saved > Decimal("0.05") * whole
    assert abs(saved - (agent.unmanaged - agent.paid)) <= Decimal("0.02") * whole


async def test_s4_i8_a_fault_of_it_costs_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("gateway.context.economising.shaped", broken)
    agent = Agent(world, store=True)
    await agent.reads(WHOLE)
    await agent.reads(AGAIN)
    await agent.ends()
    assert agent.forwarded[-1] == agent.said[:-1]
