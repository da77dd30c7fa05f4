"""Runs the application on uvicorn."""

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
from gateway.telemetry.logs import get_logger

# An orderly end (guarantee §9): no new requests, time for running ones, then they are cut and their bills are kept.


TICK = 0.05
CUT_SECONDS = 2.0
"""How long a request that is cut may take to let go of its upstream."""
HURRIED_SECONDS = 2.0
log = get_logger("gateway.server")


class GracefulServer(uvicorn.Server):
    """After the first signal running requests have `grace` seconds; a second one ends that at once. When they are
    gone, whatever does not let go of the process within `last` seconds is left behind."""

    def __init__(self, config: uvicorn.Config, draining: Draining, grace: float, last: float) -> None:
        super().__init__(config)
        self._draining = draining
        self._grace = grace
        self._last = last
        self._hurried = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: an orderly end. Second: without a grace. Third: whatever is lost."""
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
            await asyncio.sleep(TICK)
            waited += TICK
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
    """Ends the process by then, even if a thread of a library is stuck: threads that wait for a database that does
    not answer would otherwise keep it alive for ever."""

    def leave() -> None:
        log.warning("end_forced", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def ignore_reraised_signal() -> None:
    """uvicorn raises the signal that ended it once more; a gateway that was asked to stop and did, ends with 0."""
    signal.signal(signal.SIGTERM, lambda *_: None)


MOST_FILES = 65_536
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


def _raise_file_limit() -> int:
    """As many files as the system grants: the usual soft limit of 1,024 is for programs that use `select`.

    Returns the limit. Half of it is for clients; the other half is kept for upstreams and the storage, so that a
    flood of connections cannot take from the requests that are under way what they need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


def bind_address(settings: Settings) -> str:
    """The address to listen on: loopback only where anyone could spend the operator's money (guarantee §8)."""
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
