"""Processor time of building a context that does not fit, in the process itself: cold, and for a second question.

Each session is of contents that were never seen before. The first question is asked with everything as messages, the
second one with its conversation's id, once the first was answered and stored. No embeddings. The clock is that of the
thread in which the context is built, so that what else runs on the machine is not counted.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.context.contents import TOOLS, Json, session
from benchmarks.report import machine
from gateway.context.build import RequestRanking
from gateway.context.manager import BuiltContext, ContextManager
from gateway.core.config.settings import Settings
from gateway.core.tasks import offload_if
from gateway.core.types.chat import ModelFacts
from tests.support.in_process import InProcess

MODEL = "gpt-4o"
BUDGET = 16_000
SIZES = (60_000, 160_000)


class Clocked:
    """What of a context's making runs apart from the event loop, under a clock: milliseconds of each context."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def watch(self, manager: ContextManager) -> None:
        """From now on, that one's contexts are clocked."""
        build = manager.build

        async def clocked(*given: Any) -> BuiltContext:
            self.spent.append(0.0)
            return await build(*given)

        async def run(_: RequestRanking, small: bool, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return await offload_if(not small, self._timed, work, *args, **kwargs)

        setattr(manager, "build", clocked)  # noqa: B010
        setattr(RequestRanking, "run", run)  # noqa: B010

    def _timed(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = time.thread_time_ns()
        try:
            return work(*args, **kwargs)
        finally:
            self.spent[-1] += (time.thread_time_ns() - began) / 1e6


def ask(messages: list[Json], conversation: str | None = None) -> Json:
    """A chat request with a window that holds a part of what is asked about."""
    function = {
        "description": "Looks it up.",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}},
    }
    tools = [{"type": "function", "function": {"name": name, **function}} for name in TOOLS]
    body = {"model": MODEL, "messages": messages, "tools": tools, "context": {"max_input_tokens": BUDGET}}
    return {**body, "conversation": {"id": conversation}} if conversation else body


async def measure(tokens: int, count: int, folder: Path) -> dict[str, float]:
    """Figures of so many sessions of that size, after one that is not counted."""
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{folder / f'{tokens}.db'}"}})
    facts = {MODEL: ModelFacts(MODEL, 200_000, 200_000, 1000)}
    gateway = await InProcess(settings, facts, lambda body: {"content": "So it is."}).prepare()
    clock = Clocked()
    clock.watch(gateway.context)
    for number in range(count + 1):
        messages, first, second = session(tokens, number)
        answer = await gateway.ask(ask([*messages, {"role": "user", "content": first}]))
        gc.collect()  # what building leaves is not to be cleared away on the next one's time
        await gateway.ask(ask([{"role": "user", "content": second}], answer["conversation"]["id"]))
        gc.collect()
    await gateway.close()
    cold, again = sorted(clock.spent[2::2]), sorted(clock.spent[3::2])
    ratio = median(b / a for a, b in zip(clock.spent[2::2], clock.spent[3::2], strict=True))
    return {
        "tokens": tokens,
        "cold_p50_ms": round(median(cold), 1),
        "cold_p95_ms": round(cold[int(0.95 * len(cold))], 1),
        "again_p50_ms": round(median(again), 1),
        "again_p95_ms": round(again[int(0.95 * len(again))], 1),
        "again_to_cold": round(ratio, 2),
    }


async def main() -> int:
    """Measures, prints a table and writes the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20, help="of each size (20)")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        figures = [await measure(tokens, given.sessions, Path(folder)) for tokens in SIZES]
    print(f"processor time of a context's building, in ms (budget {BUDGET:,} tokens)")
    print(f"{'tokens':>8}{'cold p50':>10}{'p95':>8}{'again p50':>11}{'p95':>8}{'again/cold':>12}")
    for f in figures:
        print(f"{f['tokens']:8,.0f}{f['cold_p50_ms']:10.1f}{f['cold_p95_ms']:8.1f}", end="")
        print(f"{f['again_p50_ms']:11.1f}{f['again_p95_ms']:8.1f}{f['again_to_cold']:12.2f}")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(130)
