"""An orderly end, with a real process (guarantee §9, §3.6)."""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest

from tests.chaos.audit import rows
from tests.support.answers import stored, usage_of, user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mcp_client import connected
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.postgres import Postgres, PostgresProcess
from tests.support.process import PATIENCE, wait_until
from tests.support.schemas import locked_file
from tests.support.stalled import stalled_stream

ASK: Any = [user("count for me")]
CHAT = {"model": "small", "messages": ASK}


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """Requests and ends that run beside the test."""
    with ThreadPoolExecutor(8) as executor:
        yield executor


def logged(gateway: GatewayProcess, event: str) -> list[dict[str, Any]]:
    """The log's lines of that event."""
    return [line for line in gateway.log_lines() if line.get("event") == event]


def endings(gateway: GatewayProcess) -> set[tuple[str, str]]:
    """How the bills say that their requests ended."""
    assert gateway.config is not None
    return {
        (row["status"], row["error_code"]) for row in rows(gateway.config["storage"]["url"], "SELECT * FROM ledger")
    }


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_s9_no_new_requests_on_any_connection(
    gateway: GatewayProcess, upstream: MockUpstream, background: ThreadPoolExecutor, first: int
) -> None:
    """After SIGTERM, or where its terminal is closed, a kept-alive connection is closed or answers 503 `shutting_down`,
    a new one is refused; what runs already, plain or streamed, gets its whole answer; exit code 0."""
    gateway.log.write_bytes(b"")
    held = threading.Event()
    with gateway.http() as idle, gateway.http() as busy, stalled_stream(gateway, upstream) as stream:
        assert idle.get("/models").status_code == 200
        upstream.reply(text="plain", gate=held)
        plain: Future[httpx.Response] = background.submit(busy.post, "/chat/completions", json=CHAT)
        upstream.wait_for_chats(2)
        ending = background.submit(gateway.stop, first)
        wait_until(lambda: bool(logged(gateway, "shutting_down")), "the signal's arrival")
        gateway.send_signal(signal.SIGHUP)  # hurries nobody
        for client in (idle, idle):
            with contextlib.suppress(httpx.TransportError):
                refused = client.get("/models")
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
                assert refused.headers["connection"] == "close"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{gateway.url}/health/ready", trust_env=False)
        held.set()
        upstream.release()
        assert plain.result().json()["choices"][0]["message"]["content"] == "plain"
        assert "".join(c.choices[0].delta.content or "" for c in stream).endswith("three")
        assert ending.result() == 0
    assert not logged(gateway, "requests_cut")
    gateway.start()
    assert stored(gateway, stream.response.headers["x-request-id"])["status"] == "complete"


def test_s9_a_plain_request_that_outlives_the_grace(
    start_gateway: GatewayFactory, upstream: MockUpstream, background: ThreadPoolExecutor
) -> None:
    """It is told so, as an error that SDKs try again; the upstream call is cancelled, the turn `failed`, and billed."""
    gateway = start_gateway({"server": {"shutdown_grace": 0.3}})
    upstream.reply(text="never", gate=threading.Event())
    with gateway.http() as client:
        asked: Future[httpx.Response] = background.submit(client.post, "/chat/completions", json=CHAT)
        upstream.wait_for_chats(1)
        assert gateway.terminate(timeout=10) == 0
        answer = asked.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert answer.headers["retry-after"]
    assert upstream.last.disconnected.wait(PATIENCE)
    gateway.start()
    bill = stored(gateway, answer.headers["x-request-id"])
    assert bill["status"] == "failed"
    assert bill["response_metadata"]["cost"]["total_cost"] > 0
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert endings(gateway) == {("failed", "shutting_down")}
    assert [each["http_status"] for each in gateway.get("/gateway/requests").json()["data"]] == [503]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_s9_a_second_signal_ends_the_grace(
    gateway: GatewayProcess, upstream: MockUpstream, background: ThreadPoolExecutor, second: int
) -> None:
    """The rest is cut at once, with its bill, and the exit code is 0 all the same."""
    gateway.log.write_bytes(b"")
    with stalled_stream(gateway, upstream) as stream:
        ending = background.submit(gateway.terminate)
        wait_until(lambda: bool(logged(gateway, "shutting_down")), "the signal's arrival")
        time.sleep(0.2)  # nothing happens by itself: the grace is 30 seconds
        assert gateway.alive
        gateway.send_signal(second)
        assert ending.result() == 0
        with pytest.raises((openai.APIError, httpx.TransportError)):
            list(stream)
    gateway.start()
    request_id = stream.response.headers["x-request-id"]
    bill = gateway.get(f"/chat/completions/{request_id}").json()
    assert bill["status"] == "partial"
    assert bill["choices"][0]["message"]["content"] == "one two"


@pytest.mark.parametrize(
    ("path", "asked", "event"),
    [
        ("chat/completions", {"messages": ASK}, ""),
        ("responses", {"input": "count for me"}, "response.failed"),
        ("messages", {"messages": ASK, "max_tokens": 100}, "error"),
    ],
)
def test_s7_a_stream_that_is_cut_says_why(
    start_gateway: GatewayFactory, upstream: MockUpstream, path: str, asked: Any, event: str
) -> None:
    """An error event, not an end in the middle, and no end of a whole answer."""
    gateway = start_gateway({"server": {"shutdown_grace": 0.2}})
    upstream.reply(text="one two three", stall_after=3)
    body = {"model": "small", "stream": True, **asked}
    with gateway.http() as client, client.stream("POST", f"/{path}", json=body) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "two" in line)
        assert gateway.terminate() == 0
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-1]
    assert rest[-1].startswith("data: ")
    assert not event or rest[-2] == f"event: {event}"
    assert "[DONE]" not in "".join(rest)
    assert not [line for line in gateway.log_lines() if line.get("logger") == "uvicorn.error"]
    gateway.start()
    assert endings(gateway) == {("partial", "shutting_down")}


