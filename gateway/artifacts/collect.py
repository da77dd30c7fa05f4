"""Finds the artifacts of a request: tool results, attachments, files, and documents inside messages (guarantee §4)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from gateway.artifacts.documents import UnreadableDocument, document_spans, stored_document
from gateway.artifacts.files import FilePlace
from gateway.artifacts.in_messages import title_of
from gateway.artifacts.reading import DocumentReader
from gateway.base.ids import artifact_id
from gateway.errors import InvalidRequest, NotFound
from gateway.models.artifacts import Artifact, ArtifactType, Place, RequestAttachment
from gateway.models.conversation import ConversationMessage, History, ReasoningStepRecord
from gateway.models.exchange import ChatRequest
from gateway.models.tool_steps import RESULT_ROLES, asked, calls_of, take_call
from gateway.models.window import LAST_EARLIER
from gateway.ports import FileStore

# Attachments that are named by a file's id become attachments with content (guarantee §2).


async def with_content(request: ChatRequest, files: FileStore, documents: DocumentReader) -> ChatRequest:
    """The request with the content of each attachment.

    Raises:
        NotFound: no such file for this client; names `attachments[i].attachment_id`.
        InvalidRequest: the file is no readable document; names it too.
    """
    if all(attachment.content is not None for attachment in request.attachments):
        return request
    found = []
    for index, attachment in enumerate(request.attachments):
        if attachment.attachment_id is None:
            found.append(attachment)
            continue
        where = f"attachments[{index}].attachment_id"
        try:
            file = await files.fetch(attachment.attachment_id, request.caller)
            text = await documents.text(stored_document(file.name, file.media_type, file.content))
        except NotFound as error:
            raise NotFound(error.message, param=where, code="attachment_not_found") from error
        except UnreadableDocument as error:
            raise InvalidRequest(f"The file of {where} cannot be read: {error}.", param=where) from error
        title = attachment.title or file.name
        found.append(attachment.model_copy(update={"content": text, "title": title}))
    return replace(request, attachments=tuple(found))


TITLE_CHARS = 100


def text_of(content: object) -> str:
    """The text of a tool message's content; parts that are no text are passed over."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [p.get("text", "") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        return "\n".join(str(part) for part in parts)
    return ""


def extract_artifacts_from_steps(steps: Iterable[ReasoningStepRecord]) -> list[Artifact]:
    """The results of the current turn's tool steps, `step_N:tool`."""
    found = []
    for step in steps:
        artifact = _tool_artifact(step.tool, text_of(step.result), f"step_{step.step}:{step.tool}")
        found.append(replace(artifact, arguments=step.arguments or ""))
    return found


def extract_artifacts_from_messages(messages: Sequence[ConversationMessage], current: int) -> list[Artifact]:
    """Tool results that stand in messages: of earlier turns as `history:msg_N:tool`, and from index `current` on, the
    turn under way, as `step_N:tool`."""
    found: list[Artifact] = []
    calls: list[dict[str, Any]] = []
    step = 0
    for index, message in enumerate(messages):
        if made := calls_of(message.body):
            step = step + 1 if index >= current else 0
            calls = made
        if message.role not in RESULT_ROLES:
            continue
        name, arguments = asked(take_call(calls, message.body))
        tool = str(message.body.get("name") or name)
        number = message.sequence_number if message.sequence_number is not None else index
        source = f"step_{step}:{tool}" if index >= current else f"history:msg_{number}:{tool}"
        artifact = _tool_artifact(tool, text_of(message.content), source)
        found.append(
            replace(
                artifact,
                historical=index < current,
                place=Place(index),
                timestamp=message.created_at,
                arguments=arguments,
            )
        )
    return found


def attachments_to_artifacts(attachments: Sequence[RequestAttachment], first: int = 0) -> list[Artifact]:
    """Attached documents, `attachment:N:title`, N counted through the conversation from `first` on."""
    found = []
    for number, attachment in enumerate(attachments, first):
        title = attachment.title or attachment.source or attachment.attachment_id or "untitled"
        content = attachment.content or ""
        artifact = Artifact(
            artifact_id=artifact_id(content),
            artifact_type=ArtifactType.DOCUMENT,
            content=content,
            size_chars=len(content),
            source=f"attachment:{number}:{' '.join(title.split())[:TITLE_CHARS]}",
            title=title,
            metadata={"attachment_type": attachment.attachment_type, "label": attachment.source},
        )
        found.append(artifact)
    return found


def without_repeats(attached: Iterable[Artifact]) -> list[Artifact]:
    """The same content attached again is the same artifact, wherever it was attached first."""
    first: dict[str, Artifact] = {}
    for artifact in attached:
        first.setdefault(artifact.artifact_id, artifact)
    return list(first.values())


