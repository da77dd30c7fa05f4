"""When the memory of things is asked, and for what (guarantee §11.14, §11.16)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, new_message
from gateway.core.types.memory import MemoryEntity, SearchPhrases
from gateway.pipeline.features.entity_memory import aliases_of, with_things

NOW = datetime(2026, 1, 30, tzinfo=UTC)
ALIASES = aliases_of("workflow", "wf_12", "Task Management")
TASKS = MemoryEntity("mem_1", "user", None, "workflow", "wf_12", "Task Management", ALIASES, "created", 1, NOW, NOW)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


class Reader:
    """A memory that knows one thing, and notes what it is asked (adapter of `EntityReader`)."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[tuple[list[str], SearchPhrases]] = []
        self._fault = fault

    async def place_of(self, tenant: str, user: str) -> str:
        return f"user_{tenant}_{user}"

    async def recall(self, tenant: str, places: list[str], phrases: SearchPhrases) -> tuple[MemoryEntity, ...]:
        self.asked.append((places, phrases))
        if self._fault is not None:
            raise self._fault
        return (TASKS,)


def asked(memory: Any = None, **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Update my task workflow"}], **fields}
    if memory is not None:
        body["memory"] = memory
    return parse_chat_request(body, {}, RequestCaller("t"), Settings(), RequestArrival("req_1", NOW, 0.0, 100))


def history(request: ChatRequest, *before: ConversationMessage, **more: Any) -> ConversationHistory:
    messages = (*before, *(new_message(dict(body)) for body in request.messages))
    found = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=len(before))
    return replace(found, **more)


def said(body: dict[str, Any]) -> ConversationMessage:
    return replace(new_message(body), message_id="msg_1")


@pytest.mark.parametrize(
    ("request_", "more", "places"),
    [
        (asked(), {}, None),
        (asked({"things": False}), {}, None),
        (asked({}, context={"mode": "off"}), {}, None),
        (asked({}), {"created": True}, None),
        (asked({}), {"unproven": True}, None),
        (asked({}), {}, ["conv_1"]),
        (asked({"scope": "user"}, user="ann"), {}, ["conv_1", "user_t_ann"]),
        (asked({"scope": "user"}, safety_identifier="ann"), {"created": True}, ["user_t_ann"]),
        (asked({}, user="ann"), {"created": True}, None),
    ],
)
async def test_the_storage_is_asked_once_where_there_is_anything_to_read(
    request_: ChatRequest, more: dict[str, Any], places: list[str] | None
) -> None:
    reader = Reader()
    found = await with_things(request_, history(request_, **more), reader)
    assert [place for place, _ in reader.asked] == ([places] if places else [])
    assert found.things == ((TASKS,) if places else ())


async def test_without_the_storage_the_question_goes_on_alone() -> None:
    request, reader = asked({}), Reader(StorageUnavailable("away"))
    assert (await with_things(request, history(request), reader)).things == ()
    assert len(reader.asked) == 1


async def test_a_later_step_keeps_the_block_of_the_first() -> None:
    """§4 I6: the question is stored, so nothing is looked up for it again."""
    request, reader = asked({}), Reader()
    messages = (
        said({"role": "user", "content": "my task workflow"}),
        said({"role": "assistant", "tool_calls": [CALL]}),
    )
    step = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=2)
    assert (await with_things(request, step, reader)).things == ()
    assert not reader.asked


async def test_an_agent_with_sections_is_told_by_what_was_said_last() -> None:
    """§11.2: another agent's message may be delivered; what it said beside its tool calls is no question."""
    request, reader = asked({}, agent={"id": "max", "type": "claude-code"}), Reader()
    messages = (
        said({"role": "user", "content": "Which one?"}),
        said({"role": "assistant", "content": "My task workflow."}),
        said({"role": "assistant", "content": "I look.", "tool_calls": [CALL]}),
        said({"role": "tool", "tool_call_id": "c", "content": "found"}),
    )
    given = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=4)
    assert (await with_things(request, given, reader)).things == (TASKS,)
    assert "my task workflow" in reader.asked[0][1].whole
