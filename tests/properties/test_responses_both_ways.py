"""What the edge of Responses reads goes up again as it came (guarantee §10.4)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.exchange import UNTRANSLATED
from gateway.wire.responses.reading import read_request
from gateway.wire.responses.sending import input_items, response_request

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
    messages = [message for each in turns for message in each]
    assert read_request({"model": "m", "input": input_items(messages)}).chat["messages"] == messages


CHOICES: list[Any] = [
    *("auto", {"type": "function", "name": "f"}, {"type": "custom", "name": "g"}),
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
    sent = response_request({**read.chat, UNTRANSLATED: dict(read.native.fields)})
    assert sent == body
