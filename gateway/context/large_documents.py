"""Reads of large documents what a question needs: the regions that share most words with it (guarantee §14.7)."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.models.conversation import ConversationMessage, History
from gateway.models.tool_steps import text_of
from gateway.ports.documents import LargeTexts

QUESTION_CHARS = 4000
"""Characters of a question that are searched for, half of them from its end."""
RECENT = 6
"""Messages before the question that explain its pronouns."""


async def with_excerpts(history: History, texts: LargeTexts, tenant: str) -> History:
    """The conversation, of whose large documents each has as its content what the current question needs of it. What
    another turn was sent of them is not changed by that.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if not any(each.is_excerpt for each in history.attachments):
        return history
    from gateway.relevance.stored.read import read_for

    question, recent = _question(history.messages)
    return replace(history, attachments=await read_for(history.attachments, texts, tenant, question, recent))


def _question(messages: Sequence[ConversationMessage]) -> tuple[str, list[str]]:
    """The current user message's text, shortened, and those of the messages before it."""
    last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
    if last is None:
        return "", []
    said = [_text(each)[:QUESTION_CHARS] for each in messages[max(0, last - RECENT) : last] if each.role != "tool"]
    text = _text(messages[last])
    if len(text) > QUESTION_CHARS:
        text = f"{text[: QUESTION_CHARS // 2]}\n{text[-QUESTION_CHARS // 2 :]}"
    return text, said


def _text(message: ConversationMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return text_of([part for part in content or () if isinstance(part, dict)])
