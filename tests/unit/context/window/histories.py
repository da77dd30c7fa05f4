"""How a conversation goes on after a request: what is stored of it, and its frame."""

from dataclasses import replace
from typing import Any

from gateway.context.manager import BuiltContext
from gateway.core.types.conversation import ConversationHistory, frame_body, frame_of, new_message
from gateway.pipeline.frames import new_frame
from tests.unit.making import NOW, assistant, material_of


def memory_of(built: BuiltContext) -> str | None:
    message = built.fitted.forwarded.memory
    return None if message is None else str(message.body["content"])


def goes_on(
    history: ConversationHistory, built: BuiltContext, *more: dict[str, Any]
) -> tuple[ConversationHistory, list[dict[str, Any]]]:
    """The conversation after the request was answered, and what was forwarded."""
    number = len(history.messages)
    new = [m.stored_as(f"msg_{number - 1}", NOW) for m in history.new_messages]
    made = new_frame("m", history, built, material_of(built), new)
    frame = history.frame
    if made is not None:
        read = frame_of(frame_body(made.frame))
        frame = read if made.full or frame is None else frame.followed_by(read)
    bodies = [assistant(f"It is so: {number}."), *more]
    told = [
        replace(new_message(body), message_id=f"msg_{number + n}" if n == 0 else None, sequence_number=number + n)
        for n, body in enumerate(bodies)
    ]
    messages = (*history.messages[: history.stored], *new, *told)
    after = replace(history, messages=messages, stored=len(messages) - len(more), frame=frame)
    return after, built.fitted.forwarded.messages
