"""Encryption of stored content at rest (guarantee §12.11, ADR 30)."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage.encryption import rewrite
    from gateway.storage.encryption.columns import SEALED_MORE, KeyVault, open_vault, sealing
else:
    __getattr__ = lazy_face(__name__)
