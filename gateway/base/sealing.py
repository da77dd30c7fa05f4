"""Texts that only this gateway can make and read: encrypted, and authenticated as a whole.

Encrypt-then-MAC of the standard library's parts: SHAKE-256 of key and nonce is the key stream, keyed BLAKE2b the tag.
The nonce is a keyed digest of the text, so that no two texts share a key stream, whatever the system's randomness is
worth; that the same text is sealed the same tells a client nothing that it did not know.
"""

import hashlib
import hmac
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

VERSION = b"\x01"
NONCE_BYTES, TAG_BYTES = 16, 32
MOST_BYTES = 2**20
"""Of an opened text: a small sealed one may not unfold to a large one."""


def seal(key: bytes, purpose: bytes, text: bytes) -> str:
    """The text, sealed, in letters that may stand in JSON and URLs.

    Args:
        key: any secret.
        purpose: for what and whom: it opens for the same alone. At most what `hashlib` hashes; it is not kept secret.
    """
    nonce_key, stream_key, tag_key = _keys(key, purpose)
    packed = zlib.compress(text, 6)
    nonce = hashlib.blake2b(packed, key=nonce_key, digest_size=NONCE_BYTES).digest()
    hidden = VERSION + nonce + _xor(packed, stream_key, nonce)
    return urlsafe_b64encode(hidden + _tag(tag_key, hidden)).decode()


def unsealed(key: bytes, purpose: bytes, sealed: str) -> bytes | None:
    """What was sealed; None where that was not with this key and purpose, or is not as it was."""
    try:
        raw = urlsafe_b64decode(sealed.encode("ascii"))
    except ValueError:
        return None
    hidden, tag = raw[:-TAG_BYTES], raw[-TAG_BYTES:]
    _, stream_key, tag_key = _keys(key, purpose)
    if hidden[:1] != VERSION or len(hidden) <= NONCE_BYTES or not hmac.compare_digest(_tag(tag_key, hidden), tag):
        return None
    nonce, text = hidden[1 : 1 + NONCE_BYTES], hidden[1 + NONCE_BYTES :]
    reader = zlib.decompressobj()
    found = reader.decompress(_xor(text, stream_key, nonce), MOST_BYTES)
    return found if reader.eof else None


def _keys(key: bytes, purpose: bytes) -> tuple[bytes, bytes, bytes]:
    """Of the nonce, the key stream and the tag, each for itself."""
    main = hmac.digest(key, purpose, "sha256")
    nonce, stream, tag = (hmac.digest(main, name, "sha256") for name in (b"nonce", b"stream", b"tag"))
    return nonce, stream, tag


def _tag(key: bytes, hidden: bytes) -> bytes:
    return hashlib.blake2b(hidden, key=key, digest_size=TAG_BYTES).digest()


def _xor(text: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key + nonce).digest(len(text))
    return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(text), "big")
