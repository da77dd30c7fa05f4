"""Whatever JSON comes, the edge makes a request of it or names what is wrong (guarantee §7)."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import ChatRequest, RequestCaller
from tests.support.answers import Json, user
from tests.support.faults.refusals import changed, places
from tests.support.hostile import CHAT, ODD
from tests.unit.making import NOW

SETTINGS = Settings()
ANY = st.recursive(
    st.sampled_from([*ODD, False, "conv_x"]), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@st.composite
def bodies(draw: st.DrawFn) -> Json:
    """A valid request with up to three further fields, some places of which hold anything."""
    named = draw(st.lists(st.sampled_from(list(CHAT)), max_size=3, unique=True))
    body = {"model": "gpt-4o", "messages": [user("hello")], **{name: CHAT[name] for name in named}}
    for _ in range(draw(st.integers(0, 3))):
        body = changed(body, draw(st.sampled_from([*places(body)])), draw(ANY))
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
