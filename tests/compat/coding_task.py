"""A small task in a scratch repository, and a scripted model that does it: all logs are read, then what was found.

The model knows nothing but what it is sent: each step notes the code that the step before has shown, so that a code
which the window lost is missing from the result.
"""

import json
import os
import random
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gateway.context.tokens.counter import vocabulary_folder
from tests.support.reply import JsonDict

FOUND = "ERRORS.md"
TASK = f"Find the ERROR line of every log in logs/ and write its code to {FOUND}, one line a day."
DONE = "The codes of all logs stand in ERRORS.md."
TITLE = "Errors of the logs"
TOOLS = {"exec_command": "cmd", "Bash": "command"}
"""The shell as each client calls it, and the argument that has the command."""
_CODE = re.compile(r"ERROR payment of order \d+ failed with code (E\d{4})")
_WORDS = ("order", "basket", "stock", "parcel", "address", "invoice", "coupon", "account", "worker", "queue", "shelf")


@dataclass(frozen=True)
class Job:
    """A log of so many lines for each of so many days, of which each step reads some together."""

    days: int
    lines: int
    together: int


@dataclass
class Scratch:
    """A repository with a log for each day. `codes` are what is to be found, `logs` their texts."""

    path: Path
    codes: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    def found(self) -> list[str]:
        """The lines that the task has left."""
        return (self.path / FOUND).read_text("utf-8").splitlines()

    def expected(self) -> list[str]:
        """The lines that it should leave."""
        return [f"{_day(number)}: {code}" for number, code in enumerate(self.codes, 1)]


def scratch(path: Path, job: Job) -> Scratch:
    """Write the repository below `path`."""
    chance, made = random.Random(job.days), Scratch(path)
    (path / "logs").mkdir(parents=True)
    for number in range(1, job.days + 1):
        lines = [_line(chance) for _ in range(job.lines)]
        made.codes.append(f"E{chance.randrange(1000, 10_000)}")
        error = f"ERROR payment of order {chance.randrange(10_000)} failed with code {made.codes[-1]}: the disk is full"
        lines[chance.randrange(job.lines)] = f"{_time(chance)} {error}"
        text = "\n".join(lines) + "\n"
        (path / "logs" / f"{_day(number)}.log").write_text(text, "utf-8")
        made.logs.append(text)
    return made


@dataclass(frozen=True)
class Said:
    """An answer: calls, or a text."""

    text: str | None = None
    calls: tuple[tuple[str, JsonDict], ...] = ()
    tokens: int = 30


class ScriptedModel:
    """Does the task. `last` is the number of its tool steps; `spent` are the tokens of each prompt, by a count of its
    own, and of each answer; `stood` how many earlier calls stood in the prompt of each step."""

    def __init__(self, job: Job) -> None:
        self.steps = 0
        self.stood: list[int] = []
        self.last = -(-job.days // job.together) + 1
        self.spent: list[tuple[int, int]] = []
        self._job = job

    def say(self, tools: set[str], results: list[str], prompt: int, calls: int) -> Said:
        """The next answer to a prompt of so many tokens, with so many calls, that ends with these results of tools."""
        said = self._said(next((name for name in TOOLS if name in tools), None), results)
        self.spent.append((prompt, said.tokens))
        if not tools.isdisjoint(TOOLS):
            self.stood.append(calls)
        return said

    def _said(self, shell: str | None, results: list[str]) -> Said:
        if shell is None:  # Claude Code asks for a title of its session
            return Said(json.dumps({"title": TITLE}), tokens=10)
        self.steps += 1
        if self.steps > self.last:
            return Said(DONE, tokens=20)
        notes = "".join(f"echo '{line}' >> {FOUND}; " for line in self._noted(results))
        reads = [f"cat logs/{_day(number)}.log" for number in self._read_in(self.steps)] or [f"cat {FOUND}"]
        commands = [notes + reads[0], *reads[1:]]
        return Said(calls=tuple((shell, {TOOLS[shell]: command}) for command in commands))

    def _noted(self, results: list[str]) -> list[str]:
        """A line for each log that the step before has shown."""
        days = self._read_in(self.steps - 1)
        seen = [_CODE.search(result) for result in results] + [None] * len(days)
        return [f"{_day(day)}: {found[1] if found else '?'}" for day, found in zip(days, seen, strict=False)]

    def _read_in(self, step: int) -> range:
        first = (step - 1) * self._job.together + 1
        return range(max(first, 1), min(first + self._job.together, self._job.days + 1))


def count_text(text: str) -> int:
    """Tokens of a text."""
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> Any:
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def _day(number: int) -> str:
    return f"day-{number:02}"


def _time(chance: random.Random) -> str:
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def _line(chance: random.Random) -> str:
    words = " ".join(chance.sample(_WORDS, 5))
    return f"{_time(chance)} INFO  {words} {chance.randrange(100_000)} served in {chance.randrange(900)} ms"
