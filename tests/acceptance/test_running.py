"""Running it: the command line, the defaults, health, logs, an orderly end (guarantee §9)."""

import json
import os
import pty
import re
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.answers import Json, conversation_of, stored, user
from tests.support.command import config_file, gateway_command
from tests.support.factory import ClientFactory, GatewayFactory, default_config
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess, scrubbed_environment, shared_fork_server
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, free_port, wait_until

ASK: Any = [user("hello")]


def test_s9_version(tmp_path: Path) -> None:
    """`gateway --version`, and `gateway` alone says how it is used, with examples."""
    done = gateway_command("--version", directory=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("context-gateway ")
    assert not done.stderr
    bare = gateway_command(directory=tmp_path)
    assert bare.returncode == 0
    assert "usage: gateway" in bare.stdout
    assert "gateway serve" in bare.stdout


def test_s9_no_configuration_at_all(
    upstream: MockUpstream, tmp_path: Path, make_client: ClientFactory, fork_server: ForkServer
) -> None:
    """It serves: SQLite file in its folder, the client's own key to the upstream that the environment names."""
    directory = tmp_path / "bare"
    directory.mkdir()
    env = {"OPENAI_API_BASE": upstream.base_url}
    with GatewayProcess(None, env, directory=directory, fork_server=fork_server) as gateway:
        answer = make_client(gateway, "sk-mine").chat.completions.create(model="gpt-4o", messages=ASK)
        assert upstream.last.headers["authorization"] == "Bearer sk-mine"
        body = {"conversation": conversation_of(answer)}
        gateway.restart()
        again: Any = [user("again")]
        client = make_client(gateway, "sk-mine")
        client.chat.completions.create(model="gpt-4o", messages=again, extra_body=body)
        assert [m["content"] for m in upstream.last.body["messages"]] == ["hello", "echo: hello", "again"]
    assert sorted(path.suffix for path in directory.iterdir() if path.name != "gateway.log")[0] == ".db"


def test_s9_the_operators_key_of_the_environment(
    upstream: MockUpstream, tmp_path: Path, make_client: ClientFactory, fork_server: ForkServer
) -> None:
    """`OPENAI_API_KEY` and `DATABASE_URL` count without any file."""
    env = {
        "OPENAI_API_BASE": upstream.base_url,
        "OPENAI_API_KEY": "sk-operator",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'elsewhere.db'}",
    }
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as gateway:
        make_client(gateway, "sk-mine").chat.completions.create(model="gpt-4o", messages=ASK)
        assert upstream.last.headers["authorization"] == "Bearer sk-operator"
    assert (tmp_path / "elsewhere.db").exists()
    assert "sk-operator" not in gateway.log_text()


def test_s9_health(gateway: GatewayProcess) -> None:
    """Both are there for anyone, key or not."""
    assert gateway.get(f"{gateway.url}/health/live", key=None).status_code == 200
    assert gateway.get(f"{gateway.url}/health/ready", key=None).status_code == 200


def test_s9_logs_are_json_without_content(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """One JSON object a line, on debug too; a request's id is there, its words and keys are not."""
    gateway = start_gateway({"server": {"log_level": "debug"}})
    client = make_client(gateway, "sk-client-secret")
    upstream.reply(text="zyzzyva answered")
    said: Any = [user("zyzzyva asked")]
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o", messages=said, extra_body={"attachments": [{"title": "zyzzyva", "content": "zyzzyva text"}]}
    )
    upstream.reply(status=500, body=b"zyzzyva failed")
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="gpt-4o", messages=said, stream=True)
    gateway.post("/chat/completions", content=b'{"zyzzyva": ', key="sk-client-secret")
    gateway.get("/chat/completions", params={"conversation": "zyzzyva"}, key="sk-client-secret")
    assert gateway.terminate() == 0
    lines = gateway.log_text().splitlines()
    assert len(lines) == len(gateway.log_lines()) > 0
    mine = [line for line in gateway.log_lines() if line.get("request_id") == raw.headers["x-request-id"]]
    assert any(line.get("status") == 200 for line in mine)
    for word in ("zyzzyva", "sk-client-secret", "sk-upstream"):
        assert word not in gateway.log_text()


