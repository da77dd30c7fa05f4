"""What budgets and limits cost a chat: processor time with them, as a ratio to the same without.

`python -m benchmarks.limits [--rounds N] [--store] [--only CASE]`
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.cases import CASES
from benchmarks.measure import load
from benchmarks.servers import Server, gateway_config
from tests.support.gateway_process import GatewayProcess

KEY: dict[str, Any] = {"key": "sk-bench-0000", "tenant": "bench", "project": "p"}
LIMITED = {
    "budgets": [{"usd": 1000000, "period": "month"}, {"usd": 900000, "period": "day", "hard": False}],
    "limits": {"rpm": 10_000_000, "tpm": 100_000_000_000, "concurrent": 1000},
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "no key": {},
    "key": {"auth": {"keys": [KEY]}},
    "limits": {"auth": {"keys": [{**KEY, **LIMITED}]}},
}
MEASURED = (("chat1k", 4), ("chat1k", 32), ("chat400k", 4), ("open", 32))
REQUESTS = 300


def main() -> int:
    """Measures in turn, several times over, and prints medians and ratios."""
    servers.end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--store", action="store_true", help="conversations are stored")
    parser.add_argument("--only", choices=[case for case, _ in MEASURED], help="this case alone")
    given = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mock = running.enter_context(servers.mock(Path(folder)))
        started: dict[str, Server] = {}
        for name, more in CONFIGURATIONS.items():
            own = Path(folder) / name.replace(" ", "-")
            own.mkdir()
            config = {**gateway_config(mock.port, store=given.store), **more}
            process = running.enter_context(GatewayProcess(config, directory=own))
            started[name] = Server(name, process.port, process.pid)
        for case, connections in MEASURED:
            if given.only in (None, case):
                print(_line(case, connections, _costs(started, case, connections, given.rounds)), flush=True)
    return 0


def _costs(started: dict[str, Server], case: str, connections: int, rounds: int) -> dict[str, list[float]]:
    kind = next(each for each in CASES if each.name == case).kinds[connections]
    requests = REQUESTS if case != "chat400k" else 32
    costs: dict[str, list[float]] = {name: [] for name in started}
    for number in range(rounds + 1):
        for name, server in started.items():
            result = load(server, connections, requests, [kind])
            if result.failed or result.refused:
                raise RuntimeError(f"{name}: {result.failed} failed, {result.refused} refused")
            if number:  # the first warms up
                costs[name].append(result.cpu_ns / 1000 / result.requests)
    return costs


def _line(case: str, connections: int, costs: dict[str, list[float]]) -> str:
    us = ", ".join(f"{name} {statistics.median(found):.0f} us" for name, found in costs.items())
    ratios = [a / b for a, b in zip(costs["limits"], costs["key"], strict=True)]
    of_none = [a / b for a, b in zip(costs["limits"], costs["no key"], strict=True)]
    said = f"limits/key {statistics.median(ratios):.3f}, limits/no key {statistics.median(of_none):.3f}"
    return f"{case} at {connections}: {us}; {said}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
