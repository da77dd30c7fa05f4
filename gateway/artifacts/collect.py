"""Finds the artifacts of a request: tool results, attachments, files, and documents inside messages (contract §4)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.artifacts.documents import document_spans
from gateway.ids import artifact_id
from gateway.models.artifacts import Artifact, ArtifactType, Place, RequestAttachment
from gateway.models.conversation import ConversationMessage, History, ReasoningStepRecord

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
    return [_tool_artifact(step.tool, text_of(step.result), f"step_{step.step}:{step.tool}") for step in steps]


def extract_artifacts_from_messages(messages: Sequence[ConversationMessage], current: int) -> list[Artifact]:
    """Tool results that stand in messages: of earlier turns as `history:msg_N:tool`, and from index `current` on, the
    turn under way, as `step_N:tool`."""
    found: list[Artifact] = []
    names: dict[str, str] = {}
    step = 0
    for index, message in enumerate(messages):
        if message.body.get("tool_calls"):
            step = step + 1 if index >= current else 0
            calls = message.body["tool_calls"]
            names = {str(c.get("id")): (c.get("function") or {}).get("name", "tool") for c in calls}
        if message.role != "tool":
            continue
        tool = str(message.body.get("name") or names.get(str(message.body.get("tool_call_id")), "tool"))
        number = message.sequence_number if message.sequence_number is not None else index
        source = f"step_{step}:{tool}" if index >= current else f"history:msg_{number}:{tool}"
        artifact = _tool_artifact(tool, text_of(message.content), source)
        found.append(replace(artifact, historical=index < current, place=Place(index), timestamp=message.created_at))
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
                    found.append(_span_artifact(part["text"][start:end], prefix, place, (start, end)))
    return [replace(a, historical=(a.place.message or 0) < current) for a in found]


def unique_ids(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Ids are stable for the same content; the same content twice in one request gets `-2`, `-3` …"""
    seen: Counter[str] = Counter()
    result = []
    for artifact in artifacts:
        seen[artifact.artifact_id] += 1
        count = seen[artifact.artifact_id]
        result.append(artifact if count == 1 else replace(artifact, artifact_id=f"{artifact.artifact_id}-{count}"))
    return result


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


def _span_artifact(text: str, prefix: str, place: Place, span: tuple[int, int]) -> Artifact:
    return Artifact(
        artifact_id=artifact_id(text),
        artifact_type=ArtifactType.DOCUMENT,
        content=text,
        size_chars=len(text),
        source=f"{prefix}document:{span[0]}-{span[1]}",
        title="document in the message",
        place=replace(place, span=span),
    )
