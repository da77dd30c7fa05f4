"""Files of real programs, read: each fact is there, and its place can be told from the text alone (§14.2)."""

import pytest

from evals.corpus.facts import names
from evals.corpus.samples import Sample, corpus, readable
from gateway.core.types.places import TextPlaces
from gateway.documents.document import Reading, ReadOptions, UnreadableDocument, read
from gateway.documents.file_reader import stored_document
from tests.support.documents import tokens

READABLE = [sample for sample in corpus() if readable(sample)]


def reading_of(sample: Sample) -> Reading:
    """As it is known by its name and media type."""
    return read(stored_document(sample.name, sample.media, sample.raw), ReadOptions(ocr=bool(sample.needs)))


@pytest.mark.parametrize("sample", READABLE, ids=lambda sample: sample.name)
def test_s14_each_fact_is_read_at_its_place(sample: Sample) -> None:
    text = reading_of(sample).text
    assert tokens(text) > 2000, "else nothing has to be chosen"
    places = TextPlaces(text)
    for fact in sample.facts:
        found = fact.pattern.search(text)
        assert found, f"{fact.evidence} is lost"
        assert fact.place is None or names(place := places.of(*found.span()), fact.place), f"{fact.place}: {place}"


def test_what_is_not_read_says_so() -> None:
    """Word's old format: the reason names one that is read."""
    old = next(sample for sample in corpus() if sample.ending == "doc")
    with pytest.raises(UnreadableDocument, match="DOCX"):
        reading_of(old)
