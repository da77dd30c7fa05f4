"""Tool steps that the gateway restores where they cannot be messages: their results become artifacts (guarantee §3.3).

Many providers refuse calls and results in a request without tools, or calls that another provider's model made. Such
steps are shown as text in the block of §4 I6, and stay text for the provider that was sent them so. Whoever made the
calls gets them back as they were, with signatures, in whatever form others got them (§1).
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.context.artifacts.collect import current_turn, extract_artifacts_from_messages, with_documents
from gateway.core.types.artifacts import NO_DOCUMENTS, Artifact, ArtifactPosition, ToolCall
from gateway.core.types.chat import parts_of
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.tool_steps import RESULT_ROLES, asked, calls_of, take_call, without_calls
from gateway.documents.file_reader import FilePlace

SPOKEN = ("content", "refusal", "audio")
"""Fields of an assistant's message beside its calls."""
WithoutItems = Callable[[dict[str, Any], frozenset[int]], dict[str, Any]]
"""A message without the items with these numbers among those that its block shows in full."""


@dataclass(frozen=True, slots=True)
class StepsAsText:
    """A conversation without the tool steps that are shown as text, and the artifacts that show them. `removed` is
    how many messages were taken out."""

    history: ConversationHistory
    artifacts: tuple[Artifact, ...] = ()
    removed: int = 0
    results: tuple[ConversationMessage, ...] = ()
    """The messages that the artifacts were, one of each."""

    def with_documents(self, files: Mapping[FilePlace, str]) -> "StepsAsText":
        """The same with what the documents in the results say. `files`: texts of `file` parts in `results`."""
        if not files:
            return self
        each = [replace(artifact, place=ArtifactPosition(index)) for index, artifact in enumerate(self.artifacts)]
        found = with_documents(each, self.results, files)
        artifacts = (
            _as_text(
                replace(artifact, place=ArtifactPosition(), documents=NO_DOCUMENTS), result.content, artifact.documents
            )
            for artifact, result in zip(found, self.results, strict=True)
        )
        return replace(self, artifacts=tuple(artifacts))


@dataclass(frozen=True, slots=True)
class _StepSpan:
    """Messages `start` to `end` (exclusive): an assistant's calls and all of their results. `results` are the ids of
    the messages that hold these."""

    start: int
    end: int
    results: frozenset[str]


def steps_as_text(
    history: ConversationHistory, without_items: WithoutItems, *, has_tools: bool, origin: str | None
) -> StepsAsText:
    """Takes the restored steps out of the messages that cannot be messages in this request.

    What the client sent itself is never touched, and neither are the steps of the current turn. A step that this
    provider was shown as text stays where it was shown, with tools or without (§4 I7). What only others were shown is
    taken out of blocks that this provider is sent, and so is what the client now sends as messages.
    `has_tools`: whether the request has `tools` or `functions`; `origin`: the provider that will answer; None if no
    other can have answered before."""
    steps = _restored_steps(history)
    blocks = _BlockResults(history, origin)
    new = enumerate(history.messages)
    sent = {m.message_id for i, m in new if m.role in RESULT_ROLES and not _is_restored(history, i)}
    if not steps and sent.isdisjoint(blocks.own | blocks.of_others):
        return StepsAsText(history)
    can_write_block = _can_write_block(history)
    as_text: list[_StepSpan] = []
    shown_elsewhere: set[str] = set()
    for step in steps:
        made_here = not _is_of_another(history.messages[step.start], origin)
        if step.results <= blocks.own or (can_write_block and not (made_here and has_tools)):
            as_text.append(step)
        elif not can_write_block and not made_here and step.results <= blocks.own | blocks.of_others:
            as_text.append(step)  # the block of this turn is fixed: what others were shown must do
            continue
        shown_elsewhere |= step.results & blocks.of_others
    indexes = range(len(history.messages))
    messages = tuple(blocks.without(index, sent, shown_elsewhere, without_items) for index in indexes)
    history = replace(history, messages=messages)
    return _without(history, as_text) if as_text else StepsAsText(history)


