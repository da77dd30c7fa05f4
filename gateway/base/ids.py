"""Identifiers: unguessable where they are handed out, content digests where the same content must be found again."""

import hashlib
import secrets


def new_id(prefix: str) -> str:
    """`prefix` followed by 128 random bits in hex, e.g. `conv_4f0c…`."""
    return prefix + secrets.token_hex(16)


def artifact_id(content: str) -> str:
    """Stable for the same content (guarantee §4): `art_` and 64 bits of the SHA-256 of all but outer white space, which
    is lost and won as a text is pasted, attached, or read from a file."""
    return "art_" + content_digest(content.strip())[:16]


def content_digest(content: str) -> str:
    """SHA-256 in hex of the text's UTF-8 form; lone surrogates are kept apart, never an error."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
