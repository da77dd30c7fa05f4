"""Where texts lie in a model's space, in which near means alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
