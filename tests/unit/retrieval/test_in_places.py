"""A question that names a place finds it (guarantee §14.2), one of position what stands there."""

import json

import pytest

from gateway.core.types.places import marker, sheet_marker
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.named_places import places_named
from gateway.retrieval.question import LARGE_TEXT_CHARS, search_by_regions
from gateway.retrieval.rank import NamedPosition, position, relevance
from tests.support.growth import is_linear
from tests.unit.retrieval.asking import ranked

FILLER = "The committee met and talked about several matters of the budget at some length. "
PAGES = "\n\n".join(f"{marker('page', str(n))}\n{FILLER * 12}Remark {n}." for n in range(1, 31))
SLIDES = PAGES.replace("[page ", "[slide ")
SHEETS = "\n\n".join(
    f"{sheet_marker(name, 1, 'B', 21)}\nitem\tamount\n" + "\n".join(f"thing {n}\t{n}" for n in range(20))
    for name in ("Income", "Sheet2", "Q1 plan")
)
FILES = "\n\n".join(f"{marker('file', f'src/{name}')}\n{FILLER * 5}" for name in ("a.txt", "main.txt", "other.txt"))


def best(text: str, question: str) -> tuple[str, RankedPassage]:
    """The best passage with its heading above it."""
    found = relevance(RelevanceQuery(question), [SearchedSource(text, "artifact")])[0]
    passage = max(found, key=lambda each: each.score)
    return f"{passage.heading}\n{text[passage.start : passage.end]}", passage


@pytest.mark.parametrize(
    ("text", "question", "place"),
    [
        (PAGES, "What did the committee talk about on page 17?", "[page 17]"),
        (PAGES, "Summarize page 3", "[page 3]"),
        (SLIDES, "what does slide 12 say?", "[slide 12]"),
        (SHEETS, "What is the amount of thing 7 in Sheet2?", "[sheet Sheet2 "),
        (SHEETS, "the amounts of the Q1 plan, please", "[sheet Q1 plan "),
        (FILES, "what does main.txt say of the budget?", "[file src/main.txt]"),
    ],
)
def test_s14_2_a_place_that_a_question_names_comes_first(text: str, question: str, place: str) -> None:
    shown, passage = best(text, question)
    assert place in shown
    assert passage.called


def test_s14_2_words_still_count_within_a_place() -> None:
    shown, _ = best(SHEETS, "What is the amount of thing 7 in Sheet2?")
    assert shown.endswith("thing 7\t7")


ROWS = sheet_marker("Sales", 1, "C", 5000) + "\nid\tname\tamount\n"
ROWS += "".join(f"{n * 7919 % 5003}\tperson {n % 97}\t{n * 31 % 1000}\n" for n in range(2, 5001))
OTHERS = f"{SHEETS}\n\n{ROWS.strip()}"
LOG = "".join(f"{n * 7919 % 5003} was seen by warden {n % 97}\n" for n in range(1, 5001))
CODE = f"{marker('file', 'src/a.py')}\n" + "".join(f"a{n * 7919 % 5003} = {n % 97}\n" for n in range(1, 3001))
CODE += f"{marker('file', 'src/b.py')}\n" + "".join(f"b{n * 7919 % 5003} = {n % 97}\n" for n in range(1, 3001))


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "question", "line"),
    [
        *((ROWS, question, f"{3456 * 7919 % 5003}\tperson {3456 % 97}\t{3456 * 31 % 1000}") for question in (
            *("What does row 3456 say?", "Was steht in Zeile 3.456?", "Sales!B3456", "Who is in cell B3456?"),
            *("What is in rows 3,456-3,458 of Sales?", "Welcher Name steht in Zelle $B$3456?"),
        )),
        (OTHERS, "What is in line 4711 of the sheet Sales?", f"{4711 * 7919 % 5003}\tperson {4711 % 97}\t"),
        (OTHERS, "Sheet2!B17", "thing 15\t15"),
        (CODE, "Why does it fail at src/b.py:2500?", f"b{2500 * 7919 % 5003} = "),
        (CODE, "Was steht in a.py in Zeile 2500?", f"a{2500 * 7919 % 5003} = "),
    ],
)  # fmt: skip
def test_s14_2_a_row_or_line_that_a_question_names_comes_first(text: str, question: str, line: str) -> None:
    """§14.2: by its number in the sheet or file, in English and German."""
    shown, passage = best(text, question)
    assert line in shown
    assert passage.called


