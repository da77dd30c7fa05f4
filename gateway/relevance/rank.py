"""Scores the passages of texts by how they bear on a question."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from gateway.models.relevance import Passage, Query, Source
from gateway.relevance.bm25 import Ranking, fused, lexical, rarity
from gateway.relevance.corpus import ContentIndex, Corpus, Scores, index_texts
from gateway.relevance.links import named, second_round
from gateway.relevance.positions import places
from gateway.relevance.question import borrowed, parts, quotations, said_by_those_asked_about
from gateway.relevance.superlatives import extremes
from gateway.relevance.terms import Lexicon
from gateway.relevance.topics import widened

# Passages that hold, letter for letter, what the question quotes.


MOST_PLACES = 200


def literal(corpus: Corpus, quotations: Sequence[str]) -> Scores:
    """For each chunk the rarity of the quotations that begin in it, longer ones counting more. Case does not matter
    where nothing is found with it."""
    scores = np.zeros(corpus.count)
    for quotation in quotations:
        chunks = sorted(set(_places(corpus, quotation, fold=False)) or set(_places(corpus, quotation, fold=True)))
        if chunks:
            worth = rarity(np.array([len(chunks)]), corpus.count)[0] * np.log2(2 + len(quotation.split()))
            scores[chunks] += worth
    return scores


def _places(corpus: Corpus, quotation: str, *, fold: bool) -> Iterator[int]:
    sought = quotation.lower() if fold else quotation
    for number, source in enumerate(corpus.sources):
        text = source.content.lower() if fold else source.content
        if len(text) != len(source.content) or not corpus.indexes[number].chunks:
            continue
        at = text.find(sought)
        for _ in range(MOST_PLACES):
            if at < 0:
                break
            yield corpus.chunk_at(number, at)
            at = text.find(sought, at + 1)


# What stands near a hit often holds the answer where people talk: the turn that replies, and the few after it.


SHARES = (0.3, 0.21, 0.15, 0.09)
"""Of the score of a turn that is one, two, three and four turns away. Records, lines and paragraphs of documents say
nothing of their neighbours: measured, a share for them only takes room from better ones."""


def with_neighbours(corpus: Corpus, scores: Scores) -> Scores:
    """Each turn gets, for every distance, a share of the better of the two turns so far away."""
    talk = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    if not talk:
        return scores
    result = scores.copy()
    talk.sort(key=lambda i: corpus.sources[i].number)
    order = np.concatenate([np.arange(corpus.begins[i], corpus.begins[i + 1]) for i in talk])
    own = scores[order]
    for distance, share in enumerate(SHARES, 1):
        if distance < len(own):
            before, after = np.zeros(len(own)), np.zeros(len(own))
            before[distance:], after[:-distance] = own[:-distance], own[distance:]
            result[order] += share * np.maximum(before, after)
    return result


Indexed = Callable[[Sequence[str], Lexicon], list[ContentIndex]]
CURRENT_WEIGHT = 1.15
LITERAL_WEIGHT = 2.0
PARTS_WEIGHT = 0.8
PARTS_IN_TALK = 0.5
"""What parts count of that where the best passage is a turn of a talk: people answer the whole question at once."""
TOPIC_WEIGHT = 0.5
NAMED_WEIGHT = 1.5
THIRD_ROUND = 0.5
"""What a link found from what the second round found counts beside one found from the question itself."""
EXACT_WEIGHT = 4.0
"""What is at the position, or has the value, that is asked for comes before all that shares words with the question."""


def relevance(query: Query, sources: Sequence[Source], indexed: Indexed = index_texts) -> list[list[Passage]]:
    """For each source its passages in document order, scored as one corpus (see `models.relevance.Relevance`)."""
    lexicon = Lexicon()
    corpus = Corpus(sources, indexed([source.content for source in sources], lexicon), lexicon)
    scores = fused(rankings(query, corpus), corpus.count)
    said = said_by_those_asked_about(corpus, query.question)
    return passages_of(corpus, scores if said is None else scores * said)


def rankings(query: Query, corpus: Corpus) -> list[Ranking]:
    question = corpus.lexicon.question(query.question)
    weights = borrowed(query.question, query.recent, corpus.lexicon)
    terms = question + [(term, 0) for term in weights]
    main = lexical(corpus, terms, weights)
    main += LITERAL_WEIGHT * literal(corpus, quotations(query.question))
    main *= _of_the_turn(corpus)
    wide = widened(corpus, question)
    if wide is not None:
        main += TOPIC_WEIGHT * wide
    found = [Ranking(with_neighbours(corpus, main))]
    split = parts(query.question, corpus.lexicon)
    weight = PARTS_WEIGHT * (PARTS_IN_TALK if split and corpus.count and corpus.is_talk(int(main.argmax())) else 1.0)
    found += [Ranking(lexical(corpus, part), weight / len(split)) for part in split]
    meant = named(corpus, terms, weights)
    if meant is not None:
        found.append(Ranking(meant, NAMED_WEIGHT))
    found += second_round(corpus, question, main)
    third = second_round(corpus, question, fused(found, corpus.count)) if len(found) > 1 else []
    found += [Ranking(each.scores, THIRD_ROUND * each.weight) for each in third]
    for exact in (places(corpus, query.question), extremes(corpus, query.question)):
        if exact is not None:
            found.append(Ranking(exact, EXACT_WEIGHT))
    return found + _sought(corpus, query.searches, {term for term, _ in question})


def _sought(corpus: Corpus, searches: Sequence[str], asked: Collection[str]) -> list[Ranking]:
    """What further queries find. One that has no word but the question's says nothing new: the question's parts are
    sought already, in proportion to what they say."""
    each = [corpus.lexicon.question(search) for search in searches]
    new = [terms for terms in each if any(term not in asked for term, _ in terms)]
    return [Ranking(lexical(corpus, terms), 1 / len(new)) for terms in new]


def _of_the_turn(corpus: Corpus) -> Scores:
    """What the turn under way has just fetched is more likely meant than what older turns hold."""
    weights = [1.0 if s.historical or s.kind == "turn" else CURRENT_WEIGHT for s in corpus.sources]
    return np.array(weights or [1.0])[corpus.source_of] if weights else np.zeros(0)


def passages_of(corpus: Corpus, scores: Scores) -> list[list[Passage]]:
    each = iter(scores.tolist())
    return [[Passage(c.start, c.end, next(each), c.heading) for c in index.chunks] for index in corpus.indexes]
