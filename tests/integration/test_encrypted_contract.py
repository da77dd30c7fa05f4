"""The suites of the storage once more, on content that is encrypted under a key (guarantee §12.11)."""

import pytest

from gateway.storage import ledger
from gateway.storage.database import engine
from gateway.storage.encryption.vault import Vault
from tests.integration.test_store_contract import *  # noqa: F403


@pytest.fixture(autouse=True)
def _under_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a database here has the same key."""
    vault = Vault(b"k" * 32)
    for module in (engine, ledger):
        monkeypatch.setattr(module, "open_vault", lambda _: vault)
