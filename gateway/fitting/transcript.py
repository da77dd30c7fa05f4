"""What messages said, as texts to be searched, and quoted where their turn is not in the window (contract §4 I6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.ids import artifact_id
from gateway.models.artifacts import Artifact, ArtifactType
from gateway.models.selection import Material
from gateway.models.steps import calls_of

SPEAKERS = ("user", "assistant")
MARK = "[…]"
RECENT = 4
"""How many messages before the question lend it what its pronouns stand for."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the message at `index` said, in turn number `turn` (from 1)."""

    index: int
    turn: int
    speaker: str
    text: str


def transcript(material: Material, left_out: frozenset[int]) -> list[Said]:
    """What was said before the current turn, and in its steps that have left; without the documents in messages, and
    without tool results: these are artifacts."""
    documents: dict[int, list[Artifact]] = {}
    for artifact in (*material.placed, *material.recallable):
        if artifact.place.span is not None:
            documents.setdefault(artifact.place.message or 0, []).append(artifact)
    found: list[Said] = []
    turn = material.turns_before
    for index, message in material.indexed:
        turn += message.role == "user"
        if message.role not in SPEAKERS or (index >= material.current and index not in left_out):
            continue
        text = said(message.body, documents.get(index, ()))
        if text:
            name = message.body.get("name")
            speaker = f"{message.role} {' '.join(name.split())}" if isinstance(name, str) else message.role
            found.append(Said(index, max(1, turn), speaker, text))
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


def as_artifact(told: Sequence[Said]) -> Artifact:
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
