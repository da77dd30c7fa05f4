"""The log: lines for people on a terminal, JSON elsewhere, both with what a request was and what it cost."""

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

import pytest

from tests.support.answers import Json, stored, user
from tests.support.command import config_file, gateway_command
from tests.support.factory import default_config
from tests.support.gateway_process import GatewayProcess, scrubbed_environment, shared_fork_server
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, free_port

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
