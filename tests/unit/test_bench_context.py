"""The context benchmark measures what it names: both contexts of a session are under the clock."""

import asyncio
import gc
from pathlib import Path

import pytest

from benchmarks.context.__main__ import measure
from gateway.context.build import RequestRanking


@pytest.mark.long
def test_each_context_of_a_session_is_under_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestRanking, "run", RequestRanking.run)  # put back afterwards
    gc.freeze()  # each session ends with a collection, which need not look at what other tests have left
    figures = asyncio.run(measure(20_000, 1, tmp_path))
    assert min(figures["cold_p50_ms"], figures["again_p50_ms"]) > 0
