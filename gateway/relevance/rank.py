"""Scores the passages of texts by their relevance to a question."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.models.relevance import Passage, Query, Source
from gateway.relevance.bm25 import Ranking, fuse, lexical, share_held
from gateway.relevance.corpus import ContentIndex, Corpus, Scores, index_texts
from gateway.relevance.in_places import line_scores, place_scores
from gateway.relevance.links import linked, named_records
from gateway.relevance.named_places import named_places
from gateway.relevance.positions import position_scores
from gateway.relevance.question import borrowed_terms, named_before, quotation_scores, speaker_weights
from gateway.relevance.superlatives import superlative_scores
from gateway.relevance.term_ids import places
from gateway.relevance.terms import Lexicon
from gateway.relevance.topics import topic_scores

QUOTATION_WEIGHT = 2.0
"""Weight of a quotation's rarity, as a multiple of that of a term."""
TOPIC_WEIGHT = 0.5
"""Weight of a topic's words, as a fraction of the question's own."""
NAMED_WEIGHT = 1.5
"""Weight of the records that the question names, as a multiple of its own ranking."""
THIRD_ROUND = 0.5
"""Weight of a link from what the second round found, as a fraction of one from the first."""
EXACT_WEIGHT = 4.0
"""Weight of the record at the position or with the value that is asked for: before all that only shares words."""
PLACE_WEIGHT = 2.0
"""Weight of a place that the question names: all of it is of use, so its words still say which passage comes first."""
LEAST_HELD = 0.3
"""Share of what a question says that a passage holds where the question calls for it. Chosen by hand."""
CURRENT_WEIGHT = 1.15
"""Weight of what the current turn fetched, as a multiple of the same in older turns."""
NEIGHBOUR_SHARES = (0.3, 0.21, 0.15, 0.09)
"""Fractions of its score that a turn gives to those one, two, three and four turns away: an answer follows what was
asked. Records, lines and paragraphs give nothing: there a share only takes room from better ones (measured).

All weights here are tuned (ADR 11)."""

Indexed = Callable[[Sequence[str], Lexicon], list[ContentIndex]]
"""Gives the index of each text."""


def relevance(query: Query, sources: Sequence[Source], indexed: Indexed = index_texts) -> list[list[Passage]]:
    """For each source its passages in document order, scored as one corpus (see `models.relevance.Relevance`)."""
    lexicon = Lexicon()
    corpus = Corpus(sources, indexed([source.content for source in sources], lexicon), lexicon)
    ranked = rankings(query, corpus)
    scores = fuse(ranked, corpus.count)
    calls = iter(called(query, corpus, ranked).tolist())
    by_speaker = speaker_weights(corpus, query.question)
    each = iter((scores if by_speaker is None else scores * by_speaker).tolist())
    return [
        [Passage(c.start, c.end, next(each), c.heading, next(calls)) for c in index.chunks] for index in corpus.indexes
    ]


def rankings(query: Query, corpus: Corpus) -> list[Ranking]:
    """All rankings of the chunks that bear on a query; `fuse` makes one of them."""
    question = corpus.lexicon.question(query.question)
    weights = borrowed_terms(query.question, query.recent, corpus.lexicon)
    terms = question + [(term, 0) for term in weights]
    main = lexical(corpus, terms, weights) + QUOTATION_WEIGHT * quotation_scores(corpus, query.question)
    main *= _turn_weights(corpus)
    of_topics = topic_scores(corpus, question)
    if of_topics is not None:
        main += TOPIC_WEIGHT * of_topics
    found = [Ranking(with_neighbours(corpus, main))]
    of_names = named_records(corpus, terms, weights)
    if of_names is not None:
        found.append(Ranking(of_names, NAMED_WEIGHT, calls=True))
    found += linked(corpus, question, main)
    third = linked(corpus, question, fuse(found, corpus.count)) if len(found) > 1 else []
    found += [Ranking(each.scores, THIRD_ROUND * each.weight) for each in third]
    named = named_places(query.question)
    of_lines = line_scores(corpus, named)
    at_position = position_scores(corpus, query.question) if of_lines is None else None
    for exact in (of_lines, at_position, superlative_scores(corpus, query.question)):
        if exact is not None:
            found.append(Ranking(exact, EXACT_WEIGHT, calls=True))
    of_places = place_scores(corpus, named)
    if of_places is not None:
        found.append(Ranking(of_places, PLACE_WEIGHT, calls=True))
    return found + _of_searches(corpus, query.searches, {term for term, _ in question})


def called(query: Query, corpus: Corpus, ranked: Sequence[Ranking]) -> NDArray[np.bool_]:
    """For each chunk whether the query asks for it by itself: it holds a good part of what the question or a further
    search says, or of what a pronoun stands for, or is what they name or point at. Short turns of a conversation say
    little by themselves, so a word in common is enough for them."""
    lexicon = corpus.lexicon
    asked = [lexicon.question(text) for text in (query.question, *query.searches)]
    found: NDArray[np.bool_] = corpus.is_turn.copy()
    for terms in asked:
        found |= share_held(corpus, terms) >= LEAST_HELD
    names = named_before(query.question, query.recent, lexicon)
    found |= share_held(corpus, names, labels=False) >= LEAST_HELD
    for ranking in ranked:
        if ranking.calls:
            found |= ranking.scores > 0
    return found


def with_neighbours(corpus: Corpus, scores: Scores) -> Scores:
    """The scores, to which each turn adds for every distance a share of the better of the two turns so far away."""
    found = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    if not found:
        return scores
    result = scores.copy()
    turns = np.array(sorted(found, key=lambda i: corpus.sources[i].number))
    order = places(corpus.begins[turns], corpus.begins[turns + 1] - corpus.begins[turns])
    own = scores[order]
    for distance, share in enumerate(NEIGHBOUR_SHARES, 1):
        if distance < len(own):
            before, after = np.zeros(len(own)), np.zeros(len(own))
            before[distance:], after[:-distance] = own[:-distance], own[distance:]
            result[order] += share * np.maximum(before, after)
    return result


def _of_searches(corpus: Corpus, searches: Sequence[str], asked: Collection[str]) -> list[Ranking]:
    """Rankings by further queries, which together weigh as much as the question. A query that has no word but the
    question's says nothing new and is left out."""
    each = [corpus.lexicon.question(search) for search in searches]
    new = [terms for terms in each if any(term not in asked for term, _ in terms)]
    return [Ranking(lexical(corpus, terms), 1 / len(new)) for terms in new]


def _turn_weights(corpus: Corpus) -> Scores:
    """For each chunk `CURRENT_WEIGHT` where the current turn fetched it, else 1."""
    current = np.array([not source.historical and source.kind == "artifact" for source in corpus.sources], bool)
    return np.where(current[corpus.source_of], CURRENT_WEIGHT, 1.0)
