"""The `gateway` command as a user types it."""

import contextlib
import gc
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

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


def printed(work: Callable[[], object], directory: Path, **environment: str) -> str:
    """What an example prints that speaks through an SDK; in this process, where that is imported already.

    Raises:
        SystemExit: it ends otherwise than well.
    """
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # examples close nothing
        patch.chdir(directory)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            work()
        except SystemExit as end:
            if end.code:
                raise
        gc.collect()
    return output.getvalue()


def config_file(directory: Path, text: str) -> Path:
    """`config.yaml` in `directory`."""
    path = directory / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path
