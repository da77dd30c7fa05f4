"""Translations of Responses lose nothing, whichever way they are gone (guarantee §10.4)."""

import copy
import json

from hypothesis import example, given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.core.formats.responses.request_parser import read_request
from gateway.core.formats.responses.response_completion import ENCRYPTED, ResponseChunks, completion_of, echo
from gateway.core.formats.responses.response_completion import response_of as worded
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.responses.response_request import input_items, response_request
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.jsons import Json
from gateway.core.types.chain import message_digest
from tests.support.mock_responses import (
    TYPED,
    Script,
    call,
    custom_call,
    events_of,
    refusal,
    response_of,
    thought,
    typed_call,
    violations,
    web_search,
    words,
)
from tests.support.strict_responses import check_event, check_response

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
CITED = {"type": "url_citation", "url": "http://x.invalid", "title": "X", "start_index": 0, "end_index": 1}
NAME = "chatcmpl-" + "0a" * 16
ECHOED, SEALED = echo({"model": "m"}, store=True), (ENCRYPTED,)
TOKEN = {"token": "é", "logprob": -0.25, "bytes": [195, 169], "top_logprobs": []}
THOUGHTS = st.builds(thought, st.just("") | TEXTS, st.none() | TEXTS)
WORDS = st.builds(words, TEXTS, st.lists(st.just(CITED), max_size=2), st.lists(st.just(TOKEN), max_size=1))
CALLS = st.builds(call, TEXTS, st.dictionaries(TEXTS, st.integers(), max_size=2))
PHASES = st.sampled_from([{}, {"phase": "commentary"}, {"phase": "final_answer"}])
SEVERAL = st.builds(  # parts in one message, each with citations of its own
    lambda parts, phase: {**words(""), "content": [part for each in parts for part in each["content"]], **phase},
    st.lists(WORDS | st.builds(refusal, TEXTS), min_size=1, max_size=3),
    PHASES,
)
OUTPUT = st.lists(
    THOUGHTS
    | SEVERAL
    | WORDS
    | CALLS
    | st.builds(custom_call, TEXTS, TEXTS)
    | st.builds(typed_call, st.sampled_from([*TYPED]))
    | st.builds(web_search, TEXTS)
    | st.builds(refusal, TEXTS),
    max_size=6,
)


def response(output: list[Json]) -> Json:
    return response_of(Script(output=copy.deepcopy(output)), {"model": "m"})


def streamed(events: list[Json], *, as_items: bool) -> Json:
    """The completion that a stream is, as it is stored."""
    chunks, record = ResponseChunks(as_items=as_items), StreamRecord(1)
    for event in events:
        made = chunks.of(event)
        assert made, "each event is at least one chunk"
        for chunk in made:
            record.add(json.loads(json.dumps(chunk)))
    assert chunks.ended
    return {**record.completion(), "usage": record.usage}


EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@given(OUTPUT)
def test_the_mock_sends_what_openai_sends(output: list[Json]) -> None:
    """Its bodies and events are those of OpenAI's own models."""
    made = response(output)
    Response.model_validate(made)
    for number, event in enumerate(events_of(made)):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number


