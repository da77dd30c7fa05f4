"""A small task in a scratch repository, and a scripted model that does it: one tool step for each log file.

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

from gateway.tokens.counter import vocabulary_folder
from tests.support.http_server import Record
from tests.support.reply import JsonDict, Reply, count_usage

DAYS = 10
STEPS = DAYS + 1
"""Tool steps of the task: every log is read, and then what was found."""
WINDOW = 8_000
RAW_TOKENS = 60_000
LINES = 290
FOUND = "ERRORS.md"
TASK = f"Find the ERROR line of every log in logs/ and write its code to {FOUND}, one line a day."
DONE = "The codes of all logs stand in ERRORS.md."
TITLE = "Errors of the logs"
TOOLS = {"exec_command": "cmd", "Bash": "command"}
"""The shell as each client calls it, and the argument that has the command."""
_CODE = re.compile(r"ERROR payment of order \d+ failed with code (E\d{4})")
_WORDS = ("order", "basket", "stock", "parcel", "address", "invoice", "coupon", "account", "worker", "queue", "shelf")


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


def scratch(path: Path, seed: int) -> Scratch:
    """Write the repository below `path`."""
    chance, made = random.Random(seed), Scratch(path)
    (path / "logs").mkdir(parents=True)
    for number in range(1, DAYS + 1):
        lines = [_line(chance) for _ in range(LINES)]
        made.codes.append(f"E{chance.randrange(1000, 10_000)}")
        error = f"ERROR payment of order {chance.randrange(10_000)} failed with code {made.codes[-1]}: the disk is full"
        lines[chance.randrange(LINES)] = f"{_time(chance)} {error}"
        text = "\n".join(lines) + "\n"
        (path / "logs" / f"{_day(number)}.log").write_text(text, "utf-8")
        made.logs.append(text)
    return made


class ScriptedModel:
    """Answers the chats of one run: a handler of the mock. `prompts` are the tokens of each, by a count of its own."""

    def __init__(self) -> None:
        self.steps = 0
        self.prompts: list[int] = []
        self.usages: list[dict[str, int]] = []

    def __call__(self, record: Record) -> Reply:
        body = record.body
        tool = next((name for name in TOOLS if name in _tool_names(body)), None)
        if tool is None:  # Claude Code asks for a title of its session
            return self._said(body, Reply(text=json.dumps({"title": TITLE})), 10)
        self.steps += 1
        if self.steps > STEPS:
            return self._said(body, Reply(text=DONE), 20)
        arguments = {TOOLS[tool]: self._command(body["messages"])}
        return self._said(body, Reply(text=None, tool_calls=[(tool, arguments)]), 30)

    def _said(self, body: JsonDict, reply: Reply, completion: int) -> Reply:
        self.prompts.append(count_prompt(body))
        reply.usage = count_usage(self.prompts[-1], completion)
        self.usages.append(reply.usage)
        return reply

    def _command(self, messages: list[JsonDict]) -> str:
        note = ""
        if self.steps > 1:
            seen = _CODE.search(_text(messages[-1]))
            note = f"echo '{_day(self.steps - 1)}: {seen[1] if seen else '?'}' >> {FOUND}; "
        return note + (f"cat logs/{_day(self.steps)}.log" if self.steps <= DAYS else f"cat {FOUND}")


def count_prompt(body: JsonDict) -> int:
    """The tokens of a chat's prompt, schema of tools included, without the few that a provider adds for its form."""
    texts = [_text(message) for message in body["messages"]]
    texts += [json.dumps(call["function"]) for message in body["messages"] for call in message.get("tool_calls") or []]
    return sum(map(count_text, [*texts, json.dumps(body.get("tools") or [])]))


def count_text(text: str) -> int:
    """Tokens of a text."""
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> Any:
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def _tool_names(body: JsonDict) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools") or []}


def _text(message: JsonDict) -> str:
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _day(number: int) -> str:
    return f"day-{number:02}"


def _time(chance: random.Random) -> str:
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def _line(chance: random.Random) -> str:
    words = " ".join(chance.sample(_WORDS, 5))
    return f"{_time(chance)} INFO  {words} {chance.randrange(100_000)} served in {chance.randrange(900)} ms"
