"""What the corpus's files say: sections that each hold one fact, and where in a file each fact stands."""

import random
import re
from dataclasses import dataclass
from typing import Any

from tests.support.documents import prose

Json = dict[str, Any]
_CITIES = (
    "Lisbon Tampere Osaka Graz Lyon Aqaba Cork Puebla Brno Hue Trieste Bergen Izmir Quito Gdansk Leiden Sofia Kobe "
    "Tartu Bilbao"
)
_FIRST = "Odalys Ingvar Perpetua Lorcan Zdenka Amadou Fenna Istvan Maite Rurik Saskia Teodor Ulrike Vigdis Wendel"
_LAST = "Brandt Okafor Silva Novak Moreau Haddad Jensen Kimura Larsen Petrov Quint Rossi Szabo Tanaka Urban"
CITIES, FIRST, LAST = _CITIES.split(), _FIRST.split(), _LAST.split()
THINGS = ("lighthouse", "weaving mill", "observatory", "salt works", "ferry line", "bell foundry")
NARROW = {"page", "slide", "chapter", "cell"}


@dataclass(frozen=True)
class Place:
    """`kind`: as in `core.types.places`. `name`: a number, a path, or the name of a sheet or table. `row`: of a
    sheet."""

    kind: str
    name: str
    row: int = 0


@dataclass(frozen=True)
class Fact:
    """`evidence` stands nowhere else in the file, word for word; `place` is None where the format has none."""

    kind: str
    question: str
    evidence: str
    place: Place | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The evidence, however its words are broken into lines."""
        return re.compile(r"\s+".join(map(re.escape, self.evidence.split())))

    def as_json(self) -> Json:
        place = self.place and [self.place.kind, self.place.name, self.place.row]
        return {"kind": self.kind, "question": self.question, "evidence": self.evidence, "place": place}

    @classmethod
    def from_json(cls, found: Json) -> "Fact":
        place = found["place"]
        return cls(found["kind"], found["question"], found["evidence"], Place(*place) if place else None)


@dataclass(frozen=True)
class Section:
    """Prose with one sentence that answers the question."""

    title: str
    before: str
    sentence: str
    after: str
    question: str
    evidence: str

    @property
    def text(self) -> str:
        return f"{self.before} {self.sentence} {self.after}"

    def fact(self, kind: str, place: Place | None = None) -> Fact:
        return Fact(kind, self.question, self.evidence, place)


def sections(seed: int, number: int, words: int = 200) -> list[Section]:
    """At most as many as there are cities; no two of them answer the same question."""
    rng = random.Random(seed)
    cities, first, last = rng.sample(CITIES, number), rng.sample(FIRST * 2, number), rng.sample(LAST * 2, number)
    found = []
    for i, (city, one, two) in enumerate(zip(cities, first, last, strict=True)):
        thing = rng.choice(THINGS)
        name, year = f"{one} {two}", 1820 + rng.randrange(130)
        sentence = f"The keeper of the {thing} of {city} is called {name}, in office since {year}."
        parts = prose(seed * 100 + i, words // 2), prose(seed * 100 + 50 + i, words // 2)
        question = f"Who is the keeper of the {thing} of {city}?"
        title = f"{thing.capitalize()} of {city}"
        found.append(Section(title, parts[0], sentence, parts[1], question, f"of {city} is called {name}"))
    return found


def late(number: int) -> list[int]:
    """Indexes of the facts that are asked for: the last ones, and one in the middle."""
    return sorted({number // 2, number - 3, number - 2})


def tells(text: str, fact: Fact) -> bool:
    """Whether the fact is there, and the last place named before it is its own."""
    places = fact.pattern.finditer(text)
    return any(fact.place is None or names(text[: match.start()], fact.place) for match in places)


def names(before: str, place: Place) -> bool:
    """Whether the last place of that kind in a text is this one: as a marker or as a label writes it."""
    if place.kind in NARROW:
        found = re.findall(rf"\b{place.kind}s? (\d+)(?:-(\d+))?", before)
        return bool(found) and int(found[-1][0]) <= int(place.name) <= int(found[-1][1] or found[-1][0])
    if place.kind == "sheet":
        name = re.escape(place.name)
        range_ = r"[A-Z]+(\d+)(?::[A-Z]+(\d+))?"
        ends = re.findall(rf"(?:\[sheet {name} |'?{name}'?!){range_}", before)
        return bool(ends) and int(ends[-1][0]) <= place.row <= int(ends[-1][1] or ends[-1][0])
    named = re.findall(rf"\b{place.kind} ([^\]\n\",;]+)", before)
    return bool(named) and named[-1].startswith(place.name)
