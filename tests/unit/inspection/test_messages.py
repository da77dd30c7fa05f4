"""What was said beside what was forwarded, message by message (guarantee §13.3)."""

from collections.abc import Sequence
from typing import Any

from gateway.core.ids import artifact_id
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.past_turns import INSTRUCTION, MEMORY, ConversationPath, PastRequest, PathMessage, SentMessages
from gateway.inspection.message_changes import counted, message_changes

SYSTEM = {"role": "system", "content": "Be brief."}


def said(name: str, role: str, content: str, **more: Any) -> PathMessage:
    body = {"role": role, "content": content, **more}
    return PathMessage(ConversationMessage(role, body, message_id=name), "req_1", None, "d")


def changes(messages: list[PathMessage], new: int, sent: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The changes of a request that brought the last `new` of these messages."""
    answer = PathMessage(ConversationMessage("assistant", {"role": "assistant"}), "req_2", 0, "d")
    path = ConversationPath("conv_1", (*messages, answer), {"d": (SYSTEM,)})
    request = PastRequest("req_2", len(messages) - new, tuple(messages[len(messages) - new :]), answer)
    forwarded = SentMessages([body for _, body in sent], None, tuple(name for name, _ in sent))
    found = message_changes(path, request, forwarded)
    assert found is not None
    return found


def test_each_message_is_told_once_with_what_became_of_it() -> None:
    """Left out, kept, reduced, put in front of: and the memory message stands where it was forwarded."""
    old, result = said("m1", "user", "old"), said("m2", "tool", "long result", tool_call_id="c")
    question = said("m3", "user", "Who?")
    reduced = {**result.message.body, "content": "[Extract of tool result …]"}
    block = {"role": "user", "content": '<context_data note="N">\n…\n</context_data>\n\nWho?'}
    memory = {"role": "user", "content": "<conversation_memory>"}
    sent = [(INSTRUCTION, SYSTEM), (MEMORY, memory), ("m2", reduced), ("m3", block)]
    found = changes([old, result, question], 1, sent)
    assert [(each.change, each.origin) for each in found] == [
        ("unchanged", "instruction"),
        ("left_out", "earlier"),
        ("put_in_front", "gateway"),
        ("reduced", "earlier"),
        ("put_in_front", "new"),
    ]
    assert [line.text for line in found[-1].lines.lines if line.kind == "removed"] == []
    assert counted(found)["put_in_front"] == 2


def test_a_result_in_a_block_is_restored_with_its_call() -> None:
    call = said("m1", "assistant", "", tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    result, question = said("m2", "tool", "rain", tool_call_id="c"), said("m3", "user", "Sure?")
    item = f'<artifact id="{artifact_id("rain")}" type="tool_result" shown="full">\nrain\n</artifact>'
    block = {"role": "user", "content": f'<context_data note="N">\n{item}\n</context_data>\n\nSure?'}
    found = changes([call, result, question], 1, [(INSTRUCTION, SYSTEM), ("m3", block)])
    assert [each.change for each in found] == ["unchanged", "restored", "restored", "put_in_front"]


def test_nothing_is_told_of_what_is_not_known() -> None:
    path = ConversationPath("conv_1", ())
    assert message_changes(path, PastRequest("r", 0, (), None), SentMessages(None, "no_bill_here")) is None