@pytest.mark.long
@pytest.mark.parametrize("question", ["What does line 4000 say?", "Was sagt die Zeile 4000?", "die 4000. Zeile"])
def test_s14_2_a_line_of_a_plain_text_comes_first(question: str) -> None:
    """§14.2: also of one that is looked through by regions (`retrieval.large`)."""
    shown, _ = best(LOG, question)
    assert f"{4000 * 7919 % 5003} was seen by warden {4000 % 97}" in shown
    filler = f"{FILLER * 40}\n" * (LARGE_TEXT_CHARS // len(FILLER) // 40)
    long = f"{LOG}{filler}"
    (found,) = search_by_regions(
        lambda parts: relevance(RelevanceQuery(question), parts),
        RelevanceQuery(question),
        [SearchedSource(long, "artifact")],
    )
    passage = max(found, key=lambda each: each.score)
    assert f"{4000 * 7919 % 5003} was seen by warden {4000 % 97}" in long[passage.start : passage.end]


def test_s14_2_of_two_texts_the_one_that_is_named_comes_first() -> None:
    """§14.2: by its title."""
    sources = [SearchedSource(PAGES, "artifact", name) for name in ("report.pdf", "minutes.pdf")]
    for name, number in (("minutes.pdf", 1), ("report", 0)):
        found = relevance(RelevanceQuery(f"What is on page 9 of {name}?"), sources)
        scores = [max(each.score for each in passages) for passages in found]
        assert scores.index(max(scores)) == number


@pytest.mark.parametrize(
    ("question", "numbered", "lines"),
    [
        ("pages 12-14 and 20", {("page", n) for n in (12, 13, 14, 20)}, ()),
        ("auf der dritten Folie und in Kapitel 7", {("slide", 3), ("chapter", 7)}, ()),
        ("auf S. 12 und der 9. Seite", {("page", 12), ("page", 9)}, ()),
        ("'My sheet'!A3:C5", set(), ((3, 5),)),
        ("lines 12,000 to 12,010 of a.log", set(), ((12_000, 12_000), (12_000, 12_010))),
        ("acht Seiten aus 1999, the U.S. 12, Q1 and 3 people", set(), ()),
    ],
)
def test_s14_2_what_a_question_names(
    question: str, numbered: set[tuple[str, int]], lines: tuple[tuple[int, int], ...]
) -> None:
    named = places_named(question)
    assert (set(named.numbered), named.lines) == (numbered, lines)


@pytest.mark.parametrize("piece", ["page 1, ", "a.b:1 ", "S. ", "1,000", "$A$1:", " ", "page 1 bis "])
def test_s14_2_a_long_question_is_read_once(piece: str) -> None:
    """§14.2: in linear time."""
    assert is_linear(lambda size: places_named(piece * size), 2_000)


def test_texts_without_markers_have_no_places() -> None:
    plain = PAGES.replace("[page", "(page")
    found = relevance(RelevanceQuery("What is on page 17 of it?"), [SearchedSource(plain, "artifact")])[0]
    assert all(not each.heading for each in found)


TOOLS = frozenset(["grep", "read", "ticket", "list"])
TICKETS = json.dumps([{"ticket": f"T-{n}", "text": "broken lamp " * 8} for n in range(40)])
LINES = "\n".join(f"12:0{n % 10}:00 pump {n} on and running as it was before that" for n in range(50))
PROSE = "\n\n".join(f"Part {n}. " + "The hill is green and the sky is wide. " * 16 for n in range(8))
SOURCES = [
    SearchedSource("What shall we do first?", "turn", "user", True, 0),
    SearchedSource(TICKETS, "artifact", 'list_tickets {"page": 1}', True, 2),
    SearchedSource(LINES, "artifact", 'grep {"pattern": "pump"}', True, 4),
    SearchedSource(PROSE, "artifact", 'read_file {"path": "hills.md"}', True, 6),
    SearchedSource(TICKETS.replace("T-", "U-"), "artifact", 'list_tickets {"page": 2}', True, 8),
]


@pytest.mark.parametrize(
    ("question", "meant"),
    [
        ("the first entry that your second tool call returned", NamedPosition(1, 0, "tool")),
        ("How does the output of the 3rd step begin?", NamedPosition(2, 0, "step", edge=True)),
        ("What is at the bottom of the last result?", NamedPosition(-1, -1, "result", edge=True)),
        ("the penultimate row", NamedPosition(None, -2)),
        ("Show row 12", NamedPosition(None, 11)),
        ("what does line 7 say in the second grep", NamedPosition(1, 6, "grep", by_lines=True)),
        ("the very first file you opened", NamedPosition(0, None, "file")),
        ("When was its first passenger born?", None),
        ("Who was first?", None),
        ("the second world war", None),
        ("", None),
    ],
)
def test_what_is_asked_for(question: str, meant: NamedPosition | None) -> None:
    assert position(question, TOOLS) == meant


@pytest.mark.parametrize(
    ("question", "held"),
    [
        ("What was the first entry of your first tool call?", '"T-0"'),
        ("And the third record in the fourth tool call?", '"U-2"'),
        ("the last entry of the first tool call, please", '"T-39"'),
        ("How does the second tool's output begin?", "pump 0 on"),
        ("How does the output of your second tool call end?", "pump 49 on"),
        ("What did line 31 say in the first grep?", "pump 30 on"),
        ("What was in the first file you opened?", "Part 0."),
        ("the first entry of the second list", '"U-0"'),
        ("What is the last entry?", '"U-39"'),
    ],
)
def test_the_passage_at_that_position_is_first(question: str, held: str) -> None:
    assert held in ranked(question, SOURCES)[0]


def test_a_log_with_commas_begins_with_its_first_line() -> None:
    log = "\n".join(f"2031-02-0{n % 9 + 1} 10:00:{n % 60:02d},01{n % 10} - the pump number {n} runs" for n in range(60))
    sources = [*SOURCES, SearchedSource(log, "artifact", 'read_log {"path": "pump"}', True, 10)]
    assert "pump number 0 runs" in ranked("How does the output of your fifth tool call begin?", sources)[0]
    assert "pump number 2 runs" in ranked("the third entry of the fifth tool call", sources)[0]


@pytest.mark.parametrize("question", ["the first entry of the ninth tool call", "entry 4000 of the first tool call"])
def test_a_position_that_is_not_there_is_no_error(question: str) -> None:
    assert ranked(question, SOURCES) is not None
    assert ranked(question, SOURCES[:1]) is not None
