"""Gateways that are wrong on purpose, so that it can be seen that the kill loops notice.

    python -m tests.chaos.broken serve …

BROKEN names what is wrong. Each fault is a short gap between two things that belong together: without a kill in it
nobody would notice.
"""

import asyncio
import os
import sys
from typing import Any

from gateway.storage.store import ConversationStore
from gateway.storage.turns import bills
from gateway.storage.turns import write_turn as write

GAP = 0.02
KINDS = ("acknowledged before the commit", "bill and turn apart", "links apart", "recognition apart")


def _acknowledge_before_the_commit() -> None:
    commit = ConversationStore.commit
    later: set[Any] = set()

    async def at_once(self: ConversationStore, turn: Any) -> None:
        async def work() -> None:
            await asyncio.sleep(GAP / 10)
            await commit(self, turn)

        later.add(asyncio.ensure_future(work()))

    ConversationStore.commit = at_once  # type: ignore[method-assign,assignment]


def _apart(module: Any, name: str) -> None:
    """What `module.name` writes is written in a transaction of its own, a moment after everything else."""
    write_it = getattr(module, name)
    put_off: list[Any] = []
    setattr(module, name, lambda _connection, *rest: put_off.append(rest) or ())  # type: ignore[func-returns-value]
    together = ConversationStore._write

    async def in_two(self: ConversationStore, items: Any) -> None:
        await together(self, items)
        mine, put_off[:] = put_off[:], []
        await asyncio.sleep(GAP)

        def rest_of_it(connection: Any) -> None:
            for rest in mine:
                write_it(connection, *rest)

        await self._transactions.run(rest_of_it, write=True)

    ConversationStore._write = in_two  # type: ignore[method-assign]


def _break(kind: str) -> None:
    if kind == "acknowledged before the commit":
        _acknowledge_before_the_commit()
    elif kind == "bill and turn apart":
        _apart(write, "_write_turn")
    elif kind == "links apart":
        _apart(write, "write_links")
    elif kind == "recognition apart":
        _apart(bills, "INSERT_CHAINS")
    else:
        raise ValueError(f"nobody knows how to break it by {kind!r}")


if __name__ == "__main__":
    from gateway.cli import main

    _break(os.environ["BROKEN"])
    sys.exit(main())
