"""Exported conversations: made up at random, and compared but for their ids."""

import string
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from gateway.core import jsons
from gateway.core.ids import artifact_id, content_digest
from tests.support.answers import assistant, system, text_part, tool_call, tool_result, user

Json = dict[str, Any]
TEXTS = st.text(st.characters(codec="utf-8", categories=None), max_size=12) | st.sampled_from(
    ["\x00", "e\u0301", " x "]
)
NAMES = st.text(st.sampled_from(string.ascii_letters + " é"), min_size=1, max_size=12)
NUMBERS = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
VALUES = st.recursive(
    TEXTS | NUMBERS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
START = datetime(2026, 1, 31, 12, tzinfo=UTC)
EXTRAS = st.dictionaries(
    st.sampled_from(["x_more", "logprobs", "annotations", "reasoning_content"]), VALUES, max_size=2
)


def time(seconds: float) -> str:
    """A point in time as documents write it."""
    return (START + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


TIMES = st.integers(0, 3).map(time)
USER = st.builds(lambda text, more: {**more, "role": "user", "content": text}, TEXTS, EXTRAS)
PARTS = st.builds(lambda text: user([text_part(text)]), TEXTS)
ANSWER = st.builds(lambda text, more: {**more, "role": "assistant", "content": text}, TEXTS | st.none(), EXTRAS)
CALL = st.builds(lambda name, text: assistant(None, tool_calls=[tool_call(name, name, text)]), NAMES, TEXTS)
RESULT = st.builds(lambda name, text: tool_result(name, text), NAMES, TEXTS)
BODIES = USER | PARTS | ANSWER | CALL | RESULT
SYSTEM = st.lists(st.builds(lambda text: system(text), TEXTS), min_size=1, max_size=2)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """A whole document as an export writes it: branches, failed and partial turns, tool steps, attachments, bills."""
    instructions = draw(st.lists(SYSTEM, max_size=3, unique_by=lambda value: jsons.dumps_stored(value)))
    count = draw(st.integers(0, 8))
    requests = [f"req_{number:032x}" for number in range(draw(st.integers(1, 4)))]
    messages: list[Json] = []
    for index in range(count):
        earlier = [None, *messages]
        parent = draw(st.sampled_from(earlier))
        failed = parent is not None and parent["status"] == "failed"
        body = draw(BODIES)
        message = {
            "id": f"msg_{index:032x}",
            "parent": parent and parent["id"],
            "sequence_number": parent["sequence_number"] + 1 if parent else 0,
            "role": body["role"],
            "status": "failed" if failed else draw(st.sampled_from(["complete", "complete", "partial", "failed"])),
            "body": body,
            "rendered": {**body, "content": "block"} if draw(st.booleans()) else None,
            "standing": draw(st.none() | st.lists(NAMES | names_of(messages), min_size=1, max_size=2)),
            "reasoning_events": draw(st.none() | events(messages)),
            "instructions": draw(st.sampled_from([None, *range(len(instructions))])),
            "request": draw(st.sampled_from(requests)),
            "choice": draw(st.none() | st.integers(0, 5)),
            "origin": draw(st.none() | NAMES),
            "restored": draw(st.none() | st.booleans()),
            "created_at": draw(TIMES),
        }
        messages.append(message)
    heads = [None, *(each["id"] for each in messages if each["status"] != "failed")]
    return canonical(
        {
            "object": "conversation.export",
            "version": 1,
            "id": "conv_" + "0" * 32,
            "created_at": draw(TIMES),
            "metadata": draw(st.none() | st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3)),
            "head": draw(st.sampled_from(heads)),
            "instructions_in_force": draw(st.sampled_from([None, *range(len(instructions))])),
            "sessions": sorted(draw(st.lists(NAMES, max_size=2, unique=True))),
            "instructions": instructions,
            "messages": messages,
            "attachments": draw(attachments()),
            "requests": [draw(bills(name)) for name in requests if draw(st.booleans())],
        }
    )


def events(messages: list[Json]) -> st.SearchStrategy[list[Json]]:
    """Tool steps, whose results are messages."""
    names = st.none() | names_of(messages)
    step = st.builds(
        lambda tool, result, when, other: {
            **({"x_other": other} if other else {}),
            "type": "tool_step",
            "step": 1,
            "tool": tool,
            "tool_call_id": tool,
            "arguments": "{}",
            "result_message_id": result,
            "called_at": None,
            "answered_at": when,
        },
        *(NAMES, names, TIMES, TEXTS),
    )
    return st.lists(step, min_size=1, max_size=2)


def names_of(messages: list[Json]) -> st.SearchStrategy[str]:
    """Ids of messages, and one that is gone."""
    return st.sampled_from(["msg_gone", *(message["id"] for message in messages)])


@st.composite
def attachments(draw: st.DrawFn) -> list[Json]:
    """Documents of the conversation, numbered as they came."""
    found = []
    for number in sorted(draw(st.sets(st.integers(0, 9), max_size=3))):
        text = draw(TEXTS)
        names = {"title": draw(st.none() | TEXTS), "label": draw(st.none() | TEXTS), "source": draw(TEXTS)}
        inner = {**names, "content": text, "attachment_type": "document"}
        said = draw(st.none() | st.binary(min_size=20, max_size=20).map(bytes.hex))
        each = {"number": number, "artifact_id": artifact_id(text), "document": inner, "said": said}
        found.append({**each, "created_at": draw(TIMES)})
    return found


def bills(name: str) -> st.SearchStrategy[Json]:
    """What a request cost and answered."""
    return st.builds(
        lambda created, figures, completion, metadata: {
            "id": name,
            "completion_id": f"chatcmpl-{name}",
            "model": "gpt-4o",
            "status": "complete",
            "stream": False,
            "error_code": None,
            "created_at": created,
            "response_metadata": figures,
            "completion": completion,
            "metadata": metadata,
        },
        TIMES,
        st.dictionaries(NAMES, VALUES, max_size=2),
        st.none() | st.dictionaries(NAMES, VALUES, max_size=2),
        st.none() | st.dictionaries(NAMES, TEXTS, max_size=2),
    )


def canonical(document: Json) -> Json:
    """In the order in which an export writes it."""
    messages = sorted(document["messages"], key=lambda m: (m["sequence_number"], m["created_at"], m["id"]))
    requests = sorted(document["requests"], key=lambda r: (r["created_at"], r["id"]))
    order = sorted(range(len(document["instructions"])), key=lambda n: digest(document["instructions"][n]))
    numbers = {old: new for new, old in enumerate(order)}
    in_force = numbers.get(document["instructions_in_force"])
    messages = [{**message, "instructions": numbers.get(message["instructions"])} for message in messages]
    instructions = [document["instructions"][n] for n in order]
    made = {"messages": messages, "requests": requests, "instructions": instructions, "instructions_in_force": in_force}
    return {**document, **made}


def digest(instructions: list[Json]) -> str:
    """What system messages are known by."""
    return content_digest(jsons.dumps_stored(instructions))


def without_ids(document: Json, *, sessions: bool = True) -> Json:
    """The document with its conversation's and messages' ids counted through, and without tool steps: those are made
    of its messages."""
    bare = [{**message, "reasoning_events": None} for message in document["messages"]]
    document = {**document, "messages": bare}
    names = {message["id"]: f"#{number}" for number, message in enumerate(document["messages"])}
    text = jsons.dumps_text({**document, "id": "", "sessions": document["sessions"] if sessions else []})
    for name, number in names.items():
        text = text.replace(f'"{name}"', f'"{number}"')
    found: Json = jsons.loads_decimal(text)
    return found


def user_message(number: int, parent: int | None, text: str = "hello", **more: Any) -> Json:
    """A user's message of an export, `parent` by its number."""
    made: Json = {
        "id": f"msg_{number}",
        "parent": None if parent is None else f"msg_{parent}",
        "sequence_number": number,
    }
    made |= {"role": "user", "status": "complete", "body": user(text), "rendered": None}
    made |= {"standing": None, "reasoning_events": None, "instructions": None, "request": "req_1", "choice": None}
    return {**made, "origin": None, "restored": None, "created_at": time(number), **more}


def bare(messages: list[Json], **more: Any) -> Json:
    """An export that holds these messages and nothing else; the last one is the head."""
    made: Json = {
        "object": "conversation.export",
        "version": 1,
        "id": "conv_1",
        "created_at": time(0),
        "metadata": None,
    }
    made |= {"head": messages[-1]["id"] if messages else None, "instructions_in_force": None, "sessions": []}
    made["metadata"] = None
    return {**made, "instructions": [], "messages": messages, "attachments": [], "requests": [], **more}
