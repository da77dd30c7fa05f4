"""Files: the corpus of real files, attached as they are, three at once; one place in one of them answers."""

import base64
from collections.abc import Sequence

from evals.corpus.samples import Sample, corpus, readable
from evals.words import Writer

BUDGETS = (2000, 4000, 8000)
OTHERS = 2
"""Files beside the one that answers: about 12,000 tokens in all."""
STEP = 7
"""Files next to each other in the corpus are alike."""


def files() -> Writer:
    """Each fact of each file that can be read here without a program beside."""
    suite = Writer("files", BUDGETS)
    samples = [sample for sample in corpus() if readable(sample) and not sample.needs]
    names = [suite.file(sample.name, base64.b64encode(sample.raw).decode()) for sample in samples]
    for number, sample in enumerate(samples):
        beside = [names[other] for other in _others(number, samples)]
        at = number % (OTHERS + 1)
        attached = [*beside[:at], names[number], *beside[at:]]
        for fact in sample.facts:
            suite.case(
                f"{sample.ending} {fact.kind}", fact.question, [fact.evidence], docs=attached, mode="attachments"
            )
    return suite


def _others(number: int, samples: Sequence[Sample]) -> list[int]:
    """Files that answer none of the questions that this one answers."""
    asked = {fact.question for fact in samples[number].facts}
    found: list[int] = []
    for step in range(1, len(samples)):
        other = (number + STEP * step) % len(samples)
        if other != number and other not in found and not asked & {fact.question for fact in samples[other].facts}:
            found.append(other)
    return found[:OTHERS]
