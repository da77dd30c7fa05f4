"""What is left of a summary that broke off (`planning.whole_part`)."""

import pytest

from gateway.context.planning.summaries import whole_part


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("The lamps are lit. The keeper of", "The lamps are lit."),
        ("The lamps are lit. Nobody came.", "The lamps are lit. Nobody came."),
        ("The lamps are lit. It costs 3.", "The lamps are lit."),
        ("It was built in 1904. Then came", "It was built in 1904."),
        ("It was built in 1904. then", ""),
        ("He saw Dr. Smith and J. Miller at", ""),
        ("Is it lit? He said “yes.” Nobody", "Is it lit? He said “yes.”"),
        ("- lamp 1: green\n- lamp 2: red\n- lamp 3", "- lamp 1: green\n- lamp 2: red"),
        ("灯是绿色的。守灯人是", "灯是绿色的。"),
        ("no end anywhere", ""),
        ("", ""),
    ],
)
def test_s5_only_whole_sentences_and_lines_are_left(text: str, whole: str) -> None:
    assert whole_part(text) == whole
