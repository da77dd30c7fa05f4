"""The index of large documents: regions, their places, the compact form, what a question reads (guarantee §14.7)."""

import contextlib
import random
import subprocess
import threading
import zlib

import pytest

from gateway.core.types.places import GAP_LINE, REGION_CHARS, RegionPlace, TextPlaces, joined, region_spans, regions_of
from gateway.retrieval.corpus import TermLexicon
from gateway.retrieval.named_places import places_named
from gateway.retrieval.stored import segment_process
from gateway.retrieval.stored.postings import SEGMENT_REGIONS, PostingBucket, bucket_of, segment
from gateway.retrieval.stored.read import HEAD_REGIONS, IndexedDocument, best_regions, regions_named, wanted_terms
from gateway.retrieval.stored.segment_process import IndexFailed, SegmentMaker

WORDS = ["harbour", "tide", "rope", "anchor", "gull", "mast", "deck", "hull", "storm", "chart", "bell", "lantern"]


SHEET_ROWS = "[sheet Sales A1:B3000]\n" + "".join(f"item {n}\t{n * 3}\n" for n in range(1, 3001))
PAGED = "".join(f"[page {n}]\n{'a line of some words that fills a page' * 70}\n" for n in range(1, 60))
LINED = "".join(
    f"[file {name}.txt]\n" + "".join(f"{name} line {n} of some words\n" for n in range(1, 2000)) for name in "ab"
)


def texts(many: int) -> list[str]:
    rng = random.Random(1)
    return [f"{' '.join(rng.choices(WORDS, k=200))} item{number}x" for number in range(many)]


