"""What may enter a window that cannot hold everything: passages of artifacts and of old turns, in order of worth."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.chat import parts_of
from gateway.core.types.conversation import ConversationMessage, NotedForms
from gateway.core.types.relevance import RankedPassage, Relevance, RelevanceQuery, SearchedSource
from gateway.core.types.tool_steps import calls_of, turn_starts
from gateway.core.types.window import WindowInputs

SPEAKERS = ("user", "assistant")
OMITTED = "[…]"
"""Stands in a quoted message for a document, which is an artifact of its own."""
RECENT_MESSAGES = 4
"""Messages before the question that explain its pronouns: two exchanges."""
BY_ORDER, BY_SCORE = attrgetter("historical", "order"), attrgetter("passage.score")
RECENT_SEARCHED = 3 * RECENT_MESSAGES
"""Messages among which those are looked for, since tool steps lie between."""


@record
class TranscriptMessage:
    """What the message at `index` said, in turn number `turn` (from 1)."""

    index: int
    turn: int
    speaker: str
    text: str


@record
class PassageCandidate:
    """A passage of an artifact, or of an old message.

    Attributes:
        message: index of the message that holds it; None for an attached document.
        order: position among all candidates of one search, in the order of their sources.
        historical: it is of an old turn. This and the next are told once for all of a set, since a window asks for them
            thousands of times.
        relevant: it is relevant to the question, or belongs to the current turn.
        summary: if set, the candidate is not a passage but this summary of the artifact, made with `focus`.
    """

    of: Artifact | TranscriptMessage
    message: int | None
    passage: RankedPassage
    order: int
    historical: bool = True
    relevant: bool = False
    summary: str = ""
    focus: str = ""

    @property
    def text(self) -> str:
        if self.summary:
            return self.summary
        content = self.of.content if isinstance(self.of, Artifact) else self.of.text
        return content[self.passage.start : self.passage.end]


def candidates(
    material: WindowInputs,
    artifacts: Sequence[Artifact],
    quotable: Sequence[TranscriptMessage],
    relevance: Relevance,
    searches: tuple[str, ...] = (),
) -> list[PassageCandidate]:
    """Passages of the artifacts and of old messages, in the order of `best_first`; `searches` are further queries
    beside the question."""
    end = len(material.messages)
    of: list[tuple[Artifact | TranscriptMessage, int | None]] = [
        *((artifact, artifact.place.message) for artifact in artifacts),
        *((message, message.index) for message in quotable),
    ]
    sources = [
        SearchedSource(
            each.content,
            "artifact",
            each.search_label,
            each.historical,
            end if each.place.message is None else each.place.message,
            each.excerpt_of,
        )
        for each in artifacts
    ]
    sources += [SearchedSource(message.text, "turn", message.speaker, True, message.index) for message in quotable]
    query = RelevanceQuery(material.question, recent_texts(material), searches)
    found: list[PassageCandidate] = []
    for (each, index), passages in zip(of, relevance(query, sources), strict=True):
        old = not isinstance(each, Artifact) or each.historical
        found += [
            PassageCandidate(each, index, passage, order, old, not old or passage.score > 0)
            for order, passage in enumerate(passages, len(found))
        ]
    return best_first(found)


def best_first(found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """The highest score first; of equal ones those of the current turn first, then in their order."""
    ordered = sorted(found, key=BY_ORDER)
    ordered.sort(key=BY_SCORE, reverse=True)  # which leaves equal ones as they are
    return ordered


def latest_first(found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """The passages of the latest artifact or message first, those of each in their order."""
    return sorted(found, key=lambda c: (-(c.message or 0), c.order))


def of_each_content(artifacts: Sequence[Artifact], current: int) -> list[Artifact]:
    """The artifacts without repeats of the same content: the one that is latest in the conversation stays, since it is
    in the window whenever an earlier one is. New attachments come with the message at `current`."""

    def position(artifact: Artifact) -> float:
        if artifact.place.message is not None:
            return artifact.place.message
        return -1 if artifact.historical else current - 0.5

    latest: dict[str, Artifact] = {}
    for artifact in artifacts:
        other = latest.get(artifact.content_id)
        if other is None or position(artifact) >= position(other):
            latest[artifact.content_id] = artifact
    return [artifact for artifact in artifacts if latest[artifact.content_id] is artifact]


def transcript(material: WindowInputs, left_out: frozenset[int]) -> list[TranscriptMessage]:
    """What was said before the current turn, and in those of its steps that are left out. Tool results and documents
    are not part of it: they are artifacts."""
    documents: dict[int, list[Artifact]] = {}
    for artifact in (*material.placed, *material.recallable):
        if artifact.place.span is not None:
            documents.setdefault(artifact.place.message or 0, []).append(artifact)
    found: list[TranscriptMessage] = []
    starts = set(turn_starts(message.role for _, message in material.indexed))
    turn, noted = material.turns_before, material.recalled.words
    for number, (index, message) in enumerate(material.indexed):
        turn += number in starts
        if message.role not in SPEAKERS or (index >= material.current and index not in left_out):
            continue
        if message.pinned:  # it is in any window
            continue
        if index < 0 and index not in documents:
            said = noted.get(id(message.body))
            if said is None:
                said = noted.put(id(message.body), (message.body, *_said(message, ())))
            _, speaker, text = said
        else:
            speaker, text = _said(message, documents.get(index, ()))
        if text:
            found.append(TranscriptMessage(index, max(1, turn), speaker, text))
    return found


def _said(message: ConversationMessage, documents: Sequence[Artifact]) -> tuple[str, str]:
    """Who said a message, and its words."""
    return message.speaker, words_of(message.body, documents)


def recent_texts(material: WindowInputs) -> tuple[str, ...]:
    """What was said just before the question, latest last."""
    before: Sequence[ConversationMessage] = material.messages[: material.current][-RECENT_SEARCHED:]
    spoken = [message for message in before if message.role in SPEAKERS][-RECENT_MESSAGES:]
    return tuple(text for text in (words_of(message.body) for message in spoken) if text)


def as_artifact(quotable: Sequence[TranscriptMessage]) -> Artifact:
    """Old turns as one artifact with the source `turns:N-M`; its id is the same for the same words."""
    content = "\n".join(f"{each.turn} {each.speaker}: {each.text}" for each in quotable)
    return Artifact(
        artifact_id=artifact_id(content),
        artifact_type=ArtifactType.CONVERSATION,
        content=content,
        size_chars=sum(len(each.text) for each in quotable),
        source=f"turns:{quotable[0].turn}-{quotable[-1].turn}",
        historical=True,
    )


def words_of(body: Mapping[str, Any], documents: Sequence[Artifact] = ()) -> str:
    """A message's words without the documents in it, and the tool calls that it makes."""
    content, refusal = body.get("content"), body.get("refusal")
    parts = [(None, content)] if isinstance(content, str) else _text_parts(content)
    texts = [_without(text, [a for a in documents if a.place.part == part]) for part, text in parts]
    texts += [refusal] if isinstance(refusal, str) else []
    for call in calls_of(body):
        function = call.get("function")
        if isinstance(function, dict):
            texts.append(f"called {function.get('name', 'tool')}({function.get('arguments') or ''})")
    return "\n".join(text for text in texts if text.strip()).strip()


