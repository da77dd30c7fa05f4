"""A process that has imported the gateway and forks one for each start; `python -m tests.support.forking FD`.

It is told by messages on socket FD what to start, and ends when the other side closes it. A start is a JSON object
`{args, env, cwd, strict}` with three descriptors: what the gateway prints goes to the first, which it also reads
where that is a terminal, its errors to the second; to the third the pid is written in a line, and when the gateway has
ended its exit status in another.
"""

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import stat
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any, NoReturn

from gateway.context.tokens.counter import CounterRegistry
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.types.chat import ModelFacts
from gateway.operations.command_arguments import parser
from gateway.operations.warm_up import warm_up_context
from gateway.upstream.routing.catalogue import ModelCatalogue

IMPORTED = (
    *("gateway.cli", "gateway.app", "alembic.command", "uvicorn.loops.uvloop", "uvloop"),
    *("sqlalchemy.ext.asyncio", "asyncpg", "gateway.context.tokens.counter", "gateway.retrieval.rank", "numpy.ma"),
    *("redis.asyncio", "gateway.storage.quota.library_rates", "prometheus_client.core"),
    *(
        "gateway.operations.audit",
        "gateway.operations.check",
        "gateway.operations.transfer_commands",
        "gateway.operations.purge",
    ),
    *("rich.console", "rich.table", "rich.text"),
)
"""What every gateway imports until it serves; what one imports as soon as it stores in PostgreSQL, has a cache in
Valkey, or has more to send than surely fits (that it does not sooner, `tests/integration/test_lazy_loading.py` sees
to); and the other commands."""
MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Child:
    """A gateway that runs, and where its end is told."""

    pid: int
    pidfd: int
    told: int

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self.told)


def main(control: socket.socket) -> None:
    """Returns when there is nobody left to start gateways for; does not return in a gateway."""
    for name in IMPORTED:
        importlib.import_module(name)
    _rehearse()
    ModelCatalogue().load()
    gc.freeze()
    start = _serve(control)
    if start is not None:
        try:
            runpy.run_module("gateway", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            _end(ended.code)


def _rehearse() -> None:
    """What each gateway does anew for its arguments, and before its first answers: what is compiled and loaded for
    that takes it as long as half of its start; how long, `make bench` says."""
    parser()
    asyncio.run(warm_up_context(Settings(), ModelFacts("gpt-4o"), CounterRegistry(), SystemClock()))


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """None at the end; in a forked process what it is to run, with nothing left of ours."""
    children: dict[int, Child] = {}
    while True:
        ready = select.poll()
        for descriptor in (control.fileno(), *children):
            ready.register(descriptor, select.POLLIN)
        for descriptor, _ in ready.poll():
            if descriptor in children:
                _tell_end(children.pop(descriptor))
                continue
            message, (*descriptors,), _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
            if not message:
                return None
            start, (output, errors, told) = json.loads(message), descriptors
            if pid := os.fork():
                os.close(output)
                os.close(errors)
                child = Child(pid, os.pidfd_open(pid), told)
                children[child.pidfd] = child
                os.write(told, b"%d\n" % pid)
                continue
            os.close(told)
            control.close()
            for child in children.values():
                child.close()
            _become(start, output, errors)
            return dict(start)


def _tell_end(child: Child) -> None:
    _, status = os.waitpid(child.pid, 0)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it
        os.write(child.told, b"%d\n" % os.waitstatus_to_exitcode(status))
    child.close()


def _become(start: dict[str, Any], output: int, errors: int) -> None:
    """What `subprocess` does between fork and exec: a session, a directory, an environment, three descriptors; and
    what `-W error` would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets ignore it what runs in the background
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
    os.setsid()
    os.chdir(start["cwd"])
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((output if os.isatty(output) else null, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
    for source in (null, output, errors):
        os.close(source)
    os.environ.clear()
    os.environ.update(start["env"])
    sys.path[1:1] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    sys.argv = list(start["args"])
    if not stat.S_ISREG(os.fstat(1).st_mode):  # this process's own streams may have been made for a file
        streams = (open(n, how, 1, encoding="utf-8", closefd=False) for n, how in enumerate("rww"))  # noqa: SIM115
        sys.stdin, sys.stdout, sys.stderr = streams
    if start["strict"]:
        warnings.simplefilter("error")


def _end(code: str | int | None) -> NoReturn:
    """Ends the process as an interpreter does, but for clearing up in memory, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
