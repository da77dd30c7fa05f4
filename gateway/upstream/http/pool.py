"""The pool of connections to upstreams: opened when needed, kept while they are used, never more than a limit."""

import asyncio
import contextlib
import ssl
from collections import deque

import httpx

from gateway.upstream.http.connection import UpstreamConnection
from gateway.upstream.http.connection_faults import ConnectionOrigin, why_not_connected

KEEP_ALIVE_SECONDS = 30.0
"""How long an idle connection is kept."""


class ConnectionPool:
    """Hands out connections. The latest used comes first, so that the others grow old and leave."""

    def __init__(self, max_connections: int, keep_alive: float = KEEP_ALIVE_SECONDS) -> None:
        self._max_connections = max_connections
        self._keep_alive = keep_alive
        self._idle: dict[ConnectionOrigin, list[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None

    @property
    def size(self) -> int:
        """How many connections are open or being opened."""
        return len(self._open) + self._opening

    async def take(
        self,
        origin: ConnectionOrigin,
        connect_seconds: float | None,
        wait_seconds: float | None,
        *,
        fresh: bool = False,
    ) -> UpstreamConnection:
        """A connection of one's own until its `close()`.
        `fresh`: not one that has been used before.
        Raises httpx.ConnectError, httpx.ConnectTimeout: it could not be opened; httpx.PoolTimeout: all are in use, and
        none became free within `wait_seconds`."""
        while True:
            connection = None if fresh else self._take_idle(origin)
            if connection is not None:
                return connection
            if self.size < self._max_connections:
                return await self._connect(origin, connect_seconds)
            await self._room(wait_seconds)

    def give_back(self, connection: UpstreamConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keep_alive, self._sweep)
        if self._waiting:
            self._invite()

    def forget(self, connection: UpstreamConnection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._leave_idle(connection)
        self._invite()

    async def prepare(self) -> None:
        """Reads the certificates, for which the first connection by TLS would otherwise wait."""
        await self._context()

    async def aclose(self) -> None:
        """Closes all connections at once."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            self.forget(connection)
            connection.abort()
        await asyncio.sleep(0)

    def _take_idle(self, origin: ConnectionOrigin) -> UpstreamConnection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            self.forget(connection)
        return None

    async def _connect(self, origin: ConnectionOrigin, seconds: float | None) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        host, port, secure = origin
        self._opening += 1
        try:
            async with asyncio.timeout(seconds):
                context = await self._context() if secure else None
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self, origin),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if secure else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("The upstream did not accept a connection in time.") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is none
            raise httpx.ConnectError(why_not_connected(error)) from error
        finally:
            self._opening -= 1
            self._invite()
        self._open.add(connection)
        return connection

    async def _context(self) -> ssl.SSLContext:
        if self._trust is None:  # reading the certificates takes a while
            self._trust = await asyncio.to_thread(_default_trust)
        return self._trust

    async def _room(self, seconds: float | None) -> None:
        """Returns once another connection may be opened or one is free."""
        self._evict()
        if self.size < self._max_connections:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError as error:
            raise httpx.PoolTimeout("All connections to upstreams are in use.") from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._invite()  # the turn was given, and is not taken
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _evict(self) -> None:
        """Closes the connection that has been idle longest."""
        oldest = min((c for idle in self._idle.values() for c in idle), key=lambda c: c.idle_since, default=None)
        if oldest is not None:
            self.forget(oldest)
            oldest.abort()

    def _invite(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _leave_idle(self, connection: UpstreamConnection) -> None:
        idle = self._idle.get(connection.origin, [])
        if connection in idle:
            idle.remove(connection)

    def _sweep(self) -> None:
        """Closes what has not been used for a while."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        before = loop.time() - self._keep_alive
        for origin, idle in list(self._idle.items()):
            for connection in [c for c in idle if c.idle_since <= before]:
                self.forget(connection)
                connection.abort()
            if not idle:
                del self._idle[origin]
        if self._idle:
            self._sweeper = loop.call_later(self._keep_alive / 4, self._sweep)


def _default_trust() -> ssl.SSLContext:
    """The system's certificates and those that come with certifi: slim images have none of their own."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