def test_s9_check_reaches_what_it_names(upstream: MockUpstream, tmp_path: Path, start_gateway: GatewayFactory) -> None:
    """`gateway check`: 0 when all is well, 1 with the culprit's name when not, and no secret in its words."""
    params = {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-upstream-secret"}
    good = {"model_list": [{"model_name": "gpt-4o", "litellm_params": params}]}
    done = gateway_command("check", "--config", str(config_file(tmp_path, json.dumps(good))), directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert upstream.base_url in done.stdout
    upstream.stop()
    try:
        done = gateway_command("check", "--config", str(tmp_path / "config.yaml"), directory=tmp_path)
    finally:
        upstream.start()
    assert done.returncode == 1
    assert upstream.base_url in done.stdout
    env = {"DATABASE_URL": "postgresql+asyncpg://someone:database-secret@127.0.0.1:1/none"}
    lost = gateway_command("check", "--config", str(tmp_path / "config.yaml"), directory=tmp_path, env=env)
    assert lost.returncode == 1
    assert "storage" in lost.stdout
    assert not any("secret" in each.stdout + each.stderr for each in (done, lost))


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "at the default upstream if it keeps files, else here, in {folder} (files.serve)"),
        ({"files": {"serve": "on", "store": "database"}}, "all here, in the database"),
        ({"server": {"relay": ["files"]}}, "all at the default upstream"),
    ],
)
def test_s9_check_says_whose_files_are_kept_where(
    upstream: MockUpstream, tmp_path: Path, told: dict[str, Any], line: str
) -> None:
    """§14.5: beside a `model_list`, too, a client's own token takes its files to the default upstream."""
    settings = {"upstream": {"api_base": upstream.base_url}, **told}
    done = gateway_command("check", "--config", str(config_file(tmp_path, json.dumps(settings))), directory=tmp_path)
    said = line.format(folder=tmp_path / "files")
    assert f"ok    files: {said}\n" in done.stdout


@pytest.mark.parametrize("command", ["check", "migrate", "audit"])
def test_s9_no_command_shows_a_secret_of_an_address(upstream: MockUpstream, tmp_path: Path, command: str) -> None:
    """§7, §8: nor where it stands in another place than usual."""
    base = upstream.base_url.replace("://", "://me:base-secret@") + "?key=base-secret"
    config = {
        "upstream": {"api_base": base},
        "storage": {"url": "postgresql://127.0.0.1:1/none?user=me&password=database-secret", "timeout": 1},
    }
    path = config_file(tmp_path, json.dumps(config))
    done = gateway_command(command, "--config", str(path), directory=tmp_path)
    assert done.returncode == 1
    assert "127.0.0.1:1/none" in done.stdout + done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_s9_migrate(empty_storage_url: str, tmp_path: Path, start_gateway: GatewayFactory) -> None:
    """It makes the schema once and says so; a second run changes nothing; without it the server is not ready."""
    url = empty_storage_url
    env = {"DATABASE_URL": url, "GATEWAY_STORAGE_AUTO_MIGRATE": "false"}
    gateway = start_gateway({"storage": {"url": url, "auto_migrate": False}}, start=False)
    gateway.spawn_only()
    wait_until(lambda: _get(f"{gateway.url}/health/live") == 200, "the server")
    assert _get(f"{gateway.url}/health/ready") == 503
    first = gateway_command("migrate", directory=tmp_path, env=env)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "empty" in first.stdout
    again = gateway_command("migrate", directory=tmp_path, env=env)
    assert again.returncode == 0
    assert "already" in again.stdout
    wait_until(lambda: _get(f"{gateway.url}/health/ready") == 200, "readiness")


def _get(url: str) -> int:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code
    except httpx.TransportError:
        return 0


def test_s9_check_makes_no_file(tmp_path: Path, upstream: MockUpstream) -> None:
    """A database that is not there yet is `serve`'s to make."""
    path = config_file(tmp_path, json.dumps({"upstream": {"api_base": upstream.base_url}}))
    done = gateway_command("check", "--config", str(path), directory=tmp_path)
    assert "context-gateway.db: not there yet: `gateway serve` makes it" in done.stdout
    env = {"CONVERSATION_STORAGE_DIR": "./storage/conversations", "OPENAI_BASE_URL": upstream.base_url}
    done = gateway_command("check", directory=tmp_path, env=env)
    assert (done.returncode, "conversations/context-gateway.db: not there yet" in done.stdout) == (0, True), done.stdout
    env["CONVERSATION_STORAGE_DIR"] = "./config.yaml/conversations"
    done = gateway_command("check", directory=tmp_path, env=env)
    assert done.returncode == 1
    assert "config.yaml is no folder that can be written to" in done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]


