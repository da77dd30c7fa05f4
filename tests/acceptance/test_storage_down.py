"""What happens while PostgreSQL is gone: before the call, at the commit, and to limits (guarantee §3.6, §9, §12)."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.chaos.audit import rows
from tests.support.answers import assistant, bill_of, conversation_of, stored, stored_of, user
from tests.support.command import gateway_command
from tests.support.documents import lamps
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.postgres import PostgresProcess
from tests.support.process import free_port, wait_until

ASK: Any = [user("hello")]
DOWN: dict[str, Callable[[PostgresProcess], None]] = {"killed": PostgresProcess.kill9, "frozen": PostgresProcess.pause}


CONVERSATIONS = [
    *(("GET", "/conversations"), ("POST", "/conversations")),
    *(("GET", "/conversations/{conversation}"), ("DELETE", "/conversations/{conversation}")),
    *(("GET", "/conversations/{conversation}/items"), ("DELETE", "/conversations/{conversation}/items/msg_1")),
]


def up_again(postgres: PostgresProcess) -> None:
    if postgres.alive:
        postgres.resume()
    else:
        postgres.start()


def ready(gateway: GatewayProcess) -> httpx.Response:
    return gateway.get(f"{gateway.url}/health/ready")


@pytest.fixture
def on_postgres(start_gateway: GatewayFactory, chaos_postgres: PostgresProcess) -> GatewayProcess:
    """A gateway on a PostgreSQL that the test may end; it waits 0.4 s for its storage."""
    return start_gateway({"storage": {"url": chaos_postgres.new_database(), "timeout": 0.4}})


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", DOWN)
@pytest.mark.chaos
def test_s3_6_storage_down_before_the_call(
    on_postgres: GatewayProcess,
    chaos_postgres: PostgresProcess,
    upstream: MockUpstream,
    make_client: ClientFactory,
    way: str,
) -> None:
    """503 `storage_unavailable` and no model is paid for; what leaves nothing stored still works; then all is well."""
    client = make_client(on_postgres)
    upstream.reply(text="one")
    body = {"conversation": conversation_of(client.chat.completions.create(model="gpt-4o", messages=ASK))}
    DOWN[way](chaos_postgres)
    for streamed in (False, True):
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
        assert (caught.value.status_code, caught.value.code) == (503, "storage_unavailable")
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=ASK, extra_body=body, stream=streamed)
        assert (caught.value.status_code, caught.value.code) == (503, "storage_unavailable")
        assert "postgres" not in caught.value.response.text.lower(), "no connection string"
    assert len(upstream.chats) == 1
    answer = client.chat.completions.create(model="gpt-4o", messages=ASK, store=False)
    assert answer.choices[0].message.content == "echo: hello"
    upstream.reply(text="a stream")
    chunks = list(client.chat.completions.create(model="gpt-4o", messages=ASK, store=False, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "a stream"
    off = client.chat.completions.create(model="gpt-4o", messages=ASK, extra_body={"context": {"mode": "off"}})
    assert off.choices[0].message.content == "echo: hello"
    streamed_off: Any = {"model": "gpt-4o", "messages": ASK, "stream": True, "context": {"mode": "off"}}
    upstream.routes["POST /v1/moderations"] = Reply(json={"results": []})
    with on_postgres.http() as plain:
        assert "[DONE]" in plain.post("/chat/completions", json=streamed_off).text
        assert plain.post("/moderations", json={"model": "gpt-4o"}).json() == {"results": []}
        for method, path in CONVERSATIONS:
            refused = plain.request(method, path.format(**body), json={} if method == "POST" else None)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable"), (
                method,
                path,
            )
    not_ready = ready(on_postgres)
    assert not_ready.status_code == 503
    assert on_postgres.get(f"{on_postgres.url}/health/live").status_code == 200
    up_again(chaos_postgres)
    wait_until(lambda: ready(on_postgres).status_code == 200, "readiness")
    client.chat.completions.create(model="gpt-4o", messages=[user("again")], extra_body=body)
    assert upstream.last.body["messages"] == [*ASK, assistant("one"), user("again")]
    request_id = bill_of(answer)["request_id"]
    with on_postgres.http() as plain:  # the bill of what worked meanwhile is not lost
        path = f"/chat/completions/{request_id}"
        wait_until(lambda: plain.get(path).status_code == 200, "the late bill")


@pytest.mark.parametrize("streamed", [False, True])
def test_s3_6_storage_down_at_the_commit(
    on_postgres: GatewayProcess,
    chaos_postgres: PostgresProcess,
    upstream: MockUpstream,
    make_client: ClientFactory,
    streamed: bool,
) -> None:
    """An error instead of the acknowledgement: no JSON body, no [DONE]; no half turn, and the bill comes later."""
    client = make_client(on_postgres)
    upstream.reply(text="one")
    body = {"conversation": conversation_of(client.chat.completions.create(model="gpt-4o", messages=ASK))}
    gate = threading.Event()
    upstream.reply(text="lost answer", gate=gate)
    request = {"model": "gpt-4o", "messages": [user("lost")], "stream": streamed, **body}
    with ThreadPoolExecutor(1) as pool, on_postgres.http() as plain:
        waiting = pool.submit(plain.post, "/chat/completions", json=request)
        upstream.wait_for_chats(2)
        chaos_postgres.kill9()
        gate.set()
        answer = waiting.result()
    if streamed:
        assert answer.status_code == 200
        assert "[DONE]" not in answer.text
        assert '"finish_reason":"stop"' not in answer.text
        assert "storage_unavailable" in answer.text.removesuffix("\n\n").rpartition("\n\n")[2]
    else:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "storage_unavailable"
        assert "lost answer" not in answer.text
    chaos_postgres.start()
    wait_until(lambda: ready(on_postgres).status_code == 200, "readiness")
    client.chat.completions.create(model="gpt-4o", messages=[user("again")], extra_body=body)
    assert upstream.last.body["messages"] == [*ASK, assistant("one"), user("again")]
    wait_until(lambda: len(stored_of(on_postgres, body["conversation"])) == 3, "the late bill")
    late = stored(on_postgres, answer.headers["x-request-id"])
    assert late["response_metadata"]["cost"]["total_cost"] > 0
    assert late["choices"] == []


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True])
def test_s6_the_bill_comes_by_itself_when_the_storage_is_back(
    on_postgres: GatewayProcess, chaos_postgres: PostgresProcess, streamed: bool
) -> None:
    """§6: a request that leaves nothing but its bill is answered without the storage. Nobody asks for anything after
    it, and soon after the storage is back the bill is in the ledger, once."""
    config: Any = on_postgres.config
    url = config["storage"]["url"]
    request = {"model": "gpt-4o", "messages": ASK, "store": False, "stream": streamed}
    on_postgres.post("/chat/completions", json=request).raise_for_status()
    chaos_postgres.kill9()
    answer = on_postgres.post("/chat/completions", json=request)
    assert answer.status_code == 200
    chaos_postgres.start()
    name = answer.headers["x-request-id"]
    query = f"SELECT status, error_code, total_cost_picousd FROM ledger WHERE request_id = '{name}'"
    wait_until(lambda: len(rows(url, query)) == 1, "the late bill", interval=0.1)
    (bill,) = rows(url, query)
    assert (bill["status"], bill["error_code"]) == ("complete", None), "no turn was to be stored"
    assert bill["total_cost_picousd"] > 0
    assert len(rows(url, "SELECT request_id FROM ledger")) == 2


def test_s9_a_start_without_storage(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """The server starts without its storage, is not ready, serves what needs none, and gets ready by itself."""
    url = chaos_postgres.new_database()
    chaos_postgres.kill9()
    gateway = start_gateway({"storage": {"url": url, "timeout": 0.5}}, start=False)
    gateway.spawn_only()

    def live() -> bool:
        try:
            return httpx.get(f"{gateway.url}/health/live", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(live, "the server")
    assert ready(gateway).status_code == 503
    client = make_client(gateway)
    client.chat.completions.create(model="gpt-4o", messages=ASK, store=False)
    client.chat.completions.create(model="gpt-4o", messages=ASK, extra_body={"context": {"mode": "off"}})
    assert len(upstream.chats) == 2
    chaos_postgres.start()
    wait_until(lambda: ready(gateway).status_code == 200, "readiness")
    assert conversation_of(client.chat.completions.create(model="gpt-4o", messages=ASK))


def test_s3_6_storage_down_is_known_before_a_planner_is_paid(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, upstream: MockUpstream
) -> None:
    """An answer that could not be stored is not planned either; what leaves nothing stored is."""
    url = chaos_postgres.new_database()
    gateway = start_gateway({"storage": {"url": url, "timeout": 0.4}, "context": {"planning": "auto"}})
    upstream.handler = models = InternalModels(every("summarize"))
    body: dict[str, Any] = {
        "model": "small",
        "messages": [user("Who is the keeper of lamp 41?")],
        "attachments": [{"title": "Lamps", "content": lamps(60)}],
    }
    chaos_postgres.kill9()
    try:
        refused = gateway.post("/chat/completions", json=body)
        answered = gateway.post("/chat/completions", json={**body, "store": False})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable")
        assert (answered.status_code, len(models.planned), len(models.summarized)) == (200, 1, 1)
    finally:
        up_again(chaos_postgres)


class FullDisk:
    """SQLite's file on a small file system of its own, which another file fills up."""

    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory / 'gateway.db'}"
        self._filler = directory / "filler"

    def refuse(self) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def take(self) -> None:
        self._filler.unlink()


