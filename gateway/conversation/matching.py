"""What a client left out of a chain that it sent again (contract §3.2, §3.4). Pure: messages in, positions out."""

from collections.abc import Sequence
from typing import Any

from gateway.models.chain import content_text, is_continued, is_said, is_step, message_digest
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
        elif is_said(message.body) and is_said(sent[at]) and message.status != "partial":
            at -= 1
            while at >= 0 and is_continued(sent, at):
                at -= 1
        else:
            found.add(index)
    return frozenset(found)


def has_evidence(sent: Sequence[dict[str, Any]]) -> bool:
    """Whether a chain that was recognised is hardly somebody else's who said the same: it holds an id of a tool call,
    or enough of what the assistant wrote (contract §3.2)."""
    chars = 0
    for body in sent:
        if is_step(body):
            return True
        if body["role"] == "assistant":
            chars += len((content_text(body.get("content")) or "").strip())
            if chars >= EVIDENCE_CHARS:
                return True
    return False
