"""Parts of passages that are too long for the room that is left."""

from gateway.models.exchange import ModelFacts
from gateway.models.relevance import Passage
from gateway.models.window import Material
from gateway.tokens.counter import CounterRegistry
from gateway.window.candidates import Candidate, TranscriptMessage
from gateway.window.counting import PromptCounter
from gateway.window.greedy_fit import LEAST_PART, GreedyFit

TEXT = " ".join(f"word{number}" for number in range(400))


def greedy() -> GreedyFit:
    counter = CounterRegistry().counter(ModelFacts("gpt-4o", tokenizer="o200k_base"))
    counting = PromptCounter(counter, {"model": "gpt-4o"}, Material((), (), 0), 1.0)
    return GreedyFit(counting, 1, [], lambda turn: 0)


def candidate(order: int = 0) -> Candidate:
    return Candidate(TranscriptMessage(0, 1, "user", TEXT), 0, Passage(0, len(TEXT), 1.0), order)


def test_each_part_goes_on_where_the_one_before_it_ended() -> None:
    taken, long = greedy(), candidate()
    for limit in (300, 600, 900, 5000, 9000):
        taken.add_parts([long], limit)
    pieces = [each.text for each in taken.passages()]
    assert len(pieces) > 2
    assert TEXT.startswith("".join(pieces))
    assert len("".join(pieces)) > len(TEXT) - LEAST_PART


def test_a_part_that_was_given_up_is_taken_again() -> None:
    taken, long = greedy(), candidate()
    taken.add_parts([long], 300)
    assert taken.shrink(1)
    taken.add_parts([long], 300)
    assert [each.passage.start for each in taken.passages()] == [0]


def test_parts_of_another_passage_do_not_count() -> None:
    taken = greedy()
    taken.add_parts([candidate()], 300)
    taken.add_parts([candidate(order=1)], 600)
    assert [each.passage.start for each in taken.passages()] == [0, 0]
