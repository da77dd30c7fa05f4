"""`gateway ls`, `show` and `tail` beside running servers, on both storages (guarantee §13.9)."""

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from gateway.cli import main
from gateway.core.types.turn import LARGEST_KEPT
from tests.support.answers import Json, chat, exact, ok, user
from tests.support.command import config_file, gateway_command
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess, scrubbed_environment, shared_fork_server
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.shop import Shop, shop
from tests.support.terminal import on_terminal, without_colours

__all__ = ["shop"]
HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]loud[/] \u202egnp.exe\u202c \x9b31m <script>alert(1)</script> \r\n\x08end"
LOUD = "[bold red]loud[/]"
FORBIDDEN = ("\x07", "\x08", "\x9b", "\u202e", "\u202c", "\x1b]", "\x1b[2J")


def command(gateway: GatewayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with the gateway's own configuration, while it runs."""
    named = (*arguments[:1], "--config", str(gateway.config_path), *arguments[1:])
    return gateway_command(*named, directory=gateway.directory)


def output(gateway: GatewayProcess, *arguments: str) -> str:
    done = command(gateway, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def as_json(gateway: GatewayProcess, *arguments: str) -> Any:
    return exact(output(gateway, *arguments, "--json"))


class Tail:
    """`gateway tail --json`, line by line, and its end by Ctrl-C."""

    def __init__(self, gateway: GatewayProcess, *arguments: str, json: bool = True) -> None:
        form = ["--json"] if json else []
        named = ["tail", "--config", str(gateway.config_path), *form, *arguments]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the command
        ours, theirs = os.pipe()
        self._lines = os.fdopen(ours, encoding="utf-8")
        with open(theirs, "wb") as output:
            start = shared_fork_server().start
            self._process = start(named, scrubbed_environment(), gateway.directory, output, self._errors)

    def text(self) -> str:
        """Its first line, after which it is ended."""
        with self:
            return self._lines.readline()

    def lines(self, count: int) -> list[Json]:
        return [exact(self._lines.readline()) for _ in range(count)]

    def __enter__(self) -> "Tail":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._lines.close()
        self._errors.close()

    def end(self) -> None:
        """Quietly."""
        os.kill(self._process.pid, signal.SIGINT)
        status = self._process.wait(30)
        self._errors.seek(0)
        assert (status, self._lines.read(), self._errors.read()) == (130, "", b"")


@pytest.fixture
def planning(
    start_gateway: GatewayFactory, storage_url: str, upstream: MockUpstream
) -> tuple[GatewayProcess, InternalModels]:
    """A gateway of the test's own that plans, on each kind of storage."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    return start_gateway({"context": {"planning": "auto"}, "storage": {"url": storage_url}}), models


@pytest.mark.chaos
def test_s13_9_figures_are_those_of_an_audit(shop: Shop) -> None:
    """Every bill and every sum, to the last digit, on each storage."""
    wait_until(lambda: len(shop.rows()) == 10, "all bills")
    rows = {row["request_id"]: row for row in shop.rows()}
    with Tail(shop.gateway, "--lines", "100") as tail:
        told = tail.lines(10)
        tail.end()
    assert [line["id"] for line in told] == [row["request_id"] for row in shop.rows()]
    for line in told:
        row = rows[line["id"]]
        assert ("" if line["cost"] is None else f"{line['cost']:.12f}") == row["total_cost"]
        assert f"{line['planning_cost']:.12f}" == (row["planning_cost"] or "0.000000000000")
        assert (line["status"], str(line["prompt_tokens"])) == (row["status"], row["prompt_tokens"])
    listed = as_json(shop.gateway, "ls", "--limit", "50")
    assert listed["data"]
    for each in listed["data"]:
        of_it = [row for row in rows.values() if row["conversation_id"] == each["id"]]
        known = sum((Decimal(row["total_cost"]) for row in of_it if row["total_cost"]), Decimal(0))
        unpriced = sum(not row["total_cost"] for row in of_it)
        if known <= LARGEST_KEPT:  # of the dear one a column holds no more
            assert (each["cost"], each["unpriced"]) == (known, unpriced)
        assert each["requests"] == len(of_it)
        shown = as_json(shop.gateway, "show", each["id"])
        same = ("requests", "prompt_tokens", "completion_tokens", "cost", "planning_cost", "unpriced")
        assert {name: shown["sums"][name] for name in same} == {name: each[name] for name in same}, "in USD"
        assert "picousd" not in str(shown)
        if not each["unpriced"] and len(shown["branches"]) == 1:
            assert sum(turn["cost"] for turn in shown["turns"]) == each["cost"]
            assert sum(turn["planning_cost"] for turn in shown["turns"]) == each["planning_cost"]
        assert sum(turn["prompt_tokens"] for turn in shown["turns"]) == each["prompt_tokens"]
    for name in ("plain", "cached", "above", "dear"):
        bill = as_json(shop.gateway, "show", shop.answers[name]["response_metadata"]["request_id"])["bill"]
        assert bill["balances"]
        assert bill["cost"]["total_cost"] == shop.expected[name]
    rows_of_csv = list(csv.DictReader(io.StringIO(output(shop.gateway, "ls", "--limit", "50", "--csv"))))
    assert [row["id"] for row in rows_of_csv] == [each["id"] for each in listed["data"]]
    assert [row["cost"] for row in rows_of_csv] == [f"{each['cost']:.12f}" for each in listed["data"]]
    assert {row["created_at"][-1] for row in rows_of_csv} == {"Z"}
    assert ">=" not in output(shop.gateway, "ls", "--tenant", "alice")
    assert "unknown" in output(shop.gateway, "ls", "--tenant", "bob")


def test_s13_9_conversations_are_found(shop: Shop) -> None:
    """By tenant, user, model, text and how an id begins; what there is more is told."""
    ids = [each["id"] for each in as_json(shop.gateway, "ls")["data"]]
    assert [e["id"] for e in as_json(shop.gateway, "ls", "HELLO")["data"]] == ids
    assert as_json(shop.gateway, "ls", "goodbye")["data"] == []
    assert {e["tenant"] for e in as_json(shop.gateway, "ls", "--tenant", "bob")["data"]} == {"bob"}
    assert {e["user"] for e in as_json(shop.gateway, "ls", "--user", "ann")["data"]} == {"ann"}
    assert {e["model"] for e in as_json(shop.gateway, "ls", "--model", "tiered")["data"]} == {"tiered"}
    assert [e["id"] for e in as_json(shop.gateway, "ls", ids[0])["data"]] == [ids[0]]
    page = as_json(shop.gateway, "ls", "--limit", "1", "--since", "1h")
    assert ([e["id"] for e in page["data"]], page["has_more"]) == (ids[:1], True)
    assert output(shop.gateway, "show", ids[0][:-2]) == output(shop.gateway, "show", ids[0])
    done = command(shop.gateway, "show", ids[0], "--tenant", "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "No such conversation.\n")


def test_s13_9_a_turn_tells_its_window_its_decisions_and_its_arithmetic(
    planning: tuple[GatewayProcess, InternalModels],
) -> None:
    gateway, models = planning
    answer = chat(
        gateway,
        model="small",
        messages=[user("Who is the keeper of lamp 41?")],
        attachments=[{"title": "Lamps", "content": lamps(60)}],
    )
    name = answer["conversation"]["id"]
    text = output(gateway, "show", name)
    assert "Who is the keeper of lamp 41?" in text
    turn = output(gateway, "show", name, "--turn", "1", "--sent", "--why")
    for part in (
        "window: ",
        "keeper of lamp 41",
        "rag_extract: ",
        "attachment:0:Lamps",
        "planner: asked: near_limit",
        " × 0.000001 = ",
        "the stored bill is what this adds up to",
        "put_in_front",
    ):
        assert part in turn, part
    cost = Decimal(str(answer["response_metadata"]["cost"]["total_cost"]))
    assert f"total: {cost:.12f}" in turn
    found = as_json(gateway, "show", answer["id"], "--sent")
    for prefix in ("resp_", "msg_"):
        other = prefix + answer["id"].removeprefix("chatcmpl-")
        assert as_json(gateway, "show", other, "--sent") == found, "one completion, by each API's name of it"
    assert found["sent"] == models.answered[0]["messages"]
    assert found["bill"]["cost"]["total_cost"] == cost
    assert as_json(gateway, "show", name, "--turn", "1")["requests"][0]["artifacts"] == found["artifacts"]
    assert as_json(gateway, "show", name)["turns"][0]["artifacts_decided"] == len(found["artifacts"]) == 1
    done = command(gateway, "show", name, "--turn", "2")
    assert (done.returncode, done.stderr) == (1, "No such turn in the current branch: it has 1, counted from 1.\n")


def test_s13_9_what_is_not_stored_says_why(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.reply(text="x")
    kept = chat(gateway, model="gpt-4o", messages=[user("to be deleted")])
    upstream.reply(text="x")
    unkept = chat(gateway, model="gpt-4o", messages=[user("never kept")], store=False)
    name = kept["conversation"]["id"]
    assert gateway.delete(f"/conversations/{name}").status_code == 200
    done = command(gateway, "show", name)
    assert (done.returncode, done.stderr) == (0, "This conversation was deleted. Its bills are left:\n")
    assert kept["response_metadata"]["request_id"] in done.stdout
    deleted = output(gateway, "show", kept["response_metadata"]["request_id"], "--sent", "--why")
    assert "its conversation was deleted: the bill is left" in deleted
    told = output(gateway, "show", unkept["response_metadata"]["request_id"], "--sent")
    assert "its words were not kept" in told
    for text in (done.stdout, deleted, told):
        assert "to be deleted" not in text
        assert "never kept" not in text


@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
@pytest.mark.chaos
def test_s13_9_what_is_shown_is_text(planning: tuple[GatewayProcess, InternalModels]) -> None:
    """Nothing that a model or a user wrote moves a cursor, colours anything, turns the writing round or is markup."""
    gateway, models = planning
    models.planner = every("rag_extract", extraction_query=HOSTILE, relevance_rationale=HOSTILE)
    answer = chat(
        gateway,
        model="small",
        messages=[user(HOSTILE)],
        attachments=[{"title": HOSTILE[:100], "content": HOSTILE + lamps(60)}],
        user=HOSTILE,
    )
    name = answer["conversation"]["id"]
    looks = (("ls",), ("show", name), ("show", name, "--turn", "1", "--sent", "--why"), ("show", answer["id"], "--why"))
    for arguments in looks:
        config = ("--config", str(gateway.config_path))
        status, seen = on_terminal(*arguments, *config, directory=gateway.directory, width=300)
        assert status == 0, seen
        assert not [each for each in FORBIDDEN if each in seen], arguments
        assert "\x1b" not in without_colours(seen)
        assert LOUD in without_colours(seen), arguments
        status, plain = on_terminal(*arguments, *config, directory=gateway.directory, width=300, env={"NO_COLOR": "1"})
        assert (status, "\x1b" in plain) == (0, False)
        piped = output(gateway, *arguments)
        assert LOUD in piped
        assert all(c.isprintable() or c == "\n" for c in piped)
        for line in output(gateway, *arguments, "--json").splitlines():
            assert line.isascii()
            assert line.isprintable()
            json.loads(line)
    told = output(gateway, "ls", "--csv")
    assert LOUD in told
    assert all(c.isprintable() or c == "\n" for c in told)


@pytest.mark.chaos
def test_s13_9_five_megabytes_are_shown_by_their_beginning(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.reply(text="x")
    answer = chat(gateway, model="bench", messages=[user("begin \x1b[31m" + "word " * 1_000_000)])
    for arguments in (("show", answer["conversation"]["id"], "--turn", "1", "--sent", "--why"), ("ls", "begin")):
        text = output(gateway, *arguments)
        assert "begin" in text
        assert "\x1b" not in text
        assert len(text) < 20_000


def test_s13_9_a_line_of_a_tail_tells_the_request(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """In plain words, where it is no JSON; a user's name is text here, too."""
    upstream.reply(text="x")
    bill = chat(one_gateway, model="gpt-4o", messages=[user("hi")], user=HOSTILE)["response_metadata"]
    line = Tail(one_gateway, "--lines", "1", json=False).text()
    cost = Decimal(str(bill["cost"]["total_cost"]))
    for part in ("complete", bill["request_id"], "gpt-4o", f"{cost:.12f} USD", "s  passthrough", LOUD):
        assert part in line
    assert line.rstrip("\n").isprintable()


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_s13_9_requests_of_each_api_are_shown(one_gateway: GatewayProcess, upstream: MockUpstream, api: str) -> None:
    """A tail has the API and the strategy; what was not stored is not told as relayed."""
    body: Json = {"model": "gpt-4o", "store": False}
    body |= {"input": "hi"} if api == "responses" else {"max_tokens": 50, "messages": [user("hi")]}
    upstream.reply(text="x")
    answer = ok(one_gateway.post(f"/{api}", json=body))
    request_id = answer["response_metadata"]["request_id"]
    tail = Tail(one_gateway, "--lines", "1", json=False)
    line = tail.text()
    assert request_id in line
    assert f"{api} passthrough" in line
    assert "store: false" in output(one_gateway, "show", request_id)


def test_s13_9_tail_sees_every_request_of_every_replica(replicas: list[GatewayProcess], upstream: MockUpstream) -> None:
    """Once, in the order in which they end; those before are shown as far as is asked for."""
    asked = {"model": "gpt-4o", "messages": [user("hi")]}

    def ask(number: int, **more: Any) -> str:
        upstream.reply(text="x")
        return str(chat(replicas[number % 2], **asked, **more)["response_metadata"]["request_id"])

    before = [ask(number, user="bob" if number else "ann") for number in range(3)]
    with Tail(replicas[0], "--lines", "2") as tail, Tail(replicas[1], "--lines", "1", "--user", "ann") as of_ann:
        assert [line["id"] for line in tail.lines(2)] == before[1:]
        assert [line["id"] for line in of_ann.lines(1)] == before[:1]
        names = [ask(number, user="ann" if number % 3 == 0 else "bob") for number in range(6)]
        assert [line["id"] for line in tail.lines(6)] == names
        assert [line["id"] for line in of_ann.lines(2)] == names[::3]
        tail.end()
        of_ann.end()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("ls", "--since", "someday"), "--since"),
        (("ls", "--limit", "0"), "--limit"),
        (("tail", "--lines", "-1"), "--lines"),
        (("show", "art_1"), "'art_1' is no id"),
        (("show", "conv_1", "--why"), "--turn"),
        (("show", "req_1", "--turn", "1"), "--turn"),
        (("show", "\x1b[2J"), "is no id"),
        (("audit", "--since", "someday"), "--since"),
        (("audit", "--by", "colour"), "--by"),
        (("audit", "--until", "2026-13-01"), "--until"),
        (("audit", "--since", "1h", "--until", "2h"), "--since"),
        (("audit", "--colour", "x"), "--colour"),
        (("serve", "--prot", "1"), "Did you mean '--port'"),
        (("keys", "list", "--tenent=a", "\x1b[2J"), "Did you mean '--tenant'"),
        (("audit", "\x1b[2J"), "there is no argument"),
        (("shwo",), "Did you mean 'show'"),
        (("-x",), "there is no argument '-x'"),
        (("keys", "-x"), "there is no argument '-x'"),
        (("--config", "none.yaml"), "required: command"),
        (("config", "server", "port"), "Did you mean 'server.port'"),
        (("files", "put", "none.pdf", "--tenant", " "), "it names nobody"),
        (("import", "none.json", "--tenant", ""), "it names nobody"),
        (("keys", "--config", "none.yaml"), "required: action"),
        (("--config", "none.yaml", "keys", "list"), "none.yaml: No such file"),
        (("trail", "export", "--after", "9" * 20), "--after"),
        (("trail", "verify", "--from", "9" * 20, "--digest", "00" * 32), "--from"),
    ],
)
def test_s13_9_arguments_that_cannot_be_used(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    done = gateway_command(*arguments, directory=tmp_path, env={"GATEWAY_STORAGE_URL": "sqlite:///none.db"})
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["ls", "show", "tail", "audit"])
def test_s13_9_no_storage(tmp_path: Path, postgres: Postgres, name: str) -> None:
    """Unreachable or not there: exit code 1, clear words of what the database says, no password, and nothing is
    made."""
    path = tmp_path / "gateway.db"
    more = ("conv_1",) if name == "show" else ()
    urls = {
        f"sqlite:///{path}": "There is no database file",
        "postgresql+asyncpg://someone:database-secret@127.0.0.1:1/none": "cannot be reached. ([Errno 111]",
        postgres.admin_url.rpartition("/")[0] + "/nowhere": 'database "nowhere" does not exist)',
    }
    for url, words in urls.items():
        config = config_file(tmp_path, f"storage: {{url: '{url}'}}")
        done = gateway_command(name, *more, "--config", str(config), directory=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
        assert "secret" not in done.stderr
    assert not path.exists()


@pytest.mark.parametrize(("output", "status", "said"), [(">/dev/full", 1, "No space left"), (">&-", 0, "")])
def test_s13_9_an_output_that_takes_nothing(tmp_path: Path, output: str, status: int, said: str) -> None:
    """A full disk is told in a line, and a closed output is none; neither is a traceback."""
    line = f"exec {sys.executable} -W error -m gateway config --all {output}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=scrubbed_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("arguments", [("ls",), ("tail", "--lines", "5"), ("audit", "--csv")])
def test_s13_9_a_reader_who_has_seen_enough(shop: Shop, arguments: tuple[str, ...]) -> None:
    """`gateway ls | head` ends quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    named = [*arguments, "--config", str(shop.gateway.config_path)]
    with open(writing, "wb") as output, tempfile.TemporaryFile() as errors:
        ended = shared_fork_server().start(named, scrubbed_environment(), shop.gateway.directory, output, errors)
        assert ended.wait(60) == 1
        errors.seek(0)
        assert errors.read() == b""


ASKED = {
    "bash": "%s\nCOMP_WORDS=({words}); COMP_CWORD={number}; _gateway; printf '%%s\\n' \"${{COMPREPLY[@]}}\"",
    "zsh": 'compdef() {{ }}; _files() {{ }}; compadd() {{ shift; print -l -- "$@"; (( $# )) }}\n%s\n'
    "words=({words}); CURRENT={number}+1; _gateway",
    "fish": "%s\ncomplete -C '{line}'",
}
"""What makes each shell say what it would offer; that of zsh has no terminal here."""


def completed(shell: str, directory: Path, line: str) -> list[str]:
    """What a shell offers behind a line, with the script of `gateway completion`."""
    script = gateway_command("completion", shell, directory=directory)
    assert (script.returncode, script.stderr) == (0, "")
    words = " ".join(f"'{word}'" for word in line.split(" "))
    ask = ASKED[shell].format(words=words, number=line.count(" "), line=line) % script.stdout
    done = subprocess.run([shell, "-c", ask], capture_output=True, text=True, check=True, cwd=directory)
    assert done.stderr == ""
    begun = line.rpartition(" ")[2]
    return [word for word in done.stdout.split() if word.startswith(begun)]


def shells() -> list[Any]:
    """Those for which there are scripts; who has not one of them leaves it out."""
    return [pytest.param(name, marks=pytest.mark.skipif(not which(name), reason=f"no {name} here")) for name in ASKED]


@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gateway au", ["audit"]),
        ("gateway keys re", ["revoke"]),
        ("gateway keys update key_1 --cl", ["--clear"]),
        ("gateway keys update key_1 --clear ro", ["roles"]),
        ("gateway completion b", ["bash"]),
        ("gateway completion --", ["--help"]),
        ("gateway trail list --c", ["--config", "--csv"]),
        ("gateway ls --config ", []),
        ("gateway ls conv_1 --us", ["--user"]),
        ("gateway serve nothing-", []),
    ],
)
def test_s13_9_a_shell_completes_what_the_parser_takes(
    tmp_path: Path, shell: str, line: str, offered: list[str]
) -> None:
    """Commands, options, their choices; what is a file or a free word is left to the shell."""
    assert sorted(completed(shell, tmp_path, line)) == sorted(offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_s13_9_each_script_knows_every_command(tmp_path: Path, shell: str) -> None:
    """Without a configuration or a storage; another shell is refused."""
    script = gateway_command("completion", shell, directory=tmp_path).stdout
    assert all(f'"{name}"' in script for name in (" keys create", " files ls", " trail verify", " encrypt", " show"))
    assert "--older-than" in script
    assert list(tmp_path.iterdir()) == []
    assert gateway_command("completion", "cmd", directory=tmp_path).returncode == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_s13_9_a_long_command_counts_on_a_terminal_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§13.9: while somebody else writes to the storage, and gone at the end; a pipe gets the result alone."""
    config = config_file(tmp_path, f"storage: {{url: 'sqlite+aiosqlite:///{tmp_path}/own.db'}}\n")
    assert gateway_command("migrate", "--config", str(config), directory=tmp_path).returncode == 0
    purging = ["purge", "--user", "ann", "--config", str(config)]
    err, out = _Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", out)
    held = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(main, purging)
        wait_until(lambda: "\rpurging: 0 conversations, 0 s" in err.getvalue(), "the line")
        held.execute("ROLLBACK")
        assert done.result(60) == 0
    held.close()
    assert err.getvalue().endswith(" \r")
    assert out.getvalue().startswith("0 conversations: deleted\n")
    piped = gateway_command(*purging, directory=tmp_path)
    assert (piped.returncode, piped.stderr, piped.stdout) == (0, "", out.getvalue())
