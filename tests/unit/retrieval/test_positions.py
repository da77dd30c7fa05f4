"""Questions of position find what stands there."""

import json

import pytest

from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.rank import NamedPosition, position
from tests.unit.retrieval.asking import ranked

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
