"""Extracts say from which place they are (guarantee §14.2)."""

from gateway.context.assembly.render import extract_text
from gateway.context.window.candidates import PassageCandidate
from gateway.context.window.extracts import extract
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.places import marker, sheet_marker
from gateway.core.types.relevance import RankedPassage
from gateway.retrieval.chunks.split import passages

SHEETS = f"{sheet_marker('Sales', 4, 'C', 9)}\nname\tx\ty\n" + "\n".join(f"n{n}\t{n}\t{2 * n}" for n in range(5))
SHEETS += f"\n\n{sheet_marker('B', 1, 'B', 3)}\n1,2\n3,4\n5,6"
MAIL = "Subject: hi\n\n[file a.py]\ndef f():\n    return 1\n\n[file b.pdf]\n[page 1]\nfoo\n[page 2]\nbar\n[page 3]\nbaz"


def shown(text: str, *numbers: int) -> list[str]:
    """The lines of an extract of the chunks with these numbers."""
    artifact = Artifact("art_1", ArtifactType.DOCUMENT, text, len(text), "attachment:1:x")
    chunks = passages(text)
    found = [RankedPassage(chunks[n].start, chunks[n].end, 1.0, chunks[n].heading) for n in numbers]
    return extract_text(extract(artifact, [PassageCandidate(artifact, None, each, 0) for each in found])).split("\n")


def test_s14_2_cells_of_a_sheet_are_named() -> None:
    assert shown(SHEETS, 2, 4, 5, 8) == [
        *("[…]", "[Sales!A6:C6]", "name\tx\ty", "n1\t1\t2"),
        *("[…]", "[Sales!A8:C9]", "n3\t3\t6", "n4\t4\t8", "[…]", "[B!A3:B3]", "1,2", "5,6"),
    ]
    assert shown(SHEETS, 0, 1, 6) == [*("[Sales!A4:C5]", "name\tx\ty", "n0\t0\t0", "[…]", "[B!A1:B1]", "1,2", "[…]")]


def test_s14_2_pages_and_lines_of_files_are_named_once() -> None:
    """§14.2: a marker is not repeated where a label says the same."""
    assert shown(MAIL, 1, 2, 4) == [
        *("[…]", "[file a.py, lines 1-2]", "def f():", "    return 1"),
        *("[file b.pdf, page 1]", "foo", "[…]", "[file b.pdf, page 3]", "baz"),
    ]
    assert shown(MAIL, 2, 3) == ["[…]", "[file b.pdf, page 1]", "foo", "[file b.pdf, page 2]", "bar", "[…]"]


def test_s14_2_a_long_page_is_named_above_each_extract_of_it() -> None:
    """§14.2: late pages have their label, too."""
    text = "\n\n".join(f"{marker('page', str(n))}\n{'Words of this page are many. ' * 90}" for n in range(1, 9))
    chunks = passages(text)
    last = len(chunks) - 1
    assert shown(text, last)[:2] == ["[…]", "[page 8]"]
    assert len([line for line in shown(text, last - 2, last) if line == "[page 8]"]) == 1


def test_texts_without_markers_are_shown_as_before() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "Words. " * 100 for n in range(4))
    assert shown(text, 1)[0] == "[…]"
    assert shown(text, 1)[1].startswith("Paragraph 1.")
