"""`operations/progress.py`: a line that counts (guarantee §13.9)."""

import io

import pytest

from gateway.operations.progress import CommandProgress
from tests.support.process import wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_counts_and_is_gone_at_the_end() -> None:
    err = Terminal()
    with CommandProgress(err, "reading", "rows", wait=0.001) as told:
        told(1200)
        told()
        wait_until(lambda: "reading: 1,201 rows, 0 s" in err.getvalue(), "the count")
    assert err.getvalue().endswith(" \r")


@pytest.mark.parametrize(("err", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_elsewhere_nothing_is_written(err: io.StringIO, quiet: bool) -> None:
    with CommandProgress(err, "reading", quiet=quiet, wait=0.0) as told:
        told(5)
        told.wipe()
    assert err.getvalue() == ""
