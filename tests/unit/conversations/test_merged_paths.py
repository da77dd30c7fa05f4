"""A resent chain is aligned with the stored path, also where an answer broke off before its first word (§3.2, §3.6)."""

from typing import Any

from gateway.conversations.rebuild import merge_path
from gateway.core.types.chain import message_digest
from gateway.core.types.conversation import ConversationMessage

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def stored(name: str, body: dict[str, Any], status: str = "complete") -> ConversationMessage:
    return ConversationMessage(body["role"], body, message_id=name, status=status, digest=message_digest(body))


FIRST, NEXT = {"role": "user", "content": "Look."}, {"role": "user", "content": "And?"}
ANSWER = {"role": "assistant", "content": "A lamp."}
PATH = (
    stored("msg_1", FIRST),
    stored("msg_2", {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    stored("msg_3", {"role": "tool", "tool_call_id": "c1", "content": "lamp"}),
    stored("msg_4", {"role": "assistant", "content": ""}, "partial"),
    stored("msg_5", NEXT),
    stored("msg_6", ANSWER),
)


def test_an_answer_that_says_nothing_stands_for_no_message_of_the_client() -> None:
    """§3.6: no client sends it, so the question before it is still the client's."""
    found = merge_path(PATH, [FIRST, NEXT, ANSWER], beyond=False)
    assert found.messages == PATH
    assert found.left_out == {"msg_2", "msg_3", "msg_4"}
