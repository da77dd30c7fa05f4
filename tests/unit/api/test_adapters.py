"""`api/messages/endpoint.py`, `api/responses/endpoint.py`: how a request is read, and what of it is recognised in the
next (guarantee §10.1, §10.7)."""

import json
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from gateway.api.messages.endpoint import MessagesAdapter
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import RequestArrival
from gateway.api.responses.endpoint import ResponsesAdapter
from gateway.conversations.rebuild import sent_chain
from gateway.core import jsons
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import CacheMark, ChatRequest, RequestCaller
from gateway.storage.store import ConversationStore
from tests.support.hand_clock import HandClock

Json = dict[str, Any]
Api = Literal["messages", "responses"]
APIS: tuple[Api, ...] = ("messages", "responses")
SETTINGS = Settings()
STEPS = 30
MARK = {"type": "ephemeral"}
UNASKED = ConversationStore.__new__(ConversationStore)
"""Nothing refers to what is stored."""
NOBODY: Any = None
"""Who looks up what items stand for: there are none here that do."""


@pytest.fixture
def resends() -> BodyCache:
    return BodyCache(2**24, HandClock())


def messages(count: int) -> list[Json]:
    """An agent's step: a question, then calls with long results, the last of which is marked for the cache."""
    found: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "long words " * 100}
        found += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    found[-1]["content"][-1]["cache_control"] = MARK
    return found


def items(count: int) -> list[Json]:
    """The same as the input of a response."""
    found: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"call_id": f"c{number}", "name": "f", "arguments": "{}"}
        found.append({"type": "function_call", **call})
        found.append({"type": "function_call_output", "call_id": f"c{number}", "output": "long words " * 100})
    return found


def body(api: Api, steps: int, *more: Json, **fields: Any) -> Json:
    if api == "messages":
        return {"max_tokens": 99, "system": "Be kind.", "messages": [*messages(steps), *more], **fields}
    return {"input": [*items(steps), *more], **fields}


def answered(resends: BodyCache, api: Api, body: Json | bytes) -> ChatRequest:
    """A request that is read, answered and kept."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    adapter = (
        MessagesAdapter(SETTINGS, resends, UNASKED)
        if api == "messages"
        else ResponsesAdapter(SETTINGS, resends, NOBODY)
    )
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = adapter.read(raw, {}, RequestCaller("one"), arrival)
    assert request is not None
    sent_chain(request)
    with adapter.holding(raw, request):
        return request


@pytest.mark.parametrize("api", APIS)
def test_a_step_is_recognised_by_the_one_before_it(resends: BodyCache, api: Api) -> None:
    """Though the mark for the cache has moved on, and whatever else is new: only that is looked at again."""
    first = answered(resends, api, body(api, STEPS))
    assert first.known.count == 0
    later = body(api, STEPS + 1, temperature=0.5)
    second, alone = answered(resends, api, later), answered(BodyCache(0, HandClock()), api, later)
    assert second.known.count >= len(first.messages) - 1
    assert second.messages == alone.messages
    assert list(second.known.digests) == list(alone.known.digests)
    if api == "messages":
        assert second.native == alone.native
        assert second.native is not None
        assert second.native.marks == (CacheMark(len(second.messages) - 1, None, MARK),)


@pytest.mark.parametrize("api", APIS)
def test_nothing_of_store_false_is_kept(resends: BodyCache, api: Api) -> None:
    answered(resends, api, body(api, STEPS, store=False))
    assert len(resends) == 0


@pytest.mark.parametrize("count", [1, STEPS])
def test_numbers_go_up_as_they_were_written(resends: BodyCache, count: int) -> None:
    """Also where the body is long enough to be written anew."""
    shape = b'{"minimum":1.0,"const":123456789012345678901234567890}'
    tool = b'{"type":"function","name":"f","parameters":%b}' % shape
    raw = b'{"model":"m","input":%b,"tools":[%b],"temperature":0.10}' % (jsons.dumps(items(count)), tool)
    request = answered(resends, "responses", raw)
    sent = jsons.dumps(request.forward["tools"][0]["function"]["parameters"])
    assert sent == shape
    assert jsons.dumps(request.forward["temperature"]) in (b"0.1", b"0.10")


@pytest.mark.parametrize(
    ("api", "wrong", "named"),
    [
        ("messages", {"role": "user", "content": 7}, f"messages[{2 * STEPS + 1}].content"),
        ("responses", {"role": "user", "content": "x", "pinned": "yes"}, f"input[{2 * STEPS + 1}].pinned"),
    ],
)
def test_an_error_of_a_long_request_names_its_place(resends: BodyCache, api: Api, wrong: Json, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answered(resends, api, body(api, STEPS, wrong))
    assert caught.value.param == named
