"""`make demo` as a whole, with the real local model: every answer is right, and its passage is printed."""

import re
import subprocess
import sys

import pytest

from tests.support.gateway_process import REPOSITORY

pytestmark = pytest.mark.compat
SECONDS = 3600
"""Only what hangs is to end: two idle cores take ten seconds, and busy ones have taken 400."""


def test_s9_the_demo_persuades() -> None:
    """§9: with no key and no service: a document, a follow-up and a stream, each with its passage, answer and bill."""
    command = [sys.executable, str(REPOSITORY / "deploy" / "demo" / "run.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=REPOSITORY)
    told = done.stdout
    assert done.returncode == 0, told + done.stderr
    assert told.endswith("demo: ok\n")
    alone, *asked = re.split(r"^-- [0-3]\. .*$", told, flags=re.MULTILINE)[1:]
    assert re.search(r"refused +400: .*exceeds", alone)
    assert "wrong: the handbook says" in alone, "without the gateway the model cannot know"
    for part, fact in zip(asked, ("nine hours", "Copper Heron", "Petrel"), strict=True):
        plain = " ".join(part.split())
        for label in ("answer", "shown"):
            assert re.search(rf"\b{label} [^|]*?{fact}", plain), label
        assert "checked right" in plain
        assert re.search(r"cost [\d.]+ prompt \+ [\d.]+ completion = [\d.]+ USD", plain)
