"""What is shown and sent again is what it was, and a stream says what a whole answer says."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.formats.responses.request_parser import read_request
from gateway.core.formats.responses.response_completion import echo, response_of
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.jsons import Json
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import TYPED, TYPED_CALLS, arguments_of, call_kinds, items_of, result_item, result_text
from tests.support.answers import assistant, tool_call, tool_result, user
from tests.support.strict_responses import check_event, check_response

TEXTS = st.text(min_size=1, max_size=12)
IDS = st.text("abc123", min_size=1, max_size=4)
FUNCTION = st.builds(lambda i, n, a: tool_call(i, n, a), IDS, IDS, st.text())
CUSTOM = st.builds(lambda i, n, a: {"id": i, "type": "custom", "custom": {"name": n, "input": a}}, IDS, IDS, st.text())
HELD = {
    "local_shell_call": st.fixed_dictionaries(
        {"command": st.lists(st.text(), max_size=3)},
        optional={"env": st.dictionaries(IDS, st.text(), min_size=1, max_size=2), "timeout_ms": st.integers(1, 99)},
    ),
    "shell_call": st.fixed_dictionaries(
        {"commands": st.lists(st.text(), max_size=3)}, optional={"max_output_length": st.integers(1, 99)}
    ),
    "apply_patch_call": st.fixed_dictionaries(
        {"type": st.sampled_from(["create_file", "update_file"]), "path": st.text(), "diff": st.text()}
    )
    | st.fixed_dictionaries({"type": st.just("delete_file"), "path": st.text()}),
}


@st.composite
def typed(draw: st.DrawFn) -> Json:
    """A call with an item of its own."""
    kind = draw(st.sampled_from([*TYPED_CALLS]))
    function = {"name": TYPED_CALLS[kind].tool, "arguments": arguments_of(kind, draw(HELD[kind]))}
    return {"id": draw(IDS), "type": "function", "function": function, TYPED: kind}


CALLS = st.lists(st.one_of(FUNCTION, CUSTOM, typed()), min_size=1, max_size=3, unique_by=lambda call: call["id"])


@st.composite
def answers(draw: st.DrawFn) -> Json:
    """A message of an assistant's that says something."""
    message: Json = assistant(draw(st.none() | TEXTS))
    if draw(st.booleans()):
        message["reasoning_content"] = draw(TEXTS)
    if message["content"] is None or draw(st.booleans()):
        message["tool_calls"] = draw(CALLS)
    return message


@st.composite
def conversations(draw: st.DrawFn) -> list[Json]:
    """Turns with their tool results."""
    found: list[Json] = []
    for _ in range(draw(st.integers(1, 3))):
        found.append(user(draw(TEXTS)))
        answer = draw(answers())
        found.append(answer)
        calls = answer.get("tool_calls", ())
        found += [tool_result(call["id"], draw(st.text())) for call in calls]
    return found


@given(conversations())
def test_a_conversation_that_is_shown_as_items_is_read_as_itself(messages: list[Json]) -> None:
    items: list[Json] = []
    calls: dict[str, str] = {}
    for number, body in enumerate(messages):
        message = ConversationMessage(body["role"], body, message_id=f"msg_{number:032x}")
        calls |= call_kinds(message)
        items += items_of(message, calls)
    read = read_request({"model": "m", "input": items}).chat["messages"]
    for message in read:
        message.pop("reasoning_items", None)
    assert read == messages


OUTCOME = st.builds(lambda code: {"type": "exit", "exit_code": code}, st.integers(0, 2)) | st.just({"type": "timeout"})
CHUNK = st.builds(lambda out, err, end: {"stdout": out, "stderr": err, "outcome": end}, TEXTS, st.text(), OUTCOME)
LISTS = st.lists(CHUNK, max_size=2)
ENDED = st.builds(
    lambda status, output: {"status": status, "output": output},
    st.sampled_from(["completed", "failed"]),
    st.none() | st.text() | LISTS.map(json.dumps),
)
PLAIN = {"stdout": "a\nb", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


@example({"output": [PLAIN]})
@example({"output": [{**PLAIN, "stdout": json.dumps([PLAIN])}]})
@given(LISTS.map(lambda chunks: {"output": chunks}) | ENDED)
def test_s1_11_results_of_shells_and_patches_are_texts_that_lose_nothing(said: Json) -> None:
    """§1.11: what a tool wrote is a text as it is where that tells all of it."""
    kind = "apply_patch_call" if "status" in said else "shell_call"
    text = result_text(kind, said)
    assert result_item(kind, text) == said
    if said == {"output": [PLAIN]}:
        assert text == "a\nb"


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces."""
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)))
    ends = [*places, len(text)]
    return [text[start:end] for start, end in zip([0, *places], ends, strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """A message and the chunks that it comes in; pieces of calls are mixed."""
    message = draw(answers())
    deltas: list[Json] = [assistant(draw(st.sampled_from(["", None])))]
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in cut(draw, message.get(name) or "")]
    pieces: list[list[Json]] = []
    for index, call in enumerate(message.get("tool_calls", ())):
        kind, said = ("custom", "input") if "custom" in call else ("function", "arguments")
        deltas.append({"tool_calls": [{"index": index, **call, kind: {**call[kind], said: ""}}]})
        pieces.append([{"index": index, kind: {said: piece}} for piece in cut(draw, call[kind][said])])
    while any(pieces):
        chosen = draw(st.sampled_from([each for each in pieces if each]))
        deltas.append({"tool_calls": [chosen.pop(0)]})
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    shared = {"id": "chatcmpl-0a", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return message, chunks


@given(streams())
def test_the_events_of_a_stream_say_what_the_whole_answer_says(stream: tuple[Json, list[Json]]) -> None:
    """Each is the SDK's, in order, and the last has the very items of the stored message."""
    message, chunks = stream
    echoed = echo({"model": "m"}, store=True)
    made = ResponseEvents(echoed)
    events = [event for chunk in chunks for event in made.of([chunk])] + made.end()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        check_event(event)
    record = StreamRecord(1)
    for chunk in chunks:
        record.add(chunk)
    completion = {**record.completion(), "id": "chatcmpl-0a"}
    whole = response_of(completion, echoed)
    check_response(whole)
    assert events[-1]["response"] == whole
    assert _put_together(events) == whole["output"]
    said = completion["choices"][0]["message"]
    assert {name: said[name] for name in message} == message


def _put_together(events: list[Json]) -> list[Json]:
    """The items as a client collects them: each begins, its deltas come, it is done."""
    texts: dict[str, str] = {}
    done: dict[int, Json] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
        elif event["type"] == "response.output_item.added":
            assert event["output_index"] not in done
        elif event["type"] == "response.output_item.done":
            item = done[event["output_index"]] = event["item"]
            parts = item.get("content") or [{}]
            said = item.get("arguments") or item.get("input") or parts[0].get("text") or ""
            assert texts.get(item["id"], "") == said
    return [done[index] for index in sorted(done)]
