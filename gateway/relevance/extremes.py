"""The records with the highest or lowest value of the field that a superlative means."""

import re
from collections.abc import Sequence

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.quantities import quantity
from gateway.relevance.records import Record, records_of
from gateway.relevance.superlatives import Superlative, superlative
from gateway.relevance.words import Lexicon

FIRST = 5
"""How many records of each text are put first."""
LIKELY = 0.7
FILLED = 0.2
"""Share of the records that must have the field."""
NAMED_WORTH, MEANT_WORTH, FADING, LABEL_WORTH = 3.0, 2.0, 0.15, 0.5
NUMBER = r'"?\s*[:=]\s*"?'


def extremes(corpus: Corpus, question: str) -> Scores | None:
    """Scores of the chunks of extreme records, those of every likely text in turn: all best ones, then the second ones.
    None if the question has no superlative or no text has such a field."""
    asked = superlative(question)
    if asked is None:
        return None
    words = frozenset(term for term, _ in corpus.lexicon.question(question))
    found: list[tuple[float, int, list[tuple[Record, str, float]]]] = []
    for number, source in enumerate(corpus.sources):
        records = records_of(source.content) if source.kind == "artifact" else []
        best = _field(records, asked, words, corpus.lexicon)
        if best:
            label = frozenset(term for term, _ in corpus.lexicon.question(source.label))
            worth, name, sign = best
            worth += LABEL_WORTH * bool(words & label)
            found.append((worth, number, _extreme(records, name, sign)))
    if not found:
        return None
    most = max(worth for worth, _, _ in found)
    likely = sorted((f for f in found if f[0] >= LIKELY * most), key=lambda f: (-f[0], -f[1]))
    return _scores(corpus, [(number, chosen) for _, number, chosen in likely])


def _field(
    records: Sequence[Record], asked: Superlative, words: frozenset[str], lexicon: Lexicon
) -> tuple[float, str, int] | None:
    """Worth, name and direction of the field that is meant, None if the records have none."""
    best: tuple[float, str, int] | None = None
    meant = [(lexicon.question(word)[0][0], sign) for word, sign in asked.fields if lexicon.question(word)]
    for name in dict.fromkeys(name for record in records for name, _ in record.fields):
        if name.rpartition(" ")[2].lower() in ("id", "zip", "phone"):
            continue
        stems = {term for term, _ in lexicon.question(name.rpartition(" ")[2])}
        ways = {term for term, _ in lexicon.question(name)}
        worth, sign = 0.0, asked.named
        for place, (stem, way) in enumerate(meant):
            if stem in ways:
                worth, sign = MEANT_WORTH - FADING * place, way
                break
        if words & stems and asked.named:
            worth += NAMED_WORTH * len(words & stems) / len(stems)
        elif words & ways and asked.named:
            worth += NAMED_WORTH / 3
        if worth and sign and (best is None or worth > best[0]) and _is_filled(records, name):
            best = worth, name, sign
    return best


def _is_filled(records: Sequence[Record], name: str) -> bool:
    """Whether enough of the records have a value of that name that can be compared."""
    filled = sum(any(each == name and quantity(v) is not None for each, v in record.fields) for record in records)
    return filled >= max(2, FILLED * len(records))


def _extreme(records: Sequence[Record], name: str, sign: int) -> list[tuple[Record, str, float]]:
    """The records with the most extreme values, the key that holds them and the value."""
    values = []
    for record in records:
        numbers = [n for each, value in record.fields if each == name and (n := quantity(value)) is not None]
        if numbers:
            values.append((max(n * sign for n in numbers), record))
    values.sort(key=lambda pair: -pair[0])
    return [(record, name, value * sign) for value, record in values[:FIRST]]


def _scores(corpus: Corpus, likely: Sequence[tuple[int, list[tuple[Record, str, float]]]]) -> Scores:
    scores = np.zeros(corpus.count)
    worth = float(FIRST * len(likely) + 1)
    for place in range(FIRST):
        for number, chosen in likely:
            if place < len(chosen):
                record, name, value = chosen[place]
                chunks = {corpus.chunk_at(number, record.start)}
                chunks.add(corpus.chunk_at(number, _place(corpus.sources[number].content, record, name, value)))
                scores[list(chunks)] = np.maximum(scores[list(chunks)], worth)
                worth -= 1
    return scores


def _place(text: str, record: Record, name: str, value: float) -> int:
    """Where in a record that value stands: a long one is of several chunks."""
    key = re.compile(re.escape(name.rpartition(" ")[2]) + NUMBER)
    for match in key.finditer(text, record.start, record.end):
        if quantity(text[match.end() : match.end() + 30].partition('"')[0]) == value:
            return match.start()
    return record.start
