"""Collects what a context is made of: the conversation, and the artifacts in it, attached to it or restored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.artifacts.collect import (
    artifacts_of_earlier,
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    next_number,
    unique_ids,
    with_documents,
    without_repeats,
)
from gateway.artifacts.files import FilePlace
from gateway.artifacts.in_messages import own_words
from gateway.artifacts.pins import pinned_messages, with_in_full
from gateway.artifacts.steps_as_text import StepsAsText
from gateway.context.repeated import repeats_of
from gateway.models.conversation import INLINE_MESSAGES, INSTRUCTION_ROLES, Context, Earlier, History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.memory import SUMMARY
from gateway.models.repeats import NO_REPEATS
from gateway.models.tool_steps import text_of
from gateway.models.window import LAST_EARLIER, Material
from gateway.window.budget import Budget

QUESTION_CHARS = 4000
"""Characters of a question that rank passages and that a planner reads; of a longer one its beginning and its end, half
each."""
INLINE_CHARS = 100_000
"""A context of fewer characters is made in less time than a thread takes to start."""
NO_EARLIER = Earlier()


@dataclass(frozen=True, slots=True)
class Files:
    """Texts of `file` parts by (message, part): of messages that may be forwarded, of older ones, and of pinned ones
    that are older still. `cached` are digests of those that the cache keeps. `native` are PDFs that go up as they came,
    `native_contents` the ids of what they say, as far as these are known and of use."""

    sent: dict[FilePlace, str]
    earlier: dict[FilePlace, str]
    cached: tuple[str, ...] = ()
    pinned: dict[FilePlace, str] = field(default_factory=dict)
    native: Mapping[FilePlace, dict[str, Any]] = field(default_factory=dict)
    native_contents: Mapping[FilePlace, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContextInput:
    """One request with all that its context is made from.

    `steps` is the conversation, in which the tool steps that can only be forwarded as text stand apart.
    """

    request: ChatRequest
    steps: StepsAsText
    facts: ModelFacts
    budget: Budget
    files: Files

    @property
    def history(self) -> History:
        """The conversation without the tool steps that are forwarded as text."""
        return self.steps.history

    @property
    def is_small(self) -> bool:
        """Whether the context is made faster than a thread is started. Each message and part takes time, however
        short."""
        request, history = self.request, self.history
        if request.size >= INLINE_CHARS or len(history.messages) >= INLINE_MESSAGES or history.earlier:
            return False
        size = sum(map(len, self.files.sent.values())) + sum(len(a.content or "") for a in request.attachments)
        size += sum(a.size_chars for a in (*history.attachments, *self.steps.artifacts))
        return size + sum(_content_chars(m.body) for m in history.messages) < INLINE_CHARS


def collect(source: ContextInput, document_min_chars: int) -> Material:
    """The messages and artifacts of a request.

    Args:
        document_min_chars: longer texts in user messages are documents (guarantee §4 I4).
    """
    history, files, what_if = source.history, source.files, source.request.options.what_if
    context = _context(source, document_min_chars)
    if what_if is not None:
        history, context = with_in_full(history, context, what_if.in_full)
    earlier = history.earlier or NO_EARLIER
    pinned = pinned_messages(history, files.sent, files.pinned, context.restored)
    names = {each.message_id for each in pinned}
    recallable = artifacts_of_earlier(earlier.messages, files.earlier, document_min_chars, context.all_artifacts())
    if names:
        before = tuple(replace(m, pinned=True) if m.message_id in names else m for m in earlier.messages)
        earlier, first = replace(earlier, messages=before), LAST_EARLIER + 1 - len(before)
        recallable = tuple(a for a in recallable if not before[(a.place.message or 0) - first].pinned)
    repeats = NO_REPEATS
    if files.sent or files.native_contents:
        repeats = repeats_of(context, files.native_contents, pinned)
    return Material(
        instructions=(*history.instructions, *(m.body for m in history.older_kept if m.role in INSTRUCTION_ROLES)),
        messages=context.conversation_history,
        current=context.current,
        placed=context.placed,
        restored=tuple(each for each in context.restored if not each.pinned),
        attached=context.artifacts,
        question=_question(context),
        frame=history.frame,
        earlier=earlier.messages,
        recallable=recallable,
        turns_before=earlier.turns,
        pinned=pinned,
        segments=history.segments,
        things=history.things if _begins(context) else (),
        cites=source.request.options.cite and not source.request.is_worded and _begins(context),
        segments_first=source.request.options.memory == SUMMARY,
        recalled=earlier.notes,
        repeats=repeats,
    )


def _begins(context: Context) -> bool:
    """Whether the current user message is new, so that its block is made now (guarantee §4 I6)."""
    messages = context.conversation_history
    current = messages[context.current] if messages else None
    return current is not None and current.role == "user" and current.message_id is None


def _context(source: ContextInput, document_min_chars: int) -> Context:
    history, restored = source.history, source.steps.artifacts
    current = current_turn(history)
    results = extract_artifacts_from_messages(history.messages, current, history.notes)
    placed = with_documents(results, history.messages, source.files.sent)
    placed += documents_in_messages(history.messages, current, document_min_chars, source.files.sent, history.spoken)
    old = [replace(artifact, historical=True) for artifact in history.attachments]
    new = attachments_to_artifacts(source.request.attachments, next_number(old))
    attached = without_repeats([*old, *new])
    unique = tuple(unique_ids([*placed, *restored, *attached]))
    first, last = len(placed), len(placed) + len(restored)
    return Context(history.messages, current, unique[:first], unique[first:last], unique[last:])


def _question(context: Context) -> str:
    """The own words of the message that begins the current turn, and of the latest that a user said since."""
    messages, current = context.conversation_history, context.current
    if not messages:
        return ""
    said = [_own_words(context, current)]
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=current)
    if last > current:
        said.append(_own_words(context, last))
    question = "\n".join(each for each in said if each)
    if len(question) <= QUESTION_CHARS:
        return question
    return question[: QUESTION_CHARS // 2] + "\n[…]\n" + question[-QUESTION_CHARS // 2 :]


def _own_words(context: Context, index: int) -> str:
    """The text of a message without the documents in it."""
    message = context.conversation_history[index]
    content = message.content
    here = [a.place for a in context.placed if a.place.message == index and message.role == "user"]
    texts = []
    parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for number, part in enumerate(parts):
        text = text_of([part]) if isinstance(part, dict) else ""
        spans = [p.span for p in here if p.span and p.part == (None if isinstance(content, str) else number)]
        texts.append(own_words(text, spans))
    return "\n".join(text for text in texts if text.strip())


def _content_chars(message: dict[str, Any]) -> int:
    """Characters of a message's content, roughly."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    return sum(len(str(part.get("text") or part.get("file") or "")) for part in parts if isinstance(part, dict))
