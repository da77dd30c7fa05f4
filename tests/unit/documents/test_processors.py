"""How many documents are read at once (guarantee §14.4)."""

import os
from pathlib import Path

import pytest

from gateway.documents.process import processors


@pytest.mark.parametrize(
    ("quota", "count"), [("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1), ("x", 8), ("900000 100000", 8)]
)
def test_s14_4_a_container_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, count: int
) -> None:
    """§14.4."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(quota)
    assert processors(tmp_path / "cpu.max") == count
    assert processors(tmp_path / "none") == 8
