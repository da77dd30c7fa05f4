"""Runs the application on uvicorn, and shuts it down gracefully (guarantee §9, ADR 18)."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from gateway import __version__
from gateway.api import App, ShutdownState, protocol
from gateway.core import errors, printing
from gateway.core.config import exposure
from gateway.core.config.loading import ConfigurationError
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs, metrics
from gateway.core.instrumentation.metrics import SharedCounts
from gateway.inspection import settings_in_force

TICK_SECONDS = 0.05
"""Between two checks whether running requests have ended."""
CUT_SECONDS = 2.0
"""How long a cancelled request may take to release its upstream."""
HURRIED_SECONDS = 2.0
"""How long the process may take to end after a second signal."""
GC_THRESHOLDS = (10_000, 20, 10)
"""Thresholds of the collector: a request creates thousands of objects, and hardly any cycles."""
MAX_OPEN_FILES = 65_536
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
Places = list[tuple[int, tuple[Any, ...]]]
"""Addresses as `socket.bind` takes them, each with its family."""
log = logs.get_logger("gateway.operations.server")


CreateApp = Callable[[Settings, ShutdownState, SharedCounts | None], App]
"""Makes the ASGI application; with counts, as one of several workers."""


def serve(settings: Settings, create_app: CreateApp, *, colour: bool = False) -> int:
    """Serves until a signal ends it; running requests then get `server.shutdown_grace` seconds. Returns 0, or 1 if the
    server cannot start: the last line of the log gives the reason.
    `colour`: whether a terminal's log may be coloured.
    Raises ConfigurationError: it must not listen on the address (guarantee §8), or have several workers on SQLite."""
    if (reason := exposure.refusal(settings)) is not None:
        raise ConfigurationError(reason)
    logs.configure(settings.server.log_level, settings.server.log_format, colour=colour)
    for warning in settings.warnings:
        log.warning("configuration", warning=warning)
    if unsupported := [fate.path for fate in settings.moved if fate.group == "not supported"]:
        text = f"not supported, and ignored: {', '.join(unsupported)}; `gateway check` says what to do instead"
        log.warning("configuration", warning=text)
    workers = settings.server.workers
    host, port = settings.server.host, settings.server.port
    with contextlib.ExitStack() as held:
        try:
            sockets = bound_sockets(host, port)
            places: Places = [(each.family, each.getsockname()) for each in sockets]
            if workers > 1:
                for each in sockets:  # the port was free; from here on the workers share it
                    each.close()
                held.enter_context(_only_gateway(host, places[0][1][1]))
                for place in places:  # it stays ours while no worker has it
                    held.enter_context(_bound_socket(*place, shared=True))
        except OSError as error:
            reason = f"{host}:{port} cannot be listened on: {error.strerror or error}"
            log.failure("start_failed", reason=reason, hint="another address or port: --host, --port")
            return 1
        return _supervise(settings, create_app, places) if workers > 1 else _serve_on(settings, create_app, sockets)


def _supervise(settings: Settings, create_app: CreateApp, places: Places) -> int:
    """Runs the workers, each with its own sockets on these addresses, until a signal ends them."""
    if settings.cache.url is None:
        log.warning("configuration", warning="cache.url is not set: each worker has a cache of its own")
    grace = settings.server.shutdown_grace + CUT_SECONDS + _last_seconds(settings)

    def work(worker: WorkerFacts) -> int:
        return _serve_on(settings, create_app, [_bound_socket(*place, shared=True) for place in places], worker)

    return WorkerSupervisor(settings.server.workers, work, grace).run()


@contextlib.contextmanager
def _only_gateway(host: str, port: int) -> Iterator[None]:
    """Locks the port: workers of another gateway of this user on this host could share it otherwise.
    Raises OSError: another gateway has it."""
    path = Path(tempfile.gettempdir()) / f"gateway-{os.getuid()}-{host.replace('/', '_')}-{port}.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:  # no place for a lock: only a simultaneous start would need it
        log.warning("port_not_locked", reason=error.strerror or str(error))
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EADDRINUSE, "another gateway's workers have it") from None
        yield
    finally:
        os.close(lock)


def _last_seconds(settings: Settings) -> float:
    """Returns the seconds that pending writes may take after the last request has ended."""
    return 5.0 + 4 * settings.storage.timeout


def _what_is_served(settings: Settings) -> dict[str, Any]:
    """Returns what the log reports at the start: models, or the default upstream, and the path of the web UI."""
    names = list(dict.fromkeys(entry.model_name for entry in settings.model_list))
    upstream = settings_in_force.address(settings.upstream.api_base).partition("?")[0]
    return {
        "models": len(settings.model_list),
        **({"model_names": printing.in_short(names)} if names else {"upstream": upstream}),
        **({"page": "/ui"} if exposure.has_page(settings) else {}),
    }


def _serve_on(
    settings: Settings, create_app: CreateApp, sockets: list[socket.socket], worker: "WorkerFacts | None" = None
) -> int:
    """Serves on these sockets, alone or as one of several workers."""
    gc.freeze()  # else the next collection would look through all that was imported: 90 ms for hardly any cycle
    gc.set_threshold(*GC_THRESHOLDS)
    host, port = settings.server.host, sockets[0].getsockname()[1]
    files = _raise_file_limit()
    draining = ShutdownState()
    config = uvicorn.Config(
        create_app(settings, draining, worker.counts if worker is not None else None),
        host=host,
        port=settings.server.port,
        http=protocol.limited(settings.server, max(16, files // 2 - 32), settings.files.max_bytes),
        ws="none",
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=75,
    )
    server = GracefulServer(
        config, draining, settings.server.shutdown_grace, _last_seconds(settings), is_worker=worker is not None
    )

    def tell() -> None:
        numbered = {"worker": worker.number} if worker is not None else {}
        log.info("serving", version=__version__, host=host, port=port, **_what_is_served(settings), **numbered)
        if worker is not None:
            worker.counts.serves()
            asyncio.get_running_loop().add_reader(worker.lifeline, server.orphaned, worker.lifeline)
        if (worker is None or not worker.number) and (keys := exposure.operators_keys(settings)):
            text = f"everyone who reaches {host} spends the operator's key of {keys}: auth.keys are not set"
            log.warning("operators_key_is_everyones", host=host, reason=text)

    server.once_started = tell
    for number in ending_signals():
        signal.signal(number, server.end_once)
    try:
        server.run(sockets)
    except SystemExit:  # uvicorn has logged why it could not start
        return 1
    return 0 if server.started else 1


def ending_signals() -> list[signal.Signals]:
    """Lists the signals that end the server in order; a closed terminal's is one, unless `nohup` has it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if ignored else [signal.SIGHUP])]


