"""The commands of `deploy/Dockerfile` and `compose.yaml`, run in fresh environments by an unprivileged user.

There need be no daemon: the commands are the Dockerfile's own, with its folders moved below a temporary one.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.container import DEPLOY, Dockerfile, interpolated
from tests.support.mock_upstream import MockUpstream
from tests.support.process import ChildProcess, free_port, run_as

pytestmark = pytest.mark.compat
REPOSITORY = DEPLOY.parent
KEY = "a-long-secret"
KEYS = f"[{{key: {KEY}, tenant: team-a}}]"
ROOTS = ("/opt/gateway", "/opt/build", "/tmp/wheel", "/src")
IMAGE = Dockerfile.read()
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


class Container:
    """The file system of an image, below a folder, and containers of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user = pwd.getpwnam("nobody") if os.getuid() == 0 else None

    def moved(self, text: str) -> str:
        for folder in ROOTS:
            text = text.replace(folder, f"{self.root}{folder}")
        return text

    def build(self) -> None:
        """Runs the first stage: what it copies, and its commands."""
        source = self.root / "src"
        for original in (found for name in IMAGE.copied for found in REPOSITORY.glob(name)):
            copy = source / original.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if original.is_dir():
                shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(original, copy)
        path = f"{self.interpreter()}:{os.environ['PATH']}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        for command in IMAGE.runs[0]:
            done = subprocess.run(
                ["sh", "-ec", self.moved(command)],
                cwd=source,
                env={**environment, **IMAGE.arguments, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        shutil.rmtree(source)  # the last stage has the installed gateway alone

    def interpreter(self) -> Path:
        """The folder of a Python that every user may run, as that of the base image; ours may be in somebody's home."""
        home = self.root / "usr"
        library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
        left_out = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__")
        shutil.copytree(Path(sys.base_prefix) / library, home / library, ignore=left_out)
        (home / library / "site-packages").mkdir()
        for shared in (Path(sys.base_prefix) / "lib").glob("libpython*.so*"):
            shutil.copy(shared, home / "lib")
        (home / "bin").mkdir()
        shutil.copy(Path(sys.executable).resolve(), home / "bin" / "python3")
        (home / "bin" / "python").symlink_to("python3")
        return home / "bin"

    def environment(self, given: Mapping[str, str], port: int) -> dict[str, str]:
        """What a container is started with: the image's environment, what `docker run -e` gives, and a free port."""
        image = {name: self.moved(value) for name, value in IMAGE.environment.items()}
        own = {"HOME": str(self.root), "LD_LIBRARY_PATH": f"{self.root}/usr/lib", "GATEWAY_SERVER_PORT": str(port)}
        return {**image, **given, **own}

    def command(self, *arguments: str) -> list[str]:
        program, *default = IMAGE.command
        return [str(self.root / "opt/gateway/bin" / program), *(arguments or default)]


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    root = Path(tempfile.mkdtemp(prefix="container-"))  # pytest's own folders are closed to other users
    try:
        made = Container(root)
        made.build()
        for folder in (root, *root.rglob("*")):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o755)
        yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def data(container: Container) -> Iterator[Path]:
    """The volume `/data`: all that the user of the image may write to."""
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=container.root))
    if container.user:
        os.chown(folder, container.user.pw_uid, container.user.pw_gid)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Running(ChildProcess):
    """A started container; its log is that of the daemon's."""

    def __init__(self, container: Container, data: Path, given: Mapping[str, str], *arguments: str) -> None:
        super().__init__(container.root / f"{data.name}.log")
        self.port = free_port()
        environment = container.environment(given, self.port)
        self.spawn(container.command(*arguments), env=environment, cwd=data, user=container.user)
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path: str, key: str | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.get(self.url + path, headers=headers, trust_env=False, timeout=30)

    def until_ready(self) -> None:
        def ready() -> bool:
            try:
                return self.get("/health/ready").status_code == 200
            except httpx.TransportError:
                return False

        self.wait_ready(ready, 60, "the container")


def refused(container: Container, data: Path, given: Mapping[str, str], *arguments: str) -> str:
    """The last line of a container that ends with an error."""
    done = subprocess.run(
        container.command(*arguments),
        cwd=data,
        env=container.environment(given, free_port()),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **run_as(container.user),
    )
    assert done.returncode != 0
    assert "sk-own" not in done.stdout + done.stderr
    lines: list[str] = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1]


def test_s8_docker_run_with_an_operators_key_alone_is_refused(container: Container, data: Path) -> None:
    """`docker run -e OPENAI_API_KEY`: anyone who reaches the port could spend it."""
    line = refused(container, data, {"OPENAI_API_KEY": "sk-own"})
    assert "auth.keys" in line
    assert "auth.mode: open" in line


@pytest.mark.parametrize("keys", [{}, {"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_KEYS": KEYS}])
def test_docker_run(container: Container, data: Path, upstream: MockUpstream, keys: dict[str, str]) -> None:
    """With clients' own keys, and with an operator's behind keys of the gateway's; the image's health check agrees."""
    running = Running(container, data, {**keys, "OPENAI_API_BASE": upstream.base_url})
    try:
        running.until_ready()
        assert running.get("/v1/models", KEY).status_code == 200
        assert running.get("/v1/models", "another").status_code == (401 if keys else 200)
        sent = upstream.requests[0].headers["authorization"]
        assert sent == ("Bearer sk-own" if keys else f"Bearer {KEY}")
        assert (data / "context-gateway.db").exists()
        health = [part.replace("8000", str(running.port)) for part in IMAGE.health]
        environment = container.environment({}, running.port)
        subprocess.run([container.root / "opt/gateway/bin" / health[0], *health[1:]], env=environment, check=True)
        assert running.stop(timeout=30) == 0
    finally:
        running.kill9()


def test_compose(container: Container, data: Path, upstream: MockUpstream) -> None:
    """`docker compose up`: the service's command, mounted file and environment, but for the databases' addresses."""
    service = COMPOSE["services"]["gateway"]
    file = container.root / "gateway.yaml"
    shutil.copy(DEPLOY / "gateway.yaml", file)
    file.chmod(0o644)
    (mount,) = (volume.split(":")[1] for volume in service["volumes"])
    command = [str(file) if part == mount else part for part in service["command"]]
    own = {"OPENAI_API_KEY": "sk-own", "OPENAI_API_BASE": upstream.base_url}
    without = interpolated(service["environment"], own) | {"GATEWAY_STORAGE_URL": "", "GATEWAY_CACHE_URL": ""}
    assert "auth.keys" in refused(container, data, without, *command)
    passed = interpolated(service["environment"], {**own, "GATEWAY_AUTH_KEYS": KEYS})
    running = Running(container, data, {**without, "GATEWAY_AUTH_KEYS": passed["GATEWAY_AUTH_KEYS"]}, *command)
    try:
        running.until_ready()
        assert running.get("/v1/models", KEY).status_code == 200
        assert running.get("/v1/models").status_code == 401
    finally:
        running.kill9()