@example([typed_call("local_shell_call"), call("f", {})], (".done",))
@given(OUTPUT, st.sampled_from([(), (".delta",), (".added",), (".delta", ".added"), (".done",)]))
def test_s10_4_a_stream_is_the_whole_answer(output: list[Json], lost: tuple[str, ...]) -> None:
    """Whatever kinds of events a server leaves out: the last has all of it."""
    made = response(output)
    whole = completion_of(made)
    events = [each for each in events_of(made) if not (lost and each["type"].endswith(lost))]
    found = streamed(events, as_items=False)
    ours, theirs = ({k: v for k, v in each["choices"][0]["message"].items() if v} for each in (found, whole))
    assert ours == theirs
    assert found["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert found["usage"] == whole["usage"]


@given(OUTPUT)
def test_s10_4_an_edge_of_responses_gets_each_item_whole(output: list[Json]) -> None:
    found = streamed([*events_of(response(output))], as_items=True)["choices"][0]["message"]
    assert found.get("reasoning_items", []) == [item for item in output if item["type"] == "reasoning"]
    assert found.get("output_items", []) == [item for item in output if item["type"] == "web_search_call"]


def bare(item: Json) -> Json:
    """An item for comparison: without what only one side knows, its id and log probabilities, and without what says
    nothing. A text is one part."""
    found = {k: v for k, v in {"type": "message", **item}.items() if k not in ("id", "status")}
    if found["type"] == "message":
        content = found.pop("content")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        found["parts"] = [{k: v for k, v in part.items() if v and k != "logprobs"} for part in parts]
    return found


@given(OUTPUT)
def test_s10_18_an_answer_goes_back_as_it_was(output: list[Json]) -> None:
    """Each item, in its order and by itself, but thoughts that led to nothing: OpenAI refuses those."""
    message = completion_of(response(output))["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "r"} for each in message.get("tool_calls", ())]
    sent = input_items([{"role": "user", "content": "q"}, message, *results])
    assert not violations({"input": sent, "store": False})
    assert [*map(bare, sent[1 : len(sent) - len(results)])] == [*map(bare, _that_led_on(output))]
    answered = [item.get("call_id") or item["id"] for item in sent if item.get("type", "").endswith("_output")]
    assert answered == [each["id"] for each in message.get("tool_calls", ())]


def _that_led_on(output: list[Json]) -> list[Json]:
    last = max((n for n, item in enumerate(output) if item["type"] != "reasoning"), default=-1)
    return output[: last + 1]


@given(OUTPUT.filter(bool), st.sampled_from([(), (".added",), (".delta", ".added")]))
def test_s10_18_a_client_gets_each_item_and_hands_it_back(output: list[Json], lost: tuple[str, ...]) -> None:
    """Whole, streamed, read again and streamed again, with ids that stay. What the client sends again is the message
    that is stored, and goes up as that would."""
    made = response(output)
    events = [each for each in events_of(made) if not (lost and each["type"].endswith(lost))]
    chunks, record, shown = ResponseChunks(as_items=True), StreamRecord(1), ResponseEvents(ECHOED, SEALED)
    told: list[Json] = []
    for event in events:
        for chunk in chunks.of(event):
            record.add(chunk)
            told += shown.of([{**chunk, "id": NAME}])
    told += shown.end()
    whole = worded({**completion_of(made), "id": NAME}, ECHOED, SEALED)
    stored = {**record.completion(), "id": NAME}
    again = ResponseEvents(ECHOED, SEALED)
    replayed = again.of([{**stored, "choices": [_as_delta(stored["choices"][0])]}]) + again.end()
    items = whole["output"]
    for each in (*told, *replayed):
        check_event(each)
    check_response(whole)
    assert [*map(bare, items)] == [*map(bare, output)]
    assert len({item["id"] for item in items}) == len(items)
    assert worded(stored, ECHOED, SEALED)["output"] == items
    for stream in (told, replayed):
        assert stream[-1]["response"]["output"] == items
        for kind, field in (("added", "id"), ("done", "id")):
            found = [each for each in stream if each["type"] == f"response.output_item.{kind}"]
            assert [each["output_index"] for each in found] == [*range(len(items))]
            assert [each["item"][field] for each in found] == [item[field] for item in items]
        _check_deltas(stream, items)
    message = stored["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "r"} for each in message.get("tool_calls", ())]
    user = {"role": "user", "content": "q"}
    outputs = [{"type": "function_call_output", "call_id": each["tool_call_id"], "output": "r"} for each in results]
    resent = read_request({"model": "m", "input": [user, *items, *outputs]}).chat["messages"]
    if items[-1]["type"] in ("reasoning", "web_search_call"):  # what led to nothing is left out
        return
    assert [*map(bare, input_items(resent))][: len(output) + 1] == [*map(bare, input_items([user, message]))]
    if sum(item["type"] == "message" for item in items) < 2 and not refused(output):
        assert message_digest(resent[1]) == message_digest(message)


def refused(output: list[Json]) -> bool:
    """Whether there is a refusal beside a text: a chat has them in fields of their own."""
    return any(part["type"] == "refusal" for item in output if item["type"] == "message" for part in item["content"])


def _as_delta(choice: Json) -> Json:
    """A choice in one piece."""
    said = choice["message"]
    calls = [{"index": number, **call} for number, call in enumerate(said.get("tool_calls", ()))]
    delta = {**said, "tool_calls": calls} if calls else said
    return {"index": 0, "delta": delta, "finish_reason": choice["finish_reason"], "logprobs": choice.get("logprobs")}


def _check_deltas(stream: list[Json], items: list[Json]) -> None:
    """Each piece belongs to the part that it names, and together they are that."""
    texts: dict[tuple[int, int], str] = {}
    for each in stream:
        if each["type"] in ("response.output_text.delta", "response.refusal.delta"):
            place = (each["output_index"], each["content_index"])
            assert each["item_id"] == items[place[0]]["id"]
            texts[place] = texts.get(place, "") + each["delta"]
    said = {
        (n, k): part.get("text") or part.get("refusal")
        for n, item in enumerate(items)
        if item["type"] == "message"
        for k, part in enumerate(item["content"])
    }
    assert texts == said


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
    }
    native = {**fields, "reasoning": {"summary": "auto"}, "tools": [{"type": "web_search"}]}
    before = copy.deepcopy((chat, native))
    sent = response_request(chat, native)
    assert (chat, native) == before
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
    assert not {"n", "stream_options"} & sent.keys()
    assert [item["role"] for item in sent["input"]] == [message["role"] for message in messages]
