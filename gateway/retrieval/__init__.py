"""Ranks the passages of a conversation's texts by their relevance to a question: the heuristic of guarantee §5.

Offers rankings of texts by words and by an embedding model, and searches of stored indexes. numpy and the stemmers take
a quarter of a second to load; the first ranking loads them, so that no start waits for them. Read first: `rank.py` (the
order of passages) and `chunks/split.py` (what a passage is). Pure except `index_cache.py`, `embeddings/` and `stored/`.
Knows no budget, and never calls a language model.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.retrieval.corpus import index_texts
    from gateway.retrieval.embeddings.minilm import MiniLM
    from gateway.retrieval.embeddings.search import EmbeddingModel, PendingVectors, RequestMeaning
    from gateway.retrieval.index_cache import ContentIndexes, PassageFinder
    from gateway.retrieval.named_places import places_named
    from gateway.retrieval.question import is_large, search_by_regions
    from gateway.retrieval.rank import relevance
    from gateway.retrieval.stored.postings import PLACES, SEGMENT_REGIONS
    from gateway.retrieval.stored.read import packed_places, question_in, read_for, regions_found
    from gateway.retrieval.stored.segment_process import IndexFailed, SegmentMaker
else:
    __getattr__ = lazy_face(__name__)
