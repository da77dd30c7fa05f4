"""Ranks what was read of conversations by a query: one corpus of what was said, of tool results and of documents."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.artifacts.collect import extract_artifacts_from_messages, without_repeats
from gateway.models.artifacts import Artifact, ArtifactType
from gateway.models.past_texts import ConversationTexts, Excerpt, FoundConversation
from gateway.models.relevance import Passage, Query, Source
from gateway.models.report_lists import ConversationLine
from gateway.models.things import Thing
from gateway.models.tool_steps import RESULT_ROLES, text_of

MOST_EXCERPTS = 3
"""Passages that are shown of one conversation."""
EXCERPT_CHARS = 700
"""Characters of one at most."""
ELISION = "…"


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that is searched, of conversation number `of`; `role` says who said it."""

    of: int
    content: str
    role: str
    artifact: Artifact | None = None

    def as_source(self, number: int) -> Source:
        label = self.artifact.search_label if self.artifact is not None else ""
        of = self.artifact.excerpt_of if self.artifact is not None else ""
        return Source(self.content, "artifact", label, historical=True, number=number, excerpt_of=of)


def best_conversations(
    query: str,
    read: Sequence[tuple[ConversationLine, ConversationTexts]],
    about: Iterable[Thing],
    limit: int,
) -> list[FoundConversation]:
    """The conversations that bear on the query, the best first; of equal ones those in front come first.

    Args:
        about: things that the query names: a conversation that is about one is found by its name, too.
    """
    from gateway.relevance.rank import relevance  # it loads numpy

    named: dict[str, list[Thing]] = {}
    for thing in about:
        named.setdefault(thing.conversation_id or "", []).append(thing)
    texts = [each for n, (line, own) in enumerate(read) for each in _texts_of(n, line, own, named.get(line.id, ()))]
    ranked = relevance(Query(query), [text.as_source(number) for number, text in enumerate(texts)])
    hits = sorted(_hits(texts, ranked), key=lambda hit: hit[0])
    of_each: dict[int, list[tuple[_Text, Passage]]] = {}
    for _, text, passage in hits:
        of_each.setdefault(text.of, []).append((text, passage))
    order = list(of_each)[:limit]  # a conversation stands where its best passage does
    return [FoundConversation(read[n][0], tuple(_excerpts(of_each[n]))) for n in order]


def _texts_of(number: int, line: ConversationLine, own: ConversationTexts, things: Sequence[Thing]) -> Iterator[_Text]:
    messages = own.messages
    said = {text_of(each.content) for each in messages if each.role == "user"}
    if line.question and not any(text.startswith(line.question) for text in said):
        yield _Text(number, line.question, "user")  # its message is too old, or too large, to have been read
    for thing in things:
        yield _Text(number, f"{thing.type} {thing.name} ({thing.thing_id}): {thing.action}", "memory")
    results = extract_artifacts_from_messages(messages, len(messages))
    for artifact in without_repeats([*own.documents, *results]):
        yield _Text(number, artifact.content, _kind(artifact), artifact)
    for message in messages:
        if message.role in RESULT_ROLES:
            continue
        if text := text_of(message.content):
            yield _Text(number, text, message.agent or message.role)


def _kind(artifact: Artifact) -> str:
    return "tool" if artifact.artifact_type is ArtifactType.TOOL_RESULT else "document"


def _hits(
    texts: Sequence[_Text], ranked: Sequence[Sequence[Passage]]
) -> Iterator[tuple[tuple[bool, float, int], _Text, Passage]]:
    """The passages that bear on the query, each with where it belongs in the order."""
    for number, (text, passages) in enumerate(zip(texts, ranked, strict=True)):
        for passage in passages:
            if passage.score > 0:
                yield (not passage.called, -passage.score, number), text, passage


def _excerpts(hits: Sequence[tuple[_Text, Passage]]) -> Iterator[Excerpt]:
    """The best passages of one conversation, none twice."""
    shown: set[str] = set()
    for text, passage in hits:
        piece = text.content[passage.start : passage.end].strip()
        if passage.heading and not piece.startswith(passage.heading):
            piece = f"{passage.heading}\n{piece}"
        piece = piece if len(piece) <= EXCERPT_CHARS else piece[:EXCERPT_CHARS] + ELISION
        if piece in shown:
            continue
        shown.add(piece)
        artifact = text.artifact
        named = (artifact.artifact_id, artifact.title) if artifact is not None else (None, None)
        yield Excerpt(text.role, piece, *named)
        if len(shown) == MOST_EXCERPTS:
            return
