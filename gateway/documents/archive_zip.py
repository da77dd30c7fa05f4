"""ZIP archives, read as folders: a listing, then each file's text (guarantee §14.9)."""

import io
import stat
import zipfile
import zlib
from lzma import LZMAError

from gateway.documents.document import UnreadableDocument
from gateway.documents.nested_documents import MAX_MEMBER_BYTES, NestedPlace, listing, why_not
from gateway.documents.packages import reading
from gateway.documents.sandbox_worker import tell_progress

MAX_ZIP_ENTRIES = 200_000
DIRECTORY_ENTRY = b"PK\x01\x02"
BOMB_BYTES, BOMB_RATIO = 16 * 2**20, 300
"""A member is a bomb if its declared size exceeds so many bytes, and so many times its packed size."""
ZIP_ENCRYPTED_FLAG = 1


def read_nested(raw: bytes, nesting: NestedPlace) -> str:
    """Reads the archive's listing and the texts of its files, sorted by path, within the bounds that are left.
    Raises UnreadableDocument: it is no ZIP, or holds too many files."""
    if raw.count(DIRECTORY_ENTRY) > MAX_ZIP_ENTRIES:
        raise UnreadableDocument(f"it holds more than {MAX_ZIP_ENTRIES:,} files")
    with reading("ZIP archive"), zipfile.ZipFile(io.BytesIO(raw)) as archive:
        files = sorted((each for each in archive.infolist() if not each.is_dir()), key=lambda each: each.filename)
        parts = [listing([(each.filename, each.file_size) for each in files])]
        for number, each in enumerate(files):
            tell_progress(number, len(files))
            parts.append(_member(archive, each, nesting))
    return "\n\n".join(filter(None, parts))


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, nesting: NestedPlace) -> str:
    why = _why_not(member)
    if why is not None:
        nesting.leave_out(why, member.filename)
        return ""
    if not nesting.can_take(member.filename):
        return ""
    most = min(MAX_MEMBER_BYTES, nesting.budget.unpacked)
    try:
        with archive.open(member) as file:
            content = file.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, LZMAError, ValueError, RuntimeError, OSError, EOFError, KeyError):
        # RuntimeError: it is encrypted; NotImplementedError, a kind of it: packed in a way that Python does not know
        nesting.leave_out("damaged or packed in an unknown way", member.filename)
        return ""
    nesting.budget.unpacked -= len(content)
    if len(content) > most:
        nesting.leave_out("too large", member.filename)
        return ""
    return nesting.member(member.filename, content)


def _why_not(member: zipfile.ZipInfo) -> str | None:
    if stat.S_ISLNK(member.external_attr >> 16):
        return "links"
    if member.flag_bits & ZIP_ENCRYPTED_FLAG:
        return "protected by a password"
    if member.file_size > BOMB_BYTES and member.file_size > BOMB_RATIO * max(1, member.compress_size):
        return "unpacking to far more than they are"
    return why_not(member.filename)
