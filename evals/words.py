"""Words that made-up cases are made of."""

import random
from typing import Any

Json = dict[str, Any]
PEOPLE = (
    "Marta Lindqvist",
    "Tomás Herrera",
    "Aiko Tanaka",
    "Jonas Weber",
    "Priya Raman",
    "Chloé Dubois",
    "Omar Haddad",
)
CITIES = (
    "Lisbon",
    "Tampere",
    "Osaka",
    "Graz",
    "Valparaíso",
    "Lyon",
    "Aqaba",
    "Tromsø",
    "Cork",
    "Puebla",
    "Brno",
    "Hue",
)
GOODS = ("kettle", "lantern", "bicycle pump", "oak stool", "rain barrel", "wool blanket", "desk fan", "copper pan")
FILLER = (
    "The committee met again and put the matter off until the autumn.",
    "Nobody could say for certain who had ordered the second delivery.",
    "In the end the weather decided the question for everyone involved.",
    "A short note in the margin refers to an earlier agreement.",
    "The road along the coast was closed for repairs most of that year.",
    "Several letters from that month have been lost.",
    "Prices rose a little, and then fell back to where they had been.",
    "The archive holds three copies of the plan, none of them dated.",
    "It was agreed that the results would be looked at once more.",
    "Visitors are asked to leave their bags at the entrance.",
)
CHAT = (
    ("How was your weekend?", "Quiet, thanks: I mostly read and cooked."),
    ("Any idea what to make for dinner?", "A lentil soup is quick, and it keeps for days."),
    ("My back hurts from sitting.", "Stand up every half hour, and stretch for a minute."),
    ("Should I learn the piano or the guitar?", "Whichever you would pick up without being told to."),
    ("It will not stop raining here.", "Then it is a good day for the things that wait indoors."),
    ("I cannot sleep lately.", "Try to leave the screen alone for an hour before bed."),
    ("What would you read next?", "Something short, so that you finish it this week."),
)


def filler(rng: random.Random, sentences: int) -> str:
    """Prose that answers nothing."""
    return " ".join(rng.choice(FILLER) for _ in range(sentences))


def asks(content: str) -> Json:
    """A user message."""
    return {"role": "user", "content": content}


def says(content: str) -> Json:
    """An answer."""
    return {"role": "assistant", "content": content}


def step(identity: str, name: str, arguments: str, result: str) -> list[Json]:
    """A call and its result."""
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def small_talk(rng: random.Random, turns: int) -> list[Json]:
    """Turns about other things."""
    found: list[Json] = []
    for _ in range(turns):
        question, answer = rng.choice(CHAT)
        found += [asks(question), says(f"{answer} {filler(rng, rng.choice((1, 3)))}")]
    return found


class Writer:
    """Collects the objects of a suite, as a file would hold them."""

    def __init__(self, suite: str, budgets: tuple[int, ...]) -> None:
        self.suite, self.budgets = suite, list(budgets)
        self.objects: list[Json] = []

    def history(self, messages: list[Json]) -> str:
        """A conversation; returns its name."""
        name = f"{self.suite}-history-{len(self.objects)}"
        self.objects.append({"t": "history", "id": name, "messages": messages})
        return name

    def document(self, title: str, content: str, media: str = "text/plain") -> str:
        """A document; returns its name."""
        name = f"{self.suite}-document-{len(self.objects)}"
        source = f"https://example.org/{len(self.objects)}"
        given = {"title": title, "content": content, "source": source, "attachment_type": media}
        self.objects.append({"t": "doc", "id": name, **given})
        return name

    def file(self, filename: str, file_data: str) -> str:
        """A file, base64; returns its name."""
        name = f"{self.suite}-file-{len(self.objects)}"
        self.objects.append({"t": "doc", "id": name, "filename": filename, "file_data": file_data})
        return name

    def case(self, kind: str, question: str, evidence: list[Json | str], **where: Any) -> None:
        """A question, and what must reach the model."""
        needed = [{"text": each} if isinstance(each, str) else each for each in evidence]
        name = f"{self.suite}-{len(self.objects)}"
        base = {"t": "case", "id": name, "suite": self.suite, "kind": kind, "question": question, "evidence": needed}
        self.objects.append({**base, "budgets": self.budgets, **where})
