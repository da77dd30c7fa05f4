"""`api/messages/endpoint.py`: what of a request is recognised in the next (guarantee §10.7)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.api.messages.endpoint import MessagesAdapter
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import RequestArrival
from gateway.conversations.rebuild import sent_chain
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import CacheMark, ChatRequest, RequestCaller
from gateway.storage.store import ConversationStore
from tests.support.hand_clock import HandClock

Json = dict[str, Any]
SETTINGS = Settings()
STEPS = 30
MARK = {"type": "ephemeral"}

UNASKED = ConversationStore.__new__(ConversationStore)
"""Nothing refers to what is stored."""


@pytest.fixture
def resends() -> BodyCache:
    return BodyCache(2**24, HandClock())


def steps(count: int) -> list[Json]:
    """An agent's step: a question, then calls with long results, the last of which is marked for the cache."""
    messages: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "long words " * 100}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages[-1]["content"][-1]["cache_control"] = MARK
    return messages


def answered(resends: BodyCache, messages: list[Json], **more: Any) -> ChatRequest:
    """A request that is read, answered and kept."""
    raw = json.dumps({"model": "m", "max_tokens": 99, "system": "Be kind.", "messages": messages, **more}).encode()
    adapter = MessagesAdapter(SETTINGS, resends, UNASKED)
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = adapter.read(raw, {}, RequestCaller("one"), arrival)
    assert request is not None
    sent_chain(request)
    with adapter.holding(raw, request):
        return request


def test_a_step_is_recognised_by_the_one_before_it(resends: BodyCache) -> None:
    """Though the mark for the cache has moved on."""
    first = answered(resends, steps(STEPS))
    assert first.known.count == 0
    second, alone = answered(resends, steps(STEPS + 1)), answered(BodyCache(0, HandClock()), steps(STEPS + 1))
    assert second.known.count >= len(first.messages) - 1
    assert second.messages == alone.messages
    assert list(second.known.digests) == list(alone.known.digests)
    assert second.native == alone.native
    assert second.native is not None
    assert second.native.marks == (CacheMark(len(second.messages) - 1, None, MARK),)


def test_nothing_of_store_false_is_kept(resends: BodyCache) -> None:
    answered(resends, steps(STEPS), store=False)
    assert len(resends) == 0


def test_an_error_of_a_long_request_names_its_message(resends: BodyCache) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answered(resends, [*steps(STEPS), {"role": "user", "content": 7}])
    assert caught.value.param == f"messages[{2 * STEPS + 1}].content"
