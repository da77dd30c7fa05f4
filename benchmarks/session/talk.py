"""What the agent is asked and what its tools give it: ten turns with 200 KB of results, the same in every run."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.traffic import prose

TURNS = 10
STEPS = 2
RESULT_CHARS = 10_240
SYSTEM = "You keep the books of a harbour. Look things up before you answer, and say where you found them."
RECALLS = 3
"""Every so many turns a question is about what an earlier turn found."""


@dataclass(frozen=True)
class Turn:
    """A question, the results of its tool steps, and the answer."""

    question: str
    results: tuple[str, ...]
    answer: str


def turns(count: int = TURNS, chars: int = RESULT_CHARS) -> Iterator[Turn]:
    """The session. Records, a table, a log, a handbook and source code come by turns; each holds one fact that is asked
    for, in its own turn or later."""
    for number in range(count):
        results = tuple(result(STEPS * number + step, chars) for step in range(STEPS))
        asked = STEPS * (number // 2 if number % RECALLS == RECALLS - 1 else number)
        question = f"{prose(900 + number, 120)} Who has berth {berth(asked)}?"
        yield Turn(question, results, f"{owner(asked)} has it. {prose(950 + number, 300)}")


def berth(number: int) -> str:
    """What is asked for of the result of that number."""
    return f"B{4100 + 37 * number}"


def owner(number: int) -> str:
    """Who has that berth."""
    return f"Captain {random.Random(number).choice(('Adler', 'Brandt', 'Corlett', 'Dunn', 'Eide'))}-{number}"


def result(number: int, chars: int = RESULT_CHARS) -> str:
    """A tool's result of that many characters, whose fact stands somewhere in it."""
    make = (_records, _table, _log, _handbook, _code)[number % 5]
    rng = random.Random(number)
    lines: list[str] = []
    size = 0
    while size < chars:
        lines.append(
            make(rng, number * 1000 + len(lines), f"B{rng.randint(5000, 9999)}", f"Captain {rng.random():.6f}")
        )
        size += len(lines[-1]) + 1
    lines[rng.randrange(len(lines) // 4, 3 * len(lines) // 4)] = make(rng, number * 1000, berth(number), owner(number))
    if make is _records:
        return f"[{','.join(lines)}]"
    heading = "entry,berth,captain,tons,remark\n" if make is _table else ""
    return heading + "\n".join(lines)


def _records(rng: random.Random, entry: int, at: str, who: str) -> str:
    fields = {"entry": entry, "berth": at, "captain": who, "tons": rng.randint(10, 900), "note": prose(entry, 80)}
    return json.dumps(fields)


def _table(rng: random.Random, entry: int, at: str, who: str) -> str:
    return f"{entry},{at},{who},{rng.randint(10, 900)},{prose(entry, 60)}"


def _log(rng: random.Random, entry: int, at: str, who: str) -> str:
    time = f"2026-03-{1 + entry % 28:02}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00Z"
    return f"{time} INFO berths: berth={at} given to {who} request={rng.getrandbits(48):012x}"


def _handbook(_: random.Random, entry: int, at: str, who: str) -> str:
    return f"## Entry {entry}\n\nBerth {at} is kept by {who}. {prose(entry, 260)}\n"


def _code(rng: random.Random, entry: int, at: str, who: str) -> str:
    body = f'    """{prose(entry, 60)}"""\n    return book.give("{at}", "{who}", {rng.randint(1, 99)})\n'
    return f"def entry_{entry}(book):\n{body}"
