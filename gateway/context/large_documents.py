"""Reads of large documents what a question needs: the regions that share most words with it (guarantee §14.7)."""

from dataclasses import replace

from gateway.models.conversation import History
from gateway.ports.documents import LargeTexts


async def with_excerpts(history: History, texts: LargeTexts, tenant: str) -> History:
    """The conversation, of whose large documents each has as its content what the current question needs of it. What
    another turn was sent of them is not changed by that.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if not any(each.is_excerpt for each in history.attachments):
        return history
    from gateway.relevance.stored.read import question_in, read_for

    question, recent = question_in(history.messages)
    return replace(history, attachments=await read_for(history.attachments, texts, tenant, question, recent))