def test_s9_a_bill_in_the_making_is_finished(
    start_gateway: GatewayFactory, upstream: MockUpstream, background: ThreadPoolExecutor
) -> None:
    """Storage that is slow while the grace runs out: the commit under way is still made before the end."""
    gateway = start_gateway({"server": {"shutdown_grace": 0.3}})
    answered = threading.Event()
    with gateway.http() as client:
        upstream.reply(text="fine", usage=usage_of(5, 7), gate=answered)
        asked: Future[httpx.Response] = background.submit(client.post, "/chat/completions", json=CHAT)
        upstream.wait_for_chats(1)
        with locked_file((gateway.config or {})["storage"]["url"]):
            answered.set()
            wait_until(lambda: upstream.in_flight == 0, "the answer")
            ending = background.submit(gateway.terminate)
            wait_until(lambda: bool(logged(gateway, "requests_cut")), "the end of the grace")
        assert ending.result() == 0
        request_id = asked.result().headers["x-request-id"]
    gateway.start()
    assert stored(gateway, request_id)["response_metadata"]["usage"]["total_tokens"] == 12


def test_s9_a_locked_storage_does_not_keep_it(
    start_gateway: GatewayFactory, upstream: MockUpstream, background: ThreadPoolExecutor
) -> None:
    """It ends all the same, with 0; the figures of the bill that could not be recorded are in the log."""
    gateway = start_gateway({"server": {"shutdown_grace": 0.2}, "storage": {"timeout": 0.8}})
    with stalled_stream(gateway, upstream) as stream, locked_file((gateway.config or {})["storage"]["url"]):
        assert gateway.terminate(timeout=PATIENCE) == 0
        (lost,) = logged(gateway, "bill_not_recorded")
        assert lost["request_id"] == stream.response.headers["x-request-id"]
        assert Decimal(str(lost["cost"]["total_cost"])) > 0
        assert lost["usage"]["completion_tokens"] > 0


@pytest.mark.chaos
def test_s9_a_frozen_storage_does_not_keep_it(
    start_gateway: GatewayFactory, upstream: MockUpstream, chaos_postgres: PostgresProcess
) -> None:
    """A PostgreSQL that accepts and never answers: the process ends within its bounds, and names what is lost."""
    settings = {"url": chaos_postgres.new_database(), "timeout": 0.4}
    gateway = start_gateway({"server": {"shutdown_grace": 0.2}, "storage": settings})
    with stalled_stream(gateway, upstream) as stream:
        chaos_postgres.pause()
        try:
            assert gateway.terminate(timeout=PATIENCE) in (0, 1)
        finally:
            chaos_postgres.resume()
        (lost,) = logged(gateway, "bill_not_recorded")
        assert lost["request_id"] == stream.response.headers["x-request-id"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_s9_every_call_has_its_bill_though_the_end_came_in_the_middle(
    request: pytest.FixtureRequest,
    start_gateway: GatewayFactory,
    upstream: MockUpstream,
    background: ThreadPoolExecutor,
    kind: str,
) -> None:
    """§6: one row of the ledger for each request that reached a model, and all of them balance."""
    server: Postgres | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    storage = {"storage": {"url": server.new_database()}} if server else {}
    gateway = start_gateway({"server": {"shutdown_grace": 0.3}, **storage})
    replies = itertools.cycle(
        [
            {},
            {"text": "one two three four", "chunk_delay": 0.05},
            {"delay_first": 0.2},
            {"status": 500},
            {"text": "slow", "delay_first": 5.0},
            {"text": "one two three", "cut_after": 2},
        ]
    )
    upstream.handler = lambda _: Reply(**next(replies))  # type: ignore[arg-type]

    def keep_asking(number: int) -> None:
        with gateway.http() as client, contextlib.suppress(httpx.TransportError):
            for turn in range(1000):
                asked = {**CHAT, "stream": (number + turn) % 2 == 0, "store": turn % 3 != 0}
                if client.post("/chat/completions", json=asked).status_code == 503:
                    return

    asking = [background.submit(keep_asking, number) for number in range(8)]
    upstream.wait_for_chats(40)
    assert gateway.terminate() == 0
    for each in asking:
        each.result()
    wait_until(lambda: upstream.in_flight == 0, "the end of all upstream calls")
    done = gateway_command("audit", "--csv", "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) - 1 == len(upstream.chats)
    assert logged(gateway, "requests_cut")


@pytest.mark.chaos
def test_an_end_while_the_server_is_still_warmed_up(start_gateway: GatewayFactory) -> None:
    """§9: litellm is being loaded then, which takes a few seconds and cannot be cut short; no fault comes of it."""
    served = {"model": "anthropic/claude-sonnet-4-5", "api_base": "http://127.0.0.1:9", "api_key": "sk-x"}
    gateway = start_gateway({"model_list": [{"model_name": "claude", "litellm_params": served}]})
    time.sleep(1.0)
    assert gateway.terminate(PATIENCE) == 0
    assert "Traceback" not in gateway.log_text()
    assert logged(gateway, "shut_down")


@pytest.mark.chaos
async def test_s10_12_the_mcp_server_ends_as_if_nobody_had_asked(start_gateway: GatewayFactory) -> None:
    """§10.12: over a real connection; then the process ends in order."""
    gateway = start_gateway()
    async with connected(gateway, "sk-test") as client:
        assert (await client.list_tools()).tools
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.log_tail()