class GracefulServer(uvicorn.Server):
    """After the first signal, running requests have `grace` seconds; then they are cancelled. A second signal (SIGINT
    for one of several workers) cancels them at once. The process then ends within `last` seconds, whatever still
    runs in it."""

    def __init__(
        self, config: uvicorn.Config, draining: ShutdownState, grace: float, last: float, *, is_worker: bool = False
    ) -> None:
        super().__init__(config)
        self._is_worker = is_worker
        self._draining = draining
        self._grace = grace
        self._last = last
        self._hurried = False
        self.once_started: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server; calls `once_started` when it accepts connections."""
        await super().startup(sockets)
        if self.started:
            self.once_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal. First: graceful shutdown. Second: shutdown without the grace. Third: exit at once."""
        if self._is_worker and sig == signal.SIGTERM and self._draining.begun:
            return  # a sender that signals all processes signals a worker twice
        if self._hurried:
            os._exit(128 + sig)
        if self._draining.begun:
            self._hurried = True
            leave_after(HURRIED_SECONDS)
            return
        self._draining.begun = True
        super().handle_exit(sig, frame)

    def end_once(self, sig: int, frame: FrameType | None) -> None:
        """Begins a graceful shutdown, unless it has begun. Handles the signals that uvicorn does not: one that arrives
        before its start, and the one that ended it, which uvicorn raises again at its end; a gateway that stopped on
        request exits with 0."""
        if not self._draining.begun:
            self.handle_exit(sig, frame)

    def orphaned(self, lifeline: int) -> None:
        """Begins a graceful shutdown of this worker because the process that started it is gone."""
        asyncio.get_running_loop().remove_reader(lifeline)
        self.end_once(signal.SIGTERM, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the port and idle connections, waits for running requests, cancels the rest, and lets the application
        finish its pending writes."""
        self._draining.begun = True
        state = self.server_state
        log.info("shutting_down", running=len(state.tasks))
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(state.connections):
            connection.shutdown()
        waited = 0.0
        while (state.tasks or state.connections) and waited < self._grace and not self._hurried:
            await asyncio.sleep(TICK_SECONDS)
            waited += TICK_SECONDS
        await self._cut()
        leave_after(self._last)
        await self.lifespan.shutdown()
        log.info("shut_down")

    async def _cut(self) -> None:
        running = set(self.server_state.tasks)
        if not running:
            return
        log.warning("requests_cut", requests=len(running))
        for task in running:
            task.cancel(errors.ShuttingDown.code)
        await asyncio.wait(running, timeout=CUT_SECONDS)


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Binds sockets to all addresses of a host, without listening; port 0 means one that is free on the first address.

    The server binds them before anything else, so that a port in use ends the start before storage is touched.
    Raises OSError: the host has no address here, or the port is taken."""
    bound: list[socket.socket] = []
    unusable: OSError | None = None
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
        try:
            chosen = bound[0].getsockname()[1] if bound else port
            bound.append(_bound_socket(family, (place[0], chosen, *place[2:])))
        except OSError as error:
            if error.errno not in NOT_HERE:  # `localhost` has an IPv6 address also where there is no IPv6
                for each in bound:
                    each.close()
                raise
            unusable = error
    if unusable is not None and not bound:
        raise unusable
    return bound


def _bound_socket(family: int, place: tuple[Any, ...], *, shared: bool = False) -> socket.socket:
    """Binds a socket. `shared`: other sockets of this user may share its address; the kernel spreads connections."""
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(place)
    except OSError:
        one.close()
        raise
    return one


def leave_after(seconds: float) -> None:
    """Ends the process after that time, even if a library's thread still waits for a database that does not answer."""

    def leave() -> None:
        log.warning("end_forced", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _raise_file_limit() -> int:
    """Raises the limit of open files as far as the system allows, and returns it. The usual 1,024 suits `select`.

    Half of the files are for clients, half for upstreams and the storage, so that a flood of connections cannot starve
    running requests.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < raised:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        return raised
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


# Several processes behind one port: one for each core to use (`gateway serve --workers N`). The process that starts
# them serves no requests: it restarts a worker that dies, and shuts the workers down gracefully. The kernel distributes
# new connections among them.

MIN_LIFE, MIN_LIFE_FAILED = 5.0, 60.0
"""Seconds that a worker has to live to be restarted without a pause; the second figure is for one that exited with 1,
as after a failed start."""
MAX_PAUSE = 30.0
"""The longest pause, in seconds, before a worker that keeps dying at once is restarted; the first is one second."""
PATIENCE = 5.0
"""Seconds after the workers' own shutdown time at which they are killed."""
workers_log = logs.get_logger("gateway.operations.workers")
Work = Callable[["WorkerFacts"], int]


@record
class WorkerFacts:
    """What a worker knows of the others: its number, the shared counts, and a pipe that closes when the process that
    started it ends."""

    number: int
    counts: SharedCounts
    lifeline: int


@dataclass(slots=True)
class _WorkerSlot:
    """A worker that runs or is to run. `pid`: 0 while it does not run; `due`: when to start it (monotonic)."""

    number: int
    pid: int = 0
    due: float = 0.0
    started: float = 0.0
    pause: float = 1.0


class WorkerSupervisor:
    """Runs workers until a signal asks it to end.
    `work`: the function of a worker, in its own process; returns its exit status; `grace`: seconds within which a
    worker that was asked to end has ended."""

    def __init__(self, count: int, work: Work, grace: float) -> None:
        self._work, self._grace = work, grace
        self._places = [_WorkerSlot(number) for number in range(count)]
        self._signals = 0
        self._heeded = [*ending_signals(), signal.SIGCHLD]
        self._wake_read, self._wake_write = os.pipe()
        self._lifeline_read, self._lifeline_write = os.pipe()

    def run(self) -> int:
        """Runs the workers; returns 0, or 1 if a worker fails before any has served: its log gives the reason."""
        with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
            self._folder = Path(folder)
            for number in self._heeded:
                signal.signal(number, self._heard)
            os.set_blocking(self._wake_read, False)
            os.set_blocking(self._wake_write, False)
            signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
            try:
                return self._supervise()
            finally:
                signal.set_wakeup_fd(-1)

    def _heard(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP:  # a closing terminal sends several: they do not hurry
            self._signals = self._signals or 1
        elif number != signal.SIGCHLD:
            self._signals += 1

    def _supervise(self) -> int:
        while not self._signals:
            now = time.monotonic()
            for place in self._places:
                if not place.pid and place.due <= now:
                    self._start(place)
            self._wait(min([place.due - now for place in self._places if not place.pid], default=MIN_LIFE))
            for place, status in self._ended():
                if status == 1 and not metrics.has_served(self._folder):
                    self._end_all()
                    return 1
                self._revive(place, status)
        return self._end_all()

    def _start(self, place: _WorkerSlot) -> None:
        place.started = time.monotonic()
        # None may arrive before the worker handles signals itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._heeded)
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes: the others go on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._heeded)
            workers_log.warning("worker_not_started", worker=place.number, reason=error.strerror or str(error))
            self._pause(place)
            return
        if pid:
            place.pid = pid
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._heeded)
            return
        status = 1
        try:  # in the worker, which knows nothing of the others
            signal.set_wakeup_fd(-1)
            for number in self._heeded:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._heeded)
            os.setpgid(0, 0)  # Ctrl-C is for the process that started it, which ends it in order
            for each in (self._wake_read, self._wake_write, self._lifeline_write):
                os.close(each)
            counts = SharedCounts(self._folder, f"{place.number}-{os.getpid()}")
            status = self._work(WorkerFacts(place.number, counts, self._lifeline_read))
        except ConfigurationError as error:
            workers_log.failure("start_failed", reason=str(error), worker=place.number)
        except BaseException as fault:  # noqa: BLE001 - a worker must not go on as a second supervisor
            workers_log.fault("worker_failed", fault, worker=place.number)
        finally:
            os._exit(status)

    def _revive(self, place: _WorkerSlot, status: int) -> None:
        lived = time.monotonic() - place.started
        pause = 0.0
        if lived >= (MIN_LIFE_FAILED if status == 1 else MIN_LIFE):
            place.pause, place.due = 1.0, time.monotonic()
        else:
            pause = self._pause(place)
        workers_log.warning("worker_died", worker=place.number, status=status, lived=round(lived, 1), again_in=pause)

    def _pause(self, place: _WorkerSlot) -> float:
        """Delays the next start, longer each time; returns the delay in seconds."""
        pause = place.pause
        place.due, place.pause = time.monotonic() + pause, min(MAX_PAUSE, 2 * pause)
        return pause

    def _ended(self) -> list[tuple[_WorkerSlot, int]]:
        """Returns the workers that ended since the last call, each with its exit status; below zero: its signal."""
        found: list[tuple[_WorkerSlot, int]] = []
        for place in self._places:
            if not place.pid:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                place.pid = 0
                metrics.bury(self._folder, f"{place.number}-{pid}")
                found.append((place, os.waitstatus_to_exitcode(status)))
        return found

    def _end_all(self) -> int:
        """Shuts the workers down gracefully; a second signal hurries them. It is passed on as SIGINT: a worker may also
        get a SIGTERM directly from a sender that signals all processes, as systemd does."""
        passed_on = 0
        deadline = time.monotonic() + self._grace + PATIENCE
        while any(place.pid for place in self._places):
            if passed_on < max(1, self._signals):
                self._send(signal.SIGINT if passed_on else signal.SIGTERM)
                passed_on += 1
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            self._wait(0.5)
            self._ended()
        return 0

    def _send(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.pid, number)

    def _wait(self, seconds: float) -> None:
        """Waits for a signal, at most the given number of seconds."""
        ready, _, _ = select.select([self._wake_read], [], [], max(0.0, seconds))
        if ready:
            os.read(self._wake_read, 512)
