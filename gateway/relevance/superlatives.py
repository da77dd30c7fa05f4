"""What a superlative asks for: the most or the least, of which field (`expensive`: the highest price, cost, fare …)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.records import Record, quantity, records_of
from gateway.relevance.terms import Lexicon

MOST, LEAST = 1, -1
_TABLE = """
expensive costly pricey dear | price cost fare fee charge amount total value rate
cheap inexpensive affordable | -price cost fare fee charge amount total value rate
long lengthy | length duration runtime running minutes time hours elapsed distance
short brief | -length duration runtime running minutes time hours elapsed distance height
deep | depth
shallow | -depth
tall | height stature
high | height elevation altitude depth level score rate price value
low | -height elevation altitude level score rate price value
large big great huge enormous sizable | size area population budget magnitude amount total quantity count volume bytes
small little tiny slight | -size area population budget magnitude amount total quantity count volume bytes
heavy | weight mass kilograms
light lightweight | -weight mass kilograms
strong powerful intense severe violent | magnitude mag strength power intensity force severity
weak faint mild | -magnitude mag strength power intensity force severity
hot warm | temperature temp heat
cold cool chilly | -temperature temp heat
rich wealthy | wealth income gdp revenue salary balance worth
poor | -wealth income gdp revenue salary balance worth
populous crowded | population inhabitants people
popular famous liked viewed downloaded | popularity votes views downloads stars likes followers rating
rated good acclaimed | rating score stars grade points
bad | -rating score stars grade points
far distant remote | distance
near close | -distance
fast quick rapid swift | speed velocity throughput -duration latency elapsed time
slow | duration latency elapsed time -speed velocity throughput
old ancient | age -date born birth dob year founded created released release established
young | -age date born birth dob year
new recent late modern | date created updated released release time timestamp year modified
early | -date created released release time timestamp year founded
profitable lucrative grossing | profit revenue gross earnings income
busy active | count requests traffic load passengers visits
frequent common | count frequency occurrences
wide broad | width breadth
narrow | -width breadth
bright | brightness luminosity
loud | volume loudness decibels
rare scarce | -count frequency occurrences stock
valuable | value price worth
dense | density
"""
IRREGULAR = {"best": "good", "worst": "bad", "farthest": "far", "furthest": "far", "latest": "late", "eldest": "old"}
ALONE = {"maximum": MOST, "max": MOST, "biggest": MOST, "minimum": LEAST, "min": LEAST, "fewest": LEAST}
ALONE |= {"greatest": MOST, "highest": MOST, "largest": MOST, "lowest": LEAST, "smallest": LEAST, "most": MOST}
ALONE |= {"least": LEAST, "top": MOST}
"""Those that may stand with any field: `highest salary`, `fewest errors`."""
EST = re.compile(r"\b(\w{2,})est\b", re.IGNORECASE)
MORE = re.compile(r"\b(most|least)\s+(?:\w+ly\s+)?(\w+)", re.IGNORECASE)
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Superlative:
    """`fields`: words in the names of fields, the likeliest first, and for each whether the most (1) or the least (-1)
    is asked for. `named`: whatever field the question itself names is meant, by this direction (None: none may)."""

    fields: tuple[tuple[str, int], ...]
    named: int | None = None


def superlative(question: str) -> Superlative | None:
    """The superlative of a question, None if it has none."""
    for match in MORE.finditer(question):
        fields = MEANT.get(match[2].lower())
        if fields:
            turn = MOST if match[1].lower() == "most" else LEAST
            return Superlative(tuple((name, sign * turn) for name, sign in fields), fields[0][1] * turn)
    for word in WORD.findall(question.lower()):
        base = IRREGULAR.get(word) or _base(word)
        if base:
            return Superlative(MEANT[base], ALONE.get(word, MEANT[base][0][1]))
        if word in ALONE:
            return Superlative((), ALONE[word])
    return None


def _base(word: str) -> str | None:
    """The adjective of a word in -est, if it is one of the table's."""
    found = EST.fullmatch(word)
    if found is None:
        return None
    stem = found[1]
    spellings = (stem, stem + "e", re.sub("i$", "y", stem), re.sub(r"(.)\1$", r"\1", stem))
    return next((base for base in spellings if base in MEANT), None)


def _meanings() -> dict[str, tuple[tuple[str, int], ...]]:
    meant = {}
    for line in _TABLE.strip().splitlines():
        adjectives, _, fields = line.partition("|")
        sign, named = MOST, []
        for field in fields.split():
            if field.startswith("-"):
                sign = LEAST
            named.append((field.removeprefix("-"), sign))
        meant.update(dict.fromkeys(adjectives.split(), tuple(named)))
    return meant


MEANT = _meanings()


# The records with the highest or lowest value of the field that a superlative means.


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
