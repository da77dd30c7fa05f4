"""The house stays livable: rooms of a size to live in, and few files in the root (ADR 1). `make house` prints more."""

from tests.house.measure import measure

SMALL_WITH_REASON = {
    "__main__.py": "`python -m gateway`",
    "base/clock.py": "the one clock, passed in everywhere",
    "base/ids.py": "ids and digests",
    "base/tasks.py": "background tasks and threads",
    "models/internal.py": "what goes to internal models and comes back",
    "relevance/topics.py": "reads a data file",
    "storage/calibrations.py": "one table of its own",
    "storage/lookup/walk.py": "the query that nine others are made of",
}


def test_the_root_holds_what_a_newcomer_looks_for_first() -> None:
    assert measure().root <= 8


def test_no_module_is_a_hall_and_each_closet_has_a_reason() -> None:
    house = measure()
    assert not house.halls
    assert house.closets.keys() <= SMALL_WITH_REASON.keys()
