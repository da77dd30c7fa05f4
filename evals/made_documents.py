"""Documents: attached, as files, and pasted; one passage of one of them answers."""

import random

from evals.cases import MODES
from evals.words import CITIES, PEOPLE, Writer, filler

TOPICS = ("lighthouse", "weaving mill", "observatory", "salt works", "ferry line", "bell foundry")


def documents() -> Writer:
    """Six documents a case, in each of the three ways in which documents come."""
    suite = Writer("documents", (1000, 2000, 4000))
    for number, mode in enumerate(MODES * 2):
        rng = random.Random(200 + number)
        names, facts = [], []
        for topic, city in zip(TOPICS, rng.sample(CITIES, len(TOPICS)), strict=True):
            who, year = rng.choice(PEOPLE), rng.randrange(1820, 1960)
            built = f"The {topic} of {city} was founded in {year} by {who}, who had come there for another reason."
            rule = f"Whoever enters the {topic} of {city} must wear a badge of {rng.choice(('red', 'green'))} felt."
            facts.append((topic, city, built, rule))
            content = _written(rng, topic, city, built, rule, markdown=number % 2 == 1)
            media = "text/markdown" if number % 2 else "text/plain"
            names.append(suite.document(f"The {topic} of {city}", content, media))
        where = {"docs": names, "mode": mode}
        topic, city, built, rule = rng.choice(facts)
        suite.case("lookup", f"Who founded the {topic} of {city}, and when?", [built], **where)
        other, place, _, badge = rng.choice([each for each in facts if each[0] != topic])
        suite.case("constraint", f"What must one wear to enter the {other} of {place}?", [badge], **where)
        question = f"Which was founded earlier, the {topic} of {city} or the {other} of {place}?"
        suite.case("comparison", question, [built, next(f[2] for f in facts if f[0] == other)], **where)
    return suite


def _written(rng: random.Random, topic: str, city: str, built: str, rule: str, *, markdown: bool) -> str:
    """Two facts among much that is about the same place."""
    head = "## " if markdown else ""
    parts = []
    for number in range(9):
        told = {2: built, 6: rule}.get(number, f"The {topic} of {city} has its own chapter in the chronicle.")
        parts.append(f"{head}Part {number + 1}\n\n{filler(rng, 4)} {told} {filler(rng, 4)}")
    return "\n\n".join(parts)
