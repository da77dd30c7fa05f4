"""What a superlative asks for: the most or the least, of which field (`expensive`: the highest price, cost, fare …)."""

import re
from dataclasses import dataclass

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
