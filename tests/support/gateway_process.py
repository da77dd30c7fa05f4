"""The gateway as its operators run it: a process of its own, on a port, with a configuration file."""

import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.fork_server import ForkServer
from tests.support.process import START_SECONDS, ChildProcess, Closing, free_port, wait_until

GATEWAY = ("-m", "gateway")
REPOSITORY = Path(__file__).resolve().parents[2]
_SCRUBBED_PREFIXES = ("OPENAI_", "GATEWAY_", "CONTEXT_PLANNER_", "SUMMARIZER_", "OTEL_")
_SCRUBBED_NAMES = ("DATABASE_URL", "REDIS_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class GatewayProcess(ChildProcess, Closing):
    """One running `gateway serve`; made but not started until `start` or a `with` block."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        port: int | None = None,
        program: Sequence[str] = GATEWAY,
        fork_server: ForkServer | None = None,
        python: str = sys.executable,
    ) -> None:
        """`config` is what the config file will hold (None: no `--config` at all), `env` goes on top of the
        scrubbed environment, `directory` is for config, log and working files (default: a temporary one),
        `program` is what `python` runs as the `gateway` command. A `fork_server` forks it where that is the same.
        """
        self._own_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="gateway-")) if directory is None else directory
        super().__init__(self.directory / "gateway.log")
        self.port = port or free_port()
        self.env = scrubbed_environment() | dict(env or {})
        self.config = config
        self.config_path = self.directory / "config.yaml"
        self.program = tuple(program)
        self._fork_server = fork_server
        self._python = python

    def __enter__(self) -> Self:
        self.start()
        return self

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL: `…/v1`."""
        return f"{self.url}/v1"

    def start(self) -> None:
        """Write the configuration, start the server and wait until `/health/ready` is 200.

        Raises ProcessError with the end of the log when the server ends or is not ready in time.
        """
        self.spawn_only()
        with httpx.Client(base_url=self.url, trust_env=False, timeout=5) as client:
            self.wait_ready(lambda: _is_ready(client), START_SECONDS, "the gateway")

    def spawn_only(self) -> None:
        """Start without waiting, for tests of a start that fails or takes its time."""
        args = ["serve", "--host", "127.0.0.1", "--port", str(self.port)]
        if self.config is not None:
            self.config_path.write_text(json.dumps(self.config, indent=1), encoding="utf-8")
            args += ["--config", str(self.config_path)]
        if self._fork_server is not None and self.program == GATEWAY and self._fork_server.can(self.env):
            with self.log.open("ab") as output:
                self._child = self._fork_server.fork(args, self.env, self.directory, output)
        else:
            self.spawn([self._python, *self.program, *args], env=self.env, cwd=self.directory)

    def http(self, key: str | None = "sk-test") -> httpx.Client:
        """A plain HTTP client at `…/v1`, for what an SDK does not show."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.base_url, headers=headers, trust_env=False, timeout=30)

    def request(self, method: str, path: str, *, key: str | None = "sk-test", **more: Any) -> httpx.Response:
        """The answer to one request, by a connection of its own; `more` goes to httpx."""
        with self.http(key) as client:
            return client.request(method, path, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.request("DELETE", path, **more)

    def terminate(self, timeout: float = 20.0) -> int:
        """SIGTERM, and the exit code; ProcessError if the server outlives `timeout` seconds."""
        return self.stop(timeout=timeout)

    def restart(self) -> None:
        """End the server if it runs, and start it on the same port, directory and (now current) `config`."""
        if self.alive:
            self.terminate()
        self.start()

    def close(self) -> None:
        """End the server however it is, and remove a directory of our own making."""
        self.kill9()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_lines(self) -> list[dict[str, Any]]:
        """The JSON objects among the lines of the log, over all starts; other lines are left out."""
        parsed: list[dict[str, Any]] = []
        for line in self.log_text().splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                parsed.append(value)
        return parsed

    def logged(self, request_id: str) -> dict[str, Any]:
        """The line of a request, which is written once its answer has been sent."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            lines = (line for line in self.log_lines() if line.get("event") == "request")
            found[:] = [line for line in lines if line.get("request_id") == request_id]
            return bool(found)

        wait_until(is_there, f"the log of {request_id}")
        (line,) = found
        return line

    def log_text(self) -> str:
        """All that the server has printed, to look for what must not be there."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def rss_mb(self) -> float:
        """Resident memory of the server's main process, in MiB."""
        return self._memory_mb("VmRSS:")

    def peak_mb(self) -> float:
        """The most memory that the server's main process ever held, in MiB."""
        return self._memory_mb("VmHWM:")

    def open_files(self) -> int:
        """How many file descriptors the server's main process holds."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _memory_mb(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        raise ProcessLookupError(f"process {self.pid} holds no memory: it has ended")


def scrubbed_environment() -> dict[str, str]:
    """Our environment, this repository's package first, without what configures a gateway or a proxy."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(_SCRUBBED_PREFIXES) and name.upper() not in _SCRUBBED_NAMES
    }
    path = [str(REPOSITORY), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


@functools.cache
def shared_fork_server() -> ForkServer:
    """This process's, which starts when it is first needed."""
    return ForkServer(scrubbed_environment())


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False
