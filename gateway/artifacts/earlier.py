"""The artifacts of messages that are older than those that may be forwarded (contract §4 I6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.artifacts.collect import documents_in_messages, extract_artifacts_from_messages
from gateway.artifacts.files import FilePlace
from gateway.models.artifacts import Artifact
from gateway.models.conversation import ConversationMessage
from gateway.models.selection import LAST_EARLIER


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
