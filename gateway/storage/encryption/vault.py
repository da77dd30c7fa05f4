"""Seals and opens what people and models wrote: AES-256-GCM, under a key of its own for each column (ADR 30).

A sealed text says by its beginning that it is one and under which key. Its column and its row are authenticated with
it, so that it opens nowhere else.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Any

from gateway.core.config.storage_settings import StorageSettings, key_bytes
from gateway.core.errors import ContentUnreadable

PREFIX = "\x1aenc1:"
"""How sealed texts begin. JSON cannot begin so, and nobody's words do by chance."""
ID_BYTES = 6
ID_CHARS = 2 * ID_BYTES
HEAD = len(PREFIX) + ID_CHARS
"""Characters that say that a text is sealed, and under which key."""
OF_ROW, OF_COLUMN = "r", "c"
"""What is authenticated with a text: its column and row, or its column alone, where its writer did not name a row."""
NONCE, TAG = 12, 16
SEALED_MORE = HEAD + NONCE + TAG
"""Bytes that a sealed value of the cache's has more than the value."""
DIGEST_CHARS = 40
CACHED = "cache"


class KeyVault:
    """The keys of one storage. Without a current key it reads, and leaves plain what is written."""

    def __init__(self, current: bytes | None, before: Sequence[bytes] = ()) -> None:
        keys = [*([current] if current is not None else []), *before]
        self._keys = {key_id(key): key for key in reversed(keys)}
        self.current = key_id(current) if current is not None else None
        self._ciphers: dict[tuple[str, str], Any] = {}

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys, the current one first."""
        first = (self.current,) if self.current is not None else ()
        return (*first, *(each for each in self._keys if each != self.current))

    @property
    def head(self) -> str:
        """How texts begin that are sealed under the current key; "" without one."""
        return f"{PREFIX}{self.current}" if self.current is not None else ""

    def seal(self, text: str, column: str, row: str | None) -> str:
        """A text for the storage; as it is without a current key."""
        if self.current is None:
            return text
        bound = OF_COLUMN if row is None else OF_ROW
        nonce = os.urandom(NONCE)
        sealed = self._cipher(self.current, column).encrypt(nonce, text.encode("utf-8"), _bound_to(column, row))
        return f"{PREFIX}{self.current}{bound}{base64.b64encode(nonce + sealed).decode('ascii')}"

    def open(self, text: str, column: str, row: str | None) -> str:
        """The text that was sealed; one that is not sealed as it is.

        Raises:
            ContentUnreadable: it is under a key that is not here, was changed, or is not of this column and row.
        """
        if not text.startswith(PREFIX):
            return text
        name, bound = text[len(PREFIX) : HEAD], text[HEAD : HEAD + 1]
        if name not in self._keys:
            raise ContentUnreadable(f"Stored content is encrypted under a key that is not configured ({name}).")
        try:
            sealed = base64.b64decode(text[HEAD + 1 :], validate=True)
            known = _bound_to(column, row if bound == OF_ROW else None)
            opened: bytes = self._cipher(name, column).decrypt(sealed[:NONCE], sealed[NONCE:], known)
            return opened.decode("utf-8")
        except Exception as error:
            text = "Stored content cannot be decrypted: it was changed, or belongs elsewhere."
            raise ContentUnreadable(text) from error

    def seal_bytes(self, value: bytes, name: str) -> bytes:
        """A value for the cache, where it is called `name`; as it is without a current key."""
        if self.current is None:
            return value
        nonce = os.urandom(NONCE)
        sealed: bytes = self._cipher(self.current, CACHED).encrypt(nonce, value, name.encode("utf-8"))
        return self.head.encode("ascii") + nonce + sealed

    def open_bytes(self, value: bytes, name: str) -> bytes | None:
        """The value that was sealed under that name; None for any other, which the cache counts as unknown."""
        if self.current is None and not value.startswith(PREFIX.encode("ascii")):
            return value
        key = value[len(PREFIX) : HEAD].decode("ascii", "replace")
        if not value.startswith(PREFIX.encode("ascii")) or key not in self._keys:
            return None
        try:
            nonce, sealed = value[HEAD : HEAD + NONCE], value[HEAD + NONCE :]
            opened: bytes = self._cipher(key, CACHED).decrypt(nonce, sealed, name.encode("utf-8"))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is made anew
            return None
        return opened

    def word(self, text: str, tenant: str) -> str:
        """What stands for a word of a tenant's by which things are found: a keyed digest with as many blanks; the word
        itself without a current key."""
        return text if self.current is None else self._digest(self.current, text, tenant)

    def words(self, text: str, tenant: str) -> tuple[str, ...]:
        """All that may stand for it: under each key, and the word itself, as it was written before there was a key."""
        return (*(self._digest(each, text, tenant) for each in self.key_ids), text)

    def _digest(self, name: str, text: str, tenant: str) -> str:
        key = derived(self._keys[name], "words")
        found = hmac.digest(key, f"{tenant}\0{text}".encode("utf-8", "surrogatepass"), "sha256").hex()
        return f"{PREFIX}{name}{found[:DIGEST_CHARS]}{' ' * text.count(' ')}"

    def _cipher(self, name: str, column: str) -> Any:
        cipher = self._ciphers.get((name, column))
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            cipher = self._ciphers[name, column] = AESGCM(derived(self._keys[name], f"column {column}"))
        return cipher


def derived(key: bytes, purpose: str) -> bytes:
    """A key for one purpose: HKDF-SHA256 without a salt, one block (RFC 5869)."""
    extracted = hmac.digest(b"\0" * hashlib.sha256().digest_size, key, "sha256")
    return hmac.digest(extracted, f"context-gateway storage {purpose}".encode() + b"\x01", "sha256")


def key_id(key: bytes) -> str:
    """What a key is called: hex digits that tell nothing of it."""
    return derived(key, "id")[:ID_BYTES].hex()


def open_vault(settings: StorageSettings) -> KeyVault | None:
    """The keys that the settings name; None if they name none."""
    key, before = settings.encryption_key, settings.encryption_keys_before
    if key is None and not before:
        return None
    return KeyVault(key_bytes(key) if key is not None else None, [key_bytes(each) for each in before])


def _bound_to(column: str, row: str | None) -> bytes:
    return (column if row is None else f"{column}\0{row}").encode("utf-8")
