"""What a client left out of a chain that it sent again (contract §3.2, §3.4). Pure: messages in, positions out."""

from collections.abc import Sequence
from typing import Any

from gateway.models.chain import call_ids, content_text, is_continued, is_said, message_digest
from gateway.models.conversation import ConversationMessage

EVIDENCE_CHARS = 200


def left_out(path: Sequence[ConversationMessage], sent: Sequence[dict[str, Any]]) -> frozenset[int]:
    """The indexes of stored messages that are not among those sent.

    Both end at the same place and say the same; of the path only the end may have been read. A message and its
    prefill may stand in what was sent as two, or without the prefill.
    """
    found: set[int] = set()
    at = len(sent) - 1
    for index in range(len(path) - 1, -1, -1):
        message = path[index]
        if at < 0:
            found.add(index)
        elif message.digest == message_digest(sent[at]):
            at -= 1
        elif is_said(message.body) and is_said(sent[at]):
            at -= 1
            while at >= 0 and is_continued(sent, at):
                at -= 1
        elif count := _prefilled_step(message, sent, at):
            at -= count
        else:
            found.add(index)
    return frozenset(found)


def _prefilled_step(message: ConversationMessage, sent: Sequence[dict[str, Any]], at: int) -> int:
    """Of how many messages sent, up to `at`, the stored one with tool calls was made: of one that left out its
    prefill, or of both; 0 if it is another."""
    words, rest = content_text(message.content), content_text(sent[at].get("content") or "")
    if not call_ids(message.body) or words is None or rest is None or not words.strip().endswith(rest.strip()):
        return 0
    if message.digest != message_digest({**sent[at], "content": words}):
        return 0
    before = sent[at - 1] if at else {}
    prefill = content_text(before.get("content")) if before.get("role") == "assistant" and is_said(before) else None
    return 2 if prefill and words.strip().startswith(prefill.strip()) else 1


def has_evidence(sent: Sequence[dict[str, Any]], path: Sequence[ConversationMessage]) -> bool:
    """Whether a chain that was recognised is hardly somebody else's who said the same: it holds an id of a tool call,
    or enough of what the assistant wrote (contract §3.2).

    A call shows nothing that was brought along by a request that had nothing else to show.
    """
    worthless = {each for message in path if message.unproven for each in call_ids(message.body)}
    chars = 0
    for body in sent:
        ids = [str(body.get("tool_call_id"))] if body["role"] == "tool" else call_ids(body)
        if not worthless.issuperset(ids):
            return True
        if body["role"] == "assistant":
            chars += len((content_text(body.get("content")) or "").strip())
            if chars >= EVIDENCE_CHARS:
                return True
    return False
