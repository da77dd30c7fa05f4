"""Stores on a database of the module's own, migrated once; tests keep apart by tenants of their own. Gateways and their
providers are in memory where whole APIs and contexts are looked at."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.lookup.path_cache import PathCache, StorageCaches
from gateway.storage.store import ConversationStore
from tests.conftest import Kinds
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.team import Team

TENANTS = itertools.count()


@pytest.fixture
def tenant() -> str:
    """Nobody else's."""
    return f"tenant-{next(TENANTS)}"


@pytest.fixture
async def transactions(module_storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """The module's database, on the current schema."""
    opened = open_transactions(StorageSettings(url=module_storage_url))
    yield opened
    await opened.close()


@pytest.fixture
def store(transactions: DatabaseTransactions) -> ConversationStore:
    """The store under test, as one process has it."""
    clock = SystemClock()
    return ConversationStore(transactions, clock, caches=StorageCaches(paths=PathCache(2**24, clock)))


@pytest.fixture
async def other_store(module_storage_url: str, store: ConversationStore) -> AsyncIterator[ConversationStore]:
    """The same storage as a second process has it."""
    opened = open_transactions(StorageSettings(url=module_storage_url))
    yield ConversationStore(opened, SystemClock())
    await opened.close()


@pytest.fixture
def team(gateway: GatewayProcess, upstream: MockUpstream) -> Iterator[Team]:
    """Agents of one conversation."""
    found = Team(gateway, upstream)
    with found.client:
        yield found


@pytest.fixture(scope="module")
def kinds(kinds: Kinds, request: pytest.FixtureRequest) -> Iterator[Kinds]:
    """In memory below `apis` and `context`: no process, no socket. What makes parts of its own has real providers."""
    if request.path.parent.name not in ("apis", "context"):
        yield kinds
        return
    from tests.support.gateway_here import GatewayHere, UpstreamHere, answer_in_memory, documents_read_here

    answer_in_memory()
    with documents_read_here():
        yield GatewayHere, UpstreamHere
