"""Several workers behind one port (guarantee §9.7), on a real PostgreSQL."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.answers import user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import free_port, wait_until
from tests.support.scraping import scrape, total
from tests.support.stalled import stalled_stream

WORKERS = 2
CHAT: dict[str, Any] = {"model": "small", "messages": [user("hello there")]}


@pytest.fixture
def gateway(start_gateway: GatewayFactory, postgres: Postgres) -> GatewayProcess:
    """Two workers on an empty database."""
    started = start_gateway({"storage": {"url": postgres.empty_database()}, "server": {"workers": WORKERS}})
    wait_until(lambda: len(workers(started)) == WORKERS, "both workers")
    return started


def serving(gateway: GatewayProcess) -> list[dict[str, Any]]:
    """The lines in which workers say that they serve, over all starts."""
    return [line for line in gateway.log_lines() if line.get("event") == "serving"]


def workers(gateway: GatewayProcess) -> list[int]:
    """The process ids of the workers that run."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    return [int(pid) for pid in children] if len(serving(gateway)) >= len(children) else []


def ask(gateway: GatewayProcess, **more: Any) -> httpx.Response:
    """A request on a connection of its own, which any worker may take."""
    return gateway.post("/chat/completions", json={**CHAT, **more})


def answered(gateway: GatewayProcess) -> float:
    """Chat requests with a 200 by `/metrics`, whoever answers that."""
    named = {"endpoint": "/v1/chat/completions", "status": "200"}
    return total(scrape(gateway), "gateway_requests_total", **named)


def check_end(gateway: GatewayProcess, upstream: MockUpstream, stream: openai.Stream[Any]) -> None:
    """Once the port is closed, a stalled stream still gets all of its answer."""
    wait_until(lambda: not _connects(gateway), "a closed port")
    upstream.release()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text.strip().endswith("three")


def test_s9_7_workers_share_the_port_and_what_they_count(gateway: GatewayProcess) -> None:
    """Each is given connections, every scrape tells of all of them, and a conversation goes on on either."""
    first = ask(gateway).json()
    for _ in range(30):
        named = ask(gateway, conversation=first["conversation"]["id"])
        assert named.status_code == 200
    wait_until(lambda: answered(gateway) == 31, "all requests in the metrics")
    page = httpx.get(f"{gateway.url}/metrics", trust_env=False).text
    assert page.count("\nprocess_resident_memory_bytes ") == 1
    used = [Path(f"/proc/{pid}/stat").read_text().split()[13] for pid in workers(gateway)]
    assert len(used) == WORKERS
    items = gateway.get(f"/conversations/{first['conversation']['id']}/items", params={"limit": 100}).json()
    assert len(items["data"]) == 62


@pytest.mark.chaos
def test_s9_7_a_worker_that_dies_is_replaced_and_counts_on(gateway: GatewayProcess) -> None:
    for _ in range(8):
        assert ask(gateway).status_code == 200
    wait_until(lambda: answered(gateway) == 8, "all requests in the metrics")
    (victim, other) = workers(gateway)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(serving(gateway)) == WORKERS + 1 and len(workers(gateway)) == WORKERS, "a new worker")
    assert other in workers(gateway)
    assert victim not in workers(gateway)
    (line,) = [line for line in gateway.log_lines() if line.get("event") == "worker_died"]
    assert line["status"] == -signal.SIGKILL
    for _ in range(8):
        assert ask(gateway).status_code == 200
    wait_until(lambda: answered(gateway) == 16, "the dead worker's requests, too")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.chaos
def test_s9_7_a_signal_ends_all_workers_in_order(gateway: GatewayProcess, upstream: MockUpstream, number: int) -> None:
    """A running stream gets its whole answer, on whichever worker it is; exit code 0, and nobody is left."""
    running = workers(gateway)
    with ThreadPoolExecutor(1) as background, stalled_stream(gateway, upstream) as stream:
        ended = background.submit(gateway.stop, number)
        check_end(gateway, upstream, stream)
        assert ended.result() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)


@pytest.mark.chaos
def test_s9_7_a_sigterm_to_all_processes_cuts_nothing(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """As systemd sends it: a worker gets one of its own and one from the process that started it."""
    with ThreadPoolExecutor(1) as background, stalled_stream(gateway, upstream) as stream:
        for pid in workers(gateway):
            os.kill(pid, signal.SIGTERM)
        ended = background.submit(gateway.terminate)
        check_end(gateway, upstream, stream)
        assert ended.result() == 0


@pytest.mark.chaos
def test_s9_7_a_second_signal_hurries_all(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    with stalled_stream(gateway, upstream) as stream:
        gateway.send_signal(signal.SIGTERM)
        wait_until(lambda: not _connects(gateway), "a closed port")
        gateway.send_signal(signal.SIGTERM)
        wait_until(lambda: not gateway.alive, "the end, without the grace")
        with pytest.raises((openai.APIError, httpx.TransportError)):
            list(stream)
    assert gateway.stop() == 0


@pytest.mark.chaos
def test_s9_7_two_starts_at_once_do_not_share_a_port(
    gateway: GatewayProcess, postgres: Postgres, fork_server: ForkServer
) -> None:
    """The lock holds from before the first worker listens, and as long as a worker lives."""
    port, url = free_port(), postgres.empty_database()
    config = {**(gateway.config or {}), "storage": {"url": url}}
    both = [GatewayProcess(config, gateway.env, port=port, fork_server=fork_server) for _ in range(2)]
    try:
        for each in both:
            each.spawn_only()
        wait_until(lambda: sum(each.alive for each in both) == 1, "the end of one of them")
        (loser,) = [each for each in both if not each.alive]
        assert loser.stop() == 1
        assert "cannot be listened on" in loser.log_text()
    finally:
        for each in both:
            if each.alive:
                each.terminate()
            each.close()


@pytest.mark.chaos
def test_s9_7_workers_end_when_the_process_that_started_them_is_killed(gateway: GatewayProcess) -> None:
    running = workers(gateway)
    gateway.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(_runs(pid) for pid in running), "the end of the workers")


def test_s9_7_a_start_that_fails_ends_with_the_reason(gateway: GatewayProcess, fork_server: ForkServer) -> None:
    """The port is taken: by another gateway with workers, too, though that lets its own share it."""
    other = GatewayProcess(gateway.config, gateway.env, port=gateway.port, fork_server=fork_server)
    try:
        other.spawn_only()
        wait_until(lambda: not other.alive, "the end of the start")
        assert other.stop() == 1
        assert "cannot be listened on" in other.log_text()
    finally:
        other.close()


def test_s9_7_sqlite_has_one_worker(tmp_path: Path) -> None:
    """One process writes to a file; the refusal says so, and what to set."""
    done = gateway_command("serve", "--workers", "2", "--port", "0", directory=tmp_path)
    assert done.returncode == 2
    assert "server.workers: 2" in done.stderr
    assert "PostgreSQL" in done.stderr


def _connects(gateway: GatewayProcess) -> bool:
    with contextlib.suppress(httpx.TransportError):
        httpx.get(f"{gateway.url}/health/live", trust_env=False, timeout=5)
        return True
    return False


def _runs(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
