"""Values put back in answers, wherever a stream is cut (guarantee §12.10)."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.jsons import Json
from gateway.pipeline.guards.masking import ChoiceRestorer, PlaceholderMap, TextRestorer, restored
from tests.unit.pipeline.guards.values import VALUES, vault

PARTS = st.one_of(
    st.sampled_from(range(len(VALUES))), st.text(max_size=8), st.sampled_from(["<", "<EM", "<<", "<A_b", ">", "\n"])
)


def filled() -> tuple[PlaceholderMap, list[str]]:
    held = vault()
    return held, [held.placeholder(kind, value) for kind, value in VALUES]


def in_pieces(text: str, cuts: set[int]) -> list[str]:
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(at)]


@given(st.lists(PARTS, max_size=8), st.sets(st.integers(0, 500), max_size=20))
def test_a_text_is_the_same_however_it_is_cut(parts: list[int | str], cuts: set[int]) -> None:
    held, names = filled()
    said = "".join(names[part] if isinstance(part, int) else part for part in parts)
    text = TextRestorer(held)
    assert "".join([*map(text.push, in_pieces(said, cuts)), text.rest()]) == held.unmask(said)


@given(st.lists(PARTS, max_size=6), st.sets(st.integers(0, 500), max_size=20), st.booleans())
def test_arguments_are_the_same_however_they_are_cut(parts: list[int | str], cuts: set[int], escaped: bool) -> None:
    held, names = filled()
    text = "".join(names[part] if isinstance(part, int) else part for part in parts)
    meant = held.unmask(text)
    said = json.dumps({"text": text})
    if escaped:
        said = said.replace("<", "\\u003c").replace(">", "\\u003E")
    pieces = TextRestorer(held, is_json=True)
    found = "".join([*map(pieces.push, in_pieces(said, cuts)), pieces.rest()])
    assert json.loads(found) == {"text": meant}


def test_an_escaped_backslash_before_what_looks_like_an_escape_stays_one() -> None:
    """Code in an argument may spell a bracket's escape: only JSON's own escapes stand for brackets."""
    held, names = filled()
    for slashes in range(1, 4):
        meant = "\\" * slashes + f"u003c{names[0][1:]} {names[0]}"
        said = json.dumps({"text": meant}).replace("<", "\\u003c")
        for at in range(len(said) + 1):
            pieces = TextRestorer(held, is_json=True)
            found = pieces.push(said[:at]) + pieces.push(said[at:]) + pieces.rest()
            assert json.loads(found) == {"text": held.unmask(meant)}


def test_every_single_cut() -> None:
    held, names = filled()
    said = f"See {names[0]} and <b>{names[1]}</b> < {names[-1]}"
    for at in range(len(said) + 1):
        text = TextRestorer(held)
        assert text.push(said[:at]) + text.push(said[at:]) + text.rest() == held.unmask(said)


@pytest.mark.parametrize("text", ["a < b", "1 <", "<html", "if a <b:"])
def test_only_what_may_be_a_placeholder_is_held_back(text: str) -> None:
    held, _ = filled()
    known = TextRestorer(held)
    told = known.push(text + " ")
    assert told == text + " "


def test_a_whole_answer() -> None:
    held, names = filled()
    message = {
        "content": f"Hello {names[0]}",
        "reasoning_content": f"{names[0]}?",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": json.dumps({"key": names[18]})}}],
        "native_blocks": [{"type": "tool_use", "input": {"key": names[18]}}],
    }
    found = restored(message, held)
    assert found["content"] == f"Hello {VALUES[0][1]}"
    assert json.loads(found["tool_calls"][0]["function"]["arguments"]) == {"key": VALUES[18][1]}
    assert found["native_blocks"][0]["input"] == {"key": VALUES[18][1]}


def test_values_that_a_model_names_fields_by() -> None:
    held, names = filled()
    assert restored({"native_blocks": [{"type": "tool_use", "input": {names[0]: 1}}]}, held) == {
        "native_blocks": [{"type": "tool_use", "input": {VALUES[0][1]: 1}}]
    }


def deltas(choice: ChoiceRestorer, *told: Json) -> list[Json]:
    found = []
    for each in told:
        if rest := choice.rest(each):
            found.append(rest)
        found.append(choice.delta(each))
    return [*found, choice.rest()]


def test_what_is_held_comes_before_what_follows() -> None:
    held, names = filled()
    half = len(names[0]) // 2
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    found = deltas(
        ChoiceRestorer(held),
        {"role": "assistant", "content": names[0][:half]},
        {"content": names[0][half:] + " <EM"},
        {"annotations": []},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"' + names[2][:3]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": names[2][3:] + '"'}}]},
    )
    assert [each.get("content") for each in found if "content" in each] == ["", VALUES[0][1] + " ", "<EM"]
    assert found.index({"content": "<EM"}) < next(n for n, each in enumerate(found) if "tool_calls" in each)
    told = [part["function"]["arguments"] for each in found for part in each.get("tool_calls", ())]
    assert json.loads("".join(told)) == VALUES[2][1]


def test_a_call_in_the_form_before_tools_is_the_same_however_it_is_cut() -> None:
    held, names = filled()
    said = json.dumps({"to": names[0], "text": "<EM"})
    for at in range(len(said) + 1):
        begin = {"function_call": {"name": "send", "arguments": said[:at]}}
        found = deltas(ChoiceRestorer(held), begin, {"function_call": {"arguments": said[at:]}})
        told = [each["function_call"] for each in found if "function_call" in each]
        assert told[0]["name"] == "send"
        assert json.loads("".join(each["arguments"] for each in told)) == {"to": VALUES[0][1], "text": "<EM"}
    unfinished = deltas(ChoiceRestorer(held), {"function_call": {"name": "send", "arguments": names[0][:5]}})
    assert unfinished[-1] == {"function_call": {"arguments": names[0][:5]}}


def test_a_signature_comes_behind_the_text_that_it_signs() -> None:
    held, names = filled()
    thought = {"type": "thinking", "thinking": f"{names[0]} <EMA", "signature": None}
    end = {"type": "thinking", "thinking": "", "signature": "s"}
    found = [
        b
        for each in deltas(ChoiceRestorer(held), {"thinking_blocks": [thought]}, {"thinking_blocks": [end]})
        for b in each.get("thinking_blocks", ())
    ]
    assert "".join(block["thinking"] for block in found) == f"{VALUES[0][1]} <EMA"
    assert found[-1] == end
