"""Ranks passages against a question by BM25 over stemmed words and split identifiers (bm25s, loaded at first use)."""

import logging
import re
from collections.abc import Callable, Sequence

PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
STOPWORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "out",
        "she",
        "so",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "up",
        "us",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "tell",
        "please",
        "give",
        "show",
    ]
)


Stem = Callable[[list[str]], list[str]]


def stemmer() -> Stem:
    """A stemmer of one's own: PyStemmer's are not to be shared between threads."""
    import Stemmer

    stem: Stem = Stemmer.Stemmer("english").stemWords
    return stem


def terms(text: str, stem: Stem) -> list[str]:
    """Search terms: words stemmed, identifiers whole and in pieces, CJK as pairs of characters."""
    found: list[str] = []
    for match in re.finditer(r"[\w]+(?:[.:/@-][\w]+)*", text):
        word = match.group()
        lowered = word.lower()
        if lowered in STOPWORDS:
            continue
        if CJK.search(word):
            found.extend(lowered[i : i + 2] for i in range(max(1, len(lowered) - 1)))
            continue
        pieces = PIECE.findall(word)
        if len(pieces) > 1:
            found.append(lowered)
            found.extend(p.lower() for p in pieces if p.lower() not in STOPWORDS)
        else:
            found.append(lowered)
    return stem(found)


def rank(question: str, documents: Sequence[str]) -> list[float]:
    """A score for each document, 0 where no term of the question occurs; higher is better, the order repeatable."""
    stem = stemmer()
    wanted = set(terms(question, stem))
    if not wanted or not documents:
        return [0.0] * len(documents)
    tokens = [terms(document, stem) for document in documents]
    vocabulary = {term for document in tokens for term in document}
    query = sorted(wanted & vocabulary)
    if not query:
        return [0.0] * len(documents)
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets its own level to debug when imported

    index = bm25s.BM25(method="lucene", k1=1.2, b=0.6)
    index.index(tokens, show_progress=False)
    return [float(score) for score in index.get_scores(query)]
