"""Contents as they are stored: sealed in pieces where `storage.encryption_key` is set (guarantee §12.11)."""

import hashlib
from collections.abc import AsyncIterator

from gateway.core import errors, ids
from gateway.core.types.files import SEALED_ENDING
from gateway.storage.encryption import SEALED_MORE, KeyVault

SEALED_PIECE = 2**20
LENGTH_BYTES = 4
"""Bytes that hold the length of the sealed piece after them."""


def object_name(tenant: str, vault: KeyVault | None) -> str:
    """Creates a name for a content of this tenant's, with the id of its key (`ContentPlace.sealed_under`)."""
    folder = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    key = vault.current if vault is not None else None
    return f"{folder}/{ids.new_id('obj_')}{f'.{key}{SEALED_ENDING}' if key is not None else ''}"


async def sealed(pieces: AsyncIterator[bytes], name: str, vault: KeyVault) -> AsyncIterator[bytes]:
    """Seals each piece, bound to the content, its number, and whether it is last: none can be removed or moved."""
    buffer, number = bytearray(), 0
    async for piece in pieces:
        buffer += piece
        while len(buffer) > SEALED_PIECE:
            yield _framed(vault, bytes(buffer[:SEALED_PIECE]), _bound(name, number, is_last=False))
            del buffer[:SEALED_PIECE]
            number += 1
    yield _framed(vault, bytes(buffer), _bound(name, number, is_last=True))


def start_of(number: int) -> int:
    """Returns the position of the piece with that number in a sealed content: all but the last are of one size."""
    return number * (LENGTH_BYTES + SEALED_PIECE + SEALED_MORE)


async def opened(
    pieces: AsyncIterator[bytes], name: str, vault: KeyVault | None, number: int = 0
) -> AsyncIterator[bytes]:
    """Decrypts a sealed content; `pieces` begin with the piece of this number.
    Raises ContentUnreadable: a piece is under a key that is not here, was changed, or is missing."""
    buffer, ended = bytearray(), False
    async for piece in pieces:
        buffer += piece
        while len(buffer) >= LENGTH_BYTES and len(buffer) >= LENGTH_BYTES + (
            size := int.from_bytes(buffer[:LENGTH_BYTES], "big")
        ):
            value = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + size])
            del buffer[: LENGTH_BYTES + size]
            found = _open(vault, value, _bound(name, number, is_last=False))
            if found is None and not ended:
                found = _open(vault, value, _bound(name, number, is_last=True))
                ended = found is not None
            if found is None:
                raise errors.ContentUnreadable(
                    "A file's content cannot be decrypted: its key is missing, or it was changed."
                )
            number += 1
            yield found
    if not ended or buffer:
        raise errors.ContentUnreadable("A file's content cannot be decrypted: it was cut.")


def _bound(name: str, number: int, *, is_last: bool) -> str:
    return f"file {name} {number} {'last' if is_last else 'more'}"


def _framed(vault: KeyVault, piece: bytes, bound: str) -> bytes:
    value = vault.seal_bytes(piece, bound)
    return len(value).to_bytes(LENGTH_BYTES, "big") + value


def _open(vault: KeyVault | None, value: bytes, bound: str) -> bytes | None:
    return vault.open_bytes(value, bound) if vault is not None else None
