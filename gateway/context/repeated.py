"""Finds the documents of a request that came more than once, whatever the road (guarantee §14.6)."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from gateway.artifacts.files import FilePlace
from gateway.assembly.block import says_same
from gateway.base.ids import artifact_id
from gateway.models.artifacts import Artifact
from gateway.models.conversation import Context, ConversationMessage
from gateway.models.memory import Pinned
from gateway.models.repeats import NO_REPEATS, RepeatedDocument, Repeats


def repeats_of(context: Context, natives: Mapping[FilePlace, str], pinned: Sequence[Pinned]) -> Repeats:
    """
    Args:
        natives: the content ids of PDFs that go up as they came, as far as they are known.
        pinned: all pinned messages.
    """
    files: dict[str, list[Artifact]] = defaultdict(list)
    for artifact in context.placed:
        if artifact.is_file and _can_stand(artifact, context.conversation_history):
            files[artifact.content_id].append(artifact)
    in_messages: dict[str, list[int]] = defaultdict(list)
    for (index, _), name in natives.items():
        in_messages[name].append(index)
    attached = {artifact.content_id: artifact for artifact in context.artifacts}
    in_memory = {artifact_id(text) for each in pinned if each.index is None for text in each.files.values()}
    count = Counter({name: len(found) for name, found in files.items()})
    count.update({name: len(found) for name, found in in_messages.items()})
    count.update(attached.keys())
    count.update(in_memory)
    count.update({name for message in context.conversation_history for name in message.shown_in_full})
    documents = tuple(
        RepeatedDocument(
            name, tuple(files.get(name, ())), attached.get(name), tuple(in_messages.get(name, ())), name in in_memory
        )
        for name in dict.fromkeys((*files, *in_messages))
        if count[name] > 1 and (name in files or name in attached)
    )
    if not documents:
        return NO_REPEATS
    as_text: set[FilePlace] = set()
    as_same: set[FilePlace] = set()
    for file in (file for document in documents for file in document.files):
        index, number = file.place.message or 0, file.place.part or 0
        found = context.conversation_history[index].forwarded_part(number)
        if found is not None and found[1].get("type") != "file":
            (as_same if says_same(found[1]) else as_text).add((index, number))
    return Repeats(documents, frozenset(as_text), frozenset(as_same))


def _can_stand(file: Artifact, messages: Sequence[ConversationMessage]) -> bool:
    """Whether its message has a place for its text, in whatever form it goes up."""
    message = messages[file.place.message or 0]
    return message.rendered is None or message.forwarded_part(file.place.part or 0) is not None
