"""Seals texts that clients hold, for one purpose and one tenant. The module is imported when the first text is sealed
or opened, so that no start waits for the cipher.

The cipher is AES-256-SIV (RFC 5297), which needs no nonce: no two texts share a key stream, however weak the system's
randomness is. Equal texts have equal seals, which tells a client nothing new.
"""

import hashlib
import hmac
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEAL_VERSION = b"\x02"
MAX_OPENED_BYTES = 2**20
"""Limit of an opened text: a small sealed text must not decompress to a large one."""
OLD_VERSION = b"\x01"
OLD_NONCE_BYTES, OLD_TAG_BYTES = 16, 32


def seal(key: bytes, purpose: bytes, text: bytes) -> str:
    """Seals a text and returns it in URL-safe base64.
    `key`: any secret. `purpose`: what and whom the text is for; only the same purpose opens it. It is not secret."""
    sealed = _cipher(key, purpose).encrypt(zlib.compress(text, 6), [SEAL_VERSION])
    return urlsafe_b64encode(SEAL_VERSION + sealed).decode()


def unsealed(key: bytes, purpose: bytes, sealed: str) -> bytes | None:
    """Opens a sealed text; returns None if it was sealed with another key or purpose, or was altered."""
    try:
        raw = urlsafe_b64decode(sealed.encode("ascii"))
        if raw[:1] == OLD_VERSION:
            packed = _opened_as_before(hmac.digest(key, purpose, "sha256"), raw)
        else:
            packed = _cipher(key, purpose).decrypt(raw[1:], [raw[:1]])
    except (ValueError, InvalidTag):
        return None
    reader = zlib.decompressobj()
    found = reader.decompress(packed, MAX_OPENED_BYTES)
    return found if reader.eof else None


def _cipher(key: bytes, purpose: bytes) -> AESSIV:
    info = b"context-gateway sealing\0" + purpose
    return AESSIV(HKDF(SHA256(), length=64, salt=None, info=info).derive(key))


def _opened_as_before(main: bytes, raw: bytes) -> bytes:
    """Opens a text in the format before version 2, which clients still hold: a SHAKE-256 stream under a BLAKE2b tag.
    Nothing is sealed this way any more.
    Raises ValueError: the text was sealed with another key, or was altered."""
    hidden, tag = raw[:-OLD_TAG_BYTES], raw[-OLD_TAG_BYTES:]
    stream_key, tag_key = (hmac.digest(main, name, "sha256") for name in (b"stream", b"tag"))
    known = hashlib.blake2b(hidden, key=tag_key, digest_size=OLD_TAG_BYTES).digest()
    if len(hidden) <= 1 + OLD_NONCE_BYTES or not hmac.compare_digest(known, tag):
        raise ValueError("changed, or sealed for somebody else")
    nonce, text = hidden[1 : 1 + OLD_NONCE_BYTES], hidden[1 + OLD_NONCE_BYTES :]
    stream = hashlib.shake_256(stream_key + nonce).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))
