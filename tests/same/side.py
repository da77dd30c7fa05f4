"""One checkout's gateways with their provider, and a client that notes all that comes of its requests."""

import json
import os
import select
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.same.normal import Names, told
from tests.same.provider import MARK, Fate, Provider, is_primary
from tests.same.settings import SECRET, configurations
from tests.support.gateway_process import GatewayProcess, scrubbed_environment
from tests.support.http_server import Record
from tests.support.process import Closing, wait_until

Json = dict[str, Any]
IDLE_SECONDS = 0.004
"""Between two looks at a gateway that is to have nothing more to do."""
NAP_SECONDS = 0.5
"""A thread that sleeps for a time, as SQLite does at a lock, and for longer than this, always does."""
LEAVE_SECONDS = 3.0
"""How long whoever leaves in the middle waits for the word at which to go: it may be held back."""


@dataclass(frozen=True)
class Got:
    """An answer as its client got it."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Json:
        """The body as an object; empty where it is none."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def ok(self) -> bool:
        return self.status == 200


@dataclass
class Entry:
    """One request of a case: what is said of it, what went upstream, and what came back."""

    request: str
    forwarded: list[Json]
    internal: list[Json]
    answer: Json
    violations: list[str] = field(default_factory=list)


class Side(Closing):
    """The gateways of one checkout; each is started when it is first needed."""

    def __init__(self, checkout: Path, directory: Path, provider: Provider) -> None:
        """`provider` is both sides', so that its address is the same; they play one after the other."""
        self.checkout = checkout
        self.provider = provider
        self.names = Names()
        self.entries: list[Entry] = []
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._configured = configurations(self.provider.upstream, directory)
        self._gateways: dict[str, GatewayProcess] = {}
        self._empty = directory / "empty.db"
        self._client = httpx.Client(trust_env=False, timeout=60)
        self._now: GatewayProcess | None = None
        self._dozing: set[str] = set()
        self.key = ""

    def close(self) -> None:
        self.stop()
        self._client.close()

    def stop(self) -> dict[str, Path]:
        """Ends all gateways; the files of their storages."""
        for gateway in self._gateways.values():
            if gateway.alive:
                gateway.terminate()  # an orderly end: what still waits is written
        return {name: self.directory / f"{name}.db" for name in self._gateways}

    def begin(self, case: str, world: str, key: str) -> None:
        """A case begins, at the gateway of that name; what it asks, it asks with `key`."""
        if world not in self._gateways:
            self._start(world)
        self._now = self._gateways[world]
        self.names.begin(case)
        self.provider.begin(case)
        self.entries, self.key = [], key

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *fates: Fate,
        leave: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Sends one request, waits until nothing more comes of it, and notes all.
        `fates`: of the calls of the primary model; `leave`: `early`: before the answer begins; `middle`: behind the
        word that a stalled stream ends with."""
        assert self._now is not None
        self.provider.expects(*fates)
        sent = {"authorization": f"Bearer {key or self.key}", "content-type": "application/json", **(headers or {})}
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        patience = LEAVE_SECONDS if leave == "middle" else 60.0
        url = self._now.url + path
        request = self._client.build_request(method, url, content=content, headers=sent, timeout=patience)
        got = self._left(request) if leave == "early" else self._answered(request, leaves=leave == "middle")
        self._settle()
        self._note(f"{method} {path} {content.decode('utf-8', 'surrogatepass')}", got, headers)
        return got

    def upload(self, name: str, data: bytes, purpose: str = "user_data") -> Got:
        """Uploads a file."""
        assert self._now is not None
        sent = {"authorization": f"Bearer {self.key}"}
        files = {"file": (name, data, "text/plain")}
        answer = self._client.post(self._now.url + "/v1/files", headers=sent, files=files, data={"purpose": purpose})
        got = Got(answer.status_code, dict(answer.headers), answer.text)
        self._settle()
        self._note(f"POST /v1/files {name}", got)
        return got

    def _answered(self, request: httpx.Request, *, leaves: bool) -> Got:
        try:
            answer = self._client.send(request, stream=True)
        except httpx.TransportError as error:
            return Got(0, {}, type(error).__name__)
        text = b""
        try:
            for piece in answer.iter_raw():
                text += piece
                if leaves and MARK.encode() in text:
                    break
            else:
                leaves = False
        except httpx.TransportError as error:
            text += f"\n\n{type(error).__name__}".encode()
        finally:
            answer.close()
        return Got(answer.status_code, dict(answer.headers), "(left)" if leaves else text.decode("utf-8", "replace"))

    def _left(self, request: httpx.Request) -> Got:
        """Goes once the provider was asked and does not answer, or the gateway answers all the same."""
        head = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in request.headers.items()]
        with socket.create_connection((request.url.host, request.url.port)) as peer:
            peer.sendall("\r\n".join([*head, "", ""]).encode() + request.content)
            peer.setblocking(False)

            def is_time() -> bool:
                asked = any(map(is_primary, [*self.provider.upstream.requests]))
                return asked or bool(select.select([peer], [], [], 0)[0])

            wait_until(is_time, "a call of the model")
            answered = select.select([peer], [], [], 0)[0]
            status = int(peer.recv(65536).split()[1]) if answered else 0
        return Got(status, {}, "(left early)")

    def _note(self, request: str, got: Got, sent: Mapping[str, str] | None = None) -> None:
        primary, internal = self.provider.taken()
        said = self.names.said
        forwarded = [self._forwarded(each) for each in primary]
        beside = sorted((self._forwarded(each) for each in internal), key=lambda each: str(each["body"]))
        answer = {"status": got.status, "headers": told(got.headers, self.names), "body": said(got.text)}
        request = said(f"{request} {sent or ''}".strip())
        self.entries.append(Entry(request, forwarded, beside, answer, [*self.provider.upstream.violations]))

    def _forwarded(self, record: Record) -> Json:
        body = self.names.said(record.raw.decode("utf-8", "backslashreplace"))
        sent = told(record.headers, self.names)
        return {"path": f"{record.method} {record.path} {record.query}".strip(), "headers": sent, "body": body}

    def _settle(self) -> None:
        """Waits until the gateway sleeps, and all that it has asked for is answered."""
        assert self._now is not None
        pid = self._now.pid
        provider = next(each.native_id for each in threading.enumerate() if each.name == "mock-upstream")
        before, since = (-1, -1), 0.0

        def is_idle() -> bool:
            nonlocal before, since
            (ran, sleeps, naps), (answered, waits, _) = _activity(pid), _activity(os.getpid(), str(provider))
            if (ran, answered) != before:
                before, since = (ran, answered), time.monotonic()
                return False
            if time.monotonic() > since + NAP_SECONDS:
                self._dozing |= naps
            return sleeps and waits and naps <= self._dozing and not self.provider.upstream.in_flight

        wait_until(is_idle, "nothing more to do", interval=IDLE_SECONDS)

    def _start(self, name: str) -> None:
        directory = self.directory / name
        directory.mkdir()
        python = str(self.checkout / ".venv" / "bin" / "python")
        _, *more = scrubbed_environment()["PYTHONPATH"].split(os.pathsep)
        env = {"PYTHONPATH": os.pathsep.join([str(self.checkout), *more]), "PYTHONDONTWRITEBYTECODE": ""}
        program = (str(Path(__file__).with_name("steady.py")),)
        gateway = GatewayProcess(self._configured[name], env, directory=directory, python=python, program=program)
        gateway.config_path.write_text(json.dumps(gateway.config), encoding="utf-8")
        storage = self.directory / f"{name}.db"
        if self._empty.exists():
            shutil.copy(self._empty, storage)
        else:
            command = [python, *program, "migrate", "--config", str(gateway.config_path)]
            subprocess.run(command, env=gateway.env, cwd=directory, check=True, capture_output=True)
            with closing(sqlite3.connect(storage)) as database, database:
                database.execute("INSERT OR REPLACE INTO secrets (name, value) VALUES ('keyed-hash', ?)", (SECRET,))
            shutil.copy(storage, self._empty)
        self._gateways[name] = gateway  # to be ended, too, if this is
        gateway.start()
        self.names.places[gateway.url] = "http://GATEWAY"
        self.names.places[gateway.url.removeprefix("http://")] = "GATEWAY"


def _activity(pid: int, thread: str = "*") -> tuple[int, bool, set[str]]:
    """Nanoseconds that a process and its children have run, or one of its threads; whether all of them sleep; and
    which threads do so for a time."""
    ran, sleep, naps = 0, True, set[str]()
    for task in Path(f"/proc/{pid}/task").glob(thread):
        try:
            ran += int((task / "schedstat").read_text().split()[0])
            sleep = sleep and (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"
            if "nanosleep" in (task / "wchan").read_text():
                naps.add(task.name)
            children = (task / "children").read_text().split() if thread == "*" else ()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            return -2, False, naps
        for child in children:
            if Path(f"/proc/{child}").exists():
                more, asleep, napping = _activity(int(child))
                ran, sleep, naps = ran + more, sleep and asleep, naps | napping
    return ran, sleep, naps
