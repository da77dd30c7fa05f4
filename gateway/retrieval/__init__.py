"""Which passages of a conversation's texts bear on a question: the heuristic's ranks (guarantee §5).

Offers ranks of texts and what stored indexes find; numpy and the stemmers, a quarter of a second that no start waits
for, are loaded when the first of these is asked for. Read first: `rank.py` (the order of passages) and
`chunks/split.py` (what a passage is). Pure but for `index_cache.py`, `embeddings/` and `stored/`. Never knows a budget,
and never asks a language model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.retrieval.corpus import index_texts
    from gateway.retrieval.question import is_large, search_by_regions
    from gateway.retrieval.rank import relevance
    from gateway.retrieval.stored.postings import PLACES, SEGMENT_REGIONS
    from gateway.retrieval.stored.read import packed_places, question_in, read_for, regions_found
    from gateway.retrieval.stored.segment_process import IndexFailed, SegmentMaker

__all__ = [
    "PLACES",
    "SEGMENT_REGIONS",
    "IndexFailed",
    "SegmentMaker",
    "index_texts",
    "is_large",
    "packed_places",
    "question_in",
    "read_for",
    "regions_found",
    "relevance",
    "search_by_regions",
]
HOMES = {
    "corpus": ("index_texts",),
    "question": ("is_large", "search_by_regions"),
    "rank": ("relevance",),
    "stored.postings": ("PLACES", "SEGMENT_REGIONS"),
    "stored.read": ("packed_places", "question_in", "read_for", "regions_found"),
    "stored.segment_process": ("IndexFailed", "SegmentMaker"),
}
"""Where each of these is, loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    """Raises AttributeError: nothing is offered under that name."""
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
