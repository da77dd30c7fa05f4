"""Of workers that are forked nothing is lost: neither a failure nor a test, whatever a test does to its process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "test_breaks": """
import os

def test_before(): pass
def test_breaks_down(): os._exit(7)
def test_after(kept): pass
""",
    "test_fails": """
def test_passes(tmp_path, kept): assert not list(tmp_path.iterdir())
def test_fails(): print('printed'); assert 1 == 2
""",
    "conftest": """
import pytest

@pytest.fixture(scope="session")
def kept():
    yield
    raise ValueError("at the end")
""",
}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pytest-xdist runs all tests")
def test_what_breaks_down_fails_and_what_came_behind_it_runs(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    options = ["-p", "xdist", "-p", "tests.support.forked_workers", "-n2", "--dist=loadfile"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, f"--rootdir={tmp_path}", str(tmp_path)],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "2 failed, 3 passed, 2 errors" in ran.stdout, ran.stdout + ran.stderr
    assert "its worker ended with 7" in ran.stdout
    assert "printed" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
