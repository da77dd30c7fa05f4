"""Chats: what somebody said long ago, in one of several languages, among much else."""

import random

from evals.words import CITIES, PEOPLE, Json, Writer, asks, says, small_talk

LANGUAGES: tuple[tuple[str, str, str], ...] = (
    (
        "By the way, my sister {who} moved to {city} in March and works at the harbour office now.",
        "Where does my sister {who} live now?",
        "en",
    ),
    ("Übrigens ist mein Bruder {who} im März nach {city} gezogen.", "Wohin ist mein Bruder {who} gezogen?", "de"),
    ("Por cierto, mi primo {who} se mudó a {city} en marzo.", "¿A qué ciudad se mudó mi primo {who}?", "es"),
    ("Au fait, ma tante {who} a déménagé à {city} en mars.", "Où ma tante {who} a-t-elle déménagé ?", "fr"),
    ("Кстати, мой друг {who} переехал в город {city} в марте.", "Куда переехал мой друг {who}?", "ru"),
    ("顺便说一下，我的同事{who}三月份搬到了{city}。", "我的同事{who}搬到了哪里？", "zh"),
)


def chats() -> Writer:
    """Lookups in six languages, positions, pronouns, two hops, and wishes that hold for all that follows."""
    suite = Writer("chat", (1000, 2000, 4000))
    rng = random.Random(11)
    for number, (told, question, language) in enumerate(LANGUAGES):
        who, city = PEOPLE[number], CITIES[number]
        fact = told.format(who=who, city=city)
        name = suite.history(_long(rng, [asks(fact), says("Good to know!")]))
        suite.case(f"lookup {language}", question.format(who=who), [fact], history=name)
    for number in range(3):
        city, who = CITIES[6 + number], PEOPLE[number]
        first = f"{who} runs the workshop in the old mill of {city}."
        second = f"The workshop in the old mill of {city} closes at {4 + number} on Fridays."
        between = [asks(first), says("I see."), *small_talk(rng, 12), asks(second), says("Noted.")]
        name = suite.history(_long(rng, between))
        suite.case(
            "two-hop", f"When does the workshop that {who} runs close on Fridays?", [first, second], history=name
        )
        opening = f"I am planning a trip to {city} with {who}, by train and with two dogs."
        name = suite.history([asks(opening), says("Lovely."), *small_talk(rng, 45)])
        suite.case("position", "What was the very first thing that I told you?", [opening], history=name)
        wish = f"From now on, whatever I ask, never recommend hotels in {city}: I had a bad time there."
        name = suite.history(_long(rng, [asks(wish), says("Understood, I will not.")]))
        suite.case("constraint", "Which city's hotels did I ask you never to recommend?", [wish], history=name)
        advice = f"For {city} I would take the night train at 21:{number}5 and book the lower berth."
        name = suite.history([*small_talk(rng, 40), asks(f"How should I get to {city}?"), says(advice)])
        suite.case("anaphora", "And when does that one leave again?", [advice], history=name)
    return suite


def _long(rng: random.Random, told: list[Json]) -> list[Json]:
    """What was told, in the middle of much else."""
    system = {"role": "system", "content": "You are a friendly companion. Be brief."}
    return [system, *small_talk(rng, rng.choice((20, 30))), *told, *small_talk(rng, rng.choice((25, 40)))]
