"""`make eval` on a few of its cases, and that it can tell good from bad (guarantee §9)."""

from dataclasses import replace

import pytest

from evals import evidence
from evals.__main__ import chosen
from evals.cases import Case
from evals.made import made
from evals.measure import measuring
from evals.memory import feeding, keywords
from evals.memory import table as table_of_memory
from evals.report import figures, table
from tests.support.fork_server import ForkServer

MIN_RECALL = 70.0
"""In per cent, of the few cases that are measured here; `make eval` gives the figures."""


def test_the_cases_are_the_same_every_time() -> None:
    assert made() == made()
    assert 200 <= len(made()) <= 215


@pytest.mark.chaos
def test_s9_a_few_cases_through_a_gateway(fork_server: ForkServer) -> None:
    """§4: nothing over budget, nothing invalid, the same on the second run; and better than what needs no gateway."""
    cases = chosen(made(), None, 1)
    with measuring(fork_server) as gateway:
        results = list(gateway.results(cases, twice=True))
    assert len(results) > 10
    assert [result for result in results if result.faulty] == []
    found = figures(results)
    assert found["recall"] >= MIN_RECALL
    assert found["recall"] > max(found["baselines"].values())
    assert "chat" in table(results)


@pytest.mark.parametrize(
    ("needed", "body", "holds"),
    [
        ({"text": "The key hangs there."}, "so:\nthe KEY  hangs there!", True),
        ({"text": "The key hangs there."}, "the key hangs here", False),
        ({"key": "ORD-7", "val": "9.5", "field": "total", "within": 20}, '{"id":"ORD-7","total":9.5}', True),
        ({"key": "ORD-7", "val": "9.5", "field": "total", "within": 20}, '{"id":"ORD-7","sum":9.5}', False),
        ({"key": "ORD-7", "val": "9.5", "within": 10}, f"ORD-7 {'x ' * 30} 9.5", False),
        ({"text": "我的同事搬到了"}, "顺便说，我的同事搬到了里昂", True),
    ],
)
def test_evidence_is_found_where_it_stands(needed: dict[str, object], body: str, holds: bool) -> None:
    assert evidence.holds(needed, [evidence.plain(body)]) is holds


def test_a_case_whose_evidence_is_nowhere_is_an_error(fork_server: ForkServer) -> None:
    body = {"messages": [{"role": "user", "content": "What is it?"}]}
    case = Case("x", "x", "lookup", "What is it?", [{"text": "a thing"}], [10], body)
    with measuring(fork_server) as gateway, pytest.raises(ValueError, match="does not stand in what is sent"):
        list(gateway.results([case], twice=False))


@pytest.mark.chaos
def test_s11_13_a_conversation_that_grows_is_summarized_and_asked_in_each_mode(fork_server: ForkServer) -> None:
    """What `python -m evals.memory` measures: the same stored conversation, with summaries and without."""
    case = replace(next(case for case in made() if case.suite == "chat"), budgets=[2000])
    with feeding(keywords, fork_server) as gateway:
        found = {result.memory: result for result in gateway.results([case])}
    assert found.keys() == {"extracts", "summary", "both"}
    assert all(result.segments > 1 for result in found.values())
    assert found["extracts"].shown == 0 < found["summary"].shown
    assert all(result.forwarded <= 2000 for result in found.values())
    assert "2000" in table_of_memory(list(found.values()))
