"""What may enter a window that cannot hold everything: passages of artifacts and of old turns, in order of worth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.fitting.transcript import Said, recent_texts
from gateway.models.artifacts import Artifact
from gateway.models.conversation import ConversationMessage
from gateway.models.relevance import Passage, Query, Relevance, Source
from gateway.models.selection import Material
from gateway.models.steps import RESULT_ROLES, calls_of


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages `start` to `end` (exclusive): a user message and all up to the next one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage of an artifact, or of what an old message said. `message` is where it stands in the conversation, None
    if nowhere; `order` its place among all of them. With `summary` it is no passage but a summary of the artifact, made
    with a `focus`."""

    of: Artifact | Said
    message: int | None
    passage: Passage
    order: int
    summary: str = ""
    focus: str = ""

    @property
    def text(self) -> str:
        if self.summary:
            return self.summary
        content = self.of.content if isinstance(self.of, Artifact) else self.of.text
        return content[self.passage.start : self.passage.end]

    @property
    def relevant(self) -> bool:
        """Whether it bears on the question, or belongs to the turn under way."""
        return self.passage.score > 0 or not self.historical

    @property
    def historical(self) -> bool:
        return not isinstance(self.of, Artifact) or self.of.historical

    @property
    def age(self) -> tuple[int, int]:
        """Sorts the latest artifact or message first, its passages in their order."""
        return -(self.message or 0), self.order


def old_turns(messages: Sequence[ConversationMessage], current: int) -> list[Turn]:
    """The turns before the current one, oldest first."""
    starts = [i for i in range(current) if messages[i].role == "user"]
    if current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    return [Turn(start, end) for start, end in pairwise([*starts, current])]


def run_of_turns(material: Material) -> list[Turn]:
    """Those of them that may stand in one unbroken run with the current turn: none before a turn of which steps have
    left."""
    broken = max(material.left, default=-1)
    return [turn for turn in old_turns(material.messages, material.current) if turn.end > broken]


def tool_steps(material: Material) -> list[Turn]:
    """The whole tool steps of the current turn, oldest first: a call with all of its results. Those that have left stay
    out."""
    steps: list[Turn] = []
    messages, left = material.messages, material.left
    for index in range(material.current, len(messages)):
        if calls_of(messages[index].body):
            end = index + 1
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            if index not in left:
                steps.append(Turn(index, end))
    return steps


def of_each_content(artifacts: Sequence[Artifact], current: int) -> list[Artifact]:
    """The artifacts without those of which another says the same: of two that do, the later stands in the window where
    the earlier does. New attachments come with the message at `current`, old ones may be nowhere."""

    def place(artifact: Artifact) -> float:
        if artifact.place.message is not None:
            return artifact.place.message
        return -1 if artifact.historical else current - 0.5

    latest: dict[str, Artifact] = {}
    for artifact in artifacts:
        other = latest.get(artifact.content_id)
        if other is None or place(artifact) >= place(other):
            latest[artifact.content_id] = artifact
    return [artifact for artifact in artifacts if latest[artifact.content_id] is artifact]


def candidates(
    material: Material,
    artifacts: Sequence[Artifact],
    told: Sequence[Said],
    relevance: Relevance,
    searches: tuple[str, ...] = (),
) -> list[Candidate]:
    """Passages of those artifacts and of what old messages said, best first; equally good ones in their order, those of
    the current turn before. `searches` are sought beside the question."""
    end = len(material.messages)
    of: list[tuple[Artifact | Said, int | None]] = [(artifact, artifact.place.message) for artifact in artifacts]
    sources = [
        Source(a.content, "artifact", a.search_label, a.historical, end if a.place.message is None else a.place.message)
        for a in artifacts
    ]
    of += [(each, each.index) for each in told]
    sources += [Source(each.text, "turn", each.speaker, True, each.index) for each in told]
    query = Query(material.question, recent_texts(material), searches)
    found = list(_numbered(of, relevance(query, sources)))
    return best_first(found)


def best_first(found: Iterable[Candidate]) -> list[Candidate]:
    """In the order of `candidates`."""
    return sorted(found, key=lambda c: (-c.passage.score, c.historical, c.order))


def _numbered(
    of: Iterable[tuple[Artifact | Said, int | None]], found: Iterable[Iterable[Passage]]
) -> Iterable[Candidate]:
    order = 0
    for (each, message), passages in zip(of, found, strict=True):
        for passage in passages:
            yield Candidate(each, message, passage, order)
            order += 1
