"""The gateway with its SQLite's work counted: rows that queries gave, steps of its virtual machine, and statements.

    python -m benchmarks.history.counted serve …

The counts stand in the file that COUNTED_FILE names, three numbers of 64 bits. Counting slows it down: time is measured
apart. Its WAL file is never folded back into the database, so that its growth is what was written.
"""

import mmap
import os
import sys
from pathlib import Path
from typing import Any

SIZE = 24


def counts(path: Path) -> tuple[int, int, int]:
    """Rows, steps and statements so far."""
    cells = memoryview(path.read_bytes()).cast("Q")
    return cells[0], cells[1], cells[2]


def _count_into(path: Path) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file:
        cells = memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")

    def row(_cursor: Any, values: Any) -> Any:
        cells[0] += 1
        return values

    def step() -> int:
        cells[1] += 1
        return 0

    @event.listens_for(Engine, "before_cursor_execute")
    def _statement(*_: Any) -> None:
        cells[2] += 1

    @event.listens_for(Engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.row_factory = row
        connection.set_progress_handler(step, 1)
        connection.execute("PRAGMA wal_autocheckpoint = 0").close()


if __name__ == "__main__":
    from gateway.cli import main

    _count_into(Path(os.environ["COUNTED_FILE"]))
    sys.exit(main())
