"""Step 2: what a context is made of, out of a conversation and what came with the request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.artifacts.collect import (
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    text_of,
    unique_ids,
    without_repeats,
)
from gateway.artifacts.earlier import artifacts_of_earlier
from gateway.artifacts.files import FilePlace
from gateway.artifacts.over_long import own_words
from gateway.artifacts.restored import Told
from gateway.models.conversation import INLINE_MESSAGES, Context, Earlier
from gateway.models.exchange import ChatRequest
from gateway.models.selection import Material

QUESTION_CHARS = 4000
INLINE_CHARS = 100_000
NONE_EARLIER = Earlier()
"""Where all messages of a conversation may be forwarded."""


@dataclass(frozen=True, slots=True)
class Files:
    """Texts of `file` parts: those of messages that may be forwarded, and of earlier ones."""

    sent: dict[FilePlace, str]
    earlier: dict[FilePlace, str]


def collect(request: ChatRequest, told: Told, files: Files, document_min_chars: int) -> Material:
    """The messages and artifacts of a request.

    Args:
        document_min_chars: longer texts in user messages are documents (contract §4 I4).
    """
    history = told.history
    context = _context(request, told, files.sent, document_min_chars)
    earlier = history.earlier or NONE_EARLIER
    return Material(
        instructions=history.instructions,
        messages=context.conversation_history,
        current=context.current,
        placed=context.placed,
        restored=context.restored,
        attached=context.artifacts,
        question=_question(context),
        frame=history.frame,
        earlier=earlier.messages,
        recallable=artifacts_of_earlier(earlier.messages, files.earlier, document_min_chars, context.all_artifacts()),
        turns_before=earlier.turns,
    )


def is_little(request: ChatRequest, told: Told, files: Files) -> bool:
    """Whether a context is built in the twinkling of an eye. Every message and part takes time, however small."""
    history = told.history
    if request.size >= INLINE_CHARS or len(history.messages) >= INLINE_MESSAGES or history.earlier:
        return False
    size = sum(map(len, files.sent.values())) + sum(len(a.content or "") for a in request.attachments)
    size += sum(a.size_chars for a in (*history.attachments, *told.artifacts))
    return size + sum(message_size(m.body) for m in history.messages) < INLINE_CHARS


def message_size(message: dict[str, Any]) -> int:
    """Characters of a message's content, roughly: enough to tell much from little."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    texts = (str(part.get("text") or part.get("file") or "") for part in parts if isinstance(part, dict))
    return sum(len(text) for text in texts)


def _context(request: ChatRequest, told: Told, files: dict[FilePlace, str], document_min_chars: int) -> Context:
    history = told.history
    current = current_turn(history)
    placed = extract_artifacts_from_messages(history.messages, current)
    placed += documents_in_messages(history.messages, current, document_min_chars, files)
    old = [replace(artifact, historical=True) for artifact in history.attachments]
    attached = without_repeats(old + attachments_to_artifacts(request.attachments, len(old)))
    unique = tuple(unique_ids([*placed, *told.artifacts, *attached]))
    first, last = len(placed), len(placed) + len(told.artifacts)
    return Context(history.messages, current, unique[:first], unique[first:last], unique[last:])


def _question(context: Context) -> str:
    """The current user message's own words: its text without what is a document in it."""
    messages, current = context.conversation_history, context.current
    if not messages:
        return ""
    content = messages[current].content
    here = [a.place for a in context.placed if a.place.message == current and messages[current].role == "user"]
    texts = []
    parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for number, part in enumerate(parts):
        text = text_of([part]) if isinstance(part, dict) else ""
        spans = [p.span for p in here if p.span and p.part == (None if isinstance(content, str) else number)]
        texts.append(own_words(text, spans))
    question = "\n".join(text for text in texts if text.strip())
    if len(question) <= QUESTION_CHARS:
        return question
    return question[: QUESTION_CHARS // 2] + "\n" + question[-QUESTION_CHARS // 2 :]