def documents_in_messages(
    messages: Sequence[ConversationMessage], current: int, min_chars: int, files: Mapping[tuple[int, int], str]
) -> list[Artifact]:
    """Documents in `file` parts (`files`: their texts by message and part), and what is plainly a document inside a
    user message (I4)."""
    found: list[Artifact] = []
    for index, message in enumerate(messages):
        if message.role != "user":
            continue
        prefix = "" if index >= current else f"history:msg_{message.sequence_number}:"
        content = message.content
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        is_list = isinstance(content, list)
        last_text = max((i for i, p in enumerate(parts) if _is_text(p)), default=-1)
        over_long = sum(len(p["text"]) for p in parts if _is_text(p)) > min_chars
        for number, part in enumerate(parts):
            if not isinstance(part, dict):
                continue
            place = Place(index, number if is_list else None)
            if part.get("type") == "file":
                text = files.get((index, number))
                if text is not None:
                    found.append(_file_artifact(part["file"], text, prefix, place))
            elif _is_text(part) and over_long:
                beside = is_list and number != last_text
                for start, end in document_spans(part["text"], min_chars, beside=beside):
                    found.append(_span_artifact(part["text"], prefix, place, (start, end)))
    return [_in_time(artifact, messages, current) for artifact in found]


def _in_time(artifact: Artifact, messages: Sequence[ConversationMessage], current: int) -> Artifact:
    index = artifact.place.message or 0
    return replace(artifact, historical=index < current, timestamp=messages[index].created_at)


def unique_ids(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Ids are stable for the same content; of the same content twice in one request the later ones get `-2`, `-3` …,
    so that what turns up does not change the names of what was there."""
    seen: Counter[str] = Counter()
    result = list(artifacts)
    for number in sorted(range(len(result)), key=lambda number: _appeared(result[number])):
        artifact = result[number]
        seen[artifact.artifact_id] += 1
        count = seen[artifact.artifact_id]
        if count > 1:
            result[number] = replace(artifact, artifact_id=f"{artifact.artifact_id}-{count}")
    return result


def _appeared(artifact: Artifact) -> tuple[float, bool, int]:
    """Sorts by time: what came with this request is last, and attachments come before the messages of their turn."""
    when = artifact.timestamp.timestamp() if artifact.timestamp else inf
    attached = artifact.place.message is None and artifact.call is None
    return when, not attached, artifact.place.message or 0


def current_turn(history: History) -> int:
    """Index of the message that begins the turn under way: the last user message, or the first new one."""
    for index in range(len(history.messages) - 1, -1, -1):
        if history.messages[index].role == "user":
            return index
    return 0


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _tool_artifact(tool: str, text: str, source: str) -> Artifact:
    return Artifact(
        artifact_id=artifact_id(text),
        artifact_type=ArtifactType.TOOL_RESULT,
        content=text,
        size_chars=len(text),
        source=source,
        title=tool,
    )


def _file_artifact(file: dict[str, object], text: str, prefix: str, place: Place) -> Artifact:
    name = str(file.get("filename") or "file")
    identity = artifact_id(text)
    label = f"file:{file.get('file_id') or identity}"
    return Artifact(
        artifact_id=identity,
        artifact_type=ArtifactType.DOCUMENT,
        content=text,
        size_chars=len(text),
        source=f"{prefix}{label}",
        label=label,
        title=name,
        place=place,
    )


def _span_artifact(whole: str, prefix: str, place: Place, span: tuple[int, int]) -> Artifact:
    text = whole[span[0] : span[1]]
    return Artifact(
        artifact_id=artifact_id(text),
        artifact_type=ArtifactType.DOCUMENT,
        content=text,
        size_chars=len(text),
        source=f"{prefix}document:{span[0]}-{span[1]}",
        title=title_of(whole, span) or "document in the message",
        place=replace(place, span=span),
    )


# The artifacts of messages that are older than those that may be forwarded (guarantee §4 I6).


def artifacts_of_earlier(
    messages: Sequence[ConversationMessage],
    files: Mapping[FilePlace, str],
    min_chars: int,
    known: Iterable[Artifact],
) -> tuple[Artifact, ...]:
    """Each content once, where it was last, and none that is `known` of what may be forwarded: it is sought there.

    `place.message` is the index by which `Material` knows the message.
    """
    count = len(messages)
    found = extract_artifacts_from_messages(messages, count)
    found += documents_in_messages(messages, count, min_chars, files)
    names = {artifact.artifact_id for artifact in known}
    latest = {artifact.artifact_id: artifact for artifact in sorted(found, key=lambda a: a.place.message or 0)}
    return tuple(_moved(artifact, count) for name, artifact in latest.items() if name not in names)


def _moved(artifact: Artifact, count: int) -> Artifact:
    index = (artifact.place.message or 0) - count + LAST_EARLIER + 1
    return replace(artifact, place=replace(artifact.place, message=index))
