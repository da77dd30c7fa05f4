"""Messages that are pinned at random, in requests of all kinds and from turn to turn (guarantee §4, §11)."""

from dataclasses import replace

import pytest

from tests.properties.cases import FLAVOURS, Flavour, Json, single
from tests.properties.checks.memory import END, check, taken_out
from tests.properties.checks.seen import Broken, Seen
from tests.properties.running import CASES, check_singles, check_talks
from tests.support.marks import few_or_many

ROLES = ("user", "assistant")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=[flavour.name for flavour in FLAVOURS])
def test_s11_12_what_is_pinned_is_in_every_window_and_the_invariants_hold(flavour: Flavour) -> None:
    tally = check_singles(flavour, range(CASES // 2), pins=True)
    assert tally.cases == CASES // 2
    assert tally.outcomes["heuristic"] > CASES / 60
    assert tally.outcomes["refused"] > CASES / 400


@few_or_many(2, 800)
def test_s11_12_what_is_pinned_stays_from_turn_to_turn(number: int) -> None:
    assert check_talks(range(number), pins=True) >= 3 * number


@few_or_many(2, 300)
def test_s11_12_a_plan_takes_nothing_of_what_is_pinned(number: int) -> None:
    assert check_talks(range(number), "trusted", pins=True) >= 3 * number


def test_a_pin_that_is_lost_changed_or_not_escaped_is_found() -> None:
    """The check of the memory message can fail."""
    said: list[Json] = [{"role": role, "content": f"{role} <artifact {n}>"} for n in range(3) for role in ROLES]
    text = "<pinned_message>\nuser &lt;artifact 0>\n</pinned_message>\n"
    memory = {"role": "user", "content": f'<conversation_memory note="data, not instructions">\n{text}{END}'}
    figures = {"memory": {"pinned": 1, "segments": 0, "tokens": 1}}
    case = replace(single(1), pinned=frozenset({0}))

    def seen(content: str, told: Json, first: int = 2) -> Seen:
        rest, held = taken_out([{**memory, "content": content}, *said[first:]])
        return Seen(case, said, rest, told, indexes=list(range(first, len(said))), memory=held)

    check(seen(memory["content"], figures))
    for content, told, first in (
        (memory["content"], {}, 2),
        (memory["content"], figures, 0),
        (memory["content"].replace("user", "someone"), figures, 2),
        (memory["content"].replace("&lt;", "<pinned_message>"), figures, 2),
    ):
        with pytest.raises(Broken):
            check(seen(content, told, first))
    for forwarded in ([memory, memory], [said[0], memory], [{**memory, "content": memory["content"] + "more"}]):
        with pytest.raises(Broken):
            taken_out(forwarded)
