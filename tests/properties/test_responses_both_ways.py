"""What the edge of Responses reads goes up again as it came (guarantee §10.4)."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.formats.responses.request_parser import read_request
from gateway.core.formats.responses.response_request import input_items, response_request

Json = dict[str, Any]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PARTS = st.sampled_from(
    [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
)
ASKED = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "system", "developer"]),
    TEXTS | st.lists(PARTS, min_size=2, max_size=3),
)
THOUGHTS = st.builds(lambda sealed: {"type": "reasoning", "summary": [], "encrypted_content": sealed}, TEXTS)
SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}
KEPT: st.SearchStrategy[Json] = st.sampled_from([{}]) | st.builds(
    lambda name, before, after: {name: [*before, *([SEARCH] if name == "output_items" else []), *after]},
    st.sampled_from(["reasoning_items", "output_items"]),
    st.lists(THOUGHTS, min_size=1, max_size=1),
    st.lists(THOUGHTS, max_size=1),
)
WORDS = st.builds(
    lambda text, phase, cited: {"content": text, **phase, **cited},
    TEXTS,
    st.sampled_from([{}, {"phase": "commentary"}]),
    st.sampled_from([{}, {"annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]}]),
)
KINDS = st.lists(st.sampled_from(["function", "custom"]), max_size=2)


def turn(asked: Json, words: Json, kept: Json, kinds: list[str], silent: bool) -> list[Json]:
    """A question, an answer and the results of its calls."""
    said = {"content": None} if silent and kinds else words
    answer: Json = {"role": "assistant", **said, **kept}
    results = []
    for number, kind in enumerate(kinds):
        call_id = f"call_{number}"
        field = "arguments" if kind == "function" else "input"
        call = {"id": call_id, "type": kind, kind: {"name": "f", field: "{}"}}
        answer.setdefault("tool_calls", []).append(call)
        results.append({"role": "tool", "tool_call_id": call_id, "content": f"result {number}"})
    return [asked, answer, *results]


@given(st.lists(st.builds(turn, ASKED, WORDS, KEPT, KINDS, st.booleans()), min_size=1, max_size=3))
def test_s10_4_messages_go_up_and_come_back(turns: list[list[Json]]) -> None:
    """Answers as they are kept now, and as they once were: thoughts and hosted calls in one list."""
    sent = input_items([message for each in turns for message in each])
    again: list[Json] = read_request({"model": "m", "input": sent}).chat["messages"]
    assert input_items(again) == sent
    assert read_request({"model": "m", "input": input_items(again)}).chat["messages"] == again


PHASES = st.sampled_from([{}, {"phase": "commentary"}, {"phase": "final_answer"}])
PART = st.builds(
    lambda text, cited: {"type": "output_text", "text": text, "annotations": cited},
    TEXTS,
    st.sampled_from([[], [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}]]),
) | st.builds(lambda text: {"type": "refusal", "refusal": text}, TEXTS)
SAID = st.builds(
    lambda parts, phase: {"type": "message", "role": "assistant", "content": parts, **phase},
    st.lists(PART, min_size=1, max_size=3),
    PHASES,
)
CALLED = st.builds(lambda name: {"type": "function_call", "call_id": "?", "name": name, "arguments": "{}"}, TEXTS)
FREE = st.builds(lambda text: {"type": "custom_tool_call", "call_id": "?", "name": "g", "input": text}, TEXTS)
UNKNOWN = st.builds(lambda text: {"type": "brand_new_call", "payload": {"x": text}}, TEXTS)


def message(*parts: Json, **phase: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [*parts], **phase}


CALL = {"type": "function_call", "call_id": "?", "name": "f", "arguments": "{}"}
TEXT, NO, NEVER = {"type": "output_text", "text": "x"}, *({"type": "refusal", "refusal": x} for x in ("no", "never"))
ITEMS = st.lists(SAID | CALLED | FREE | THOUGHTS | UNKNOWN | st.just(SEARCH), min_size=1, max_size=7)


@example([[CALL, message(NO), message(NEVER)]], "")
@example([[SEARCH, message(NO), message(NEVER)]], "")
@example([[CALL, message(NO), message(TEXT, NEVER)]], "")
@example([[CALL, message(TEXT), message(TEXT, phase="commentary"), message(TEXT)]], "")
@given(st.lists(ITEMS, min_size=1, max_size=3), st.sampled_from(["", "theirs", "ours"]))
def test_s10_18_items_go_up_in_the_order_and_groups_in_which_they_came(answers: list[list[Json]], named: str) -> None:
    """With their makers' ids they are equal; ids of this gateway's are none of the upstream's. An answer ends with what
    its last thoughts led to."""
    given_items: list[Json] = []
    expected: list[Json] = []
    for at, answer in enumerate(answers):
        given_items.append({"role": "user", "content": "q"})
        expected.append(given_items[-1])
        while answer and answer[-1]["type"] == "reasoning":
            answer = answer[:-1]
        for number, item in enumerate(answer):
            stem = f"{at:032x}_{number:012x}" if named == "ours" else f"{at}_{number}"
            item = {**item, "call_id": f"call_{at}_{number}"} if "call_id" in item else item
            is_hosted = item["type"] in ("web_search_call", "brand_new_call")
            given_items.append({**item, "id": f"x_{stem}"} if named and not is_hosted else item)
            expected.append(given_items[-1] if named == "theirs" else item)
    sent = input_items(read_request({"model": "m", "input": given_items}).chat["messages"])
    if named == "theirs":
        assert sent == expected
    assert [*map(_plain, sent)] == [*map(_plain, expected)]


def _plain(item: Json) -> Json:
    """An item for comparison: a lone text is a string, and what is empty is not there."""
    content = item.get("content")
    found = {k: v for k, v in item.items() if k not in ("content", "summary")}
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content}]
    if content is not None:
        found["content"] = [{k: v for k, v in part.items() if v} for part in content]
    return {"type": "message", **found}


CHOICES: list[Any] = [
    *("auto", {"type": "function", "name": "f"}, {"type": "custom", "name": "g"}, {"type": "shell"}),
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "apply_patch"}]},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
]


@pytest.mark.parametrize("choice", CHOICES, ids=repr)
@pytest.mark.parametrize("strict", [{}, {"strict": True}], ids=repr)
def test_s10_4_a_request_goes_up_as_it_came(choice: Any, strict: Json) -> None:
    """Each field, known or not, in the place where it was."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "x"}
    body: Json = {
        "model": "m",
        "input": [{"role": "user", "content": "q"}],
        "tool_choice": choice,
        "max_tool_calls": 3,
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, **strict},
            {"type": "custom", "name": "g", "format": grammar},
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "apply_patch"},
            {"type": "web_search"},
        ],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {}, "strict": True}, "verbosity": "low"},
        "max_output_tokens": 99,
        "temperature": 0.3,
        "top_logprobs": 2,
        "parallel_tool_calls": False,
        "include": ["web_search_call.action.sources", "message.output_text.logprobs"],
        "store": True,
        "metadata": {"a": "b"},
        "brand_new": {"x": 1},
    }
    read = read_request(body)
    sent = response_request(read.chat, read.native.fields)
    assert sent == body
