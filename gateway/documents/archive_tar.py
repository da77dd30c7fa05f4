"""TAR archives, plain or packed by gzip, bzip2 or xz, and single packed files (guarantee §14.9)."""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from typing import IO, cast

from gateway.documents.document import LeftOut, UnreadableDocument
from gateway.documents.nested_documents import MAX_MEMBER_BYTES, NestedPlace, listing, why_not
from gateway.documents.packages import BROKEN_FILE, reading
from gateway.documents.sandbox_worker import tell_progress

MAX_TAR_ENTRIES = 100_000
PACKED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
MAGIC_BYTES = 8


class _BoundedArchive(io.RawIOBase):
    """The unpacked bytes of an archive, up to a bound."""

    def __init__(self, inner: IO[bytes], most: int) -> None:
        super().__init__()
        self._inner, self._most = inner, most

    def read(self, size: int = -1) -> bytes:
        """Reads unpacked bytes. Raises UnreadableDocument: they would exceed the bound."""
        left = self._most - self._inner.tell()
        if not 0 <= size <= MAX_MEMBER_BYTES or left <= 0:
            raise UnreadableDocument("it unpacks to far more than it is")
        return self._inner.read(min(size, left))

    def seek(self, position: int, whence: int = 0) -> int:
        """Moves to a position. Raises UnreadableDocument: the position is beyond the bound."""
        if whence or not 0 <= position <= self._most:
            raise UnreadableDocument("it unpacks to far more than it is")
        return self._inner.seek(position)

    def tell(self) -> int:
        """Returns the position in the unpacked bytes."""
        return self._inner.tell()


def read_nested(raw: bytes, nesting: NestedPlace) -> str:
    """Reads the archive's listing and the texts of its files, sorted by path, or the single packed file, within the
    bounds that are left. Raises UnreadableDocument: it is no such archive, or unpacks to too much."""
    most, source = nesting.budget.unpacked, io.BytesIO(raw)
    unpacked = _BoundedArchive(_opened(source), most)
    with reading("TAR archive", tarfile.TarError):
        try:
            with tarfile.open(fileobj=cast(IO[bytes], unpacked), mode="r:") as archive:
                return _archive(archive, nesting, lambda: tell_progress(source.tell(), len(raw)))
        except tarfile.ReadError:
            if raw.startswith(tuple(magic for magic, _ in PACKED)):
                return _single(raw, nesting)
            raise
        finally:
            nesting.budget.unpacked = most - unpacked.tell()


def _opened(source: io.BytesIO) -> IO[bytes]:
    head = bytes(source.getbuffer()[:MAGIC_BYTES])
    opener = next((opener for magic, opener in PACKED if head.startswith(magic)), None)
    return cast(IO[bytes], opener(source, "rb")) if opener else source


def _single(raw: bytes, nesting: NestedPlace) -> str:
    """Reads the single packed file, as a member without a name of its own."""
    most = min(MAX_MEMBER_BYTES, nesting.budget.unpacked)
    with _opened(io.BytesIO(raw)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnreadableDocument("it unpacks to far more than it is")
    text = nesting.member("content", content)
    if not text:
        raise UnreadableDocument("what is packed in it is no text")
    return text


def _archive(archive: tarfile.TarFile, nesting: NestedPlace, tell: Callable[[], None]) -> str:
    names: list[tuple[str, int]] = []
    texts: list[tuple[str, str]] = []
    try:
        for member in archive:
            tell()
            if member.isdir():
                continue
            names.append((member.name, member.size))
            if len(names) > MAX_TAR_ENTRIES:
                nesting.budget.notes.append(LeftOut(f"Only the first {MAX_TAR_ENTRIES:,} files were looked at."))
                break
            if text := _member(archive, member, nesting):
                texts.append((member.name, text))
    except (*BROKEN_FILE, tarfile.TarError, UnreadableDocument):
        if not texts:
            raise
        missing = "The archive is damaged or too large: what stands behind its last file is missing."
        nesting.budget.notes.append(LeftOut(missing))
    return "\n\n".join([listing(sorted(names)), *(text for _, text in sorted(texts))])


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo, nesting: NestedPlace) -> str:
    why = None if member.isreg() and not member.issparse() else "links or devices"
    why = why or why_not(member.name) or ("too large" if member.size > MAX_MEMBER_BYTES else None)
    if why is not None:
        nesting.leave_out(why, member.name)
        return ""
    file = archive.extractfile(member) if nesting.can_take(member.name) else None
    return nesting.member(member.name, file.read()) if file is not None else ""
