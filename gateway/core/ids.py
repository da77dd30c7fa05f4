"""Identifiers: unguessable where they are handed out, content digests where the same content must be found again."""

import hashlib
import os
import time
from collections.abc import Iterator

RANDOM_BYTES = 10
IDS_A_READ = 256
ARTIFACT, FILE = "art_", "file-"
"""How ids of artifacts begin, and those of files, here and at OpenAI; Anthropic's begin with `file_`."""


def new_id(prefix: str) -> str:
    """`prefix`, the time in milliseconds as twelve hex digits, and 80 random bits as twenty, e.g. `conv_019ab3…`.

    Rows that are written together so stand together in the indexes of a database: with random ids alone each of them
    would change a page of its own. Nothing reads the time in an id.
    """
    global _random
    try:
        bits = next(_random)
    except StopIteration:
        _random = _read_random()
        bits = next(_random)
    return f"{prefix}{time.time_ns() // 1_000_000:012x}{bits}"


def _read_random() -> Iterator[str]:
    """Random bits for many ids: each read of the system's lets other threads have the interpreter first."""
    read = os.urandom(RANDOM_BYTES * IDS_A_READ)
    return iter([read[at : at + RANDOM_BYTES].hex() for at in range(0, len(read), RANDOM_BYTES)])


def _forget_random() -> None:
    global _random
    _random = iter(())


_random: Iterator[str] = iter(())
os.register_at_fork(after_in_child=_forget_random)  # or two workers would hand out the same ids


COMPLETION, RESPONSE, MESSAGE = "chatcmpl-", "resp_", "msg_"
"""Prefixes of an answer's id in each API: it is the same answer with another (ADR 27)."""


def answer_id(completion_id: str, prefix: str = MESSAGE) -> str:
    """The id of an answer under another prefix; that of its first choice's message is `msg_` and the same."""
    return prefix + completion_id.removeprefix(COMPLETION)


def completion_of(name: str) -> str:
    """The id of the completion that an answer's id under any of the prefixes stands for."""
    prefix = next((each for each in (RESPONSE, MESSAGE) if name.startswith(each)), "")
    return COMPLETION + name.removeprefix(prefix) if prefix else name


def artifact_id(content: str) -> str:
    """Stable for the same content (guarantee §4): `art_` and 64 bits of the SHA-256 of all but outer white space, which
    is lost and won as a text is pasted, attached, or read from a file."""
    return ARTIFACT + content_digest(content.strip())[:16]


def content_digest(content: str) -> str:
    """SHA-256 in hex of the text's UTF-8 form; lone surrogates are kept apart, never an error."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
