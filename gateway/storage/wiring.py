"""Wires the storage: the database, the caches in front of it, and the stores of each kind of row."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING

from gateway.core import ports
from gateway.core.clock import AgreedClock
from gateway.core.config.settings import Settings
from gateway.storage import audit_events, stored_files, stored_keys
from gateway.storage.cache.frame_cache import FrameCache
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.calibrations import SqlCalibrations
from gateway.storage.claims import ClaimStore
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.reading import PastReader
from gateway.storage.conversations.replay_store import ReplayStore
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import sqlite
from gateway.storage.encryption.columns import open_vault
from gateway.storage.entities.entity_store import EntityStore
from gateway.storage.large_documents import ArrivingTexts, LargeDocuments
from gateway.storage.lookup.path_cache import PathCache, StorageCaches
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore

if TYPE_CHECKING:
    import sqlalchemy as sa


class WiredStorage:
    """Holds the storage of one process: the database, its caches, and the stores of each kind of row. `Gateway` makes
    it first; it connects to nothing before its first use."""

    def __init__(
        self,
        settings: Settings,
        clock: ports.Clock,
        *,
        on_evict: Callable[[str], None],
        also_forget: Callable[..., None],
    ) -> None:
        """`on_evict`: called with each group that the cache evicts; `also_forget`: called after a conversation was
        deleted."""
        cached, chars = settings.cache, settings.documents.index_chars
        self._clock = clock
        self.transactions = transactions = sqlite.open_transactions(settings.storage)
        self.cache = open_cache(cached, clock, open_vault(settings.storage), on_evict)
        self.paths = PathCache(cached.half_of_conversations, clock, cached.conversation_ttl, also_forget=also_forget)
        self.texts_arrived = asyncio.Event()
        """Set when a document is to be indexed."""
        self.store = ConversationStore(
            transactions,
            clock,
            caches=StorageCaches(self.cache, self.paths),
            retention_days=settings.conversation.retention_days,
            users=settings.accounting.users,
            arriving=ArrivingTexts(transactions, clock, chars, self.texts_arrived.set),
        )
        self.large = LargeDocuments(transactions, clock)
        self.things = EntityStore(transactions, clock, self.store.secret, self.cache, self.paths)
        self.retention = Retention(transactions, clock, self.cache, self.paths)
        self.claims = ClaimStore(transactions, clock)
        self.calibrations = SqlCalibrations(transactions)
        self.file_rows = stored_files.FileRows(transactions, clock, self.cache, self.paths)
        self.keys = stored_keys.KeyStore(transactions, clock, self.store.secret)
        self.records = ConversationRecords(transactions, clock, self.cache, self.paths)
        self.past = PastReader(transactions)
        self.replays = ReplayStore(transactions, clock)
        self.transfer = ConversationTransfer(transactions, clock, chars, self.texts_arrived.set)
        self.trail = audit_events.AuditLog(transactions, clock, is_strict=settings.auth.wants_keys)
        self.frames = FrameCache(self.cache if cached.url else None, clock, cached.frame_ttl, cached.frame_bytes)

    async def agree_on_time(self) -> None:
        """Sets the processes' clock to the time of the database that they share.
        Raises StorageUnavailable: it cannot be reached; the clock goes on."""
        if self.transactions.remote and isinstance(self._clock, AgreedClock):
            self._clock.agree(*await self.transactions.run(_time_of))


def _time_of(connection: "sa.Connection") -> tuple[datetime, float]:
    """Reads the database's time, and the monotonic time at which it was that."""
    began = monotonic()
    now = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    return now, (began + monotonic()) / 2
