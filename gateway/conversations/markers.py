"""What agents write into messages for whoever routes them, and messages that are the same but for that."""

import re
from collections.abc import Sequence
from typing import Any

from gateway.core.types.chain import is_said
from gateway.core.types.chat import dicts_of
from gateway.core.types.conversation import ConversationMessage, new_message
from gateway.core.types.tool_steps import text_of

MARKER = re.compile(r"[ \t]*\[(?:NEXT|FROM|TEAM_TASK)(?:[ \t]*:[^\]\n]*)?\]", re.IGNORECASE)
"""What agents write for whoever routes their messages: `[NEXT:max]`, `[TEAM_TASK]`, `[TEAM_TASK: ship it]`."""


def without_markers(text: str) -> str:
    """The text without the markers of routing; unchanged if it has none, or nothing else."""
    found = MARKER.sub("", text)
    return text if found == text else found.strip() or text


def parts_beside_text(message: ConversationMessage | None) -> tuple[dict[str, Any], ...]:
    """Returns what a message holds beside text."""
    content = message.content if message is not None else None
    return tuple(part for part in dicts_of(content) if part.get("type") != "text")


def is_end_of(path: Sequence[ConversationMessage], bodies: Sequence[dict[str, Any]]) -> bool:
    """Whether a conversation ends with these messages, the same role's and words, markers and tool steps aside; a
    speaker counts where both are named."""
    said = [message for message in path if is_said(message.body)][-len(bodies) :]
    return len(said) == len(bodies) and all(map(_says_the_same, said, map(new_message, bodies)))


def _says_the_same(one: ConversationMessage, other: ConversationMessage) -> bool:
    words = [without_markers(text_of(each.content)).strip() for each in (one, other)]
    names = {each.said_by for each in (one, other) if each.said_by}
    return (
        one.role == other.role
        and words[0] == words[1]
        and parts_beside_text(one) == parts_beside_text(other)
        and len(names) < 2
    )
