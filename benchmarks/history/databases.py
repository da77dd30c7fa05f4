"""The two databases, and what they say of the work that was done in them."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from benchmarks.history.counted import counts
from benchmarks.processor import cpu_ns
from tests.support.gateway_process import GatewayProcess
from tests.support.postgres import PostgresProcess
from tests.support.process import wait_until
from tests.support.services import own_postgres

COUNTED = ("-m", "benchmarks.history.counted")
READ = """SELECT coalesce(sum(seq_tup_read), 0) + coalesce(sum(idx_tup_fetch), 0) AS rows,
    coalesce(sum(seq_scan), 0) AS scans, pg_current_wal_insert_lsn() - '0/0' AS written FROM pg_stat_user_tables"""
END_OTHERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
OTHERS = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

OTHER_CONVERSATIONS = """INSERT INTO conversations (id, tenant, attachments, created_at, updated_at)
    SELECT 'conv_' || n, 'somebody', 0, now(), now() FROM generate_series(1, 20000) n"""


@dataclass(frozen=True)
class Work:
    """What a database has done: rows read, bytes written; `steps` of SQLite's machine, or whole scans of a table;
    `statements`, where they are counted."""

    rows: int
    steps: int
    written: int
    statements: int = 0

    def __sub__(self, other: "Work") -> "Work":
        statements = self.statements - other.statements
        return Work(self.rows - other.rows, self.steps - other.steps, self.written - other.written, statements)


class Database(Protocol):
    """An empty database and its counters."""

    name: str
    url: str
    steps: str
    """What `Work.steps` counts."""

    def cpu_ns(self) -> int:
        """Processor time of the database's own processes."""
        ...

    def counting(self, config: dict[str, Any], folder: Path) -> GatewayProcess:
        """A gateway, not yet started, whose work `work` counts."""
        ...

    def work(self) -> Work:
        """All that was done so far."""
        ...

    def analyse(self) -> None:
        """What a database does by itself from time to time: it is not to happen while something is measured."""
        ...


class Sqlite:
    """A file. It works within the gateway's process."""

    name = "sqlite"
    steps = "VM steps"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "history.db"
        self._counts = folder / "counts"
        self.url = f"sqlite:///{self._file}"

    def cpu_ns(self) -> int:
        """See `Database`."""
        return 0

    def counting(self, config: dict[str, Any], folder: Path) -> GatewayProcess:
        """See `Database`. What an earlier gateway wrote is folded into the database."""
        if self._file.exists():  # to open it would make an empty one, which the gateway refuses
            connection = sqlite3.connect(self._file)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            connection.close()
        return GatewayProcess(config, {"COUNTED_FILE": str(self._counts)}, directory=folder, program=COUNTED)

    def work(self) -> Work:
        """See `Database`."""
        rows, steps, statements = counts(self._counts)
        return Work(rows, steps, self._file.with_name("history.db-wal").stat().st_size, statements)

    def analyse(self) -> None:
        """See `Database`."""


class OwnPostgres:
    """A database on a server of our own."""

    name = "postgres"
    steps = "table scans"

    def __init__(self, server: PostgresProcess) -> None:
        self._server = server
        self.url = server.new_database()
        self._used: dict[int, int] = {}
        self.execute("ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")

    def execute(self, *statements: str) -> None:
        """Runs statements one by one, each in a transaction of its own."""

        async def run() -> None:
            connection = await asyncpg.connect(self.url.replace("+asyncpg", "", 1))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())

    def cpu_ns(self) -> int:
        """See `Database`. Of processes that have ended it knows what they had used when last looked at."""
        listed = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text("ascii")
        for pid in map(int, listed.split()):
            with contextlib.suppress(OSError):
                self._used[pid] = cpu_ns(pid)
        return sum(self._used.values())

    def counting(self, config: dict[str, Any], folder: Path) -> GatewayProcess:
        """See `Database`."""
        return GatewayProcess(config, directory=folder)

    def work(self) -> Work:
        """See `Database`. Backends report what they have done at the latest when they end."""
        self._server.query(self.url, END_OTHERS)
        wait_until(lambda: self._server.query(self.url, OTHERS)[0]["n"] == 0, "the end of the connections")
        row = self._server.query(self.url, READ)[0]
        return Work(int(row["rows"]), int(row["scans"]), int(row["written"]))

    def analyse(self) -> None:
        """See `Database`. Small tables are read whole, whatever index there is: this is to be no small database."""
        self.execute(OTHER_CONVERSATIONS, "VACUUM ANALYZE", "CHECKPOINT")


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Database]:
    """An empty database of that name."""
    if name == "sqlite":
        yield Sqlite(folder)
    else:
        with own_postgres() as server:
            yield OwnPostgres(server)
