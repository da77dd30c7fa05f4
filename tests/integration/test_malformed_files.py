"""Broken files of each format: a reading or a plain refusal, within the limits (guarantee §14.12)."""

import os

import pytest

from evals.corpus.reading import read_broken
from evals.corpus.samples import Sample, corpus, readable

TIMES = 6
"""For each file in `make test`; `make chaos` does more."""
CHAOS_TIMES = int(os.environ.get("CORPUS_CHAOS_TIMES", "1000"))


def read_as_text(sample: Sample) -> bool:
    """Whether the file takes no program to be read."""
    return readable(sample) and not sample.needs


def test_s14_12_broken_files_are_read_or_refused() -> None:
    """§14.12: no reader raises anything else, ends its process, or takes longer or more than it may."""
    tally = read_broken([sample for sample in corpus() if read_as_text(sample)], range(TIMES))
    assert not tally.breaches, "\n".join(tally.breaches)
    assert min(tally.outcomes["read"], tally.outcomes["unreadable"]) > TIMES, "both happen, or nothing was tried"


@pytest.mark.chaos
@pytest.mark.parametrize("name", [sample.name for sample in corpus() if read_as_text(sample)])
def test_s14_12_a_thousand_broken_files_of_each_format(name: str) -> None:
    """The same, a thousand times for each file."""
    sample = next(each for each in corpus() if each.name == name)
    tally = read_broken([sample], range(10_000, 10_000 + CHAOS_TIMES))
    assert not tally.breaches, f"{tally.outcomes}\n" + "\n".join(tally.breaches[:20])
    assert tally.outcomes.total() == CHAOS_TIMES
