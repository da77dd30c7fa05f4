"""Reads broken files in a process of its own, within the limits that reading has, and tells what came of each.

The reader's own process (`documents/process.py`) turns whatever happens in it into an answer; here each reader is held
to what it promises: a reading, or `UnreadableDocument`, or that memory or time is at its end.
"""

import multiprocessing
import resource
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import FrameType

from evals.corpus.broken import broken
from evals.corpus.samples import Sample

MEMORY_BYTES = 2**30
SECONDS = 60
"""For one file, as the gateway's own process has them."""
GRACE = 30.0
FINE = ("read", "unreadable", "too much memory", f"ended {-signal.SIGABRT}")
"""Compiled readers abort where memory is at its end; the gateway's own process tells that as it tells the others."""


@dataclass
class Tally:
    """What came of broken files. `breaches`: file, seed and what is against the rules."""

    outcomes: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)


class _TimeOver(BaseException):
    """Not an `Exception`, so that no reader takes it for one of its own."""


def read_broken(samples: Sequence[Sample], seeds: range) -> Tally:
    """Each file broken by each seed. A process that a reader ends is begun anew behind the file that did it."""
    tally = Tally()
    jobs = [(number, seed) for number in range(len(samples)) for seed in seeds]
    context = multiprocessing.get_context("spawn")
    while jobs:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(list(samples), jobs, there), daemon=True)
        process.start()
        there.close()
        done = 0
        for done, outcome in enumerate(_told(here), 1):
            number, seed = jobs[done - 1]
            _note(tally, f"{samples[number].name}, seed {seed}", outcome)
        process.kill()
        process.join()
        jobs = jobs[done:]
        if jobs:
            _note(tally, f"{samples[jobs[0][0]].name}, seed {jobs[0][1]}", f"ended {process.exitcode}")
            jobs = jobs[1:]
    return tally


def _note(tally: Tally, what: str, outcome: str) -> None:
    tally.outcomes[outcome.split(":")[0]] += 1
    if outcome not in FINE:
        tally.breaches.append(f"{what}: {outcome}")


def _told(pipe: Connection) -> Iterator[str]:
    """Outcomes, until the process ends or says nothing for too long."""
    try:
        while pipe.poll(SECONDS + GRACE):
            yield str(pipe.recv())
    except EOFError:
        return


def _work(samples: list[Sample], jobs: list[tuple[int, int]], pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _over)
    for number, seed in jobs:
        pipe.send(_outcome(samples[number], seed))


def _over(_number: int, _frame: FrameType | None) -> None:
    raise _TimeOver


def _outcome(sample: Sample, seed: int) -> str:
    import warnings

    from gateway.documents.document import UnreadableDocument, read
    from gateway.documents.file_reader import stored_document

    raw = broken(sample.raw, seed)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(stored_document(sample.name, sample.media, raw))
    except UnreadableDocument:
        return "unreadable"
    except MemoryError:
        return "too much memory"
    except _TimeOver:
        return "too much time"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return "read"
