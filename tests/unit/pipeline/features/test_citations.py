"""What an answer cites is read strictly: an unknown id, or a place that is not there, is none."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.core.types.places import TextPlaces, joined, marker, place_and_line, regions_of, sheet_marker
from gateway.pipeline.features.citations import MAX_CITATIONS, PASSAGE_CHARS, SentArtifact, citations_of
from tests.support.growth import is_linear

ID, OTHER = "art_0123456789abcdef", "art_fedcba9876543210"
TEXT = f"[page 1]\none\n\n[page 2]\ntwo\n\n{marker('file', 'a, b.txt')}\nfirst\nsecond\nthird\n"
TEXT += f"{marker('file', 'x.xlsx')}\n{sheet_marker('My sheet', 4, 'C', 6)}\nn,x\na,1\nb,2"


def sent(content: str = TEXT, *spans: tuple[int, int], **more: bool) -> Callable[[str], list[SentArtifact]]:
    one = SentArtifact(ID, "step_1:x", "x", content, spans or ((0, len(content)),), **more)
    return lambda name: [one] if name in (ID, "step_1:x") else []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("page 2", "[page 2]\ntwo\n\n"),
        ("pages 1-2", "[page 1]\none\n\n[page 2]\ntwo\n\n"),
        ("file a, b.txt, line 2", "second"),
        ("file a, b.txt, lines 2-3", "second\nthird"),
        ("file a, b.txt", "[file a, b.txt]\nfirst\nsecond\nthird\n"),
        ("file x.xlsx, 'My sheet'!A5:C6", "a,1\nb,2"),
        ("'My sheet'!B5", "a,1"),
    ],
)
def test_a_place_that_is_there_is_cited_with_its_text(place: str, words: str) -> None:
    found = citations_of(f"So it is [{ID}, {place}].", sent())
    assert [each["text"] for each in found.found[0]["passages"]] == [words]
    assert found.found[0]["place"] == place
    assert found.dropped == 0


@pytest.mark.parametrize(
    "named",
    [
        *(f"{OTHER}", f"{ID}, page 3", f"{ID}, pages 2-1", f"{ID}, 'My sheet'!A3:C5", f"{ID}, Other!A5"),
        *(f"{ID}, file c.txt", f"{ID}, file a, b.txt, lines 2-9", f"{ID}, lines 0-1", f"{ID}, somewhere"),
    ],
)
def test_what_is_not_there_is_dropped(named: str) -> None:
    found = citations_of(f"So it is [{named}].", sent())
    assert (found.found, found.dropped) == ([], 1)


def test_lines_without_a_file_are_those_before_the_first_marker() -> None:
    mail = f"Subject: x\nHello\n{marker('file', 'a.txt')}\nfirst"
    (one,) = citations_of(f"[{ID}, lines 1-2]", sent(mail)).found
    assert [each["text"] for each in one["passages"]] == ["Subject: x\nHello"]
    assert citations_of(f"[{ID}, line 3]", sent(mail)).found == []


def test_a_place_that_the_model_was_not_sent_is_dropped() -> None:
    until = TEXT.index("[page 2]")
    found = citations_of(f"[{ID}, page 1] [{ID}, page 2]", sent(TEXT, (0, until)))
    assert [each["place"] for each in found.found] == ["page 1"]
    assert found.dropped == 1


def test_no_more_is_quoted_than_was_sent() -> None:
    long = "word " * 1000
    found = citations_of(f"[{ID}] and again [{ID}]", sent(long, (10, 20), (100, 5000)))
    (one,) = found.found
    assert [(each["start"], each["end"]) for each in one["passages"]] == [(10, 20), (100, 100 + PASSAGE_CHARS)]
    assert one["place"] is None


def test_brackets_in_brackets_and_halves_are_none() -> None:
    hostile = f"[[{ID}, page [1]] [{ID}, page 1 {ID}] [art_1] ({ID}) [{ID},page 1"
    assert citations_of(hostile, sent()).found == []


def test_very_many_false_ids_are_dropped_in_linear_time() -> None:
    def cited(size: int) -> None:
        citations_of("[" * size, sent())
        citations_of(f"[{ID}, " * (size // 25), sent())
        citations_of("".join(f"[{ID}, page {n}]" for n in range(size // 32)), sent())

    assert is_linear(cited, 300_000)
    assert citations_of("".join(f"[{ID}, page {n}]" for n in range(3, 999)), sent()).dropped > MAX_CITATIONS


def test_places_are_found_as_they_are_told() -> None:
    places = TextPlaces(TEXT)
    for words in ("one", "two", "second", "first\nsecond", "a,1", "a,1\nb,2"):
        start = TEXT.index(words)
        ((low, high),) = places.find(places.of(start, start + len(words)))
        assert low <= start < start + len(words) <= high


LOG = "".join(f"entry {number} of the log, with some words\n" for number in range(1, 3_000))
BOOK = "".join(f"[page {n}]\n" + f"Page {n} has these words, again and again.\n" * 600 for n in range(1, 5))
ROWS = "[sheet Sales A1:B3000]\n" + "".join(f"item {number}\t{number}\n" for number in range(1, 3_001))


@pytest.mark.parametrize("head", ["", "[file a.log]\n"])
def test_s14_8_a_line_of_a_large_document_is_that_of_the_document(head: str) -> None:
    """§14.7, §14.8: the model was told a line's number in the document, and cites it; what no line of the excerpt has
    is dropped."""
    read, file = joined([list(regions_of(head + LOG))[n] for n in (0, 5, 9)]), "file a.log, " if head else ""
    words = "entry 1200 of the log, with some words\nentry 1201"
    at = read.index(words)
    place = TextPlaces(read, excerpt=True).of(at, at + len(words))
    assert place == f"{file}lines 1200-1201"
    one = citations_of(f"[{ID}, {place}]", sent(read, original=False, excerpt=True)).found[0]
    assert one["passages"] == [{"start": None, "end": None, "text": f"{words} of the log, with some words"}]
    assert citations_of(f"[{ID}, {file}line 700]", sent(read, original=False, excerpt=True)).dropped == 1
    assert citations_of(f"[{ID}, {file}lines 5-6]", sent(read, original=False, excerpt=True)).found[0]["passages"]


def test_s14_8_a_page_or_a_row_below_a_gap_is_cited() -> None:
    """§14.8: a page of which an excerpt has two parts, rows of a sheet whose first rows stand above the gap."""
    pages = joined([each for each in regions_of(BOOK) if each.number in (0, 5, 7)])
    second = next(each.text for each in regions_of(BOOK) if each.number == 5)
    (one,) = citations_of(f"[{ID}, page 2]", sent(pages, original=False, excerpt=True)).found
    assert second[:100] in one["passages"][0]["text"]
    rows = joined([each for each in regions_of(ROWS) if each.number in (0, 3)])
    row = next(each.text for each in regions_of(ROWS) if each.number == 3).split("\t")[0].removeprefix("item ")
    (cited,) = citations_of(f"[{ID}, Sales!A{row}:B{row}]", sent(rows, original=False, excerpt=True)).found
    assert cited["passages"][0]["text"] == f"item {row}\t{row}"


def test_s14_7_lines_of_regions_that_were_stored_without_a_number_are_not_told() -> None:
    first, *_, last = (replace(each, line=None) for each in regions_of(LOG))
    read = joined([first, last])
    at = read.index("entry 2900 ")
    assert TextPlaces(read, excerpt=True).of(at, at + 10) == ""
    assert place_and_line(last.where) == ("", None)
    for each in regions_of(f"{LOG}[file b.txt]\n{LOG}"):
        assert place_and_line(each.where) == (each.place, each.line)


def test_a_result_is_cited_by_its_step_and_once() -> None:
    found = citations_of(f"[step_1:x, page 1] [{ID}, page 1] [step_2:x] [step_1:y] [step_1:x]", sent())
    assert [each["place"] for each in found.found] == ["page 1", None]
    assert found.dropped == 2


def test_one_name_may_stand_for_the_results_of_calls_at_once() -> None:
    both = [SentArtifact(name, "step_1:x", "x", "text", ((0, 4),)) for name in (ID, OTHER)]
    found = citations_of("[step_1:x]", lambda name: both)
    assert [each["artifact_id"] for each in found.found] == [ID, OTHER]


def test_a_summary_is_cited_without_passages_and_other_words_without_their_characters() -> None:
    nothing = SentArtifact(ID, "s", None, TEXT, (), summarized=True)
    (one,) = citations_of(f"[{ID}, page 1] [{ID}, page 9]", lambda name: [nothing]).found
    assert (one["place"], one["passages"]) == ("page 1", [])
    (other,) = citations_of(f"[{ID}]", sent("words", original=False)).found
    assert other["passages"] == [{"start": None, "end": None, "text": "words"}]


@pytest.mark.parametrize("place", ["", ", page 1", ", lines 2-1201"])
@pytest.mark.parametrize("at", [0, 3, 600, 1199])
def test_a_long_passage_is_told_around_the_words_that_rest_on_it(place: str, at: int) -> None:
    """And not from its beginning; where the answer shares no word with it, the beginning is all that can be told."""
    lines = [f"The keeper of lamp {n} is away." for n in range(1200)]
    lines[at] = "The berth code is ZEBRA-77."
    text = "[page 1]\n" + "\n".join(lines)
    (one,) = citations_of(f"Many lamps are there. The berth has the code ZEBRA-77 [{ID}{place}].", sent(text)).found
    (passage,) = one["passages"]
    assert lines[at] in passage["text"]
    assert len(passage["text"]) <= PASSAGE_CHARS
    assert passage["text"] == text[passage["start"] : passage["end"]]
    assert passage["start"] == 0 or text[passage["start"] - 1] == "\n"
    (other,) = citations_of(f"Ja [{ID}{place}].", sent(text)).found
    assert other["passages"][0]["start"] in (0, len("[page 1]\n"))