def _text_parts(content: Any) -> Iterator[tuple[int | None, str]]:
    for number, part in enumerate(parts_of(content)):
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield number, text


def _without(text: str, documents: Sequence[Artifact]) -> str:
    for start, end in sorted((a.place.span for a in documents if a.place.span), reverse=True):
        text = f"{text[:start]}{OMITTED}{text[end:]}"
    return text


RULE = re.compile(
    r"(?:^|[.!?:;,\n(–-]\s*)(?:please |and |but |also |so )*"
    r"(?:never|always|do not|don['’]t|you must|must not|make sure|from now on|under no circumstances|only ever|"
    r"keep to|stick to|remember to|avoid)\b|\bmust (?:be|not|never|always|only)\b|\brules?\b[^.!?\n]*:",
    re.IGNORECASE,
)
"""Words with which users give standing instructions."""
RULE_WORDS = (
    *("never", "always", "do not", "don", "must", "make sure", "from now on", "under no circumstances", "only ever"),
    *("keep to", "stick to", "remember to", "avoid", "rule"),
)
"""One of them stands in whatever `RULE` finds. Looking for them first takes a twentieth of its time."""
RULE_CHARS = 600
"""A longer passage with such words is some text that contains them, not an instruction."""


def kept_words(
    candidates: Iterable[PassageCandidate], rules: NotedForms[str, bool] | None = None
) -> list[PassageCandidate]:
    """User messages that matter beyond their turn: the beginning of the very first, then instructions, latest first.
    `rules`: what is known of old messages, and is to be known of them later."""
    of_user = [c for c in candidates if isinstance(c.of, TranscriptMessage) and c.of.speaker.startswith("user")]
    if not of_user:
        return []
    opening = min(of_user, key=lambda c: (c.message or 0, c.passage.start))
    noted = rules if rules is not None else NotedForms()
    found = [c for c in of_user if c is not opening and _is_rule(c, noted)]
    return [opening, *sorted(found, key=lambda c: -c.order)]


def _is_rule(candidate: PassageCandidate, noted: NotedForms[str, bool]) -> bool:
    passage = candidate.passage
    if passage.end - passage.start > RULE_CHARS:
        return False
    text = candidate.text
    of = candidate.of
    if (candidate.message or 0) >= 0 or isinstance(of, Artifact) or len(text) != len(of.text):
        return _has_rule(text)
    known = noted.get(text)
    return known if known is not None else noted.put(text, _has_rule(text))


def _has_rule(text: str) -> bool:
    folded = text.casefold()
    return any(word in folded for word in RULE_WORDS) and RULE.search(text) is not None
