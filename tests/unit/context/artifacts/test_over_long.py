"""The document in a text that nothing marks as one, and the user's words around it (guarantee §4 I4)."""

import json

import pytest

from gateway.context.artifacts.collect import document_spans, middle, own_words
from tests.unit.making import build

FIRST, LAST = "Here is my list.", "Who keeps lamp 257?"
KEEPERS = ("Ada Moor", "Ben Gull", "Cleo Rhys", "Dan Holt", "Eva Lind")
LAMPS = [
    f"Lamp {n} stands on cape {n * 7 % 310}, and {KEEPERS[n % 5]} {n} keeps it through the year." for n in range(400)
]
ONE_LINE = " ".join(LAMPS)
ANSWER = "Cleo Rhys 257"


def parts_of(text: str) -> tuple[str, str, str]:
    start, end = middle(text, 8000)
    return text[:start], text[start:end], text[end:]


def test_words_in_one_line_with_a_document_are_kept_with_whole_sentences() -> None:
    first, document, last = parts_of(f"{FIRST} {ONE_LINE} {LAST}")
    assert (first[: len(FIRST)], last[-len(LAST) :]) == (FIRST, LAST)
    assert (document[:5], document[-6:]) == ("Lamp ", "year. ")
    assert all(800 < len(words) <= 1000 for words in (first, last))


@pytest.mark.parametrize("gap", ["\n", "\n\n", "\n \n"])
def test_a_paragraph_of_the_users_own_stays_whole_and_alone(gap: str) -> None:
    """Only one of the two holds a document: the other is no edge of it."""
    words = "My own words. " * 100
    first, document, last = parts_of(f"{words}{gap}{ONE_LINE}")
    assert (first, document[:7]) == (words + gap, "Lamp 0 ")
    assert len(last) <= 1000
    first, document, last = parts_of(f"{ONE_LINE}{gap}{words}")
    assert (document[-5:], last) == ("year.", gap + words)
    assert len(first) <= 1000


def test_of_a_last_paragraph_that_is_over_long_the_last_line_stays() -> None:
    first, document, last = parts_of(f"{FIRST}\n\n" + "\n".join([*LAMPS, LAST]))
    assert (first, last) == (f"{FIRST}\n\n", f"\n{LAST}")
    assert document == "\n".join(LAMPS)


def test_the_question_is_what_stands_at_the_ends_and_what_asks() -> None:
    text = f"{FIRST} Is it whole? {ONE_LINE} And now? {ONE_LINE} {LAST}"
    words = own_words(text, [middle(text, 8000)])
    assert all(each in words for each in (FIRST, "Is it whole?", LAST))
    assert len(words) < 400


def test_words_that_are_parted_from_a_document_all_count() -> None:
    own = " ".join(f"I say {n}." for n in range(100))
    for text, document in (
        (f"{own}\n{ONE_LINE}\n{own}", ONE_LINE),
        (f"{own} <doc>{ONE_LINE}</doc> {own}", ONE_LINE),
        (f"{own}\n```\n{ONE_LINE}\n```\n{own}", ONE_LINE),
    ):
        start = text.index(document)
        words = own_words(text, [(start, start + len(document))])
        assert words.count(own) == 2
    assert own_words(own, []) == own


@pytest.mark.parametrize("text", [f"{FIRST} {ONE_LINE} {LAST}", f"{LAST} {ONE_LINE}", f"{LAST}\n{ONE_LINE}"])
async def test_what_is_asked_about_a_document_in_one_line_is_found(text: str) -> None:
    built = await build([{"role": "user", "content": text}], 1800)
    (message,) = built.fitted.forwarded.messages
    assert all(each in message["content"] for each in (ANSWER, LAST))
    assert built.fitted.tokens <= 1800


