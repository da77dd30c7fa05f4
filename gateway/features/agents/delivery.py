"""What is delivered to an agent: the current message, and the window of what was said before it (guarantee §11.3,
§11.4)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.history.markers import parts_beside_text, without_markers
from gateway.models.agents import ASSISTANT, PERSON, PromptContextMessage
from gateway.models.chain import is_step
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage, History
from gateway.models.tool_steps import RESULT_ROLES, text_of

SECTION = re.compile(r"^[ \t]*\[(?:SYSTEM|TEAM_TASK|CONTEXT|MESSAGE)\][ \t]*$\n?", re.IGNORECASE | re.MULTILINE)
"""Lines that an agent could take for the beginning of a section."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What an agent gets of a conversation.

    `instructions` are the client's system messages, wherever they stand. `context` are messages before the current one,
    the oldest first; `parts` are what the current one holds beside text; `steps` are the tool steps after it, and a
    prefill.
    """

    instructions: tuple[dict[str, Any], ...]
    context: tuple[PromptContextMessage, ...]
    text: str
    parts: tuple[dict[str, Any], ...]
    steps: tuple[ConversationMessage, ...]
    is_empty: bool

    def documents(self, min_chars: int) -> list[dict[str, Any]]:
        """Parts of the current message of which a document may be reduced: its files, and its text where that is
        longer than so many characters."""
        text = [{"type": "text", "text": self.text}] if len(self.text) > min_chars else []
        return [*text, *(part for part in self.parts if part.get("type") == "file")]


def deliver(history: History, window: int, *, prefills: bool = False) -> Delivery:
    """The latest message, whoever said it, as many as `window` of those before it that say something, and what is
    pinned before it.

    Args:
        prefills: an assistant message at the end of the request is the beginning of the answer.
    """
    said = [message for message in history.messages if message.role not in INSTRUCTION_ROLES]
    inside = tuple(m.body for m in (*history.older_kept, *history.messages) if m.role in INSTRUCTION_ROLES)
    at = _current(said, prefilled=prefills and bool(history.new_messages))
    current = said[at] if at is not None else None
    older = [message for message in history.older_kept if message.pinned and message.role not in INSTRUCTION_ROLES]
    before = [*older, *said[:at]] if at is not None else []
    context = _window(before, window)
    text = without_markers(text_of(current.content)) if current is not None else ""
    if current is not None and current.role == "assistant":
        context = without_repeat(context, current.message_id, speaker(current), text)
    return Delivery(
        instructions=(*history.instructions, *inside),
        context=context,
        text=text,
        parts=parts_beside_text(current),
        steps=tuple(said[at + 1 :]) if at is not None else (),
        is_empty=current is None,
    )


def speaker(message: ConversationMessage) -> str:
    """The name of who said it, else who speaks in that role."""
    return message.said_by or (ASSISTANT if message.role == "assistant" else PERSON)


def without_repeat(
    context: tuple[PromptContextMessage, ...], message_id: str | None, name: str, text: str
) -> tuple[PromptContextMessage, ...]:
    """The context of an agent's message without that very message at its end: the same id, else the same speaker and
    words. What people say is never taken for a repeat.

    Args:
        message_id, name, text: of the current message, which an agent said.
    """
    if not context:
        return context
    last = context[-1]
    is_same = last.message_id is not None and last.message_id == message_id
    return context[:-1] if is_same or (last.speaker == name and last.content == text) else context


def _current(said: Sequence[ConversationMessage], *, prefilled: bool) -> int | None:
    """The index of the latest message that is no tool step, and no prefill of the request."""
    at = len(said) - 1
    if prefilled and at > 0 and said[at].role == "assistant" and not is_step(said[at].body):
        at -= 1  # the request brings the beginning of the answer
    while at >= 0 and (said[at].role in RESULT_ROLES or is_step(said[at].body)):
        at -= 1
    return at if at >= 0 else None


def _window(before: Iterable[ConversationMessage], window: int) -> tuple[PromptContextMessage, ...]:
    """The latest messages that say something; tool results only where they are pinned."""
    found: list[PromptContextMessage] = []
    count = 0
    for message in reversed(list(before)):
        is_result = message.role in RESULT_ROLES
        if not message.pinned and (count >= window or is_result):
            continue
        text = SECTION.sub("", without_markers(text_of(message.content)))
        if text.strip():
            name = message.role if is_result else speaker(message)
            found.append(PromptContextMessage(name, text, message.message_id, message.pinned))
            count += 1
    return tuple(reversed(found))
