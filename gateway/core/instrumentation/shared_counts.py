"""Counts of several workers as one: each writes its own to a file that only they can read, whoever is asked adds up."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Any

from gateway.core import jsons
from gateway.core.instrumentation.logs import get_logger
from gateway.core.instrumentation.metrics import HELD, OF_THE_MOMENT, BucketHistogram, MetricCounts

SERVED = "served"
"""The file that says that a worker has accepted connections."""
DEAD = "dead"
"""The file of the counts of all workers that have ended: a sum must not become less."""
log = get_logger("gateway.core.instrumentation.shared_counts")
WRITE_SECONDS = 1.0
"""Between two times that a worker writes its counts: so old may the others' be."""


class SharedCounts:
    """The counts of one of several workers.

    Args:
        folder: theirs alone.
        name: of this worker's file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._last = b""
        self._writing = Lock()

    def write(self, counts: MetricCounts) -> None:
        """Lets the others know these counts."""
        content = _written(counts)
        with self._writing:
            if content != self._last:
                _replace(self._folder, self._name, content)
                self._last = content

    def serves(self) -> None:
        """Lets the process that started this worker know that it accepts connections."""
        with _not_written():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            (self._folder / SERVED).touch()

    def sum(self, own: MetricCounts) -> MetricCounts:
        """These counts and those that the others wrote last."""
        self.write(own)
        with _locked(self._folder, fcntl.LOCK_SH):
            others = [path for path in self._folder.glob("*.json") if path.stem != self._name]
            return added([own, *(found for path in others if (found := _read(path)) is not None)])

    def pids(self) -> list[int]:
        """The processes that have written counts and are alive."""
        return [int(path.stem.split("-")[1]) for path in self._folder.glob("*-*.json")] or [os.getpid()]


def bury(folder: Path, name: str) -> None:
    """Adds the counts of a worker that has ended, in the file of that name, to those of the dead. One process does
    this."""
    with _not_written(), _locked(folder, fcntl.LOCK_EX):
        path = folder / f"{name}.json"
        last = _read(path)
        if last is None:
            return
        for each in OF_THE_MOMENT:
            setattr(last, each, 0)
        for each in HELD:
            getattr(last, each).clear()
        dead = _read(folder / f"{DEAD}.json")
        _replace(folder, DEAD, _written(added([last] if dead is None else [dead, last])))
        path.unlink()


def _replace(folder: Path, name: str, content: bytes) -> None:
    """As a whole: nobody reads half of it."""
    with _not_written():
        folder.mkdir(mode=0o700, exist_ok=True)  # somebody may have tidied up
        new = folder / f"{name}.new"
        new.write_bytes(content)
        os.replace(new, folder / f"{name}.json")


def has_served(folder: Path) -> bool:
    """Whether any of the workers has ever accepted connections."""
    return (folder / SERVED).exists()


@contextlib.contextmanager
def _not_written() -> Iterator[None]:
    """Counts are not worth a worker: what cannot be written is told, and left."""
    try:
        yield
    except OSError as error:
        log.warning("counts_not_shared", reason=error.strerror or str(error))


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """While counts are moved from one file to another, nobody adds up; without the folder there is nothing to add."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


def added(all_counts: Iterable[MetricCounts]) -> MetricCounts:
    """The sum of counts."""
    total = MetricCounts()
    for counts in all_counts:
        for each in fields(MetricCounts):
            value = getattr(counts, each.name)
            if isinstance(value, dict):
                _add(getattr(total, each.name), value)
            else:
                setattr(total, each.name, getattr(total, each.name) + value)
    return total


def _add(total: dict[Any, Any], more: dict[Any, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, BucketHistogram):
            sums = total.setdefault(key, BucketHistogram(value.bounds))
            sums.counts = [one + other for one, other in zip(sums.counts, value.counts, strict=True)]
            sums.total += value.total
        else:
            total[key] = total.get(key, 0) + value


def _written(counts: MetricCounts) -> bytes:
    found: dict[str, Any] = {}
    for each in fields(MetricCounts):
        value = getattr(counts, each.name)
        found[each.name] = [[key, _value(one)] for key, one in value.items()] if isinstance(value, dict) else value
    return jsons.dumps(found)


def _value(value: Any) -> Any:
    if isinstance(value, BucketHistogram):
        return {"bounds": value.bounds, "counts": value.counts, "total": value.total}
    return str(value) if isinstance(value, Decimal) else value


def _read(path: Path) -> MetricCounts | None:
    """The counts in a file; None if it is gone by now."""
    with contextlib.suppress(FileNotFoundError):
        counts = MetricCounts()
        found = jsons.loads(path.read_bytes())
        for each in fields(MetricCounts):
            known = getattr(counts, each.name)
            if isinstance(known, dict):
                known.update({tuple(key): _read_value(value) for key, value in found[each.name]})
            else:
                setattr(counts, each.name, found[each.name])
        return counts
    return None


def _read_value(value: Any) -> Any:
    if isinstance(value, dict):
        made = BucketHistogram(value["bounds"])
        made.counts, made.total = value["counts"], value["total"]
        return made
    return Decimal(value) if isinstance(value, str) else value
