"""`api/responses/endpoint.py`: how a request is read, and what of it is recognised in the next (guarantee §10.1)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import RequestArrival
from gateway.api.responses.endpoint import ResponsesAdapter
from gateway.conversations.rebuild import sent_chain
from gateway.core import jsons
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import ChatRequest, RequestCaller
from tests.support.hand_clock import HandClock

Json = dict[str, Any]
SETTINGS = Settings()
STEPS = 30
NOBODY: Any = None
"""Who looks up what items stand for: there are none here that do."""


@pytest.fixture
def resends() -> BodyCache:
    return BodyCache(2**24, HandClock())


def steps(count: int) -> list[Json]:
    """The input of an agent's step: a question, then calls with long results."""
    items: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"call_id": f"c{number}", "name": "f", "arguments": "{}"}
        items.append({"type": "function_call", **call})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": "long words " * 100})
    return items


def answered(resends: BodyCache, body: Json | bytes) -> ChatRequest:
    """A request that is read, answered and kept."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    adapter = ResponsesAdapter(SETTINGS, resends, NOBODY)
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = adapter.read(raw, {}, RequestCaller("one"), arrival)
    assert request is not None
    sent_chain(request)
    with adapter.holding(raw, request):
        return request


def test_a_step_is_recognised_by_the_one_before_it(resends: BodyCache) -> None:
    """Whatever stands around the input: only what is new of it is looked at again."""
    first = answered(resends, {"input": steps(STEPS)})
    assert first.known.count == 0
    second = answered(resends, {"input": steps(STEPS + 1), "temperature": 0.5})
    assert second.known.count >= len(first.messages) - 1
    alone = answered(BodyCache(0, HandClock()), {"input": steps(STEPS + 1), "temperature": 0.5})
    assert second.messages == alone.messages
    assert list(second.known.digests) == list(alone.known.digests)


def test_nothing_of_store_false_is_kept(resends: BodyCache) -> None:
    answered(resends, {"input": steps(STEPS), "store": False})
    assert len(resends) == 0


@pytest.mark.parametrize("count", [1, STEPS])
def test_numbers_go_up_as_they_were_written(resends: BodyCache, count: int) -> None:
    """Also where the body is long enough to be written anew."""
    shape = b'{"minimum":1.0,"const":123456789012345678901234567890}'
    tool = b'{"type":"function","name":"f","parameters":%b}' % shape
    request = answered(
        resends, b'{"model":"m","input":%b,"tools":[%b],"temperature":0.10}' % (jsons.dumps(steps(count)), tool)
    )
    sent = jsons.dumps(request.forward["tools"][0]["function"]["parameters"])
    assert sent == shape
    assert jsons.dumps(request.forward["temperature"]) in (b"0.1", b"0.10")


def test_an_error_of_a_long_request_names_its_item(resends: BodyCache) -> None:
    items = [*steps(STEPS), {"role": "user", "content": "x", "pinned": "yes"}]
    with pytest.raises(InvalidRequest) as caught:
        answered(resends, {"input": items})
    assert caught.value.param == f"input[{len(items) - 1}].pinned"
