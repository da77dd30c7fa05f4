"""What may enter a window that cannot hold everything: passages of artifacts and of old turns, in order of worth."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.base.ids import artifact_id
from gateway.models.artifacts import Artifact, ArtifactType
from gateway.models.conversation import ConversationMessage
from gateway.models.relevance import Passage, Query, Relevance, Source
from gateway.models.tool_steps import RESULT_ROLES, calls_of
from gateway.models.window import Material

# What messages said, as texts to be searched, and quoted where their turn is not in the window (guarantee §4 I6).


SPEAKERS = ("user", "assistant")
MARK = "[…]"
RECENT = 4
"""How many messages before the question lend it what its pronouns stand for."""


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """What the message at `index` said, in turn number `turn` (from 1)."""

    index: int
    turn: int
    speaker: str
    text: str


def transcript(material: Material, left_out: frozenset[int]) -> list[TranscriptMessage]:
    """What was said before the current turn, and in its steps that have left; without the documents in messages, and
    without tool results: these are artifacts."""
    documents: dict[int, list[Artifact]] = {}
    for artifact in (*material.placed, *material.recallable):
        if artifact.place.span is not None:
            documents.setdefault(artifact.place.message or 0, []).append(artifact)
    found: list[TranscriptMessage] = []
    turn = material.turns_before
    for index, message in material.indexed:
        turn += message.role == "user"
        if message.role not in SPEAKERS or (index >= material.current and index not in left_out):
            continue
        text = said(message.body, documents.get(index, ()))
        if text:
            name = message.body.get("name")
            speaker = f"{message.role} {' '.join(name.split())}" if isinstance(name, str) else message.role
            found.append(TranscriptMessage(index, max(1, turn), speaker, text))
    return found


def recent_texts(material: Material) -> tuple[str, ...]:
    """What was said just before the question, latest last."""
    before = [m for m in material.messages[: material.current][-3 * RECENT :] if m.role in SPEAKERS]
    return tuple(text for text in (said(m.body, ()) for m in before[-RECENT:]) if text)


def said(body: Mapping[str, Any], documents: Sequence[Artifact] = ()) -> str:
    """A message's words, and the tools it called with what arguments."""
    content = body.get("content")
    if isinstance(content, str):
        texts = [_without(content, documents)]
    else:
        texts = [_without(text, [a for a in documents if a.place.part == n]) for n, text in _texts(content)]
    refusal = body.get("refusal")
    texts += [refusal] if isinstance(refusal, str) else []
    texts += [called(call) for call in calls_of(body)]
    return "\n".join(text for text in texts if text.strip()).strip()


def called(call: Any) -> str:
    """A tool call in words."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ""
    return f"called {function.get('name', 'tool')}({function.get('arguments') or ''})"


def as_artifact(told: Sequence[TranscriptMessage]) -> Artifact:
    """Old turns as one artifact, `turns:N-M`; its id is the same for the same words."""
    content = "\n".join(f"{each.turn} {each.speaker}: {each.text}" for each in told)
    return Artifact(
        artifact_id=artifact_id(content),
        artifact_type=ArtifactType.CONVERSATION,
        content=content,
        size_chars=sum(len(each.text) for each in told),
        source=f"turns:{told[0].turn}-{told[-1].turn}",
        historical=True,
    )


def _texts(content: Any) -> Iterable[tuple[int, str]]:
    for number, part in enumerate(content if isinstance(content, list) else ()):
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield number, text


def _without(text: str, documents: Sequence[Artifact]) -> str:
    for start, end in sorted((a.place.span for a in documents if a.place.span), reverse=True):
        text = f"{text[:start]}{MARK}{text[end:]}"
    return text


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

    of: Artifact | TranscriptMessage
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
    told: Sequence[TranscriptMessage],
    relevance: Relevance,
    searches: tuple[str, ...] = (),
) -> list[Candidate]:
    """Passages of those artifacts and of what old messages said, best first; equally good ones in their order, those of
    the current turn before. `searches` are sought beside the question."""
    end = len(material.messages)
    of: list[tuple[Artifact | TranscriptMessage, int | None]] = [
        (artifact, artifact.place.message) for artifact in artifacts
    ]
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
    of: Iterable[tuple[Artifact | TranscriptMessage, int | None]], found: Iterable[Iterable[Passage]]
) -> Iterable[Candidate]:
    order = 0
    for (each, message), passages in zip(of, found, strict=True):
        for passage in passages:
            yield Candidate(each, message, passage, order)
            order += 1


# What a user said that holds beyond its turn: how the conversation began, and what is to be kept to.


RULE = re.compile(
    r"(?:^|[.!?:;,\n(–-]\s*)(?:please |and |but |also |so )*"
    r"(?:never|always|do not|don['’]t|you must|must not|make sure|from now on|under no circumstances|only ever|"
    r"keep to|stick to|remember to|avoid)\b|\bmust (?:be|not|never|always|only)\b|\brules?\b[^.!?\n]*:",
    re.IGNORECASE,
)
RULE_CHARS = 600
"""A longer passage with such words in it is a text of some kind, not a rule."""


def kept_words(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The beginning of the very first user message, then rules that the user gave, latest first."""
    of_user = [c for c in candidates if isinstance(c.of, TranscriptMessage) and c.of.speaker.startswith("user")]
    if not of_user:
        return []
    opening = min(of_user, key=lambda c: (c.message or 0, c.passage.start))
    rules = [c for c in of_user if c is not opening and _is_rule(c)]
    return [opening, *sorted(rules, key=lambda c: -c.order)]


def _is_rule(candidate: Candidate) -> bool:
    passage = candidate.passage
    return passage.end - passage.start <= RULE_CHARS and RULE.search(candidate.text) is not None
