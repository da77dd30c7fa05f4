"""Identifiers: unguessable where they are handed out, content digests where the same content must be found again."""

import hashlib
import os
import time
from collections.abc import Iterator

RANDOM_BYTES = 10
IDS_A_READ = 256
CONVERSATION = "conv_"
ARTIFACT, FILE = "art_", "file-"
"""Prefixes of artifact ids and of file ids, here and at OpenAI; Anthropic's file ids begin with `file_`."""


def new_id(prefix: str) -> str:
    """Makes an id: `prefix`, the Unix time in milliseconds as twelve hex digits, 80 random bits as twenty, e.g.
    `conv_019ab3…`.

    Rows written together are thus adjacent in database indexes; purely random ids would touch a page for each row.
    Nothing reads the time in an id.
    """
    global _random
    try:
        bits = next(_random)
    except StopIteration:
        _random = _read_random()
        bits = next(_random)
    return f"{prefix}{time.time_ns() // 1_000_000:012x}{bits}"


def _read_random() -> Iterator[str]:
    """Reads random bits for many ids at once, since each system read yields the interpreter to other threads."""
    read = os.urandom(RANDOM_BYTES * IDS_A_READ)
    return iter([read[at : at + RANDOM_BYTES].hex() for at in range(0, len(read), RANDOM_BYTES)])


def _forget_random() -> None:
    global _random
    _random = iter(())


_random: Iterator[str] = iter(())
os.register_at_fork(after_in_child=_forget_random)  # or two workers would hand out the same ids


COMPLETION, RESPONSE, MESSAGE = "chatcmpl-", "resp_", "msg_"
"""Prefixes of an answer's id in each API; the rest of the id is the same in all of them (ADR 27)."""


def answer_id(completion_id: str, prefix: str = MESSAGE) -> str:
    """Converts a completion's id to another prefix; with `msg_` it is the id of its first choice's message, too."""
    return prefix + completion_id.removeprefix(COMPLETION)


def completion_of(name: str) -> str:
    """Converts an answer's id with any of the prefixes to the id of its completion; others are returned unchanged."""
    prefix = next((each for each in (RESPONSE, MESSAGE) if name.startswith(each)), "")
    return COMPLETION + name.removeprefix(prefix) if prefix else name


def artifact_id(content: str) -> str:
    """Returns the id of an artifact, the same for the same content (guarantee §4): `art_` and 64 bits of its SHA-256.
    Outer white space is ignored: it comes and goes as a text is pasted, attached, or read from a file."""
    return ARTIFACT + content_digest(content.strip())[:16]


def content_digest(content: str) -> str:
    """Returns the SHA-256, in hex, of the text in UTF-8; lone surrogates are encoded distinctly, never an error."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