def index(regions: list[str]) -> IndexedDocument:
    found = {}
    for number in range(0, len(regions), SEGMENT_REGIONS):
        for bucket, data in segment(regions[number : number + SEGMENT_REGIONS], TermLexicon()):
            found[number // SEGMENT_REGIONS, bucket] = PostingBucket(data)
    return IndexedDocument(len(regions), len(regions), found)


def test_s14_7_a_bucket_says_where_each_term_is_and_how_often() -> None:
    regions = ["rope rope tide", "gull", "tide Rope's ropes", "ROPE_tide"]
    buckets = {bucket: PostingBucket(data) for bucket, data in segment(regions, TermLexicon())}

    def of(term: str) -> list[tuple[int, int]]:
        posting = buckets[bucket_of(term)].of(term)
        return list(zip(posting.regions.tolist(), posting.counts.tolist(), strict=True))

    assert of("rope") == [(0, 2), (2, 2), (3, 1)]
    assert of("tide") == [(0, 1), (2, 1), (3, 1)]
    assert of("gull") == [(1, 1)]
    assert of("rope_tid") == [(3, 1)]


def test_s14_7_a_term_that_is_nowhere_is_nowhere() -> None:
    (bucket, data), *_ = segment(["gull"], TermLexicon())
    assert not PostingBucket(data).of("zebra").regions.size
    assert bucket == bucket_of("gull")
    with pytest.raises(zlib.error):
        PostingBucket(data[:-4])


def test_s14_7_every_region_of_several_segments_is_found_by_its_own_word() -> None:
    regions = texts(SEGMENT_REGIONS + 300)
    document = index(regions)
    for number in (0, 17, SEGMENT_REGIONS - 1, SEGMENT_REGIONS, SEGMENT_REGIONS + 250):
        terms = wanted_terms(f"What about item{number}x?", [])
        assert number in best_regions(terms, [document], 10)[0]


def test_s14_7_the_best_of_all_documents_are_read_and_the_ends_of_each() -> None:
    one, other = index(texts(50)), index([*texts(20), "The zebra stands here.", "end"])
    chosen = best_regions(wanted_terms("Where is the zebra?", []), [one, other], 10)
    assert chosen == [[0, 49], [0, 20, 21]]


def test_s14_7_while_the_index_is_not_finished_the_beginning_is_read() -> None:
    document = index(texts(30))
    unfinished = IndexedDocument(60, 30, document.found)
    chosen = best_regions(wanted_terms("What about item25x?", []), [unfinished], HEAD_REGIONS + 2)[0]
    assert chosen == [*range(HEAD_REGIONS), 25, 59]


def test_s14_7_words_in_other_scripts_are_found() -> None:
    document = index(["nichts", "Die Schlüssel liegen in Köln.", "маяк стоит на берегу", "灯台の鍵は東京にある", "fin"])
    for question, number in (("Wo sind die Schlüssel?", 1), ("маяки", 2), ("東京", 3)):
        assert best_regions(wanted_terms(question, []), [document], 3)[0] == [0, number, 4]


def test_s14_7_the_process_apart_makes_the_same_index() -> None:
    regions = texts(40)
    with SegmentMaker() as maker:
        assert maker.make(regions) == list(segment(regions, TermLexicon()))
        assert maker.make(regions[:3]) == list(segment(regions[:3], TermLexicon()))


def test_s14_7_regions_are_the_text_and_end_with_lines() -> None:
    text = "\n".join(texts(100))
    regions = list(regions_of(text))
    assert "".join(each.text for each in regions) == text
    assert [(each.start, each.start + len(each.text)) for each in regions] == list(region_spans(text))
    assert all(len(each.text) <= REGION_CHARS for each in regions)
    assert all(each.text.endswith("\n") for each in regions[:-1])


def test_s14_7_regions_that_are_read_keep_their_places() -> None:
    line = "a line of some words that fills a page\n"
    text = "".join(f"[page {number}]\n{line * 100}" for number in range(1, 40))
    regions = list(regions_of(text))
    read = joined([regions[0], regions[9], regions[-1]])
    assert len(GAP_LINE.findall(read)) == 2
    at = read.index(regions[9].text)
    page = text.rfind("[page ", 0, regions[9].start + 1)
    assert TextPlaces(read).of(at, at + 40) == text[page + 1 : text.index("]", page)]


def test_s14_7_cells_of_a_region_are_those_of_its_rows() -> None:
    rows = "".join(f"item {number},{number}\n" for number in range(4, 3001))
    regions = list(regions_of(f"[file a.xlsx]\n[sheet Sales A4:B3000]\n{rows}"))
    read = joined([regions[0], regions[3]])
    number = int(regions[3].text.split(",")[0].removeprefix("item "))
    at = read.index(regions[3].text)
    cells = TextPlaces(read).of(at, at + len(f"item {number},{number}"))
    assert cells == f"file a.xlsx, Sales!A{number}:B{number}"


def test_s14_7_lines_are_told_where_their_numbers_are_known() -> None:
    first = "".join(f"line {number} of the first file, some words\n" for number in range(1, 2_000))
    second = "".join(f"row {number} of the other one, some words\n" for number in range(1, 900))
    for head in ("", "[file a.txt]\n"):
        regions = list(regions_of(f"{head}{first}[file b.txt]\n{second}"))
        change = next(each.number for each in regions if "[file b.txt]" in each.text)
        read = joined([regions[0], regions[3], regions[change]])
        places = TextPlaces(read, excerpt=True)

        def place(words: str, places: TextPlaces = places, read: str = read) -> str:
            return places.of(read.index(words), read.index(words) + len(words))

        file = "file a.txt, " if head else ""
        assert place("line 5 of the first file") == f"{file}line 5"
        number = regions[3].text.split(" ")[1]
        assert place(regions[3].text[:10]) == f"{file}line {number}"
        assert place("row 3 of the other one") == "file b.txt, line 3", "its own marker was read"


@pytest.mark.parametrize(
    ("text", "question", "held"),
    [
        (SHEET_ROWS, "What is in row 2900?", "item 2900\t"),
        (SHEET_ROWS, "Sales!B1234", "item 1234\t"),
        (PAGED, "Was steht auf Seite 33?", "[page 33]"),
        (LINED, "line 1777 of b.txt", "b line 1777 "),
        (LINED, "a.txt:1500", "a line 1500 "),
        (LINED.replace("[file a.txt]\n", ""), "what does line 9 say?", "a line 9 "),
    ],
)
def test_s14_7_a_place_that_a_question_names_is_read(text: str, question: str, held: str) -> None:
    """§14.7, §14.2."""
    regions = list(regions_of(text))
    found = regions_named(places_named(question), [RegionPlace(each.number, each.place, each.line) for each in regions])
    assert len(found) <= 3
    assert any(held in regions[number].text for number in found)
    document = IndexedDocument(len(regions), len(regions), {})
    assert set(found) <= set(best_regions({}, [document], 8, {0: found})[0])


def test_s14_7_a_question_looks_up_few_buckets() -> None:
    terms = wanted_terms(" ".join(f"word{number}" for number in range(500)), [])
    assert len(set(map(bucket_of, terms))) <= 24


def test_s14_7_a_process_that_is_closed_while_it_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is given up closes it while a thread still starts it."""
    maker, start = SegmentMaker(), segment_process._started
    closing = threading.Thread(target=maker.close)
    started: list[subprocess.Popen[bytes]] = []

    def start_slowly() -> subprocess.Popen[bytes]:
        closing.start()
        closing.join(0.1)
        started.append(start())
        return started[0]

    monkeypatch.setattr(segment_process, "_started", start_slowly)
    with contextlib.suppress(IndexFailed):
        maker.make(["a lamp"])
    closing.join()
    with started[0] as process:
        ended = process.returncode is not None
    assert ended


def test_s14_7_one_that_is_closed_starts_no_process() -> None:
    maker = SegmentMaker()
    maker.close()
    with pytest.raises(IndexFailed):
        maker.make(["a lamp"])
