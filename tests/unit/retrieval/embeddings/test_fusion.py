"""Ranks by words and by meaning (guarantee §5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.relevance import EmbeddingFault, RankedPassage, Vector, packed
from gateway.retrieval.embeddings.search import WantedVector, fused, ranks, similarities


def vector(*numbers: float) -> Vector:
    import numpy

    return packed(numpy.array([numbers]))[0]


def passages(*scores: float) -> list[list[RankedPassage]]:
    return [[RankedPassage(n * 10, n * 10 + 9, score) for n, score in enumerate(scores)]]


def places(*numbers: int) -> list[WantedVector]:
    return [WantedVector("", str(n), None, 0, n) for n in numbers]


def scores_of(found: list[list[RankedPassage]]) -> list[float]:
    return [p.score for each in found for p in each]


EAST, NORTH, WEST = vector(1, 0), vector(0, 1), vector(-1, 0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([3, 1, 2], [1, 3, 2]), ([0, 5, 0, 0], [4, 1, 4, 4]), ([2, 2, 1], [2, 2, 3]), ([], []), ([7], [1])],
)
def test_equal_scores_share_the_last_of_their_ranks(scores: list[float], expected: list[int]) -> None:
    assert ranks(scores) == expected


def test_what_only_meaning_finds_comes_before_what_only_words_find_a_little() -> None:
    found = fused(passages(9, 1, 0, 0), places(0, 1, 2, 3), [NORTH, WEST, EAST, NORTH], [EAST])
    assert scores_of(found) == [9, 0, 1, 0]


def test_passages_without_a_vector_keep_their_scores_and_nothing_else_of_a_passage_changes() -> None:
    before = passages(5, 4, 3, 0)
    after = fused(before, places(1, 3), [WEST, EAST], [EAST])
    assert scores_of(after) == [5, 4, 3, 0], "a tie of first places goes to the words"
    assert scores_of(fused(before, places(2, 1), [EAST, NORTH], [EAST])) == [5, 4, 3, 0]
    assert [(p.start, p.end) for p in after[0]] == [(p.start, p.end) for p in before[0]]


def test_further_searches_together_weigh_no_more_than_the_question() -> None:
    """§5: the question itself always stays, at least with the weight of the others together."""
    of_question = fused(passages(1, 1, 1), places(0, 1, 2), [EAST, NORTH, WEST], [EAST, NORTH, NORTH])
    assert scores_of(of_question) == [1, 1, 1]
    mixed = fused(passages(3, 2, 0), places(0, 1, 2), [WEST, EAST, NORTH], [EAST, NORTH, NORTH, NORTH])
    assert scores_of(mixed)[1] == 3


@given(
    scores=st.lists(st.floats(0, 9), min_size=1, max_size=12),
    with_vector=st.sets(st.integers(0, 11)),
    angles=st.lists(st.sampled_from([EAST, NORTH, WEST]), min_size=12, max_size=12),
)
def test_scores_are_only_exchanged_among_those_that_have_a_vector(
    scores: list[float], with_vector: set[int], angles: list[Vector]
) -> None:
    at = sorted(n for n in with_vector if n < len(scores))
    after = scores_of(fused(passages(*scores), places(*at), angles[: len(at)], [EAST]))
    if any(scores[n] for n in at):  # else their meaning earns them what no word did
        assert sorted(after) == sorted(scores)
    assert all(after[n] == scores[n] for n in range(len(scores)) if n not in at)


def test_vectors_have_a_direction_and_fit_those_of_their_space() -> None:
    assert similarities(EAST, [EAST, NORTH, vector(1, 0, 0), WEST]) == pytest.approx([1, 0, -1, -1])
    assert similarities(EAST, []) == []
    assert vector(3e38, 0) == EAST
    for bad in ((0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)):
        with pytest.raises(EmbeddingFault):
            vector(*bad)
