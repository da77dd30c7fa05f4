"""The processes of a benchmark: the mock upstream and the servers before it, each ended however the run ends."""

import http.client
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.traffic import MODEL
from tests.support.gateway_process import GatewayProcess, scrubbed_environment
from tests.support.process import ChildProcess, free_port

NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
    upstream mock {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location /health/ready {{ return 200; }}
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


@dataclass(frozen=True)
class Server:
    """A running server under test."""

    name: str
    port: int
    pid: int


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def _child(name: str, args: list[str], port: int, folder: Path, ready: str = "/health/ready") -> Iterator[Server]:
    child = ChildProcess(folder / f"{name}.log")
    try:
        child.spawn(args, env=scrubbed_environment(), cwd=folder)
        child.wait_ready(lambda: _answers(port, ready), 30, name)
        yield Server(name, port, child.pid)
    finally:
        child.kill9()


@contextmanager
def mock(folder: Path) -> Iterator[Server]:
    """The mock upstream."""
    port = free_port()
    with _child("mock", [sys.executable, "-m", "benchmarks.upstream", str(port)], port, folder, "/stats") as server:
        yield server


@contextmanager
def bare(upstream: int, folder: Path, connections: int = 0) -> Iterator[Server]:
    """The Starlette and httpx relay; 0 connections are httpx's default pool."""
    port = free_port()
    args = [sys.executable, "-m", "benchmarks.bare_relay", str(port), f"http://127.0.0.1:{upstream}", str(connections)]
    with _child("bare", args, port, folder) as server:
        yield server


@contextmanager
def nginx(upstream: int, folder: Path) -> Iterator[Server]:
    """nginx with one worker and kept connections. Only where `nginx_path` finds one."""
    port = free_port()
    prefix = folder / "nginx"
    prefix.mkdir()
    (prefix / "nginx.conf").write_text(NGINX.format(port=port, upstream=upstream))
    args = [nginx_path() or "nginx", "-p", str(prefix), "-e", "stderr", "-c", "nginx.conf"]
    with _child("nginx", args, port, folder) as server:
        yield server


def nginx_path() -> str | None:
    """Where the nginx of this machine is, if it has one."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def gateway_config(upstream: int, store: bool) -> dict[str, Any]:
    """A priced model of a large window with an operator's key, on SQLite."""
    entry = {
        "model_name": MODEL,
        "litellm_params": {
            "model": "openai/bench-model",
            "api_base": f"http://127.0.0.1:{upstream}/v1",
            "api_key": "sk-upstream-0000",
        },
        "model_info": {
            "max_input_tokens": 400_000,
            "max_output_tokens": 4096,
            "tokenizer": "o200k_base",
            "input_cost_per_token": "2.5e-06",
            "output_cost_per_token": "1e-05",
        },
    }
    return {"model_list": [entry], "conversation": {"store": store}, "server": {"log_level": "warning"}}


@contextmanager
def gateway(upstream: int, folder: Path, store: bool) -> Iterator[Server]:
    """This gateway, as an operator starts it."""
    name = "gateway+store" if store else "gateway"
    own = folder / name
    own.mkdir()
    with GatewayProcess(gateway_config(upstream, store), directory=own) as process:
        yield Server(name, process.port, process.pid)


def stats(mock: Server) -> dict[str, int]:
    """What the mock has seen, by the names of `upstream.Stats`."""
    connection = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=10)
    try:
        connection.request("GET", "/stats")
        read: dict[str, int] = json.loads(connection.getresponse().read())
        return read
    finally:
        connection.close()


def end_on_sigterm() -> None:
    """A SIGTERM ends a benchmark as Ctrl-C does: with all its processes."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