def test_s9_init_writes_a_configuration_once(tmp_path: Path, upstream: MockUpstream) -> None:
    """It says what it means, `check` finds nothing wrong with it, and what is there stays."""
    done = gateway_command("init", "own.yaml", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gateway serve --config own.yaml" in done.stdout
    written = (tmp_path / "own.yaml").read_text()
    env = {"OPENAI_BASE_URL": upstream.base_url}
    checked = gateway_command("check", "--config", "own.yaml", directory=tmp_path, env=env)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = gateway_command("init", "own.yaml", directory=tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert (tmp_path / "own.yaml").read_text() == written


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/health", "/health/ready"),
        ("/docs", "/openapi.json"),
        ("/chat/completions", "below /v1"),
        ("/v1", "ends with /v1 once"),
        ("/v1/v1/messages", "ends with /v1 once"),
        ("/login", "/ui"),
    ],
)
def test_s9_a_path_that_is_nearly_right_is_answered_with_a_hint(
    one_gateway: GatewayProcess, path: str, hint: str
) -> None:
    answer = httpx.post(f"{one_gateway.url}{path}", json={})
    assert answer.status_code == 404
    assert hint in answer.json()["error"]["message"]


# What the log says, on a terminal and elsewhere.

CHAT: Json = {"model": "small", "messages": [user("hello there")]}
COLOUR = re.compile("\x1b\\[[0-9]+m")


class Terminal:
    """A gateway whose log is a terminal."""

    def __init__(self, directory: Path, config: Json, **env: str) -> None:
        self.port = free_port()
        path = directory / "config.yaml"
        path.write_text(json.dumps(config))
        self._ours, theirs = pty.openpty()
        args = ["serve", "--port", str(self.port), "--config", str(path)]
        environ = scrubbed_environment() | {"TERM": "xterm", "NO_COLOR": ""} | env
        self.process = shared_fork_server().on(theirs, args, environ, directory)
        os.close(theirs)
        self.text = ""

    def until(self, mark: str) -> str:
        """All that it has shown, once `mark` is in it."""
        while mark not in self.text:
            assert select.select([self._ours], [], [], PATIENCE)[0], f"{mark!r} has not come: {self.text}"
            self.text += os.read(self._ours, 65536).decode()
        return self.text

    def lines(self) -> list[str]:
        return self.text.replace("\r", "").splitlines()

    def close(self) -> None:
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(20)
        os.close(self._ours)


@contextmanager
def terminal(directory: Path, upstream: MockUpstream, **env: str) -> Iterator[Terminal]:
    config = default_config(upstream, f"sqlite:///{directory}/a.db")
    opened = Terminal(directory, config, **env)
    try:
        yield opened
    finally:
        opened.close()


def post(port: int, body: Json, path: str = "/v1/chat/completions") -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(head.encode("latin-1") + content)
        return b"".join(iter(lambda: one.recv(65536), b""))


@pytest.mark.parametrize("no_colour", [False, True])
def test_s9_on_a_terminal_the_log_is_for_people(tmp_path: Path, upstream: MockUpstream, no_colour: bool) -> None:
    """One line a request: method, path, status, time, model, tokens, cost, strategy, conversation."""
    with terminal(tmp_path, upstream, NO_COLOR="1" if no_colour else "") as shown:
        shown.until("serving")
        first = next(COLOUR.sub("", line) for line in shown.lines())
        assert re.fullmatch(
            rf"[\d:]{{8}} INFO    serving on http://127.0.0.1:{shown.port}, version [\d.]+, models: .+, "
            rf"page http://127.0.0.1:{shown.port}/ui",
            first,
        )
        for streamed in (False, True):
            upstream.reply(text="one two", usage={"prompt_tokens": 1234, "completion_tokens": 2, "total_tokens": 1236})
            assert b" 200 " in post(shown.port, {**CHAT, "stream": streamed})
        post(shown.port, {**CHAT, "context": {"mood": 1}})
        post(shown.port, CHAT, "/no/%1b[31mwhere")
        shown.until("/no/")
        shown.until("not_found")
        assert bool(COLOUR.search(shown.text)) is not no_colour
        ours = COLOUR.sub("", shown.text)
        assert "\x1b" not in ours, "what a client sends does not command the terminal"
        requests = [line for line in ours.replace("\r", "").splitlines() if "POST" in line]
        cost = r"1,234\+2 tokens  \$0\.001238  passthrough  conv_\w+"
        start = r"[\d:]{8} INFO    POST /v1/chat/completions 200  [\d.]+ m?s  small  "
        assert re.fullmatch(start + cost, requests[0])
        assert re.fullmatch(start + "stream  " + cost, requests[1])
        assert re.fullmatch(r".* 400  [\d.]+ m?s  invalid_value \(req_\w+\)", requests[2])
        assert "{" not in ours


