"""What `make demo` says of answers: checked against the handbook, with the passage, and never better than they are."""

import importlib
import io
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.gateway_process import REPOSITORY

DEMO = REPOSITORY / "deploy" / "demo"
HANDBOOK = (DEMO / "handbook.md").read_text()


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    return importlib.import_module("asking")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    return importlib.import_module("run")


def bill() -> dict[str, Any]:
    return {"cost": {"total_cost": 0.001}}


def test_the_handbook_answers_each_question_once_and_not_at_its_beginning(run: Any, asking: Any) -> None:
    for question in (run.BATTERIES, run.CALL_SIGN, run.LAUNCH):
        assert HANDBOOK.count(question.fact) == 1
        assert question.fact not in question.text
        assert question.fact not in HANDBOOK[: asking.CHARS_OF_BEGINNING]


def test_an_answer_is_right_only_if_it_says_the_fact(asking: Any) -> None:
    question = asking.Question("How long?", "nine hours")
    assert asking.checked("For Nine hours.", question) == "right"
    assert asking.checked("For nine days.", question) == 'wrong: the handbook says "nine hours"'


def test_the_passage_is_cut_between_words(asking: Any) -> None:
    question = asking.Question("How long?", "nine hours")
    text = f"# Head\n{'before ' * 50}they last nine hours alone {'after ' * 50}\nnothing"
    passage = asking.passage_of(text, question)
    assert passage.startswith("… before ")
    assert passage.endswith(" after …")
    assert "they last nine hours alone" in passage
    assert len(passage) <= 2 * asking.AROUND + len("nine hours") + len("…  …")
    assert asking.passage_of("It lasts nine hours.", question) == "It lasts nine hours."
    assert asking.passage_of("It lasts.", question) is None


@pytest.mark.parametrize(
    ("passages", "said"),
    [
        (["shown", "shown"], "the model was shown what answers 1, and misread it"),
        (["shown", None], "the gateway had not shown the model what answers 1 of them"),
    ],
)
def test_a_wrong_answer_is_no_success(
    run: Any, asking: Any, capsys: pytest.CaptureFixture[str], passages: list[str | None], said: str
) -> None:
    right, wrong = (
        asking.Answer("text", "stop", "conv_1", bill(), is_right=is_right, passage=passage)
        for is_right, passage in zip((True, False), passages, strict=True)
    )
    assert run._closing([right, right], 1.0) == 0
    assert capsys.readouterr().out.endswith("demo: ok\n")
    assert run._closing([right, wrong], 1.0) == run.NOT_RIGHT != 0
    told = capsys.readouterr().out
    assert told.endswith(f"demo: 1 of 2 answers wrong: {said}\n")
    assert "demo: ok" not in told


def test_whoever_watches_is_told_where_to_look_and_the_page_stays_until_enter(
    run: Any, asking: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = io.StringIO("\nnot read")
    monkeypatch.setattr("sys.stdin", keys)
    run.leave_open("http://127.0.0.1:1234/v1", asking.Answer("text", "stop", "conv_1", bill()))
    told = capsys.readouterr().out
    assert "  http://127.0.0.1:1234/ui/conversations/conv_1\n" in told
    assert "  http://127.0.0.1:1234/ui/try" in told
    assert told.endswith("Press Enter to end the demo. ")
    assert keys.read() == "not read"


@pytest.mark.parametrize(("reads", "writes"), [(True, False), (False, True), (False, False), (True, True)])
def test_nobody_is_waited_for_without_a_terminal(
    run: Any, monkeypatch: pytest.MonkeyPatch, reads: bool, writes: bool
) -> None:
    """A pipe on either side is no person: `make demo | tee` and CI end by themselves."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: reads))
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: writes))
    assert run.is_attended() is (reads and writes)
