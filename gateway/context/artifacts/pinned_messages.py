"""What is pinned of a conversation: messages that stay in every window (guarantee §11.12)."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import INSTRUCTION_ROLES, Context, ConversationHistory, ConversationMessage
from gateway.core.types.memory import PinnedMessage
from gateway.core.types.notes import FormNotes
from gateway.core.types.tool_steps import RESULT_ROLES, asked, calls_of, take_call, tool_of
from gateway.documents.file_reader import FilePlace


def with_whole_steps(history: ConversationHistory) -> ConversationHistory:
    """The conversation in which the results of pinned calls are pinned, too."""
    if not any(message.pinned for message in history.messages):
        return history
    found: list[ConversationMessage] = []
    is_pinned = False
    for message in history.messages:
        if message.role not in RESULT_ROLES:
            is_pinned = message.pinned
        found.append(replace(message, pinned=True) if is_pinned and not message.pinned else message)
    return replace(history, messages=tuple(found))


def pinned_messages(
    history: ConversationHistory,
    files: Mapping[FilePlace, str],
    older_files: Mapping[FilePlace, str],
    restored: Sequence[Artifact] = (),
) -> tuple[PinnedMessage, ...]:
    """All that is pinned, the oldest first. System messages are in any window as what they are.

    Args:
        files: texts of `file` parts that are not forwarded as they are; `older_files` of `history.older_kept`.
        restored: tool results that cannot be messages of this request.
    """
    older: tuple[ConversationMessage, ...] = ()
    if history.older_kept:
        older = with_whole_steps(replace(history, messages=history.older_kept)).messages
    found = (
        *(replace(each, index=None) for each in _pinned(older, older_files)),
        *(_as_text(artifact) for artifact in restored if artifact.pinned),
        *_pinned(history.messages, files),
    )
    return tuple(each for each in found if each.body["role"] not in INSTRUCTION_ROLES)


def _pinned(messages: Sequence[ConversationMessage], files: Mapping[FilePlace, str]) -> Iterator[PinnedMessage]:
    if not any(message.pinned for message in messages):
        return
    calls: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        body, tool, arguments = message.body, "", ""
        if message.role in RESULT_ROLES:
            call = take_call(calls, body)
            tool, arguments = tool_of(body, call), asked(call)[1]
        else:
            calls = calls_of(body)
        if message.pinned:
            texts = {part: text for (at, part), text in files.items() if at == index}
            speaker = message.role if message.role in RESULT_ROLES else message.speaker  # `tool` names it
            yield PinnedMessage(body, speaker, message.message_id, index, tool, arguments, texts)


def _as_text(artifact: Artifact) -> PinnedMessage:
    name = artifact.call.message_id if artifact.call is not None else None
    body = {"role": "tool", "content": artifact.content}
    arguments = artifact.call.arguments if artifact.call is not None else ""
    return PinnedMessage(body, "tool", name, tool=artifact.title or "", arguments=arguments)


def with_in_full(
    history: ConversationHistory, context: Context, names: AbstractSet[str]
) -> tuple[ConversationHistory, Context]:
    """The same with these artifacts pinned, by their content ids, and with each stored message that holds one: that
    stays, or comes back in the memory message. For a dry run that shows what a past request would have been with them
    in full (guarantee §13.3)."""

    def marked(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        return tuple(replace(each, pinned=True) if each.content_id in names else each for each in artifacts)

    placed = marked(context.placed)
    held = {a.place.message for a in placed if a.pinned and (a.place.message or 0) < history.stored}
    messages = tuple(
        replace(message, pinned=True) if index in held else message for index, message in enumerate(history.messages)
    )
    return replace(history, messages=messages, notes=FormNotes()), replace(
        context,
        conversation_history=messages,
        placed=placed,
        restored=marked(context.restored),
        artifacts=marked(context.artifacts),
    )
