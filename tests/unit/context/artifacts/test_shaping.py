"""Shorter forms of new tool results (guarantee §4 I8): never longer, and put together again they are what came."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.passes import newly_cut
from gateway.context.artifacts.shaping import (
    FAILED_FAULTS,
    FAILED_HEAD,
    FAILED_TAIL,
    MARGIN,
    MAX_FAILED,
    StandingText,
    of_failed_run,
    shaped,
)
from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import Artifact, ArtifactPosition, ArtifactType, ProcessingStrategy
from gateway.core.types.conversation import ConversationMessage, FrozenDecision, PromptFrame
from gateway.core.types.window import ArtifactRendering, ForwardedMessages, PackedWindow, WindowInputs, WindowSelection
from tests.support.answers import there
from tests.support.growth import is_linear

REFERENCE = re.compile(r"\[Unchanged: lines (\d+)-(\d+) are as in result (\d+)(?:, from its line (\d+) on)?\.\]")
RUN = re.compile(r"\[Unchanged: the line above, ([\d,]+) more times\.\]")


def source(first: int, last: int, word: str = "value") -> list[str]:
    """Lines of a program."""
    return [f"    {word}_{number} = compute({number}, scale={number * 7})" for number in range(first, last)]


def standing(*texts: str) -> list[StandingText]:
    return [StandingText(number, f"result {number}", text) for number, text in enumerate(texts)]


def restored(text: str, texts: list[str]) -> str:
    """What a reader has who follows the references: the lines that one names stand in one piece in the text that it
    points to, behind or before those that are repeated beside it."""
    said: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if (found := REFERENCE.fullmatch(line)) is not None:
            first, last, of = map(int, found.groups()[:3])
            assert first == len(said) + 1
            pieces, count = texts[of].split("\n"), last - first + 1
            before = said[-MARGIN:] if said else []
            rest = text.split("\n")[number + 1 :]
            behind = rest[:MARGIN]
            places = [
                at
                for at in range(len(pieces) - count + 1)
                if pieces[max(0, at - len(before)) : at] == before
                and pieces[at + count : at + count + len(behind)] == behind
            ]
            assert places, "it is not there in one piece with its margins"
            place = int(found[4]) - 1 if found[4] else places[0]
            assert place in places, "it is not where it is said to be"
            said += pieces[place : place + count]
        elif (found := RUN.fullmatch(line)) is not None:
            said += [said[-1]] * int(found[1].replace(",", ""))
        else:
            said.append(line)
    return "\n".join(said)


def test_s4_i8_lines_that_stand_are_told_by_a_reference_with_a_margin_at_each_seam() -> None:
    old = "\n".join(source(0, 100))
    new = "\n".join([*source(0, 5, "before"), *source(20, 90), *source(0, 5, "after")])
    found = there(shaped(new, standing(old)))
    assert found.targets == {0}
    lines = found.text.split("\n")
    assert lines[5 : 5 + MARGIN] == source(20, 20 + MARGIN)
    assert lines[5 + MARGIN] == f"[Unchanged: lines {6 + MARGIN}-{75 - MARGIN} are as in result 0.]"
    assert lines[6 + MARGIN : 6 + 2 * MARGIN] == source(90 - MARGIN, 90)
    assert restored(found.text, [old]) == new


def test_s4_i8_what_stands_whole_has_no_seams() -> None:
    text = "\n".join(source(0, 60))
    found = there(shaped(text, standing("nothing of it", f"head\n{text}\ntail")))
    assert found.text == "[Unchanged: lines 1-60 are as in result 1, from its line 2 on.]"
    found = there(shaped(text, standing(f"{text}\ntail")))
    assert found.text == "[Unchanged: lines 1-60 are as in result 0.]"


def test_s4_i8_where_lines_stand_is_told_if_what_is_beside_them_stands_twice() -> None:
    """Else a reader would take what follows the first of two equal places."""
    beside, lines = source(0, MARGIN), source(100, 120)
    old = "\n".join([*beside, *source(0, 30, "other"), *beside, *lines])
    new = "\n".join(["head", *beside, *lines])
    found = there(shaped(new, standing(old)))
    assert found.text.endswith(f"[Unchanged: lines 10-29 are as in result 0, from its line {2 * MARGIN + 31} on.]")
    assert restored(found.text, [old]) == new


@pytest.mark.parametrize(
    "new",
    [
        "\n".join(source(0, 2 * MARGIN)),
        "\n".join(f"{a}\n{b}" for a, b in zip(source(0, 60), source(0, 60, "other"), strict=True)),
        "\n".join(source(0, 60, "other")),
        "short",
    ],
    ids=["no more than its margins", "line by line", "another text", "short"],
)
def test_s4_i8_what_would_spare_nothing_stays_as_it_came(new: str) -> None:
    old = "\n".join(source(0, 100))
    assert shaped(f"head\n{new}\ntail", standing(old)) is None


words = st.sampled_from([*source(0, 12), *source(0, 3, "short"), "", "}", "=" * 60])


@given(st.lists(st.lists(words, max_size=60), max_size=3), st.data())
def test_s4_i8_it_is_never_longer_and_nothing_is_lost(texts: list[list[str]], data: Any) -> None:
    old = ["\n".join(lines) for lines in texts]
    pieces: list[str] = []
    for _ in range(data.draw(st.integers(0, 4))):
        lines = data.draw(st.sampled_from([*texts, []]))
        first = data.draw(st.integers(0, len(lines)))
        pieces += [
            *lines[first:],
            *data.draw(st.lists(words, max_size=20)),
            *["run of a line"] * data.draw(st.integers(0, 60)),
        ]
    new = "\n".join(pieces)
    found = shaped(new, standing(*old))
    if found is not None:
        assert len(found.text) < len(new)
        assert restored(found.text, old) == new
        assert found.targets == {int(each[2]) for each in REFERENCE.findall(found.text)}


def test_s4_i8_a_run_of_equal_lines_is_told_once() -> None:
    text = "\n".join(["begins", *["waiting for the server to come up"] * 50, "is up"])
    found = there(shaped(text))
    assert found.text == "begins\nwaiting for the server to come up\n[Unchanged: the line above, 49 more times.]\nis up"


def test_s4_i8_of_a_line_written_over_the_last_state_stays() -> None:
    progress = "".join(f"\rdownloading {percent:3} %" for percent in range(101))
    found = there(shaped(f"start{progress}\ndone\r\nand on"))
    assert found.text == "downloading 100 %\ndone\r\nand on"


def test_s4_i8_what_a_terminal_shows_stays_of_escapes() -> None:
    line = "\x1b[1m\x1b[31mFAILED\x1b[0m tests/test_harbour.py::\x1b[32mtest_crane\x1b[39m"
    found = there(shaped("\n".join(f"{line} {number}" for number in range(20))))
    assert found.text.split("\n")[3] == "FAILED tests/test_harbour.py::test_crane 3"
    assert shaped("\n".join(f"{line} {number}" for number in range(20)), is_plain=True) is None


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
def test_s4_i8_an_envelope_stays_what_it_is_but_for_the_text_in_it(ensure_ascii: bool, indent: int | None) -> None:
    def envelope(text: str, code: int) -> str:
        return json.dumps({"exit_code": code, "stdout": text, "took": 0.25}, ensure_ascii=ensure_ascii, indent=indent)

    lines = [f'{line} # "größe" \\n C:\\new' for line in source(0, 60)]
    old, new = envelope("\n".join(lines), 0), envelope("\n".join(["is now:", *lines, "\x1b[1mend\x1b[0m"]), 3)
    found = there(shaped(new, standing(old)))
    value = json.loads(found.text)
    text = value.pop("stdout")
    assert value == {"exit_code": 3, "took": 0.25}
    assert list(json.loads(found.text)) == ["exit_code", "stdout", "took"]
    kept = [*lines[:MARGIN], f"[Unchanged: lines {2 + MARGIN}-{61 - MARGIN} are as in result 0.]", *lines[-MARGIN:]]
    assert text.split("\n") == ["is now:", *kept, "end"]


@pytest.mark.parametrize(
    ("before", "text", "is_cut"),
    [
        ("", "exit code: 1", True),
        ("", "Exit status 127", True),
        ("", "[The command completed with exit code 1.]", True),
        ("", "<returncode>2</returncode>", True),
        ("Process exited with code 1", "all is well", True),
        ('{"exit_code": 3,', "}", True),
        ("Exit code: 1", "exit status 2", True),
        ("", "exit code: 0\nexit code: 1", True),
        ("", "exit code 0", False),
        ("", "all is well", False),
        ("", "    exit 1", False),
        ("", "if it fails, its exit code 1 is given back", False),
        ("Exit code: 0", "make: exit status 1\nexit status 1", False),
        ("", "exit status 1\nExit code: 0", False),
        ("Exit code: 1", "Exit code: 0", False),
    ],
)
def test_s4_i8_of_a_failed_run_that_says_far_too_much_stays_what_says_why(before: str, text: str, is_cut: bool) -> None:
    lines = [before, *(f"compiling part {number} of the harbour, nothing to say" for number in range(4000))]
    lines[2000] = "src/crane.c:14:2: error: use of undeclared identifier 'hook'"
    whole = "\n".join([*lines, text])
    spans = of_failed_run(whole)
    assert bool(spans) is is_cut
    assert of_failed_run(whole[-MAX_FAILED:]) == ()
    if is_cut:
        shown = "\n".join(whole[start:end] for start, end in spans)
        assert lines[0] in shown
        assert lines[2000] in shown
        assert shown.endswith(text)
        assert len(shown) < FAILED_HEAD + FAILED_FAULTS + FAILED_TAIL + 2000


@pytest.mark.parametrize("longest", [50, 3_000, 50_000])
def test_s4_i8_what_looks_like_a_fault_takes_no_more_room_than_it_has(longest: int) -> None:
    """Lines are shown whole; those that have no room are not."""
    fault = "error: the hook of crane 7 is loose"
    lines = [f"compiling part {number} of the harbour, nothing to say" for number in range(2000)]
    for number in range(200, 1500, 20):
        lines[number] = f"{fault} {'x' * longest}"
    lines[1510] = fault
    spans = of_failed_run(whole := "\n".join([*lines, "exit code: 1"]))
    between = spans[1:-1]
    assert sum(end - start for start, end in between) <= FAILED_FAULTS
    assert any(whole[start:end].startswith(fault) or f"\n{fault}" in whole[start:end] for start, end in between)
    assert all(whole[start - 1] == "\n" == whole[end] for start, end in between)


def test_s4_i8_it_takes_time_in_proportion() -> None:
    def run(size: int) -> None:
        lines = ["the same line again and again", *source(0, 50)] * (size // 50)
        shaped("\n".join(lines), standing("\n".join(lines[::-1])))

    assert is_linear(run, 2_000)


def window(first: str, second: str, in_full: bool = False) -> WindowInputs:
    """Two results that were forwarded in other forms, the second of which referred to the first; `first` and `second`
    are what is decided on them."""
    texts = ["\n".join(source(0, 60)), "\n".join(source(0, 50))]
    messages = [
        ConversationMessage("tool", {"role": "tool", "content": text}, message_id=f"m{n}", rendered={"role": "tool"})
        for n, text in enumerate(texts)
    ]
    results = [
        Artifact(artifact_id(text), ArtifactType.TOOL_RESULT, text, len(text), "step", place=ArtifactPosition(n))
        for n, text in enumerate(texts)
    ]
    decisions = {
        f"m{n}": (FrozenDecision(results[n].artifact_id, strategy, 9),) for n, strategy in enumerate((first, second))
    }
    frame = PromptFrame(decisions=decisions, refers={"m1": (("m0", results[0].artifact_id),)})
    made = WindowInputs((), tuple(messages), 0, tuple(results), frame=frame)
    return made.in_full(made.shaped) if in_full else made


@pytest.mark.parametrize(
    ("first", "second", "references"),
    [
        ("shape", "shape", {1: frozenset({0})}),
        ("exclude", "shape", {1: None}),
        ("shape", "exclude", {}),
        ("exclude", "exclude", {}),
        ("rag_extract", "shape", {1: None}),
    ],
)
def test_s4_i8_only_what_stands_shaped_refers_and_only_to_what_stands_whole(
    first: str, second: str, references: dict[int, Any]
) -> None:
    """What was cleared with its references does not come back once the client clears what they pointed to."""
    assert window(first, second).references == references


@pytest.mark.parametrize("in_full", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "is_cut"),
    [
        ("shape", ProcessingStrategy.EXCLUDE, True),
        ("shape", ProcessingStrategy.SHAPE, False),
        ("include_full", ProcessingStrategy.INCLUDE_FULL, False),
        ("exclude", ProcessingStrategy.EXCLUDE, False),
    ],
)
def test_s6_12_what_is_shaped_is_not_cut_and_may_be_later(
    before: str, now: ProcessingStrategy, is_cut: bool, in_full: bool
) -> None:
    material = window(before, before, in_full)
    shown = {each.artifact_id: ArtifactRendering(each, now, each.content[:90]) for each in material.placed}
    fitted = PackedWindow(WindowSelection(renderings=shown), ForwardedMessages([{}, {}], [0, 1]), 9, True, {})
    assert newly_cut(material, fitted) == (list(material.placed) if is_cut else [])
