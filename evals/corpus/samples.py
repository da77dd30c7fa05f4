"""One file of the corpus, made or kept."""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from evals.corpus.facts import Fact
from gateway.core.types.files import DOCUMENT_KINDS

FILES = Path(__file__).parent / "files"
MANIFEST = FILES / "manifest.json"
REFUSED = ("doc",)
"""Kept to show that they are refused in words that help."""


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
        Sample(
            each["name"], each["media"], (FILES / each["name"]).read_bytes(), tuple(map(Fact.from_json, each["facts"]))
        )
        for each in listed
    )


def readable(sample: Sample) -> bool:
    """Whether there is a reader for it here, and the program that it takes."""
    if sample.ending in REFUSED or (sample.needs and shutil.which(sample.needs) is None):
        return False
    endings = [ending for kind in DOCUMENT_KINDS.values() for ending in kind.endings]
    return sample.name.endswith(tuple(endings))


@functools.cache
def corpus() -> tuple[Sample, ...]:
    """All of it, in the same order every time."""
    from evals.corpus import data, folders, mails, office, pictures, texts

    makers: list[Callable[[], list[Sample]]] = [
        module.samples for module in (office, pictures, data, texts, folders, mails)
    ]
    return (*kept(), *(sample for make in makers for sample in make()))
