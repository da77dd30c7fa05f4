"""Stores conversations, bills and all other durable data in SQLite or PostgreSQL; caches in memory or Valkey.

Read first: `store.py` (a turn and its bill in one transaction) and `database/schema.py` (the tables). The only home of
SQLAlchemy, its drivers and redis. Never waits for a model inside a transaction. Whatever reads or writes raises
StorageUnavailable if the storage cannot be reached, or not within its timeout: docstrings do not repeat it.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage import audit_events, keyed_hashes, ledger, stored_files, stored_keys
    from gateway.storage.claims import ClaimStore
    from gateway.storage.entities.entity_store import EntityStore
    from gateway.storage.large_documents import LargeDocuments
    from gateway.storage.lookup.path_cache import KEPT_SECONDS, PathCache
    from gateway.storage.quota.budget_rows import SqlBudgets
    from gateway.storage.quota.local import open_rates
    from gateway.storage.retention import Retention
    from gateway.storage.rows import usd
    from gateway.storage.store import PROBE_SECONDS, ConversationStore
    from gateway.storage.turns import bills
    from gateway.storage.turns.steps import results_apart
    from gateway.storage.ui_sessions import UiSessions
    from gateway.storage.wiring import WiredStorage
else:
    __getattr__ = lazy_face(__name__)
