"""Stored replays: what was asked for, and their progress. A turn and the replay's progress are committed together
(`storage/turns/write_turn.py`), so that nothing is paid for twice."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, jsons, names, ports
from gateway.core.types import past_turns
from gateway.storage import rows
from gateway.storage.conversations.item_store import require_conversation
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new
from gateway.storage.encryption.columns import for_row

TABLE, CONVERSATIONS = schema.replays, schema.conversations
HELD_FOR = timedelta(seconds=60)
"""How long a process holds a replay after its last sign of life."""


class ReplayStore:
    """Stores replays; each method is one short transaction."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def begin(self, tenant: str, replay: past_turns.ReplayRun) -> None:
        """Stores a new replay, held by the caller.
        Raises ConversationNotFound: the tenant has no such conversation; ReplayRunning: a replay of that id exists."""
        now = self._clock.now()
        row = {
            "id": replay.replay_id,
            **jsons.picked(replay, "conversation_id", "source_id", "from_turn", "to_turn"),
            "asked": jsons.dumps_stored(replay.asked.as_json()),
            "used_until": now + HELD_FOR,
            "created_at": now,
            "updated_at": now,
        }

        def work(connection: sa.Connection) -> None:
            require_conversation(connection, tenant, replay.conversation_id, lock=True)
            if connection.execute(insert_if_new(connection, TABLE).values(**for_row(TABLE, row))).rowcount != 1:
                raise errors.ReplayRunning

        await self._transactions.run(work, write=True)

    async def find(self, tenant: str, conversation_id: str, replay_id: str) -> past_turns.ReplayRun:
        """Returns a replay. Raises ConversationNotFound: the tenant has no such conversation; ReplayNotFound: the
        conversation has no such replay."""
        found = await self.find_begun(tenant, conversation_id, replay_id)
        if found is None:
            raise errors.ReplayNotFound("No such replay of this conversation.", param="replay_id")
        return found

    async def find_unspoilt(self, tenant: str, conversation_id: str, replay_id: str) -> past_turns.ReplayRun:
        """Returns a replay that may be continued. Raises as `find`, and ReplayNotFound if something of the conversation
        was deleted since the replay began: it might be asked again."""
        found, table = await self.find(tenant, conversation_id, replay_id), CONVERSATIONS.c
        spoilt = sa.select(table.id).where(table.id == conversation_id, table.forgotten_at >= found.created_at)
        if await self._transactions.run(lambda connection: connection.execute(spoilt).first()) is not None:
            raise errors.ReplayNotFound(past_turns.SPOILT, param="replay_id")
        return found

    async def find_begun(self, tenant: str, conversation_id: str, replay_id: str) -> past_turns.ReplayRun | None:
        """Returns a replay; None if the conversation has no such replay.
        Raises ConversationNotFound: the tenant has no such conversation."""

        def work(connection: sa.Connection) -> Any:
            require_conversation(connection, tenant, conversation_id)
            where = (TABLE.c.id == replay_id, TABLE.c.conversation_id == conversation_id)
            return connection.execute(sa.select(TABLE).where(*where)).first()

        row = await self._transactions.run(work) if not names.has_nul(replay_id) else None
        return _replay(row) if row is not None else None

    async def take(self, replay: past_turns.ReplayRun) -> past_turns.ReplayRun:
        """Holds a replay for the caller; returns its present state.
        Raises ReplayRunning: another process is running it; ReplayNotFound: it was deleted."""
        now = self._clock.now()
        own = TABLE.c.id == replay.replay_id
        is_free = sa.or_(TABLE.c.used_until.is_(None), TABLE.c.used_until < now)

        def work(connection: sa.Connection) -> tuple[bool, Any]:
            taken = connection.execute(TABLE.update().where(own, is_free).values(used_until=now + HELD_FOR)).rowcount
            return taken == 1, connection.execute(sa.select(TABLE).where(own)).first()

        taken, row = await self._transactions.run(work, write=True)
        if row is None:
            raise errors.ReplayNotFound("No such replay of this conversation.", param="replay_id")
        if not taken:
            raise errors.ReplayRunning
        return _replay(row)

    async def hold(self, replay_id: str) -> None:
        """Extends the hold of the process that runs the replay."""
        await self._set(replay_id, used_until=self._clock.now() + HELD_FOR)

    async def release(self, replay_id: str) -> None:
        """Ends the hold on a replay."""
        await self._set(replay_id, used_until=None)

    async def drop(self, replay_id: str) -> None:
        query = TABLE.delete().where(TABLE.c.id == replay_id, TABLE.c.at_id.is_(None))
        await self._transactions.run(lambda connection: connection.execute(query).rowcount, write=True)

    async def move_head(self, replay: past_turns.ReplayRun) -> bool:
        """Makes the replay's branch the conversation's current one, unless the conversation has moved on from the
        replayed branch. Returns whether it is."""
        table, now = CONVERSATIONS, self._clock.now()
        at = sa.select(TABLE.c.at_id).where(TABLE.c.id == replay.replay_id).scalar_subquery()
        stands = table.c.head_id.in_([replay.source_id, replay.at_id])
        query = table.update().where(table.c.id == replay.conversation_id, stands, at.is_not(None))
        changed = query.values(head_id=at, updated_at=now)
        return await self._transactions.run(lambda connection: connection.execute(changed).rowcount == 1, write=True)

    async def _set(self, replay_id: str, **values: Any) -> None:
        query = TABLE.update().where(TABLE.c.id == replay_id).values(**values)
        await self._transactions.run(lambda connection: connection.execute(query).rowcount, write=True)


def _replay(row: Any) -> past_turns.ReplayRun:
    asked = past_turns.ReplayChanges(**jsons.loads_stored(row.asked))
    return past_turns.ReplayRun(
        **rows.alike(row, past_turns.ReplayRun, "replay_id", "asked"), replay_id=row.id, asked=asked
    )
