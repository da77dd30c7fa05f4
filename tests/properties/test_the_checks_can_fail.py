"""A gateway that is wrong on purpose is found out, by a check that is meant for it."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.properties.cases import FLAVOURS, Case, Json, single
from tests.properties.checks import append, leaving, words
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import Broken, Seen
from tests.properties.mutants import MUTANTS, Mutant, changed_prefix, copied
from tests.properties.running import both, gateway, outcome
from tests.properties.talks import Player, Script

pytestmark = pytest.mark.chaos
SEEDS = 60
Answered = tuple[Case, list[Json], Json]


@pytest.fixture(scope="module")
def answered() -> list[Answered]:
    """What the right gateway makes of a few hundred requests."""
    return asyncio.run(_answered())


async def _answered() -> list[Answered]:
    found: list[Answered] = []
    async with both() as gateways:
        for case in (single(seed, flavour) for flavour in FLAVOURS if not flavour.amid for seed in range(SEEDS)):
            made = await outcome(gateways, case)
            if made is not None:
                messages, figures = made["messages"], made["response_metadata"]["context_utilization"]
                with suppress(Broken):
                    check_answer(case, case.messages, messages, figures)
                    found.append((case, messages, figures))
    return found


@pytest.mark.parametrize(("mutant", "names"), MUTANTS.items(), ids=[mutant.__name__ for mutant in MUTANTS])
def test_what_is_wrong_is_found(mutant: Mutant, names: tuple[str, ...], answered: list[Answered]) -> None:
    found = Counter(_found(mutant, answered))
    meant = sum(found[name] for name in names)
    assert meant > found.total() / 2, f"of {found.total()} it was found {dict(found)}"


def _found(mutant: Mutant, answered: list[Answered]) -> Iterator[str | None]:
    """For each case that the mutant changes, the invariant that is seen to be broken."""
    for case, messages, figures in answered:
        changed = mutant(case, *copied(messages, figures))
        if changed is None:
            continue
        try:
            check_answer(case, case.messages, *changed)
        except Broken as broken:
            yield broken.name
        else:
            yield None


def test_who_refuses_what_would_fit_is_found(answered: list[Answered]) -> None:
    reduced = [case for case, _, figures in answered if figures["strategy"] == "heuristic"]
    missed = 0
    for case in reduced:
        with suppress(Broken):
            check_refusal(case, case.messages)
            missed += 1
    assert missed < len(reduced) / 2


def test_a_step_that_comes_back_is_found() -> None:
    said: list[Json] = [{"role": role, "content": "x"} for role in ("user", "assistant", "tool", "assistant", "tool")]
    before = Seen(single(1), said, [said[0], *said[3:]], {}, indexes=[0, 3, 4])
    left = append.left_steps(before)
    assert left == {1, 2}
    append.check_left(before, left)
    with pytest.raises(Broken, match="I2"):
        append.check_left(Seen(single(1), said, said, {}, indexes=[0, 1, 2, 3, 4]), left)


def test_a_task_that_leaves_before_its_steps_is_found() -> None:
    said: list[Json] = [{"role": "user", "content": each} for each in ("the task", "a reminder")]
    for name in ("c0", "c1"):
        call = {"id": name, "type": "function", "function": {"name": "search", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": name, "content": "x"})
    case = replace(single(1), own=["a reminder"], pinned=frozenset())
    case.body["context"]["max_input_tokens"] = 10_000
    words.check(Seen(case, said, [said[1], *said[4:]], {}, indexes=[1, 4, 5]))
    with pytest.raises(Broken, match="I4"):
        words.check(Seen(case, said, said[1:], {}, indexes=[1, 2, 3, 4, 5]))


def test_an_old_result_that_stands_whole_is_found() -> None:
    """Beside a fresh one that is cut; single requests hardly ever have both."""
    said: list[Json] = []
    for name in ("c0", "c1"):
        call = {"id": name, "type": "function", "function": {"name": "search", "arguments": "{}"}}
        said.append({"role": "user", "content": f"ask {name}"})
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": name, "content": f"{name} says this. " * 200})
        said.append({"role": "assistant", "content": "done"})
    cut = [{**message, "content": "[Left out: …]"} if message["role"] == "tool" else message for message in said]
    case = replace(single(1), own=["ask c1"], pinned=frozenset())
    figures: Json = {"artifacts_processed": []}
    leaving.check(Seen(case, said, cut, figures, indexes=[*range(8)]))
    with pytest.raises(Broken, match="I5 old first"):
        leaving.check(Seen(case, said, [*said[:3], *cut[3:]], figures, indexes=[*range(8)]))


def test_a_changed_prefix_is_found() -> None:
    async def talks() -> None:
        script = Script()
        async with gateway(8000, script, match="tenant") as made:
            player = Player(made, script, 8000, changed_prefix)
            for seed in range(60):
                if found["I7"] > 2:
                    break
                try:
                    await player.play(seed)
                except Broken as broken:
                    found[broken.name] += 1

    found: Counter[str] = Counter()
    asyncio.run(talks())
    assert found["I7"] > 2
