"""Whether work grows faster than its input, by a comparison within one run: a busy machine slows both sides alike.
Where it has a bound, its calls are counted: they are the same on each machine."""

import gc
import sys
import time
from collections.abc import Callable

TIMES_AS_MUCH = 8
MOST = 24.0
"""Of eight times the input, linear work makes 8, n log n about 10, quadratic work 64."""
SECONDS_OF_NOISE = 0.01
"""Processor time below which a figure says nothing; the smaller input counts as at least so long."""
TRIES = 3


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Whether work on `size` takes about eight times the processor time of work on an eighth of it, not far more."""
    for _ in range(TRIES):
        large = _seconds(work, size)
        if large < MOST * SECONDS_OF_NOISE or large < MOST * _seconds(work, size // TIMES_AS_MUCH):
            return True
    return False


def calls_of(work: Callable[[], object]) -> int:
    """How often functions are called and left by `work`, those written in C too."""
    count = 0

    def counted(_frame: object, _event: str, _what: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _seconds(work: Callable[[int], object], size: int) -> float:
    """Processor time of this process, without that of looking for garbage among all that other tests left."""
    gc.disable()
    try:
        began = time.process_time()
        work(size)
        return time.process_time() - began
    finally:
        gc.enable()
