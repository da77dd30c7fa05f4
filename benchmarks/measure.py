"""Runs the load generator against a server."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count

from benchmarks.job import Job, Kind, Result
from benchmarks.servers import Server
from tests.support.gateway_process import REPOSITORY, scrubbed_environment

MAX_SECONDS = 300
_numbers = count(1, 1_000_000)


def load(server: Server, connections: int, requests: int, kinds: Sequence[Kind]) -> Result:
    """What came of so many requests, no two of which are alike.
    Raises RuntimeError: the load generator ended badly; its own words; TimeoutExpired: it took five minutes."""
    job = Job(server.port, server.pid, connections, requests, kinds, next(_numbers))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=scrubbed_environment(),
        start_new_session=True,
        timeout=MAX_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{server.name}: {done.stderr.strip()[-2000:]}")
    return Result(**json.loads(done.stdout))
