"""Queries, the texts that are searched, their passages with scores, and the vectors of an embedding model."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from gateway.core.frozen_records import record

if TYPE_CHECKING:
    import numpy

Vector = bytes
"""A vector of length 1 as little-endian float16, whether new or cached."""


class EmbeddingFault(Exception):
    """An embedding model gave no usable vectors, or cannot be run; the message states why."""


@record
class TextEmbeddings:
    """One vector for each text, in order; `usage` as the model reported it in OpenAI's names, None if it did not."""

    vectors: list[Vector]
    usage: Mapping[str, Any] | None = None


@record
class EmbeddingTariff:
    """How calls of a paid model are billed: its route (`ModelDeployment.route`), its prices by LiteLLM's names, and a
    counter of tokens for calls that report none."""

    route: str
    prices: Mapping[str, Decimal]
    count: Callable[[Sequence[str]], int]


def packed(rows: "numpy.ndarray[Any, Any]") -> list[Vector]:
    """Normalises the rows of a matrix to vectors of length 1.
    Raises EmbeddingFault: a row has no direction, because it holds NaN, infinity or only zeros."""
    wide = rows.astype("f8")
    lengths = (wide * wide).sum(axis=1, keepdims=True) ** 0.5
    if not ((lengths > 0) & (lengths < inf)).all():
        raise EmbeddingFault("A vector has no direction.")
    return [row.tobytes() for row in (rows / lengths).astype("<f2")]


@record
class RelevanceQuery:
    """`question` is the current user message. `recent` are the messages just before it, latest last, to which pronouns
    refer. `searches` are further queries, which together never outweigh the question (guarantee §5)."""

    question: str
    recent: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


@record
class SearchedSource:
    """A text to search: an artifact, or one message of an old turn.

    `label` is searched along with each passage: a tool's name with the arguments of its call, a document's title, a
    speaker. `number` is the index of its message in the conversation; attached documents come last. `excerpt_of` is the
    digest of the large document of which it holds parts (`core.types.places`); "" if it is no excerpt. `named` are the
    lines that the question names; None: still to be found.
    """

    content: str
    kind: Literal["artifact", "turn"]
    label: str = ""
    historical: bool = False
    number: int = 0
    excerpt_of: str = ""
    named: tuple[tuple[int, int], ...] | None = None


@record
class RankedPassage:
    """Characters `start` to `end` of a source's content. Scores of one call are comparable; 0 means irrelevant.
    `heading` must be shown above the passage for it to be understood: a table's first row, the headings of its section.
    `called`: the query matches the passage itself, and not only better than other passages."""

    start: int
    end: int
    score: float
    heading: str = ""
    called: bool = True


Relevance = Callable[[RelevanceQuery, Sequence[SearchedSource]], list[list[RankedPassage]]]
"""Scores passages by their relevance to a query: for each source all its passages in document order, without overlap;
they cover all but white space."""
