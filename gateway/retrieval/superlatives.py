"""Ranks the records that a superlative asks for: the most or the least, of which field (`most expensive`: the highest
price, cost, fare …)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from typing import Any

import numpy as np

from gateway.retrieval.chunks.split import fields_of, passages
from gateway.retrieval.corpus import SHORT, Scores, SourceCorpus
from gateway.retrieval.terms import TermLexicon

# Reads values of records as numbers: amounts with units, sizes, durations, dates.

DIGIT = re.compile(r"\d")
NUMBER = re.compile(r"^\s*[~<>≈]?\s*[$€£¥₹]?\s*([+-]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%°$€£]{0,8})")
DATE = re.compile(r"^\s*(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?")
SLASHED = re.compile(r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})\b")
_MONTH = r"([A-Z][a-z]{2})[a-z]*\.?"
WORDED = re.compile(rf"^\s*{_MONTH} (\d{{1,2}}),? (\d{{4}})\b|^\s*(\d{{1,2}}) {_MONTH} (\d{{4}})\b")
DURATION = re.compile(r"^\s*(?:(\d+)\s*h(?:ours?|rs?)?)\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?\s*$")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNITS = {
    1e3: "k thousand kb km",
    1e6: "m mn million mb",
    1e9: "b bn billion gb",
    1e12: "tb",
    2.0**10: "kib",
    2.0**20: "mib",
    2.0**30: "gib",
    1e-6: "mg",
    1e-3: "ms mm g",
    1e-2: "cm",
    1.0: "s sec seconds kg",
    60.0: "min mins minutes",
    3600.0: "h hours",
    86400.0: "days",
}
UNITS = {unit: factor for factor, units in _UNITS.items() for unit in units.split()}
"""Factors to one base unit (second, metre, kilogram, byte). `m` and `b` are read as in amounts of money."""
DAY = 86400.0
MAX_CHARS = 60
"""Characters beyond which a value is text, whatever it begins with."""


def quantity(value: Any) -> float | None:
    """A number by which values of one field compare, dates in seconds; None if the value says no quantity."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    return _of_text(value) if isinstance(value, str) and len(value) < MAX_CHARS else None


def _of_text(text: str) -> float | None:
    if DIGIT.search(text) is None:
        return None
    try:
        moment = _moment(text)
    except ValueError:
        return None
    if moment is not None:
        return moment
    if duration := DURATION.match(text):
        return int(duration[1]) * 3600.0 + int(duration[2] or 0) * 60.0
    found = NUMBER.match(text)
    if found is None:
        return None
    return float(re.sub(r"[,_ ]", "", found[1])) * UNITS.get(found[2].lower(), 1.0)


def _moment(text: str) -> float | None:
    """Seconds of a date. Raises ValueError: there is no such day."""
    if found := DATE.match(text):
        year, month, day, hour, minute, second = (int(group or 0) for group in found.groups())
        return date(year, month, day).toordinal() * DAY + hour * 3600 + minute * 60 + second
    if found := SLASHED.match(text):
        first, other, year = map(int, found.groups())
        month, day = (other, first) if first > 12 else (first, other)
        return date(year, month, day).toordinal() * DAY
    if found := WORDED.match(text):
        name, day_of, in_year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        if name.lower() in MONTHS:
            return date(int(in_year), MONTHS.index(name.lower()) + 1, int(day_of)).toordinal() * DAY
    return None


