"""What a key costs: a turn that is committed, and a conversation that is read, with and without one.

`python -m benchmarks.encryption`: microseconds on SQLite, the median of rounds that take turns.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.ids import new_id
from gateway.core.types.conversation import ConversationRef
from gateway.storage.database.migrate import migrate
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import message, turn

KEY = "11" * 32
SIZES = (1_000, 100_000)
ROUNDS = 300
READ_TURNS = 20
"""Turns of the conversation that is read."""


class Side:
    """A storage with a key, or without one."""

    def __init__(self, folder: str, key: str | None, size: int) -> None:
        url = f"sqlite:///{Path(folder) / f'{size}-{key is None}.db'}"
        settings = StorageSettings.model_validate({"url": url, "encryption_key": key})
        self.transactions = open_transactions(settings)
        self.store = ConversationStore(self.transactions, SystemClock())
        self.conversation = new_id("conv_")
        self.text = "lamp " * (size // 5)
        self.commits: list[float] = []
        self.reads: list[float] = []

    async def commit(self, conversation: str, *, created: bool) -> float:
        """Seconds that a turn takes."""
        commit = turn("t", conversation, created=created, new_messages=(message("user", self.text),))
        began = time.perf_counter()
        await self.store.commit(commit)
        return time.perf_counter() - began

    async def read(self) -> float:
        """Seconds that the conversation takes."""
        began = time.perf_counter()
        await self.store.find_conversation("t", ConversationRef(self.conversation), max_bytes=None)
        return time.perf_counter() - began


async def measure(folder: str, size: int) -> None:
    sides = [Side(folder, key, size) for key in (None, KEY)]
    for side in sides:
        await migrate(side.transactions)
        for number in range(READ_TURNS):
            await side.commit(side.conversation, created=not number)
    for _ in range(ROUNDS):
        for side in sides:
            side.commits.append(await side.commit(new_id("conv_"), created=True))
            side.reads.append(await side.read())
    for name in ("commits", "reads"):
        plain, sealed = (1e6 * statistics.median(getattr(side, name)) for side in sides)
        print(f"{size:>7} characters, {name}: {plain:.0f} us, with a key {sealed:.0f} us")
    for side in sides:
        await side.transactions.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            await measure(folder, size)


if __name__ == "__main__":
    asyncio.run(main())
