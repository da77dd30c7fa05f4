"""The demo's model for evals: SmolLM2 on llama.cpp, with a chat template that has a place for tools.

Its own template has none, so that it would never see one. This is the one that models of its kind are trained with.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.gateway_process import REPOSITORY
from tests.support.http_server import Record
from tests.support.process import free_port
from tests.support.reply import Reply

SCRIPT = REPOSITORY / "deploy/demo/local_model.py"
TEMPLATE = Path(__file__).parent / "tools.jinja"
STARTS, SECONDS = 120, 900
MAX_WRITTEN = 96
"""Tokens of an answer: enough for a call, and each takes its time."""


@contextmanager
def serving() -> Iterator[Callable[[Record], Reply]]:
    """Answers a chat as the model does. It waits for it: one request at a time."""
    port, server = free_port(), None
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(SCRIPT), "--port", str(port), "--chat-template", str(TEMPLATE)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=SECONDS) as client:
                _wait_for(client, server)
                yield lambda record: _answer(client, record)
        finally:
            server.communicate(timeout=30)  # closes its standard input, by which it ends


def _answer(client: httpx.Client, record: Record) -> Reply:
    body = {**record.body, "model": "smollm2", "temperature": 0, "max_tokens": MAX_WRITTEN}
    answer = client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer local"})
    return Reply(status=answer.status_code, json=answer.json())


def _wait_for(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS
    while time.monotonic() < until and server.poll() is None:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("the demo's model does not serve: `make demo` installs it")
