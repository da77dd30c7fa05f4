"""An orderly end (contract §9): no new requests, time for running ones, then they are cut and their bills are kept."""

import asyncio
import os
import signal
import socket
import threading
from types import FrameType

import uvicorn

from gateway.http.edge import Draining
from gateway.logs import get_logger

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
