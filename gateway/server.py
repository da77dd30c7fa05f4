"""Runs the application on uvicorn, and ends it in order (guarantee §9, ADR 18)."""

import asyncio
import ipaddress
import os
import resource
import signal
import socket
import threading
from types import FrameType

import uvicorn

from gateway import __version__
from gateway.app import create_app
from gateway.config.settings import Settings
from gateway.http.edge import Draining
from gateway.http.protocol import limited
from gateway.telemetry import logs

TICK_SECONDS = 0.05
"""Between two looks at whether running requests have ended."""
CUT_SECONDS = 2.0
"""How long a request that is cut may take to let go of its upstream."""
HURRIED_SECONDS = 2.0
"""How long the process may take to end after a second signal."""
MAX_FILES = 65_536
log = logs.get_logger("gateway.server")


def serve(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT; running requests then get `server.shutdown_grace` seconds. Returns 0."""
    logs.configure(settings.server.log_level)
    for warning in settings.warnings:
        log.warning("configuration", warning=warning)
    host = bind_address(settings)
    files = _raise_file_limit()
    draining = Draining()
    config = uvicorn.Config(
        create_app(settings, draining),
        host=host,
        port=settings.server.port,
        http=limited(settings.server, max_connections=max(16, files // 2 - 32)),
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
    server = GracefulServer(config, draining, settings.server.shutdown_grace, 5.0 + 4 * settings.storage.timeout)
    log.info("serving", version=__version__, host=host, port=settings.server.port, models=len(settings.model_list))
    ignore_reraised_signal()
    try:
        server.run()
    except KeyboardInterrupt:
        return 0
    return 0 if server.started else 1


class GracefulServer(uvicorn.Server):
    """After the first signal running requests have `grace` seconds, then they are cut; a second signal cuts them at
    once. The process then ends within `last` seconds, whatever is still at work in it."""

    def __init__(self, config: uvicorn.Config, draining: Draining, grace: float, last: float) -> None:
        super().__init__(config)
        self._draining = draining
        self._grace = grace
        self._last = last
        self._hurried = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: an orderly end. Second: without the grace. Third: at once."""
        if self._hurried:
            os._exit(128 + sig)
        if self._draining.begun:
            self._hurried = True
            leave_after(HURRIED_SECONDS)
            return
        self._draining.begun = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the port and idle connections, waits for running requests, cuts the rest, and lets the application
        write what is still to be written."""
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
            task.cancel()
        await asyncio.wait(running, timeout=CUT_SECONDS)


def leave_after(seconds: float) -> None:
    """Ends the process after that time, even if a library's thread still waits for a database that does not answer."""

    def leave() -> None:
        log.warning("end_forced", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def ignore_reraised_signal() -> None:
    """uvicorn raises the signal that ended it once more. A gateway that stopped when it was asked to ends with 0."""
    signal.signal(signal.SIGTERM, lambda *_: None)


def _raise_file_limit() -> int:
    """Raises the limit of open files as far as the system allows, and returns it. The usual 1,024 is for `select`.

    Half of the files are for clients, half for upstreams and the storage, so that a flood of connections cannot starve
    running requests.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < raised:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        return raised
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft


def bind_address(settings: Settings) -> str:
    """The address to listen on: loopback alone if any client could spend the operator's money (guarantee §8)."""
    host = settings.server.host
    exposed = settings.has_operator_key() and not settings.auth.keys and settings.auth.mode != "open"
    if exposed and not _is_loopback(host):
        log.warning("bound_to_loopback", asked_for=host, reason="an operator's key is configured, auth.keys are not")
        return "127.0.0.1"
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