MOST, LEAST = 1, -1
"""Directions: the highest or the lowest value."""
_FIELDS = """
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
"""Adjectives | words in the names of the fields that they are about, the likeliest first; `-` in front of a word: from
there on the lowest value. Source: written by hand for this project; ordinary English."""
IRREGULAR = {"best": "good", "worst": "bad", "farthest": "far", "furthest": "far", "latest": "late", "eldest": "old"}
ALONE = {"maximum": MOST, "max": MOST, "biggest": MOST, "minimum": LEAST, "min": LEAST, "fewest": LEAST}
ALONE |= {"greatest": MOST, "highest": MOST, "largest": MOST, "lowest": LEAST, "smallest": LEAST, "most": MOST}
ALONE |= {"least": LEAST, "top": MOST}
"""Superlatives of any field: `highest salary`, `fewest errors`."""
EST = re.compile(r"\b(\w{2,})est\b", re.IGNORECASE)
MORE = re.compile(r"\b(most|least)\s+(?:\w+ly\s+)?(\w+)", re.IGNORECASE)
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SuperlativeQuestion:
    """What a question asks for: the highest (1) or lowest (-1) value of a field.

    `fields` are words in the names of fields with the direction of each, the likeliest first. `direction` holds for a
    field that the question itself names.
    """

    fields: tuple[tuple[str, int], ...]
    direction: int


def superlative(question: str) -> SuperlativeQuestion | None:
    """The first superlative of a question, None if it has none."""
    for match in MORE.finditer(question):
        fields = FIELDS.get(match[2].lower())
        if fields:
            sign = MOST if match[1].lower() == "most" else LEAST
            return SuperlativeQuestion(tuple((name, each * sign) for name, each in fields), fields[0][1] * sign)
    for word in WORD.findall(question.lower()):
        if base := IRREGULAR.get(word) or _base(word):
            return SuperlativeQuestion(FIELDS[base], ALONE.get(word, FIELDS[base][0][1]))
        if word in ALONE:
            return SuperlativeQuestion((), ALONE[word])
    return None


def _base(word: str) -> str | None:
    """The adjective of the table that a word in -est is made of."""
    found = EST.fullmatch(word)
    if found is None:
        return None
    stem = found[1]
    spellings = (stem, stem + "e", re.sub("i$", "y", stem), re.sub(r"(.)\1$", r"\1", stem))
    return next((base for base in spellings if base in FIELDS), None)


def _read_fields() -> dict[str, tuple[tuple[str, int], ...]]:
    found = {}
    for line in _FIELDS.strip().splitlines():
        adjectives, _, names = line.partition("|")
        sign, fields = MOST, []
        for name in names.split():
            sign = LEAST if name.startswith("-") else sign
            fields.append((name.removeprefix("-"), sign))
        found.update(dict.fromkeys(adjectives.split(), tuple(fields)))
    return found


FIELDS = _read_fields()

FIRST = 5
"""Records of each text that are ranked: ties, and fields of another meaning, leave some room for error."""
LIKELY = 0.7
"""Minimum worth of a text's field, as a fraction of the best text's."""
MIN_FILLED = 0.2
"""Fraction of a text's records that must have a comparable value in the field."""
NAMED_WORTH = 3.0
"""Worth of a field whose own name stands in the question; a third if only the objects around it are named."""
FIELD_WORTH, FADING = 2.0, 0.15
"""Worth of the likeliest field of the superlative, and how much less each following one is worth."""
LABEL_WORTH = 0.5
"""Added where the question names the source, such as `list_lakes`."""
NO_QUANTITIES = frozenset(["id", "zip", "phone"])
"""Names of fields whose numbers have no order that anybody asks for."""


@dataclass(frozen=True, slots=True)
class _FieldRecord:
    """A record's chunks, and its values by the names of their fields (`stop price`)."""

    chunks: list[int]
    fields: list[tuple[str, Any]]


