"""The `gateway` command as a user types it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.gateway_process import scrubbed_environment, shared_fork_server


def gateway_command(
    *arguments: str, directory: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `gateway …` with nothing of ours in its environment; a warning is an error."""
    environment = scrubbed_environment() | dict(env or {})
    fork_server = shared_fork_server()
    if fork_server.can(environment):
        return fork_server.run(arguments, environment, directory)
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gateway", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def config_file(directory: Path, text: str) -> Path:
    """`config.yaml` in `directory`."""
    path = directory / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path
