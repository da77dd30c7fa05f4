"""Time until the first answer and resident memory, beside a bare Starlette app with an httpx client.

Run by `make bench`, or alone by `python -m benchmarks.start`. Each
server is started several times in turn; the medians and their ratio are printed.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from benchmarks.processor import rss_mb
from tests.support.gateway_process import scrubbed_environment
from tests.support.process import free_port

BARE = """
import sys, httpx, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
client = httpx.AsyncClient()
app = Starlette(routes=[Route("/health/ready", lambda request: JSONResponse({"status": "ok"}))])
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""


def start(command: list[str], port: int, folder: str) -> tuple[float, float]:
    """Seconds until `/health/ready` answers 200, and resident MB then."""
    began = time.perf_counter()
    environment = {k: v for k, v in scrubbed_environment().items() if k != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command], cwd=folder, env=environment, stdout=quiet, stderr=quiet)
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=1) as answer:
                    if answer.status == 200:
                        return time.perf_counter() - began, rss_mb(process.pid)
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None or time.perf_counter() - began > 30:
                    raise
            time.sleep(0.005)
    finally:
        process.terminate()
        process.wait(20)


def measure(runs: int = 7) -> dict[str, float]:
    """Medians over so many starts of each, in turn."""
    bare: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(json.dumps({"upstream": {"api_base": "http://127.0.0.1:9/v1"}}))
        for run in range(runs + 1):
            port = free_port()
            one = start([sys.executable, "-c", BARE, str(port)], port, folder)
            port = free_port()
            command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(port)]
            two = start(command, port, folder)
            if run:  # the first pair warms the disk cache and migrates the database
                bare.append(one)
                ours.append(two)
    return {
        "bare_start_s": round(statistics.median(t for t, _ in bare), 3),
        "gateway_start_s": round(statistics.median(t for t, _ in ours), 3),
        "start_ratio": round(statistics.median(b[0] / a[0] for a, b in zip(bare, ours, strict=True)), 2),
        "bare_rss_mb": round(statistics.median(m for _, m in bare), 1),
        "gateway_rss_mb": round(statistics.median(m for _, m in ours), 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
