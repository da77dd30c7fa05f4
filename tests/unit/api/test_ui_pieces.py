"""What pages show of long texts is bounded, and says how much more there is (guarantee §13.3)."""

from typing import Any

import pytest

from gateway.api.ui.request_page import (
    AROUND_CHARS,
    LINE_CHARS,
    MARKED_CHARS,
    MAX_LINES,
    MAX_MESSAGES,
    TEXT_CHARS,
    OriginalPiece,
    marked,
    shown_messages,
)
from gateway.inspection.document_parts import ShownPassages
from gateway.inspection.explained_artifacts import ExplainedArtifact
from gateway.inspection.message_changes import DiffLine, LineDiff, MessageChange, compared


def artifact(original: str, *spans: tuple[int, int]) -> ExplainedArtifact:
    return ExplainedArtifact({}, None, None, original, None, ShownPassages(spans))


def test_a_short_original_is_shown_whole_with_its_passages() -> None:
    found = marked(artifact("abcdef", (1, 3), (5, 6)))
    assert found == [
        OriginalPiece("left", "a"),
        OriginalPiece("shown", "bc"),
        OriginalPiece("left", "de"),
        OriginalPiece("shown", "f"),
    ]


def test_what_lies_between_passages_is_cut_and_counted() -> None:
    found = marked(artifact("a" * 10_000 + "PASSAGE" + "b", (10_000, 10_007)))
    assert [each.kind for each in found] == ["left", "skipped", "left", "shown", "left"]
    assert found[1].count == 10_000 - 2 * AROUND_CHARS
    assert sum(len(each.text) + each.count for each in found) == 10_008


def test_no_original_is_longer_than_a_page_takes() -> None:
    found = marked(artifact("x" * 5_000_000, (0, 5_000_000)))
    assert sum(len(each.text) for each in found) == MARKED_CHARS
    assert found[-1] == OriginalPiece("skipped", "", 5_000_000 - MARKED_CHARS)


def change(kind: Any, text: str = "hello", *, lines: LineDiff | None = None) -> MessageChange:
    body = {"role": "user", "content": text}
    return MessageChange(kind, "earlier", "user", None, body, None, len(text), 0, lines)


def test_long_runs_of_unchanged_messages_are_one_line() -> None:
    found = shown_messages([*[change("unchanged")] * 50, change("reworded"), *[change("left_out")] * 3])
    assert [each.change for each in found] == [
        *["unchanged"] * 2, "skipped", *["unchanged"] * 2, "reworded", *["left_out"] * 3,
    ]  # fmt: skip
    assert found[2].count == 46
    assert found[5].index == 50, "its number in the whole list, by which its text is asked for"


@pytest.mark.long
def test_a_page_has_no_more_messages_and_no_longer_texts_than_it_takes() -> None:
    lines = LineDiff(tuple(DiffLine("added", "y" * 1000) for _ in range(1000)))
    found = shown_messages([change("reworded", "x" * 100_000, lines=lines)] * 1000)
    assert len(found) == MAX_MESSAGES + 1
    assert found[0].count == 1000 - MAX_MESSAGES
    last = found[-1]
    assert last.said is not None
    assert (len(last.said.text), last.said.more) == (TEXT_CHARS, 100_000 - TEXT_CHARS)
    assert (len(last.lines), last.lines_left) == (MAX_LINES, 1000 - MAX_LINES)
    assert all(len(line.text) == LINE_CHARS for line in last.lines)


def test_two_prompts_are_compared_between_what_both_begin_and_end_with() -> None:
    def messages(*texts: str) -> list[dict[str, Any]]:
        return [{"role": "tool" if text.startswith("t") else "user", "content": text} for text in texts]

    found = compared(messages("a", "t1", "b"), messages("a", "t1 in full", "b"))
    assert [each.change for each in found] == ["unchanged", "reworded", "unchanged"]
    assert [each.change for each in compared(messages("a", "b"), messages("a", "t1", "b"))] == [
        "unchanged", "put_in_front", "unchanged",
    ]  # fmt: skip
    assert [each.change for each in compared(messages("a", "t1", "b"), messages("a", "b"))] == [
        "unchanged", "left_out", "unchanged",
    ]  # fmt: skip
