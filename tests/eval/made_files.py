"""Files: the corpus of real files, attached as they are; one place in one of them answers."""

import base64

from tests.corpus.samples import corpus, readable
from tests.eval.words import Writer

BUDGETS = (2000, 4000, 8000)


def files() -> Writer:
    """Each fact of each file that can be read here without a program beside."""
    suite = Writer("files", BUDGETS)
    for sample in corpus():
        if sample.needs or not readable(sample):
            continue
        encoded = base64.b64encode(sample.raw).decode()
        name = suite.file(sample.name, encoded)
        for fact in sample.facts:
            suite.case(f"{sample.ending} {fact.kind}", fact.question, [fact.evidence], docs=[name], mode="attachments")
    return suite
