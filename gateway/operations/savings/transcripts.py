"""The transcripts of a folder: files of Claude Code, of Codex, and of OpenAI's messages."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from gateway.base import jsons
from gateway.operations.savings import chats, claude_code, codex
from gateway.operations.savings.recording import Session

Json = dict[str, Any]
ENDINGS = (".jsonl", ".json")
FIRST_LINES = 20
"""Of a file, by which is told what it is."""
MAX_FILE_BYTES = 2**29


class Reader(Protocol):
    """Reads the transcripts of one kind."""

    def is_transcript(self, lines: list[Json]) -> bool: ...

    def sessions(self, name: str, lines: list[Json]) -> list[Session]: ...


READERS: tuple[Reader, ...] = (claude_code, codex, chats)


def transcripts(folder: Path) -> list[Path]:
    """The files that may be transcripts, below a folder; a file is itself.

    Raises:
        ValueError: there is no such folder, or it has none.
    """
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"--replay: {folder} is no folder")
    found = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
    if not found:
        raise ValueError(f"--replay: {folder} has no file that ends in {' or '.join(ENDINGS)}")
    return found


def read_sessions(path: Path, name: str) -> list[Session]:
    """The sessions of a file.

    Raises:
        ValueError: it is no transcript; says why.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes")
    lines = list(_objects(path))
    for reader in READERS:
        if reader.is_transcript(list(islice(lines, FIRST_LINES))):
            found = reader.sessions(name, lines)
            if not found:
                raise ValueError("has no answered request")
            return found
    raise ValueError("is no transcript of Claude Code, Codex or OpenAI's messages")


def _objects(path: Path) -> Iterator[Json]:
    """The objects of a file: its lines, or the one value that it is. A line that is none is passed over, as the last
    one of a session under way."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        try:
            value = jsons.loads(text)
        except ValueError as error:
            raise ValueError("is no JSON") from error
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))
        return
    for line in text.split("\n"):
        try:
            value = jsons.loads(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