@pytest.mark.parametrize("number", ["7", "1e400", "9" * 5000])
def test_tags_inside_the_strings_of_json_mark_nothing(number: str) -> None:
    """Else what stands around them counted as the user's own words, which no budget may take away. It is JSON whatever
    numbers can be read from it."""
    rows: list[object] = [
        {"id": n, "text": "<page>" if n == 50 else "</page>" if n == 250 else "tide " * 9} for n in range(300)
    ]
    document = json.dumps(rows, indent=1).replace('"id": 7', f'"id": {number}')
    ((start, end),) = document_spans(f"Which is it?\n\n{document}\n\nSay one word.", 8000, beside=False)
    assert (start, end) == (14, 14 + len(document))


LOGS = "\n".join(f"12:00:{n:02} w-{n % 3} {'tide ' * 5}" for n in range(400))


def test_a_tag_inside_a_document_does_not_reach_into_the_last_paragraph() -> None:
    """A tag in somebody's data and one of the user's words do not mark a document together."""
    logs = LOGS.replace("w-2", "w-2 <page> mist", 1)
    ((start, end),) = document_spans(f"{FIRST}\n\n{logs}\n\nIt ends with </page>. {LAST}", 8000, beside=False)
    assert (start, end) == (logs.index("<page>") + len(f"{FIRST}\n\n<page>"), len(f"{FIRST}\n\n{logs}"))


def test_tags_inside_of_lines_of_data_mark_nothing() -> None:
    """Else what stands around them counted as the user's own words, which no budget may take away."""
    rows = "\n".join(json.dumps({"id": n, "text": "tide " * 9}) for n in range(300))
    rows = rows.replace("tide", "<page>", 200).replace("<page>", "tide", 199)
    rows = rows[: len(rows) * 4 // 5] + rows[len(rows) * 4 // 5 :].replace("tide", "</page>", 1)
    for text in (f"{FIRST}\n\n{rows}\n\n{LAST}", f"{FIRST}\n\nRows:\n\n{rows}\n\nSo?\n\n{LAST}"):
        ((start, end),) = document_spans(text, 8000, beside=False)
        assert rows in text[start:end]


def test_tags_in_a_paragraph_of_the_users_words_mark_a_document() -> None:
    text = f"{FIRST}\n\nThis: <doc>{LOGS}</doc>, in one line.\n\n{LAST}"
    assert [text[start:end] for start, end in document_spans(text, 8000, beside=False)] == [LOGS]


def test_a_tag_that_the_first_paragraph_speaks_of_does_not_reach_out_of_it() -> None:
    first, logs = f"Is <main> right? {FIRST}\n\n", LOGS.replace("w-2", "w-2 </main>")
    for text in (f"{first}{LOGS}\n</main>\n\n{LAST}", f"{first}{logs}\n\n{LAST}", f"{first}{LOGS} </main>{logs}"):
        ((start, _),) = document_spans(text, 8000, beside=False)
        assert start == len(first)


@pytest.mark.parametrize("rows", [LOGS, LOGS.replace("w-2", "w-2\n\n")])
@pytest.mark.parametrize("after", ["", "\n", " \n", f"\n{LAST}", f"\n\n{LAST}"])
def test_tags_at_the_edges_of_their_lines_mark_a_document_wherever_its_paragraphs_end(rows: str, after: str) -> None:
    for document in (rows, f"\n{rows}\n", f"<title>a.txt</title>\n{rows}"):
        for before in ("", f"{FIRST}\n", f"{FIRST}\n\n"):
            text = f"{before}<doc>{document}</doc>{after}"
            assert [text[start:end] for start, end in document_spans(text, 8000, beside=False)] == [document]


def test_tags_of_the_user_in_the_first_and_the_last_paragraph_mark_a_document() -> None:
    document = LOGS.replace("w-2", "w-2\n\n")
    text = f"{FIRST} <doc id='1'>{document}</doc> {LAST}"
    assert [text[start:end] for start, end in document_spans(text, 8000, beside=False)] == [document]


def test_tags_inside_of_one_paragraph_mark_a_document() -> None:
    for document in (ONE_LINE, LOGS):
        text = f"{FIRST} Here: <doc>{document}</doc> {LAST}\n\nThanks."
        assert [text[start:end] for start, end in document_spans(text, 8000, beside=False)] == [document]