def superlative_scores(corpus: SourceCorpus, question: str) -> Scores | None:
    """Scores of the chunks of the records with the highest or lowest values, those of all likely texts in turn: first
    the best of each, then the second. None if the question has no superlative or no text has such a field."""
    asked = superlative(question)
    if asked is None:
        return None
    words = frozenset(term for term, _ in corpus.lexicon.question(question))
    found: list[tuple[float, int, list[list[int]]]] = []
    for number, source in enumerate(corpus.sources):
        records = _records(corpus, number) if source.kind == "artifact" else []
        best = _best_field(records, asked, words, corpus.lexicon)
        if best:
            worth, name, sign = best
            label = frozenset(term for term, _ in corpus.lexicon.question(source.label))
            worth += LABEL_WORTH * bool(words & label)
            found.append((worth, number, _extreme(corpus, records, name, sign)))
    if not found:
        return None
    least = LIKELY * max(worth for worth, _, _ in found)
    likely = [chunks for worth, _, chunks in sorted(found, key=lambda f: (-f[0], -f[1])) if worth >= least]
    scores = np.zeros(corpus.count)
    score = float(FIRST * len(likely))
    for turn in zip_longest(*likely, fillvalue=[]):
        for chunks in turn:
            scores[chunks] = np.maximum(scores[chunks], score)
            score -= 1
    return scores


def _records(corpus: SourceCorpus, source: int) -> list[_FieldRecord]:
    content, chunks, begin = corpus.sources[source].content, list(corpus.indexes[source].chunks), corpus.begins[source]
    if len(content) <= SHORT:  # one chunk, whose records are told apart here alone
        firsts = {chunk.record: chunk for chunk in reversed(passages(content)) if chunk.ordinal >= 0}
        return [_FieldRecord([int(begin)], fields_of(content, chunk)) for chunk in firsts.values()]
    return [_FieldRecord(numbers, fields_of(content, chunks[numbers[0] - begin])) for numbers in corpus.records(source)]


def _best_field(
    records: Sequence[_FieldRecord], asked: SuperlativeQuestion, words: frozenset[str], lexicon: TermLexicon
) -> tuple[float, str, int] | None:
    """Worth, name and direction of the field that is asked for, None if the records have no such field."""
    best: tuple[float, str, int] | None = None
    likely = [(term, sign) for word, sign in asked.fields for term, _ in lexicon.question(word)[:1]]
    for name in dict.fromkeys(name for record in records for name, _ in record.fields):
        own = name.rpartition(" ")[2]
        if own.lower() in NO_QUANTITIES:
            continue
        own_terms, path = ({term for term, _ in lexicon.question(each)} for each in (own, name))
        place = next((place for place, (term, _) in enumerate(likely) if term in path), None)
        worth, sign = (0.0, asked.direction) if place is None else (FIELD_WORTH - FADING * place, likely[place][1])
        if words & own_terms:
            worth += NAMED_WORTH * len(words & own_terms) / len(own_terms)
        elif words & path:
            worth += NAMED_WORTH / 3
        if worth and (best is None or worth > best[0]) and _is_filled(records, name):
            best = worth, name, sign
    return best


def _is_filled(records: Sequence[_FieldRecord], name: str) -> bool:
    """Whether enough of the records have a comparable value of that name."""
    filled = sum(any(each == name and quantity(v) is not None for each, v in record.fields) for record in records)
    return filled >= max(2, MIN_FILLED * len(records))


def _extreme(corpus: SourceCorpus, records: Sequence[_FieldRecord], name: str, sign: int) -> list[list[int]]:
    """For each of the records with the most extreme values its first chunk and the one that holds the value."""
    found = []
    for record in records:
        values = [(n * sign, v) for each, v in record.fields if each == name and (n := quantity(v)) is not None]
        if values:
            found.append((*max(values, key=lambda value: value[0]), record))
    found.sort(key=lambda each: -each[0])
    return [_holding(corpus, record, name, value) for _, value, record in found[:FIRST]]


def _holding(corpus: SourceCorpus, record: _FieldRecord, name: str, value: Any) -> list[int]:
    """A record's first chunk, and the first one that holds a value beneath its name."""
    pair = re.compile(re.escape(name.rpartition(" ")[2]) + r'"?\s*[:=]\s*"?' + re.escape(str(value)))
    return record.chunks[:1] + [chunk for chunk in record.chunks[1:] if pair.search(corpus.text_of(chunk))][:1]
