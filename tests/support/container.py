"""What `deploy/` says of a container, read so that its commands can be run without a daemon."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

DEPLOY = Path(__file__).parents[2] / "deploy"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
OWN = {"PATH": "/usr/bin:/bin"}


@dataclass
class Dockerfile:
    """Its stages' commands, and what the last stage's containers run with."""

    runs: list[list[str]] = field(default_factory=list)
    """Shell commands by stage."""
    copied: list[str] = field(default_factory=list)
    """What the first stage takes from the repository."""
    arguments: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    @classmethod
    def read(cls) -> Self:
        """`deploy/Dockerfile`."""
        found = cls()
        text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text())
        for line in filter(None, (line.strip() for line in text.splitlines())):
            word, _, rest = line.partition(" ")
            found._take(word, rest)
        return found

    def _take(self, word: str, rest: str) -> None:
        match word:
            case "FROM":
                self.runs.append([])
            case "RUN":
                self.runs[-1].append(rest)
            case "COPY" if len(self.runs) == 1:
                self.copied += shlex.split(rest)[:-1]
            case "ARG":
                self.arguments |= dict([shlex.split(rest)[0].split("=", 1)])
            case "ENV":
                pairs = (pair.split("=", 1) for pair in shlex.split(rest))
                self.environment |= {name: value.replace("$PATH", OWN["PATH"]) for name, value in pairs}
            case "USER":
                self.user = rest
            case "ENTRYPOINT" | "CMD":
                self.command += json.loads(rest)
            case "HEALTHCHECK":
                self.health = json.loads(rest.partition(" CMD ")[2])


def interpolated(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Values of `compose.yaml` with `${NAME:-default}` filled in, as compose does it."""

    def filled(match: re.Match[str]) -> str:
        return environment.get(match[1]) or match[2] or ""

    return {name: VARIABLE.sub(filled, value) for name, value in values.items()}
