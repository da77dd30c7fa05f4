"""One file of the corpus, made or kept."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.corpus.facts import Fact

FILES = Path(__file__).parent / "files"
MANIFEST = FILES / "manifest.json"


@dataclass(frozen=True)
class Sample:
    """`media`: as a client would name it. `facts`: at least one far from the beginning; the first is the one that the
    acceptance tests ask for. `needs`: a program that reading it takes."""

    name: str
    media: str
    raw: bytes = field(repr=False)
    facts: tuple[Fact, ...]
    needs: str = ""

    @property
    def ending(self) -> str:
        return self.name.rpartition(".")[2]


@functools.cache
def kept() -> tuple[Sample, ...]:
    """Files that programs made which a test machine may lack."""
    listed = json.loads(MANIFEST.read_text())
    return tuple(
        Sample(each["name"], each["media"], (FILES / each["name"]).read_bytes(), tuple(map(Fact.from_json, each["facts"])))
        for each in listed
    )


@functools.cache
def corpus() -> tuple[Sample, ...]:
    """All of it, in the same order every time."""
    from tests.corpus import data, folders, mails, office, pictures, texts

    makers: list[Callable[[], list[Sample]]] = [
        module.samples for module in (office, pictures, data, texts, folders, mails)
    ]
    return (*kept(), *(sample for make in makers for sample in make()))