class ReadOnlyServer:
    """A PostgreSQL whose transactions read alone, as after a failover."""

    def __init__(self, postgres: PostgresProcess) -> None:
        self._postgres = postgres
        self.url = postgres.new_database()

    def _set(self, value: str) -> None:
        self._postgres.query(self._postgres.admin_url, f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        self._postgres.query(self._postgres.admin_url, "SELECT pg_reload_conf()")

    def refuse(self) -> None:
        self._set("on")

    def take(self) -> None:
        self._set("off")


@pytest.fixture(params=["sqlite", "postgresql"])
def refusing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk | ReadOnlyServer]:
    """A storage that reads, and takes no writes while the test says so."""
    if request.param == "postgresql":
        yield ReadOnlyServer(request.getfixturevalue("chaos_postgres"))
        return
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a file system")
    yield FullDisk(disk)
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_s3_9_a_storage_that_takes_no_writes(
    refusing: FullDisk | ReadOnlyServer, start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """§3.9, §9.5: of requests at once no more are paid for than were under way; then each is refused before a model is
    asked, whatever it leaves, and readiness is red, until a probe was written."""
    gateway = start_gateway({"storage": {"url": refusing.url, "timeout": 0.5}})
    hello = {"model": "gpt-4o", "messages": ASK}
    long = {"model": "gpt-4o", "messages": [user("long " * 20_000)]}
    with gateway.http() as client, ThreadPoolExecutor(4) as pool:
        first = client.post("/chat/completions", json=hello).raise_for_status().json()
        gate = threading.Event()
        for _ in range(2):
            upstream.reply(text="under way", gate=gate)
        under_way = [pool.submit(client.post, "/chat/completions", json={**long, "stream": s}) for s in (False, True)]
        upstream.wait_for_chats(3)
        refusing.refuse()
        gate.set()
        whole, stream = (each.result() for each in under_way)
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "storage_unavailable")
        assert "cannot be written" in whole.text
        assert stream.status_code == 200
        assert "[DONE]" not in stream.text
        assert "cannot be written" in stream.text.removesuffix("\n\n").rpartition("\n\n")[2]
        off = {**hello, "context": {"mode": "off"}}
        for body in (hello, {**hello, "stream": True}, {**hello, "store": False}, off, long):
            refused = client.post("/chat/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable")
            assert "cannot be written" in refused.json()["error"]["message"]
        for path, body in (
            ("/responses", {"model": "gpt-4o", "input": "hello"}),
            ("/messages", {**hello, "max_tokens": 9}),
            ("/embeddings", {"model": "text-embedding-3-small", "input": "hello"}),
        ):
            assert client.post(path, json=body).status_code == 503
        assert len(upstream.requests) == 3, "nobody was asked"
        not_ready = ready(gateway)
        assert (not_ready.status_code, not_ready.json()["reason"]) == (503, "storage_cannot_be_written")
        assert client.get(f"/chat/completions/{first['id']}").status_code == 200, "it reads"
        assert "storage_cannot_be_written" in gateway.log_text()
        checked = gateway_command("check", directory=gateway.directory, env={"GATEWAY_STORAGE_URL": refusing.url})
        assert checked.returncode == 1
        assert "The storage cannot be written right now" in checked.stdout
        refusing.take()
        wait_until(lambda: client.post("/chat/completions", json=hello).status_code == 200, "the probe")
        assert ready(gateway).status_code == 200
        name = whole.headers["x-request-id"]
        wait_until(lambda: client.get(f"/chat/completions/{name}").status_code == 200, "the late bill")


