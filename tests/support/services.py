"""Real PostgreSQL and Valkey for tests, from PyPI wheels, or those that the environment names."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.postgres import Postgres, PostgresProcess
from tests.support.valkey import Valkey, ValkeyProcess


@contextlib.contextmanager
def postgres_server() -> Iterator[Postgres]:
    """The server at `TEST_DATABASE_URL` , else one of our own; drops what was made there."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        server = Postgres(url)
        try:
            yield server
        finally:
            server.drop_all()
    else:
        with own_postgres() as process:
            yield process


@contextlib.contextmanager
def own_postgres() -> Iterator[PostgresProcess]:
    """A PostgreSQL from the wheel whatever the environment names, for tests that freeze or kill it."""
    with _directory("postgres-") as directory:
        process = PostgresProcess(directory, first_postgres())
        process.start()
        try:
            yield process
        finally:
            process.stop(signal.SIGQUIT)


@functools.cache
def first_postgres() -> PostgresProcess:
    """One that has ended, with whose data all others begin: making it anew takes half a second of processor time."""
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    atexit.register(_remove_made_by, os.getpid(), directory)
    process = PostgresProcess(directory)
    process.start()
    process.prepare()
    process.stop(signal.SIGINT)
    return process


def _remove_made_by(pid: int, directory: Path) -> None:
    """A worker that was forked since leaves it to others."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def valkey_server() -> Iterator[Valkey]:
    """The server at `TEST_REDIS_URL`, else one of our own."""
    if url := os.environ.get("TEST_REDIS_URL"):
        yield Valkey(url)
    else:
        with own_valkey() as process:
            yield process


@contextlib.contextmanager
def own_valkey() -> Iterator[ValkeyProcess]:
    """A Valkey from the wheel whatever the environment names, for tests that freeze or kill it."""
    with _directory("valkey-") as directory:
        process = ValkeyProcess(directory)
        process.start()
        try:
            yield process
        finally:
            process.kill9()


@contextlib.contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
