"""What may enter a window that cannot hold everything: passages of artifacts, and old turns, in order of worth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.models.artifacts import Artifact
from gateway.models.conversation import ConversationMessage
from gateway.models.selection import Material

CURRENT_WEIGHT = 1.15
NEIGHBOUR_SHARE = 0.3
PROSE_CHARS = 350


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages `start` to `end` (exclusive): a user message and all up to the next one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage of an artifact with its estimated tokens and its relevance to the question. `heading` has to stand
    above it."""

    artifact: Artifact
    start: int
    end: int
    tokens: float
    score: float
    order: int
    heading: str = ""


def old_turns(messages: Sequence[ConversationMessage], current: int) -> list[Turn]:
    """The turns before the current one, oldest first."""
    starts = [i for i in range(current) if messages[i].role == "user"]
    if current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    return [Turn(start, end) for start, end in pairwise([*starts, current])]


def tool_steps(material: Material) -> list[Turn]:
    """The whole tool steps of the current turn, oldest first: a call with all of its results."""
    steps: list[Turn] = []
    messages = material.messages
    for index in range(material.current, len(messages)):
        if messages[index].body.get("tool_calls"):
            end = index + 1
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            steps.append(Turn(index, end))
    return steps


def neighbours(scores: Sequence[float], prose: bool) -> Iterator[float]:
    """In prose the answer often stands beside the words that were asked for."""
    for index, score in enumerate(scores):
        beside = max(scores[max(0, index - 1)], scores[min(len(scores) - 1, index + 1)]) if prose else 0.0
        yield score + NEIGHBOUR_SHARE * beside