def test_s9_elsewhere_it_is_json_with_the_same_fields(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Tokens, cost and strategy are those of the bill, streamed or not, and where the upstream failed."""
    for streamed in (False, True):
        answer = one_gateway.post("/chat/completions", json={**CHAT, "stream": streamed})
        line = one_gateway.logged(answer.headers["x-request-id"])
        bill = stored(one_gateway, answer.headers["x-request-id"])["response_metadata"]
        figures = {name: line[name] for name in ("prompt_tokens", "completion_tokens", "cost", "strategy")}
        assert figures == {
            "prompt_tokens": bill["usage"]["prompt_tokens"],
            "completion_tokens": bill["usage"]["completion_tokens"],
            "cost": float(bill["cost"]["total_cost"]),
            "strategy": "passthrough",
        }
        assert (line["model"], line["conversation_id"]) == ("small", bill["conversation_id"])
    upstream.reply(text="a b c", cut_after=40)
    answer = one_gateway.post("/chat/completions", json=CHAT)
    line = one_gateway.logged(answer.headers["x-request-id"])
    assert (line["error_code"], line["cost"] > 0) == ("upstream_interrupted", True)


def test_s9_serving_is_said_once_the_port_is_bound(one_gateway: GatewayProcess) -> None:
    """And is the first thing that is said, with the port that was taken."""
    first = one_gateway.log_lines()[0]
    assert (first["event"], first["port"], first["host"]) == ("serving", one_gateway.port, "127.0.0.1")


@pytest.mark.parametrize("form", ["text", "json"])
def test_s9_what_ends_the_start_stands_last(tmp_path: Path, form: str) -> None:
    """A port that is taken: the last line says so, without a traceback, and nothing says that it serves."""
    config = config_file(tmp_path, f"server: {{log_format: {form}}}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = gateway_command("serve", "--port", str(port), "--config", str(config), directory=tmp_path)
    assert ended.returncode == 1
    *_, last = ended.stderr.splitlines()
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use" in last
    assert last.startswith("{") is (form == "json")
    assert "Traceback" not in ended.stderr
    assert "serving" not in ended.stderr
    assert not list(tmp_path.glob("*.db")), "nothing was touched"


def test_s9_a_host_that_is_not_here_ends_the_start(tmp_path: Path) -> None:
    ended = gateway_command("serve", "--host", "192.0.2.1", "--port", "0", directory=tmp_path)
    assert ended.returncode == 1
    assert "192.0.2.1:0 cannot be listened on: Cannot assign requested address" in ended.stderr.splitlines()[-1]


def test_s9_any_free_port(tmp_path: Path, upstream: MockUpstream) -> None:
    """Port 0: the line says which one it became, and it answers there."""
    config = config_file(tmp_path, json.dumps(default_config(upstream, f"sqlite:///{tmp_path}/a.db")))
    args = ["serve", "--host", "localhost", "--port", "0", "--config", str(config)]
    ours, theirs = os.pipe()
    with open(os.devnull, "wb") as nowhere, open(theirs, "wb") as errors:
        process = shared_fork_server().start(args, scrubbed_environment(), tmp_path, nowhere, errors)
    with open(ours, encoding="utf-8") as told:
        try:
            assert b" 200 " in post(json.loads(told.readline())["port"], CHAT)
        finally:
            os.kill(process.pid, signal.SIGTERM)
            process.wait(20)