class _BlockResults:
    """The results that blocks show in full: `own` are in blocks that `origin` was sent, `of_others` in blocks that only
    other providers were sent."""

    def __init__(self, history: ConversationHistory, origin: str | None) -> None:
        self._messages = history.messages
        holders = [index for index, message in enumerate(history.messages) if message.shown_in_full]
        self._others = {index for index in holders if _is_of_another(self._answer_to(index), origin)}
        self.own = {n for index in holders if index not in self._others for n in history.messages[index].shown_in_full}
        self.of_others = {n for index in self._others for n in history.messages[index].shown_in_full}
        if history.frame is not None:  # also those that were reduced, or left out, for lack of room
            self.own |= history.frame.decided

    def without(
        self, index: int, sent: set[str | None], shown_elsewhere: set[str], without_items: WithoutItems
    ) -> ConversationMessage:
        """The message, its block without results that the client sends itself; if others were sent this block, also
        without results that are shown elsewhere."""
        message = self._messages[index]
        leaving = sent | shown_elsewhere if index in self._others else sent
        numbers = frozenset(number for number, name in enumerate(message.shown_in_full) if name in leaving)
        if not numbers or message.rendered is None:
            return message
        shown_in_full = tuple(name for name in message.shown_in_full if name not in leaving)
        return replace(message, rendered=without_items(message.rendered, numbers), shown_in_full=shown_in_full)

    def _answer_to(self, index: int) -> ConversationMessage | None:
        return next((m for m in self._messages[index + 1 :] if m.role == "assistant"), None)


def _is_of_another(message: ConversationMessage | None, origin: str | None) -> bool:
    """Whether another provider than `origin` made that message."""
    return message is not None and None not in (origin, message.origin) and message.origin != origin


def _restored_steps(history: ConversationHistory) -> list[_StepSpan]:
    """The whole steps of which the client sent nothing in this request."""
    if not history.restored_count:
        return []
    messages, steps = history.messages, []
    at = 0
    while at < history.stored:
        end = at + 1
        if calls_of(messages[at].body):
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            results = messages[at + 1 : end]
            if results and all(_is_restored(history, index) for index in range(at, end)):
                steps.append(_StepSpan(at, end, frozenset(m.message_id or "" for m in results)))
        at = end
    return steps


def _is_restored(history: ConversationHistory, index: int) -> bool:
    ids = history.restored_ids
    return index < history.stored and (ids is None or history.messages[index].message_id in ids)


def _can_write_block(history: ConversationHistory) -> bool:
    """Whether this turn's block is still to be written: its first step fixes it (§4 I6)."""
    current = current_turn(history)
    message = history.messages[current]
    if message.role != "user" or current >= history.stored:
        return message.role == "user"
    return message.rendered is None and not any(m.role in RESULT_ROLES for m in history.new_messages)


def _without(history: ConversationHistory, steps: Sequence[_StepSpan]) -> StepsAsText:
    """What an assistant said beside its calls stays, as a message without them."""
    replaced: dict[int, ConversationMessage | None] = {}
    leaving: list[ConversationMessage] = []
    calls: list[ToolCall] = []
    for step in steps:
        first, results = history.messages[step.start], history.messages[step.start + 1 : step.end]
        replaced |= dict.fromkeys(range(step.start, step.end))
        if any(first.body.get(name) for name in SPOKEN):
            replaced[step.start] = replace(first, body=without_calls(first.body), rendered=None)
        leaving += [first, *results]
        waiting = calls_of(first.body)
        calls += [ToolCall(result.message_id or "", asked(take_call(waiting, result.body))[1]) for result in results]
    kept = [replaced.get(index, message) for index, message in enumerate(history.messages)]
    messages = tuple(message for message in kept if message is not None)
    removed = len(history.messages) - len(messages)
    found = extract_artifacts_from_messages(leaving, len(leaving))
    results = tuple(leaving[artifact.place.message or 0] for artifact in found)
    artifacts = tuple(
        _as_text(replace(artifact, place=ArtifactPosition(), call=call), result.content)
        for artifact, call, result in zip(found, calls, results, strict=True)
    )
    history = replace(history, messages=messages, stored=history.stored - removed)
    return StepsAsText(history, artifacts, removed, results)


def _as_text(artifact: Artifact, content: Any, documents: Container[int] = NO_DOCUMENTS) -> Artifact:
    """A text cannot show pictures; it says that there were some."""
    parts = enumerate(parts_of(content))
    kinds = [str(p.get("type")) for number, p in parts if isinstance(p, dict) and number not in documents]
    others = [kind for kind in kinds if kind != "text"]
    if not others:
        return artifact
    text = f"{artifact.content}\n[Not shown, as it is no text: {', '.join(others)}]".lstrip("\n")
    return replace(artifact, content=text, size_chars=len(text))
