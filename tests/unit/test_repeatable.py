"""The same examples whatever else a process has imported."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = """
import hashlib
from hypothesis import given, settings, strategies as st
drawn = []
@settings(derandomize=True, database=None, max_examples=300)
@given(st.lists(st.integers(0, 10**6)), st.text(), st.floats())
def draw(numbers, text, number):
    drawn.append(repr((numbers, text, number)))
draw()
print(hashlib.sha256("".join(drawn).encode()).hexdigest())
"""
LEAVING_OUT = "from tests.support.repeatable import leave_out_local_constants\nleave_out_local_constants()\n"
MORE = "import gateway.app, gateway.config.settings, tests.support.history_machine\n"


def _examples(before: str) -> str:
    """What a process draws that does this first."""
    command = [sys.executable, "-c", before + EXAMPLES]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("first", [LEAVING_OUT + MORE, MORE + LEAVING_OUT])
def test_what_is_imported_makes_no_other_examples(first: str) -> None:
    assert _examples(first) == _examples(LEAVING_OUT)


def test_it_would_make_others() -> None:
    """What this is done against; if it fails, Hypothesis has come to be repeatable by itself."""
    assert _examples(MORE) != _examples(LEAVING_OUT)