# A limiter that is down lets requests pass or not, as configured, and says so.

KEY = "gw-limited-key"
LIMITED = {"keys": [{"key": KEY, "tenant": "t", "limits": {"rpm": 1, "tpm": 1000000, "concurrent": 1}}]}


def without_valkey(start: GatewayFactory, when_down: str) -> GatewayProcess:
    url = f"redis://127.0.0.1:{free_port()}/0"
    return start({"auth": LIMITED, "limits": {"when_down": when_down}, "cache": {"url": url}})


def test_s12_4_open_requests_pass_and_say_so(start_gateway: GatewayFactory, make_client: ClientFactory) -> None:
    gateway = without_valkey(start_gateway, "open")
    client = make_client(gateway, KEY)
    for _ in range(3):
        body: Any = client.chat.completions.create(model="gpt-4o", messages=ASK).model_dump()
        assert body["response_metadata"]["context_utilization"]["warnings"] == ["limits_unavailable"]
    assert gateway.log_text().count('"limits_unavailable"') == 1
    counts = httpx.get(f"{gateway.url}/metrics").text
    assert "gateway_limits_unavailable_total 0.0" not in counts


def test_s12_4_closed_requests_do_not_pass(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    client = make_client(without_valkey(start_gateway, "closed"), KEY, max_retries=0)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert (caught.value.status_code, caught.value.code) == (503, "limits_unavailable")
    assert not upstream.chats


@pytest.mark.chaos
def test_s12_3_what_was_spent_while_the_storage_was_away_is_not_lost(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, make_client: ClientFactory
) -> None:
    """Its bill waits in memory, and counts as soon as it is written."""
    keys = [{"key": KEY, "tenant": "t", "budgets": [{"usd": "0.00005", "period": "day"}]}]
    storage = {"url": chaos_postgres.new_database(), "timeout": 0.4}
    gateway = start_gateway({"auth": {"keys": keys}, "storage": storage})
    client = make_client(gateway, KEY, max_retries=0)
    client.chat.completions.create(model="gpt-4o", messages=ASK, max_tokens=2)  # 0.0000225 USD
    chaos_postgres.kill9()
    body: Any = client.chat.completions.create(model="gpt-4o", messages=ASK, store=False, max_tokens=2).model_dump()
    assert "limits_unavailable" in body["response_metadata"]["context_utilization"]["warnings"]
    chaos_postgres.start()
    with httpx.Client() as other:
        wait_until(lambda: other.get(f"{gateway.url}/health/ready").status_code == 200, "the storage")

    def is_refused() -> bool:
        try:
            client.chat.completions.create(model="gpt-4o", messages=ASK, store=False, max_tokens=1)
        except openai.RateLimitError:
            return True
        return False

    assert is_refused()
