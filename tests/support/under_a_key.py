"""A plugin of pytest: every database that a test opens has the same key. `pytest -p tests.support.under_a_key`."""

from collections.abc import Iterator

import pytest

from gateway.storage.database import sqlite
from gateway.storage.encryption.columns import KeyVault


@pytest.fixture(autouse=True, scope="module")
def _under_a_key() -> Iterator[None]:
    vault = KeyVault(b"k" * 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "open_vault", lambda _: vault)
        yield
