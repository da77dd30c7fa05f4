"""What is asked of texts, and the passages of them that bear on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

# Where texts lie in a model's space, in which near means alike.


if TYPE_CHECKING:
    import numpy

Vector = bytes
"""Of length 1, its numbers as float16, little-endian: the same whether it was made now or kept."""


class EmbeddingFault(Exception):
    """What a model gave are no vectors, or it cannot be run; the message says why."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One vector a text, in their order; `usage` in OpenAI's names as the model reported it, None if it did not."""

    vectors: list[Vector]
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Tariff:
    """Where a paid model's calls go (`Deployment.route`), its prices by LiteLLM's names, and what counts the tokens of
    texts where it does not report them."""

    route: str
    prices: Mapping[str, Decimal]
    count: Callable[[Sequence[str]], int]


def packed(rows: "numpy.ndarray[Any, Any]") -> list[Vector]:
    """The rows of a matrix as vectors.

    Raises:
        EmbeddingFault: one of them has no direction, as it holds NaN or nothing but zeros.
    """
    import numpy

    lengths = numpy.linalg.norm(rows.astype(numpy.float64), axis=1, keepdims=True)
    if not (numpy.isfinite(lengths).all() and (lengths > 0).all()):
        raise EmbeddingFault("A vector has no direction.")
    return [row.tobytes() for row in (rows / lengths).astype("<f2")]


def similarities(question: Vector, vectors: Sequence[Vector]) -> list[float]:
    """The cosine of each vector with the question's; vectors of another space (another length) are far from it."""
    import numpy

    wanted = numpy.frombuffer(question, "<f2").astype(numpy.float32)
    found = [-1.0] * len(vectors)
    same = [at for at, vector in enumerate(vectors) if len(vector) == len(question)]
    if same:
        rows = numpy.frombuffer(b"".join(vectors[at] for at in same), "<f2").reshape(len(same), -1)
        for at, cosine in zip(same, rows.astype(numpy.float32) @ wanted, strict=True):
            found[at] = float(cosine)
    return found


@dataclass(frozen=True, slots=True)
class Query:
    """`question`: the current user message's own words. `recent`: texts of the messages just before it, latest last:
    what pronouns borrow from. `searches`: further queries, which never outweigh the question (guarantee §5)."""

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
