"""Whatever JSON comes, the edge makes a request of it or names what is wrong (guarantee §7)."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.api.request.validation import ROLES, RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import ChatRequest, RequestCaller
from tests.unit.making import NOW

SETTINGS = Settings()
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, -1, 1.5, 1e308, 10**30, "", " ", "x" * 10_000, "\x00", "conv_x", "auto", [], {}, [[]], [{}]]
)
ANY = st.recursive(ODD | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these fields, each now and then of the wrong kind."""
    return st.fixed_dictionaries({}, optional={name: value | ANY for name, value in fields.items()})


TEXT = st.text(max_size=10)
CALL = some(id=TEXT, type=TEXT, function=some(name=TEXT, arguments=TEXT), custom=some(name=TEXT, input=TEXT))
FILE = some(file_id=TEXT, file_data=TEXT, filename=TEXT)
PART = some(type=st.sampled_from(["text", "file", "image_url"]), text=TEXT, file=FILE, image_url=some(url=TEXT))
MESSAGE = some(
    role=st.sampled_from(ROLES),
    content=TEXT | st.lists(PART | ANY),
    name=TEXT,
    tool_call_id=TEXT,
    tool_calls=st.lists(CALL | ANY),
)
TOOL = some(type=TEXT, function=some(name=TEXT, parameters=ANY))
ATTACHMENT = some(attachment_id=TEXT, content=TEXT, title=TEXT, source=TEXT, attachment_type=TEXT)
CONTEXT = some(
    mode=TEXT,
    planning=TEXT,
    goal=TEXT,
    max_input_tokens=st.integers(),
    models=some(context_planner=TEXT, summarizer=TEXT),
    session=TEXT,
    dry_run=st.booleans(),
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.just("gpt-4o"),
    "messages": st.lists(MESSAGE | ANY),
    "stream": st.booleans(),
    "stream_options": some(include_usage=st.booleans()),
    "n": st.integers(),
    "max_tokens": st.integers(),
    "max_completion_tokens": st.integers(),
    "tools": st.lists(TOOL | ANY),
    "functions": st.lists(TOOL | ANY),
    "response_format": ANY,
    "store": st.booleans(),
    "metadata": st.dictionaries(TEXT, TEXT | ANY),
    "conversation": TEXT | some(id=TEXT),
    "attachments": st.lists(ATTACHMENT | ANY),
    "context": CONTEXT,
    "user": TEXT,
    "safety_identifier": TEXT,
}


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A valid request with up to three fields that need not be."""
    body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    for name in draw(st.lists(st.sampled_from(list(FIELDS)), max_size=3, unique=True)):
        body[name] = draw(FIELDS[name] | ANY)
    return body


HEADERS = st.dictionaries(
    st.sampled_from(
        ["x-conversation-id", "x-context-session", "x-context-mode", "x-context-planning", "x-context-max-input-tokens"]
    ),
    st.text(st.characters(max_codepoint=255), max_size=20),
)


@given(bodies(), HEADERS)
def test_s7_any_json_is_a_request_or_an_error_naming_a_field(body: dict[str, Any], headers: dict[str, str]) -> None:
    """Nothing but `InvalidRequest` is ever raised; its `param` is a field of the request, and the request is as sent.

    So is the body: what was taken out of it for the gateway was taken out of a copy.
    """
    before = json.dumps(body)
    answer = parsed(body, headers)
    assert json.dumps(body) == before
    if isinstance(answer, ChatRequest):
        assert list(answer.messages) == body["messages"]
        return
    assert answer.status == 400
    assert answer.param
    assert answer.param in answer.message
    assert answer.param.split(".")[0].split("[")[0] in {*body, *headers}


def parsed(body: dict[str, Any], headers: dict[str, str]) -> ChatRequest | InvalidRequest:
    """What the parser says."""
    try:
        return parse_chat_request(body, headers, RequestCaller("t"), SETTINGS, RequestArrival("req_1", NOW, 0.0, 0))
    except InvalidRequest as error:
        return error
