"""Translations of Responses lose nothing, whichever way they are gone (guarantee §10.4)."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.accounting.stream import StreamRecord
from gateway.models.exchange import UNTRANSLATED
from gateway.wire.responses.chunks import ResponseChunks
from gateway.wire.responses.receiving import OWN_CALLS, completion_of
from gateway.wire.responses.sending import input_items, response_request
from tests.support.mock_responses import (
    Script,
    call,
    custom_call,
    events_of,
    refusal,
    response_of,
    thought,
    violations,
    web_search,
    words,
)

Json = dict[str, Any]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
CITED = {"type": "url_citation", "url": "http://x.invalid", "title": "X", "start_index": 0, "end_index": 1}
TOKEN = {"token": "é", "logprob": -0.25, "bytes": [195, 169], "top_logprobs": []}
THOUGHTS = st.builds(thought, st.just("") | TEXTS, st.none() | TEXTS)
WORDS = st.builds(words, TEXTS, st.lists(st.just(CITED), max_size=2), st.lists(st.just(TOKEN), max_size=1))
CALLS = st.builds(call, TEXTS, st.dictionaries(TEXTS, st.integers(), max_size=2))
OUTPUT = st.lists(
    THOUGHTS
    | WORDS
    | CALLS
    | st.builds(custom_call, TEXTS, TEXTS)
    | st.builds(web_search, TEXTS)
    | st.builds(refusal, TEXTS),
    max_size=6,
)


def response(output: list[Json]) -> Json:
    return response_of(Script(output=copy.deepcopy(output)), {"model": "m"})


def streamed(events: list[Json], *, as_items: bool, hosted: bool = False) -> Json:
    """The completion that a stream is, as it is stored."""
    chunks, record = ResponseChunks(as_items=as_items, hosted=hosted), StreamRecord(1)
    for event in events:
        made = chunks.of(event)
        assert made, "each event is at least one chunk"
        for chunk in made:
            record.add(json.loads(json.dumps(chunk)))
    assert chunks.ended
    return {**record.completion(), "usage": record.usage}


EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def shown(message: Json) -> Json:
    """A message for comparison: what is null or empty is not there, and kept items stand in one list."""
    found = {k: v for k, v in message.items() if v and k not in ("reasoning_items", "output_items")}
    return {**found, "kept": [*message.get("reasoning_items", ()), *message.get("output_items", ())]}


@given(OUTPUT)
def test_the_mock_sends_what_openai_sends(output: list[Json]) -> None:
    """Its bodies and events are those of OpenAI's own models."""
    made = response(output)
    Response.model_validate(made)
    for number, event in enumerate(events_of(made)):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number


@given(OUTPUT, st.booleans(), st.sampled_from([(), (".delta",), (".added",), (".delta", ".added"), (".done",)]))
def test_s10_4_a_stream_is_the_whole_answer(output: list[Json], hosted: bool, lost: tuple[str, ...]) -> None:
    """Whatever kinds of events a server leaves out: the last has all of it."""
    made = response(output)
    whole = completion_of(made, hosted=hosted)
    events = [each for each in events_of(made) if not (lost and each["type"].endswith(lost))]
    found = streamed(events, as_items=False, hosted=hosted)
    kept_apart = not hosted and any(item["type"] == "web_search_call" for item in output)
    ours, theirs = shown(found["choices"][0]["message"]), shown(whole["choices"][0]["message"])
    if kept_apart:  # that a hosted call will come is not known while thoughts do
        ours["kept"].sort(key=json.dumps), theirs["kept"].sort(key=json.dumps)
    assert ours == theirs
    assert found["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert found["usage"] == whole["usage"]


@given(OUTPUT)
def test_s10_4_an_edge_of_responses_gets_each_item_whole(output: list[Json]) -> None:
    found = streamed([*events_of(response(output))], as_items=True, hosted=True)["choices"][0]["message"]
    assert found.get("output_items", []) == [i for i in output if i["type"] not in ("message", *OWN_CALLS)]


@given(OUTPUT, st.booleans())
def test_s10_4_an_answer_goes_back_as_it_was(output: list[Json], hosted: bool) -> None:
    """Thoughts and hosted calls verbatim and in their order, calls with their arguments, texts in one."""
    message = completion_of(response(output), hosted=hosted)["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "r"} for each in message.get("tool_calls", ())]
    sent = input_items([{"role": "user", "content": "q"}, message, *results])
    assert not violations({"input": sent, "store": False})
    kept = [item for item in output if item["type"] not in ("message", *OWN_CALLS)]
    assert sent[1 : 1 + len(kept)] == [i for i in kept if i["type"] != "reasoning" or i["encrypted_content"]]
    calls = [item for item in sent if item.get("type") in OWN_CALLS]
    assert calls == [
        {k: v for k, v in i.items() if k not in ("id", "status")} for i in output if i["type"] in OWN_CALLS
    ]
    said = [item for item in sent[1:] if item.get("role") == "assistant"]
    texts = [part["text"] for i in output if i["type"] == "message" for part in i["content"] if "text" in part]
    told = "".join(
        c if isinstance(c := item["content"], str) else "".join(p.get("text", "") for p in c) for item in said
    )
    assert told == "\n\n".join(texts)
    answered = [item["call_id"] for item in sent if item.get("type", "").endswith("_output")]
    assert answered == [each["id"] for each in message.get("tool_calls", ())]


CHAT_PARTS = st.sampled_from(
    [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
)
INPUTS = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "system", "developer"]),
        TEXTS | st.lists(CHAT_PARTS, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@given(INPUTS, st.dictionaries(st.sampled_from(["max_tool_calls", "new_field"]), st.integers()), st.booleans())
def test_s10_4_a_request_is_one_of_responses(messages: list[Json], fields: Json, keeps: bool) -> None:
    """Nothing of a chat's own words is left, and what the request said in the API's words is untouched."""
    function = {"name": "f", "parameters": {"type": "object"}}
    chat: Json = {
        "model": "m",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 1,
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
        "verbosity": "low",
        "temperature": 0.5,
        "store": keeps,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}, "strict": True}},
        UNTRANSLATED: {**fields, "reasoning": {"summary": "auto"}, "tools": [{"type": "web_search"}]},
    }
    before = copy.deepcopy(chat)
    sent = response_request(chat)
    assert chat == before
    assert not violations(sent)
    assert {name: sent[name] for name in fields} == fields
    assert sent["tools"] == [{"type": "function", **function}, {"type": "web_search"}]
    assert sent["tool_choice"] == {"type": "function", "name": "f"}
    assert sent["text"] == {
        "format": {"type": "json_schema", "name": "s", "schema": {}, "strict": True},
        "verbosity": "low",
    }
    assert sent["reasoning"] == {"summary": "auto", "effort": "low"}
    assert (sent["max_output_tokens"], sent["temperature"], sent["store"]) == (9, 0.5, keeps)
    assert ("include" in sent) is not keeps
    assert not {"n", "stream_options", UNTRANSLATED} & sent.keys()
    assert [item["role"] for item in sent["input"]] == [message["role"] for message in messages]
