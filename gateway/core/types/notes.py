"""What was worked out of the messages of a conversation, for the requests that go on with it (ADR 20). It is kept with
these messages in the process, and says nothing that could not be worked out anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Generic, NamedTuple, TypeVar

from gateway.core.types.artifacts import Artifact
from gateway.core.types.bill import ArtifactUsageRecord

K = TypeVar("K")
V = TypeVar("V")


class MessageParts(NamedTuple):
    """A message as it is counted: the tokens that frame it and its parts, its texts, and the tokens of each of its
    pictures and sounds, which depend on the model."""

    frame: int
    texts: list[str]
    media: list[int]


@dataclass(frozen=True, slots=True)
class FoundResults:
    """The artifacts of the tool results in the first `messages` of a conversation, which is in its turn from index
    `current` on; the step in which these messages end, and its calls that are not answered in them."""

    messages: tuple[object, ...]
    current: int
    artifacts: tuple[Artifact, ...]
    step: int
    calls: tuple[dict[str, Any], ...]

    def begins(self, messages: Sequence[object], current: int) -> bool:
        """Whether a conversation begins with the very same messages."""
        return self.current == current and begin_with(messages, self.messages)


def begin_with(whole: Sequence[object], beginning: Sequence[object]) -> bool:
    """Whether a sequence begins with the very same objects."""
    return len(beginning) <= len(whole) and all(map(is_, beginning, whole))


@dataclass(slots=True)
class FormNotes:
    """What was worked out of messages in the forms in which they are forwarded, each by the id of the form, which is
    kept with it so that no other object can have that id. A path that is kept in the process keeps its notes; they say
    nothing that could not be worked out anew.

    Of forms: `sizes` are bytes of a form's JSON, where it has no media (their tokens depend on the model: here 0),
    `parts` what is counted of such a form, with the number of its calls, `results` the artifact id, text, tool and
    arguments of a tool's result.

    Of the path as the latest request had it: `found` are the artifacts of its beginning, `standing` the records of
    those that stand, by the index of the message, `unlisted` what a stored bill leaves out of these
    (`core.types.omitted_records.KeptUnlisted`). Each holds the very objects of which it was worked out, and is replaced
    as a whole.

    `whole` is the id of a message, and how many messages the path has up to it: in these, every call is answered, and
    every result is where it belongs.
    """

    sizes: dict[int, tuple[dict[str, Any], tuple[int, int]]] = field(default_factory=dict)
    parts: dict[int, tuple[dict[str, Any], MessageParts, int]] = field(default_factory=dict)
    results: dict[int, tuple[dict[str, Any], tuple[str, str, str, str]]] = field(default_factory=dict)
    found: FoundResults | None = None
    standing: dict[int, tuple[Artifact, ArtifactUsageRecord]] = field(default_factory=dict)
    unlisted: Any = None
    whole: tuple[str | None, int] = (None, 0)


class NotedForms(Generic[K, V]):
    """What was worked out by one request, for the next one, which drops what it has no use for. `before` is only read,
    so that several requests may go on with it."""

    __slots__ = ("_before", "_now")

    def __init__(self, before: Mapping[K, V] | None = None) -> None:
        self._before: Mapping[K, V] = before if before is not None else {}
        self._now: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """What is known, None if nothing is."""
        found = self._now.get(key)
        if found is None and (found := self._before.get(key)) is not None:
            self._now[key] = found
        return found

    def put(self, key: K, value: V) -> V:
        """Notes a value, and gives it back."""
        self._now[key] = value
        return value

    def following(self) -> "NotedForms[K, V]":
        """For the next request, with what this one made use of; with what it was given, if it had no use for any."""
        return NotedForms(self._now or self._before)


@dataclass(slots=True)
class RecalledNotes:
    """What was worked out of messages that can be recalled, which nothing changes while they are kept.

    `words` are who said a message and what, by the id of its body, which is kept with it; `rules`, of words, whether
    they give a standing instruction; `indexes` how words are found (`retrieval.corpus.ContentIndex`).
    """

    words: NotedForms[int, tuple[dict[str, Any], str, str]] = field(default_factory=NotedForms)
    rules: NotedForms[str, bool] = field(default_factory=NotedForms)
    indexes: NotedForms[str, Any] = field(default_factory=NotedForms)

    def following(self) -> "RecalledNotes":
        """For the next request (`NotedForms.following`)."""
        return RecalledNotes(self.words.following(), self.rules.following(), self.indexes.following())
