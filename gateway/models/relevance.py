"""What is asked of texts, and the passages of them that bear on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Query:
    """`question`: the current user message's own words. `recent`: texts of the messages just before it, latest last:
    what pronouns borrow from. `searches`: further queries, which never outweigh the question (contract §5)."""

    question: str
    recent: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A text in which passages are sought: an artifact, or one message of an old turn.

    `label` is searched along with each passage: a tool's name with the arguments of its call, a document's title, a
    speaker. `number` is its place in the conversation, the index of its message; attached documents come last.
    """

    content: str
    kind: Literal["artifact", "turn"]
    label: str = ""
    historical: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class Passage:
    """Characters `start` to `end` of a source's content. `score` is comparable among all passages of one call; 0: it
    does not bear on the question. `heading` has to stand above it to be understood: a table's first row, the headings
    of its section; empty if nothing has to."""

    start: int
    end: int
    score: float
    heading: str = ""


Relevance = Callable[[Query, Sequence[Source]], list[list[Passage]]]
"""For each source its passages in document order, without overlap; all but white space of a text is in one."""
