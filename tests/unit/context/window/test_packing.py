"""How room is filled: lanes, the order of candidates, and what is counted of them (guarantee §4 I5, I6)."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window import fit, tuning
from gateway.context.window.candidates import (
    GreedyFit,
    PassageCandidate,
    TranscriptMessage,
    TurnSpan,
    best_first,
    candidates,
    latest_first,
)
from gateway.context.window.counting import PromptCounter
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.relevance import RankedPassage
from gateway.core.types.window import WindowInputs
from tests.support.documents import lamps
from tests.unit.making import FACTS, build, user

PAPER = "\n\n".join(f"The keeper of lamp {number} is called Name{number}." for number in range(40))


def paper(*, historical: bool = False) -> Artifact:
    return Artifact("art_1", ArtifactType.DOCUMENT, PAPER, len(PAPER), "attachment:1", historical=historical)


def passages(count: int, chars: int = 40) -> list[PassageCandidate]:
    of = paper()
    return [PassageCandidate(of, None, RankedPassage(n * chars, (n + 1) * chars, 1.0), n) for n in range(count)]


class Counting:
    """A counter that notes which texts it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        inner = CounterRegistry().counter(FACTS)
        self.counting = PromptCounter(inner, {}, WindowInputs((), (), 0))
        self.counting.text = self.text

    def text(self, text: str) -> int:
        self.asked.append(text)
        return len(text) // 4


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), max_size=30), st.randoms())
def test_of_equal_scores_the_current_turn_comes_first_then_the_order(rows: list[tuple[float, bool]], rng: Any) -> None:
    found = [
        PassageCandidate(paper(), None, RankedPassage(0, 1, score), order, historical=old)
        for order, (score, old) in enumerate(rows)
    ]
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert best_first(shuffled) == sorted(found, key=lambda c: (-c.passage.score, c.historical, c.order))


def test_the_latest_message_comes_first_and_its_passages_in_their_order() -> None:
    said = [TranscriptMessage(index, index + 1, "user", "one two") for index in range(3)]
    found = [
        PassageCandidate(of, of.index, RankedPassage(0, 3, 0.0), 2 * of.index + part) for of in said for part in (0, 1)
    ]
    assert [c.order for c in latest_first(found[::-1])] == [4, 5, 2, 3, 0, 1]


def test_what_is_asked_of_every_passage_is_told_with_the_set() -> None:
    """Of the current turn all is relevant; of what is old, what the question scores."""

    def half(_: Any, sources: Any) -> list[list[RankedPassage]]:
        return [[RankedPassage(0, 10, 0.0), RankedPassage(10, 20, 0.5)] for _ in sources]

    material = WindowInputs((), (), 0)
    for old, relevant in ((False, [True, True]), (True, [True, False])):
        found = candidates(material, [paper(historical=old)], [], half)
        assert [each.historical for each in found] == [old, old]
        assert [each.relevant for each in found] == relevant


def test_a_passage_that_is_tried_again_is_not_counted_again() -> None:
    """Each correction of a window tries once more all that had no room."""
    counter, tried = Counting(), passages(6)
    taken = GreedyFit(counter.counting, 0, [], lambda turn: 0)
    left = taken.add(tried, 140)
    assert left, "not all have room"
    count = len(counter.asked)
    taken.add(left, 145)
    assert len(counter.asked) == len(set(counter.asked)) >= count


def test_s4_i2_turns_stop_at_the_first_that_does_not_fit() -> None:
    turns = [TurnSpan(0, 1), TurnSpan(1, 2), TurnSpan(2, 3)]
    costs = {0: 5, 1: 500, 2: 10}
    taken = GreedyFit(Counting().counting, 3, list(turns), lambda turn: costs[turn.start])
    taken.extend_run(100)
    assert (taken.first, taken.used) == (2, 10)
    taken.shrink(1)
    assert (taken.first, taken.used, taken.run_ended) == (3, 0, True)


async def test_no_lane_may_fill_more_than_the_room(monkeypatch: Any) -> None:
    """The lanes of a question beside a document that does not fit, in their order."""
    seen: list[tuple[str, float, float]] = []

    def watched(lane: fit.PackingLane) -> fit.PackingLane:
        def limit(packer: fit.WindowPacker, room: float) -> float:
            found = lane.limit(packer, room)
            seen.append((lane.name, found, room))
            return found

        return fit.PackingLane(lane.name, limit, lane.fill)

    monkeypatch.setattr(fit, "LANES", tuple(map(watched, fit.LANES)))
    await build([user(f"{lamps(300)}\n\nWho is the keeper of lamp 5?")], 2000)
    names = ["kept results", "best passages", "turns", "rules", "latest step", "needed passages", "summaries"]
    assert [name for name, _, _ in seen] == names
    assert all(limit <= room for _, limit, room in seen)


def test_each_number_by_which_a_window_is_filled_says_what_it_is() -> None:
    lines = Path(tuning.__file__).read_text().splitlines()
    numbers = [line for line in lines if line[:1].isupper() and " = " in line]
    assert len(numbers) > 40
    assert not [line for line in numbers if "  # " not in line]
